package attach_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/attach"
)

// The page shows the statuses and the reasons of the code.
//
//
func TestDocumentedTables(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/attachments.md")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("<!-- reasons -->\n| reason | means | status of a server that was left out |\n|---|---|---|\n")
	for _, i := range attach.Reasons() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", i.Reason, i.Text, i.Status)
	}
	b.WriteString("<!-- /reasons -->\n")
	if !strings.Contains(string(page), b.String()) {
		t.Errorf("docs/attachments.md needs this table:\n%s", b.String())
	}
	for _, s := range []attach.Status{attach.Active, attach.Connected, attach.Delivered, attach.Failed, attach.Filtered, attach.Unavailable, attach.Unknown} {
		row := ""
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "| "+s.Label()+" |") {
				row = line
			}
		}
		if !strings.HasSuffix(row, "| "+string(s.Tone())+" |\n") {
			t.Errorf("docs/attachments.md: the row of %s is %q", s, row)
		}
	}
}
