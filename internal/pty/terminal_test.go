package pty

import "testing"

// The note of a program's end stands behind its last words, not over them; of a
// program that was on the alternate screen it stands behind what was there before.
func TestEndKeepsTheLastWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"one\r\ntwo\r\nthree":                  "one\ntwo\nthree\nover",
		"one\r\ntwo\x1b[?1049h\x1b[Hpicture\r": "one\ntwo\nover",
	} {
		term := NewTerminal(nil)
		term.take([]byte(in))
		term.end("over")
		if got := term.Text(); got != want {
			t.Errorf("%q: %q", in, got)
		}
		term.Close()
	}
}
