package kubernetes

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestObjectNames(t *testing.T) {
	t.Parallel()
	for session, want := range map[string]string{
		"a": "agt-a", "ses-7": "agt-ses-7", strings.Repeat("a", 48): "agt-" + strings.Repeat("a", 48),
		"ses_7": "", "A": "", "a.b": "", "-a": "", "a-": "", strings.Repeat("a", 49): "", "x-1": "", "": "", "../a": "", "a\n": "", "№": "",
	} {
		got := objectName(session)
		if want != "" && got != want {
			t.Errorf("%q: %s", session, got)
		}
		if want == "" && (!strings.HasPrefix(got, "agt-x-") || len(got) != len("agt-x-")+26) {
			t.Errorf("%q: %s", session, got)
		}
	}
}

// Whatever the id of a session is, it is a valid name and label, the room for the
// end of a pod's name included, and of no other session.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "x-", "x-" + digest("a"), "ses_1", "A", "agentfy-worker", strings.Repeat("a", 300), "\xff", "a,b=c", "kube-root-ca.crt"} {
		f.Add(s, "b")
	}
	f.Add("a", "x-"+digest("a"))
	f.Add("no label", "x-"+digest("no label"))
	f.Fuzz(func(t *testing.T, a, b string) {
		name := objectName(a)
		if !isName(name) || len(name) > maxName || name == policyName || !isName(name+"-abcde") {
			t.Errorf("%q: %q", a, name)
		}
		if v := labelValue(a); !isLabelValue(v) {
			t.Errorf("%q: label %q", a, v)
		}
		if a != b && (objectName(a) == objectName(b) || labelValue(a) == labelValue(b)) {
			t.Errorf("%q and %q are one", a, b)
		}
	})
}

// A text from outside becomes one bounded line of printable characters.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"", "a\nb", "\x1b[31mred", strings.Repeat("é", 10000), "\xff\xfe", "\u202eevil", strings.Repeat(" x", 600)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := plain(s)
		if !utf8.ValidString(got) || len(got) > maxText+len("…") || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e }) {
			t.Errorf("%q: %q", s, got)
		}
		if plain(got) != got && len(got) < maxText {
			t.Errorf("%q is not stable", got)
		}
	})
}

func TestPlainKeepsTheEnd(t *testing.T) {
	t.Parallel()
	if got := plain(strings.Repeat("noise ", 10000) + "the reason"); !strings.HasSuffix(got, "the reason") || !strings.HasPrefix(got, "…") {
		t.Error(got)
	}
}
