package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// A file is its owner's alone, wherever it lies.
func TestOpen(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ossicle.db", "with space.db", "per%cent?query#hash.db", "ünïcode.db", "new/dirs/x.db", "a&b=c;d'\".db"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		db := open(t, path, nil)
		if err := db.Notices().Register(t.Context(), "a", time.Now()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s%s: mode %v", name, suffix, info.Mode().Perm())
			}
		}
	}
}

func TestPragmas(t *testing.T) {
	t.Parallel()
	for durable, synchronous := range map[bool]string{false: "1", true: "2"} {
		db := open(t, filepath.Join(t.TempDir(), "x.db"), &Options{Durable: durable, BusyTimeout: 1234 * time.Millisecond})
		for pool, c := range map[string]*conns{"writer": db.writer, "reader": db.reader} {
			for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": synchronous, "busy_timeout": "1234", "foreign_keys": "1"} {
				var got string
				if err := c.db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
					t.Errorf("%s %s: got %s, %v, want %s", pool, pragma, got, err, want)
				}
			}
		}
		if _, err := db.reader.db.ExecContext(t.Context(), "DELETE FROM notice"); err == nil {
			t.Error("a reader wrote")
		}
	}
}

// Many open a new file at once: the schema is made once.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			db, err := Open(t.Context(), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	db := open(t, path, nil)
	if _, err := db.writer.db.ExecContext(t.Context(), "INSERT INTO schema_version (version_id, is_applied) VALUES (999, 1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path, nil); !errors.Is(err, ErrNewer) {
		t.Errorf("got %v, want ErrNewer", err)
	}
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte("this is no database, however long one looks at it\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), garbage, nil); err == nil {
		t.Error("garbage was opened")
	}
	if _, err := Open(t.Context(), dir, nil); err == nil {
		t.Error("a directory was opened")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, filepath.Join(dir, "y.db"), nil); err == nil {
		t.Error("opened after its context ended")
	}
}

// Whoever only looks makes nothing, and changes nothing of what is there.
func TestOpenExisting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "x.db")
	if _, err := Open(t.Context(), path, &Options{Existing: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is there: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), empty, &Options{Existing: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is in it: %v", err)
	}
	db := open(t, path, nil)
	again := open(t, path, &Options{Existing: true})
	if _, err := again.Tokens().List(t.Context()); err != nil {
		t.Error(err)
	}
	for _, step := range []struct {
		statement string
		want      error
	}{
		{"INSERT INTO schema_version (version_id, is_applied) VALUES (999, 1)", ErrNewer},
		{"DELETE FROM schema_version WHERE version_id > 1", ErrOlder},
		{"DROP TABLE schema_version", ErrOlder},
	} {
		if _, err := db.writer.db.ExecContext(t.Context(), step.statement); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), path, &Options{Existing: true}); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.statement, err, step.want)
		}
	}
	var tables int
	if err := db.writer.db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("a look has brought the schema up to date: %d tables, %v", tables, err)
	}
}

// B-071: many writers on one file, as in several processes, all get through.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	open(t, path, nil)
	const writers, each = 6, 30
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			db, err := Open(t.Context(), path, &Options{BusyTimeout: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = db.Close() }()
			s := db.Notices()
			if err := s.Register(t.Context(), "a", time.Now()); err != nil {
				t.Error(err)
			}
			for j := range each {
				n := notice.Notice{ID: fmt.Sprintf("n%d.%d", i, j), Agent: "a", DedupeKey: fmt.Sprintf("k%d.%d", i, j), CreatedAt: time.Now()}
				if _, _, err := s.Insert(t.Context(), n, time.Now(), time.Now()); err != nil {
					t.Error(err)
				}
				if _, err := s.Claim(t.Context(), notice.Claim{Agent: "a", Delivery: n.ID, Now: time.Now(), Until: time.Now().Add(time.Minute), Limit: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	db := open(t, path, nil)
	counts, err := db.Notices().Counts(t.Context(), "a")
	if err != nil || counts[notice.Persisted] != writers*each {
		t.Errorf("got %v, %v", counts, err)
	}
	checkIntegrity(t, db)
}

// A waiting call ends with its context.
func TestLockedOut(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "x.db"), nil)
	held, err := db.writer.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := db.Notices().Register(ctx, "a", time.Now()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := db.Notices().Register(t.Context(), "a", time.Now()); err != nil {
		t.Error(err)
	}
}

// checkIntegrity looks at the file, and at the counts that triggers keep.
func checkIntegrity(tb testing.TB, db *DB) {
	tb.Helper()
	var result string
	if err := db.reader.db.QueryRowContext(tb.Context(), "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		tb.Errorf("integrity: %s, %v", result, err)
	}
	var wrong int
	err := db.reader.db.QueryRowContext(tb.Context(), `SELECT count(*) FROM notice_count c
		WHERE c.n <> (SELECT count(*) FROM notice n WHERE n.agent = c.agent AND n.state = c.state)`).Scan(&wrong)
	if err != nil || wrong != 0 {
		tb.Errorf("%d wrong counts, %v", wrong, err)
	}
}
