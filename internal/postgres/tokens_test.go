package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/access/accesstest"
)

func TestTokens(t *testing.T) { // F-22
	t.Parallel()
	again := reused(t)
	accesstest.RunStore(t, func(t *testing.T) func() access.Store {
		dsn := again(t)
		return func() access.Store { return openAt(t, dsn, &Options{Connections: 2}).Tokens() }
	})
}

// Whoever only looks makes no schema, and changes nothing of one that is there.
func TestOpenExisting(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	empty := pg.Database(t)
	if _, err := Open(t.Context(), empty, &Options{Existing: true}); !errors.Is(err, ErrNoSchema) {
		t.Errorf("nothing is there: %v", err)
	}
	if made := pg.SQL(t, empty, `SELECT count(*) FROM pg_namespace WHERE nspname = 'ossicle'`); strings.TrimSpace(made) != "0" {
		t.Errorf("a schema was made: %q", made)
	}
	dsn := fresh(t)
	db := openAt(t, dsn, &Options{Existing: true})
	if all, err := db.Tokens().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if all, err := db.Captures(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	pg.SQL(t, dsn, `INSERT INTO ossicle.schema_version (version_id, is_applied) VALUES (999, true)`)
	if _, err := Open(t.Context(), dsn, &Options{Existing: true}); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer one: %v", err)
	}
	pg.SQL(t, dsn, `DELETE FROM ossicle.schema_version WHERE version_id > 1`)
	if _, err := Open(t.Context(), dsn, &Options{Existing: true}); !errors.Is(err, ErrOlder) {
		t.Errorf("an older one: %v", err)
	}
}
