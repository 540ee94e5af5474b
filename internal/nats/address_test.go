package nats

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want address
	}{
		{"nats://h", address{[]string{"nats://h:4222"}, false, "", "nats://h:4222"}},
		{"tls://u:p@h:1/?prefix=x", address{[]string{"tls://u:p@h:1"}, true, "x", "tls://h:1"}},
		{"nats://t0ken@[::1], nats://b?prefix=x", address{[]string{"nats://t0ken@[::1]:4222", "nats://b:4222"}, false, "x", "nats://[::1]:4222,nats://b:4222"}},
	} {
		got, err := parse(c.text)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(address{})); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.text, err, diff)
		}
	}
}

// An address that is wrong may still have a password in it.
func TestWrongAddressesAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"nats://:s3cret/x@h:1", "nats://u:s3cret@h:port", "nats://u:s3cret@h/x", "http://u:s3cret@h", "nats://h?password=s3cret", "nats://u:s3cret%zz@h", "s3cret",
		"nats:s3cret", "nats:///#s3cret", "nats://h#s3cret", "nats://a?prefix=s3cret,nats://b?prefix=x", "nats://h?prefix=s3cret*", "nats://h?prefix=s3cret.",
		"tls://u:s3cret@a,nats://b", "", ",", strings.Repeat("nats://s3cret@h,", 17) + "nats://h",
	} {
		_, err := Open(text, nil)
		if err == nil || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"nats://h", "tls://u:p@h:1?prefix=x", "nats://[::1]:2/", "nats://%zz", "nats://h:99999", "nats://u@h,nats://b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parse(text)
		if err != nil {
			return
		}
		if len(a.servers) == 0 || len(a.servers) != len(strings.Split(a.name, ",")) || a.secure != strings.HasPrefix(a.name, "tls://") {
			t.Errorf("%q: %+v", text, a)
		}
		if s, err := subject(a.prefix); err == nil && strings.ContainsAny(s, " *>\t\r\n") {
			t.Errorf("%q: subject %q", text, s)
		}
	})
}
