package pty

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

func newParser(cols, rows int) *parser { return &parser{screen: newScreen(cols, rows)} }

// What stands on the screen after the bytes of real programs.
func TestScreen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"text", "hello\r\nworld", "hello\nworld"},
		{"wraps", "abcdefghijk", "abcdefghij\nk"},
		{"wraps late", "abcdefghij\r\nk", "abcdefghij\nk"},
		{"scrolls", "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"},
		{"moves", "\x1b[2;3Hx\x1b[1;1Hy\x1b[3Gz", "y z\n  x"},
		{"colours", "\x1b[1;38;2;1;2;3mred\x1b[0m", "red"},
		{"erases a line", "hello\x1b[3G\x1b[K", "he"},
		{"erases before", "hello\x1b[3G\x1b[1K", "   lo"},
		{"erases all", "hello\r\nx\x1b[2J\x1b[H.", "."},
		{"inserts and deletes", "abcd\r\x1b[2@\x1b[4G\x1b[P", "  acd"[:3] + "cd"},
		{"lines", "1\r\n2\r\n3\x1b[2;1H\x1b[L", "1\n\n2\n3"},
		{"region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n", "1\n3\n\n4"},
		{"backspace", "ab\b\bx", "xb"},
		{"tab", "a\tb", "a       b"},
		{"wide", "日本", "日本"},
		{"combining", "e\u0301x", "ex"},
		{"other screen", "one\x1b[?1049htwo\x1b[?1049l", "one"},
		{"other screen is clear", "one\x1b[?1049h\x1b[Htwo", "two"},
		{"saves", "ab\x1b7cd\x1b8x", "abxd"},
		{"title", "\x1b]0;a title\x07x", "x"},
		{"title, other end", "\x1b]0;a title\x1b\\x", "x"},
		{"a sequence in another", "\x1b[1\x1b[2;2Hx", "\n x"},
		{"a string that never ends", "\x1b]0;abc", ""},
		{"reset", "abc\x1bcx", "x"},
		{"broken text", "a\xffb\xe2\x82c", "a\ufffdb\ufffdc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			whole := newParser(10, 4)
			out, _ := whole.feed([]byte(tc.in))
			if got := whole.screen.text(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.name != "a string that never ends" && string(out) != tc.in {
				t.Errorf("viewers got %q", out)
			}
			// Nothing depends on where reads cut.
			bytewise, all := newParser(10, 4), ""
			for _, c := range []byte(tc.in) {
				out, _ := bytewise.feed([]byte{c})
				all += string(out)
			}
			if got := bytewise.screen.text(); got != tc.want || all != string(out) {
				t.Errorf("byte by byte: %q, viewers %q", got, all)
			}
		})
	}
}

// Questions are answered, and taken out of what viewers get.
func TestQuestions(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ab\x1b[6n":               "\x1b[1;3R",
		"\x1b[?6n":                "\x1b[?1;1;1R",
		"\x1b[5n":                 "\x1b[0n",
		"\x1b[c":                  "\x1b[?62;22c",
		"\x1b[0c":                 "\x1b[?62;22c",
		"\x1b[>c":                 "\x1b[>0;276;0c",
		"\x1b[?u":                 "",
		"\x1b[>q":                 "",
		"\x1b[18t":                "\x1b[8;4;10t",
		"\x1b[14t":                "",
		"\x1b[?2004h\x1b[?2004$p": "\x1b[?2004;1$y",
		"\x1b[?25$p":              "\x1b[?25;1$y",
		"\x1b[?2026$p":            "\x1b[?2026;0$y",
		"\x1b]11;?\x07":           "\x1b]11;rgb:1010/1010/1010\x1b\\",
		"\x1b]10;?\x1b\\":         "\x1b]10;rgb:d0d0/d0d0/d0d0\x1b\\",
		"\x1b]52;c;?\x07":         "",
		"\x1bP+q544e\x1b\\":       "",
		"\x1bP$qm\x1b\\":          "",
	} {
		p := newParser(10, 4)
		out, answer := p.feed([]byte(in))
		if string(answer) != want {
			t.Errorf("%q is answered by %q, want %q", in, answer, want)
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(string(out), "ab"), "\x1b[?2004h")
		if rest != "" {
			t.Errorf("%q: viewers got %q", in, out)
		}
	}
}

// What is no question passes.
func TestNoQuestions(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"\x1b]11;#000000\x07", "\x1b]52;c;YQ==\x07", "\x1b[2 q", "\x1b[>1u", "\x1b[<u", "\x1b[22;0t", "\x1b[=1u", "\x1b(B", "\x1b]8;;http://x\x07"} {
		p := newParser(10, 4)
		if out, answer := p.feed([]byte(in)); string(out) != in || len(answer) > 0 {
			t.Errorf("%q: viewers got %q, the program %q", in, out, answer)
		}
	}
}

// A fresh viewer is brought into the modes that the program has set.
func TestModes(t *testing.T) {
	t.Parallel()
	p := newParser(10, 4)
	_, _ = p.feed([]byte("\x1b[?1049h\x1b[?25l\x1b[?1000;1006h\x1b[?2004h\x1b[?2026h"))
	if got, want := string(p.modes.restore()), "\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h"; got != want {
		t.Errorf("got %q", got)
	}
	_, _ = p.feed([]byte("\x1b[?1049l\x1b[?25h\x1b[?1000;1006;2004l"))
	if got := p.modes.restore(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestRing(t *testing.T) {
	t.Parallel()
	r := ring{limit: 10}
	for i := range 100 {
		r.write(fmt.Appendf(nil, "%02d", i))
	}
	if r.end() != 200 || r.oldest() != 190 {
		t.Errorf("it keeps %d to %d", r.oldest(), r.end())
	}
	for _, tc := range []struct {
		from int64
		n    int
		want string
		at   int64
	}{{0, 4, "9596", 190}, {194, 2, "97", 194}, {198, 9, "99", 198}, {200, 9, "", 200}} {
		if got, at := r.read(tc.from, tc.n); string(got) != tc.want || at != tc.at {
			t.Errorf("%d: %q at %d", tc.from, got, at)
		}
	}
	r.write([]byte(strings.Repeat("x", 25) + "end"))
	if got, at := r.read(0, 99); string(got) != "xxxxxxxend" || at != 218 {
		t.Errorf("%q at %d", got, at)
	}
}

// No output of a program stops the reader, takes it out of its screen, or costs
// viewers a byte that is no question; where reads cut makes no difference.
func FuzzOutput(f *testing.F) {
	for _, s := range []string{"hello\r\n\x1b[2J", "\x1b[?1049h\x1b[6n日本", "\x1b]0;x\x1b\x1b[1;1H", "\x1b[9999999999999999999;;;A", "\x1bP+q\x1b", "\x1b[3;2r\x1b[-1S"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		p, q := newParser(7, 3), newParser(7, 3)
		out, answer := p.feed(in)
		at := min(int(cut), len(in))
		first, said := q.feed(in[:at])
		all, heard := string(first), string(said)
		rest, said := q.feed(in[at:])
		all, heard = all+string(rest), heard+string(said)
		if all != string(out) || heard != string(answer) || p.screen.text() != q.screen.text() {
			t.Errorf("cut at %d: %q %q %q, whole %q %q %q", at, all, heard, q.screen.text(), out, answer, p.screen.text())
		}
		if len(p.held) > maxString+2 || len(out) > len(in) {
			t.Errorf("%d bytes held, %d of %d out", len(p.held), len(out), len(in))
		}
		p.screen.resize(2, 2)
		_, _ = p.feed(in)
	})
}

// No key is left in a text, however it is written.
func FuzzPaste(f *testing.F) {
	for _, s := range []string{"\x1b[201~\r", "a\r\nb", "\x9b201~", "\u009b201~", "\x00\x03\x04\x7f", "tab\there", "\u2028x", "@/etc/passwd"} {
		f.Add(s)
	}
	f.Fuzz(checkPaste)
}

// D-17: the corpus of hostile texts, as they are and in the frame of a notice.
func TestHostilePastes(t *testing.T) {
	t.Parallel()
	for _, h := range noticetest.Corpus(t) {
		checkPaste(t, h.Text)
		checkPaste(t, notice.Frame(notice.Notice{ID: "n", Source: notice.SourceWatch, Title: h.Text, Text: h.Text}))
	}
}

func checkPaste(t *testing.T, text string) {
	clean := promptText(agent.Prompt{Parts: []agent.Part{{Kind: agent.PartNotice, Text: text}}})
	for _, r := range clean {
		if r != '\n' && unicode.IsControl(r) {
			t.Errorf("%q leaves %q", text, clean)
		}
	}
	if strings.Contains(clean, "@/") {
		t.Errorf("%q names a file", clean)
	}
	if Clean(clean) != clean {
		t.Errorf("%q is not clean", clean)
	}
	typed, err := keys(text, true)
	if err != nil {
		return
	}
	body := strings.TrimSuffix(strings.TrimPrefix(string(typed), pasteBegin), pasteEnd)
	if strings.ContainsAny(body, "\x1b\r\x03") || len(typed) != len(body)+12 {
		t.Errorf("typed %q", typed)
	}
	if line, err := keys(text, false); err == nil && strings.ContainsAny(string(line), "\r\n\x1b") {
		t.Errorf("typed %q", line)
	}
}

func TestShows(t *testing.T) {
	t.Parallel()
	long := "<watch-event name=\"notes\">\nADDED todo and more of it\n</watch-event>\nThis is a watch notification"
	for _, tc := range []struct {
		name, before, after, text string
		want                      bool
	}{
		{"as it is", "> ", "> hello", "hello", true},
		{"nothing", "> ", "> ", "hello", false},
		{"framed and broken", "| > |", "| > <watch-event name=\"no |\n| tes\"> ADDED todo and m |", long, true},
		{"collapsed", "> ", "> [Pasted text #1 +3 lines]", long, true},
		{"was there before", long + "\n> ", long + "\n> \n", long, false},
		{"was there before, and is again", long + "\n> ", long + "\n> " + long, long, true},
		{"only its end", "> ", "> …a watch notification", long, true},
		{"a dialog instead", "> ", "Do you want to proceed? 1. Yes", long, false},
		{"no letters", "> ", "> ???", "???", false},
		{"other letters", "> ", "> привет", "привет", true},
	} {
		if got := shows(tc.before, tc.after, tc.text); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestUnmoved(t *testing.T) {
	t.Parallel()
	const text = "<watch-event name=\"notes\">\nADDED todo\n</watch-event>"
	before := "welcome to it\n? for shortcuts\n────\n> Type your message\n────\n ~/dir  model\n auto mode on"
	pasted := "welcome to it\nPress Ctrl-O to expand pasted text\n────\n> [Pasted text: 3 lines]\n────\n ~/dir  model\n paste again to expand"
	for name, tc := range map[string]struct {
		now  string
		want bool
	}{
		"the same":           {pasted, true},
		"hints have gone":    {"welcome to it\n────\n> [Pasted text: 3 lines]\n────\n ~/dir  model\n auto mode on", true},
		"its line has grown": {"────\n> [Pasted text: 3 lines]\n|         |\n────\n ~/dir  model\n auto mode on", true},
		"it was taken":       {"welcome to it\n> [Pasted text: 3 lines]\nheard it\n────\n> Type your message\n────\n ~/dir  model\n auto mode on", false},
		"and nothing said":   {"welcome to it\n> [Pasted text: 3 lines]\n────\n>\n────\n ~/dir  model\n paste again to expand", false},
		"nor shown":          {before, false},
		"a dialog":           {"welcome to it\n> [Pasted text: 3 lines]\n────\nDo you want to proceed?\n1. Yes", false},
		"and as high":        {"welcome to it\n> [Pasted text: 3 lines]\n────\n Allow it?\n 1. Yes", false},
		"only a frame":       {"────\n ~/dir  model\n paste again to expand", false},
		"nothing":            {"", false},
	} {
		if got := unmoved(before, pasted, tc.now, text); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	lines := strings.Repeat("one line of it, as every other\n", 9)
	if unmoved("> ask", "> "+lines+"footer", "> "+lines+"> ask\nfooter", lines) {
		t.Error("it was taken, and all its lines are the same")
	}
	if unmoved("$", "$ true", "$ true\n$", "true") {
		t.Error("a shell has run it")
	}
	if !unmoved("$", "$ true", "$ true", "true") {
		t.Error("a shell has not run it")
	}
}

func TestDraft(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"": false, "a": true, "a\r": false, "a\x7f": false, "ab\x7f": true, "a\x03": false, "a\x15": false, "a\rb": true,
		"\x1b[A\x1b[B\x1bOP": false, "\x1b[<0;10;10M": false, "\x1b[I": false, "\x1b[200~a\rb\x1b[201~": true, "\x1b[200~a\x1b[201~\r": false, "ü\x7f": false,
	} {
		var d draft
		for _, c := range []byte(in) { // in as many pieces as there can be
			d.typed([]byte{c})
		}
		if d.begun() != want {
			t.Errorf("%q: %t", in, d.begun())
		}
	}
}

func TestCleanKeepsText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\r\nb\rc": "a\nb\nc", "x\ty": "x y", "日本 ü": "日本 ü", "a\x1b[31mb": "a[31mb", "\xff": "\ufffd",
	} {
		if d := cmp.Diff(want, Clean(in)); d != "" {
			t.Error(d)
		}
	}
}
