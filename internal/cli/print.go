package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ossicle/ossicle/watch"
)

// printNotice prints a head line and the notice's lines under it.
func printNotice(w io.Writer, n watch.Notice) error {
	head := n.Watch
	if n.URI != "" {
		head += " " + n.URI
	}
	if n.Kind != watch.KindEvents {
		head = string(n.Kind) + " " + head
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", n.Time.Local().Format("15:04:05"), printable(head))
	for _, line := range n.Lines {
		b.WriteString("  " + printable(line) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeJSON prints one JSON value and a newline. Text from outside stays data:
// the encoder escapes what a terminal would act on.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// newTable lines columns up.
func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
}

// printable makes text from outside safe for a terminal: control characters
// other than newline and tab become visible.
func printable(s string) string {
	clean := func(r rune) bool {
		return r == '\n' || r == '\t' || r >= 0x20 && r != 0x7f && (r < 0x80 || r > 0x9f) && !bidirectional(r)
	}
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if clean(r) {
			out = append(out, r)
		} else {
			out = append(out, '\uFFFD')
		}
	}
	return string(out)
}

// bidirectional reports whether a rune reorders the text around it.
func bidirectional(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
}

// counted counts things: "1 event", "2 events"; with a verb behind it "1 row waits",
// "2 rows wait", where verbs has both.
func counted[N ~int | ~int64 | ~uint64](n N, what string, verbs ...string) string {
	form := 0
	if n != 1 {
		what, form = what+"s", 1
	}
	text := fmt.Sprintf("%d %s", n, what)
	if form < len(verbs) {
		text += " " + verbs[form]
	}
	return text
}

// firstLine is the first line of s, cut at n runes.
func firstLine(s string, n int) string {
	runes := []rune(s)
	for i, r := range runes {
		if r == '\n' {
			runes = runes[:i]
			break
		}
	}
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}
