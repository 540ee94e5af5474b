package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/httpserver"
)

// The link with the token is for the terminal of the machine itself.
func TestPageLink(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if _, err := httpserver.TokenFile(file); err != nil {
		t.Fatal(err)
	}
	token, err := httpserver.ReadTokenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		address  string
		terminal bool
		want     string
	}{
		{"http://127.0.0.1:7717", true, "page: http://127.0.0.1:7717/#token=" + token},
		{"https://[::1]:7717", true, "page: https://[::1]:7717/#token=" + token},
		{"http://127.0.0.1:7717", false, "page: http://127.0.0.1:7717/ (it asks for the token in " + file + ")"},
		{"http://0.0.0.0:7717", true, "page: http://0.0.0.0:7717/ (it asks for a token of 'ossicle token create')"},
		{"http://10.0.0.5:7717", true, "page: http://10.0.0.5:7717/ (it asks for a token of 'ossicle token create')"},
	} {
		got, err := pageLink(c.address, file, c.terminal)
		if err != nil || got != c.want {
			t.Errorf("%s, terminal %t: %q %v", c.address, c.terminal, got, err)
		}
		if shown := strings.Contains(got, token); shown != strings.Contains(c.want, token) {
			t.Errorf("%s, terminal %t: shown %t", c.address, c.terminal, shown)
		}
	}
	if _, err := pageLink("http://127.0.0.1:1", file+".not", true); err == nil {
		t.Error("no error without a token")
	}
	for name, want := range map[string]bool{os.DevNull: true, file: false} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := isTerminal(f); got != want {
			t.Errorf("%s: %t", name, got)
		}
		_ = f.Close()
	}
}
