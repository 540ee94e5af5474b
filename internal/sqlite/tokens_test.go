package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/access/accesstest"
)

func TestTokens(t *testing.T) { // F-22
	t.Parallel()
	accesstest.RunStore(t, func(t *testing.T) func() access.Store {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.db")
		return func() access.Store { return open(t, path, nil).Tokens() }
	})
}

// F-22: whoever gets hold of the file gets no token.
func TestTokensAreNotKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path, nil)
	tok, secret, err := access.New("ci", access.AllRights(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Tokens().Add(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), strings.TrimPrefix(secret, access.TokenPrefix)) {
			t.Errorf("the token is in %q", suffix)
		}
	}
}

// Rights that a newer version has written are not taken for fewer.
func TestTokensOfAnotherVersion(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "x.db"), nil)
	tok, _, err := access.New("ci", access.AllRights(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Tokens().Add(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if _, err := db.writer.db.ExecContext(t.Context(), `UPDATE token SET rights = '{"only_on_mondays":true}'`); err != nil {
		t.Fatal(err)
	}
	if got, err := db.Tokens().ByHash(t.Context(), tok.Hash); err == nil {
		t.Errorf("got %+v", got)
	}
}
