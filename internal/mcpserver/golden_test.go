package mcpserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The frames of one conversation over a pipe, in both eras.
func TestGoldenConversation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &Options{Title: "Ears", Instructions: "Watch memo://notes."})
	p := f.connect(t.Context(), t)
	var b strings.Builder
	say := func(line string, answers int) {
		b.WriteString("> " + line + "\n")
		p.send(line)
		for range answers {
			b.WriteString("< " + p.next().raw + "\n")
		}
	}
	say(modernCall("1", "server/discover", ""), 1)
	say(initializeCall("2", "2025-11-25"), 1)
	say(notification("notifications/initialized", ""), 0)
	say(modernCall("3", "tools/list", ""), 1)
	say(legacyCall("4", "resources/list", ""), 1)
	say(modernCall("5", "resources/list", ""), 1)
	say(modernCall("6", "resources/templates/list", ""), 1)
	say(listenCall(`"L"`, "memo://notes", "memo://nothing"), 1)
	say(legacyCall("7", "resources/subscribe", `"uri":"memo://nothing"`), 1)
	say(modernCall("8", "tools/call", `"name":"memo_set","arguments":{"key":"id","value":1915883588174806058}`), 2)
	say(modernCall("9", "resources/read", `"uri":"memo://notes"`), 1)
	say(legacyCall("10", "resources/read", `"uri":"memo://notes"`), 1)
	say(notification("notifications/cancelled", `"requestId":"L"`), 0)
	say(modernCall("11", "resources/read", `"uri":"memo://note"`), 1)
	say(modernCall("12", "tools/call", `"name":"memo_get","arguments":{"key":"di"}`), 1)
	say("oops", 1)
	p.close()

	// An update and the answer to what caused it come in either order.
	got := sortPairs(b.String())
	path := filepath.Join("testdata", "conversation.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// sortPairs puts the answer before the update where two frames were awaited.
func sortPairs(text string) string {
	lines := strings.Split(text, "\n")
	for i := 1; i < len(lines); i++ {
		if strings.Contains(lines[i], `"result"`) && strings.Contains(lines[i-1], "notifications/resources/updated") {
			lines[i], lines[i-1] = lines[i-1], lines[i]
		}
	}
	return strings.Join(lines, "\n")
}
