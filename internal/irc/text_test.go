package irc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"\x02bold\x02 \x1ditalic\x1d":              "bold italic",
		"\x0304,12red\x03 \x031x \x03,5 \x0312345": "red x ,5 345",
		"\x04ff0000,00ff00hex\x04":                 "hex",
		"a\x00b\x07c\x1b[31md\x7f":                 "abc[31md",
		"tab\there\u00a0and\u2028there":            "tab here and there",
		"\u202eevil\u2066\u200b\ufeff":             "evil",
		"👩\u200d👩 ok":                              "👩\u200d👩 ok",
		"latin\xe9":                                "latin\ufffd",
		"\u0085c1\u009b":                           "c1",
		"tags\U000e0041\U000e0042":                 "tags",
	} {
		if got := plain(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

// N-14: long replies are split between words, and within none that fits.
func TestSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		limit int
		most  int
		want  []string
	}{
		{"", 10, 3, nil},
		{" \n\r\n\x02\n", 10, 3, nil},
		{"one", 10, 3, []string{"one"}},
		{"one\n\ntwo\r\nthree\rfour", 10, 9, []string{"one", "two", "three", "four"}},
		{"one two three four", 10, 9, []string{"one two", "three four"}},
		{"one two   three", 9, 9, []string{"one two", "three"}},
		{"exactly 10", 10, 9, []string{"exactly 10"}},
		{"exactly 10 and", 10, 9, []string{"exactly 10", "and"}},
		{"abcdefghijklmno", 10, 9, []string{"abcdefghij", "klmno"}},
		{"a bcdefghijklmno", 10, 9, []string{"a bcdefghi", "jklmno"}}, // not a line of one letter
		{"日本語日本語", 10, 9, []string{"日本語", "日本語"}},
		{"  indented\n\tcode", 20, 9, []string{"  indented", "    code"}},
		{"1\n2\n3\n4", 10, 2, []string{"1", "2", "… (2 more lines)"}},
		{"1\n2\n3", 10, 2, []string{"1", "2", "… (1 more line)"}},
		{"1\n2", 10, 2, []string{"1", "2"}},
		{strings.Repeat(" ", 30) + "x", 10, 9, []string{strings.Repeat(" ", 10), "x"}},
	} {
		if got := split(c.text, c.limit, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%q at %d: got %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("one two three\nfour", 10, 3)
	f.Add("日本\u202e語\x1b[0m\r\nQUIT :x", 7, 100)
	f.Fuzz(func(t *testing.T, text string, limit, most int) {
		limit, most = 4+abs(limit)%400, 1+abs(most)%50
		got := split(text, limit, most)
		if len(got) > most+1 {
			t.Fatalf("%d lines, not %d", len(got), most)
		}
		for i, s := range got {
			if s == "" || !utf8.ValidString(s) || (i < most && len(s) > limit) || strings.ContainsFunc(s, unicode.IsControl) {
				t.Fatalf("line %d is %q", i, s)
			}
		}
		if len(got) > most {
			var n int
			if _, err := fmt.Sscanf(got[most], "… (%d more line", &n); err != nil || n < 1 {
				t.Fatalf("the note is %q", got[most])
			}
			return
		}
		// Nothing but spaces is lost.
		letters := func(s string) string { return strings.ReplaceAll(plain(s), " ", "") }
		if all := letters(lineEnds.Replace(text)); letters(strings.Join(got, "")) != all {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestAddressed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"ossi: hello", "hello"},
		{"ossi, hello", "hello"},
		{"@ossi hello", "hello"},
		{"@ossi: hello", "hello"},
		{"OSSI:hello", "hello"},
		{"  ossi:   hello  ", "hello"},
		{"ossi: ossi: twice", "ossi: twice"},
		{"ossi:", "ossi:"},
		{"@ossi", "@ossi"},
		{"ossi", ""},
		{"ossi hello", ""},
		{"ossia: hello", ""},
		{"ossi_: hello", ""},
		{"@ossi_ hello", ""},
		{"hello ossi: you", ""},
		{"oss: hello", ""},
		{"", ""},
	} {
		got, ok := mapRFC.addressed(c.text, "ossi")
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%q: got %q, %v", c.text, got, ok)
		}
	}
}

func TestMapping(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		m    mapping
		a, b string
		want bool
	}{
		{mapRFC, "A[\\]~", "a{|}^", true},
		{mapStrict, "A[\\]", "a{|}", true},
		{mapStrict, "~", "^", false},
		{mapASCII, "[", "{", false},
		{mapASCII, "ABC", "abc", true},
		{mapRFC, "É", "é", false},
	} {
		if got := c.m.equal(c.a, c.b); got != c.want {
			t.Errorf("%s: %q and %q: %v", c.m, c.a, c.b, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "alice", "[x]", "_a1", "日本"} {
		if !isNick(s) {
			t.Errorf("%q is a nick", s)
		}
	}
	for _, s := range []string{"", "#a", "a b", "a,b", "a!b", "a@b", "irc.test", "1a", "-a", "a\nb", "a:b", "\x02a", strings.Repeat("a", 65), "*"} {
		if isNick(s) {
			t.Errorf("%q is no nick", s)
		}
	}
	for s, want := range map[string]bool{"#a": true, "##b-c": true, "&x": true, "#": false, "a": false, "#a b": false, "#a,#b": false, "#a\n": false, "": false} {
		if isChannel(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
