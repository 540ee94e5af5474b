package redis

import (
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, name, prefix, password string }{
		{"redis://h", "redis://h:6379/0", "", ""},
		{"redis://u:p%40ss@h:1/7?prefix=x", "redis://h:1/7", "x", "p@ss"},
		{"rediss://:p@[::1]:2", "rediss://[::1]:2/0", "", "p"},
	} {
		a, err := parse(c.text)
		if err != nil || a.name != c.name || a.prefix != c.prefix || a.client.Password != c.password || (a.client.TLSConfig != nil) != strings.HasPrefix(c.text, "rediss") {
			t.Errorf("%s: %+v, %v", c.text, a, err)
		}
	}
}

// An address that is wrong may still have a password in it.
func TestWrongAddressesAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis://:s3cret/x@h:1", "redis://u:s3cret@h:port", "redis://u:s3cret@h/x", "redis://u:s3cret@h/-1", "http://u:s3cret@h", "redis://h?password=s3cret",
		"redis://u:s3cret%zz@h", "s3cret", "redis:s3cret", "redis:///0#s3cret", "redis://h#s3cret", "redis://u:s3cret@h/1/2", "",
	} {
		_, err := Open(text, nil)
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"redis://h", "rediss://u:p@h:1/2?prefix=x", "redis://[::1]:2/0", "redis://%zz", "redis://h:99999", "redis://u@/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parse(text)
		if err != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if a.client.Addr == "" || a.client.DB < 0 || !strings.Contains(a.name, a.client.Addr) || strings.Contains(a.name, "@") && u.User != nil {
			t.Errorf("%q: %+v", text, a)
		}
	})
}
