package postgres

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/testserver"
)

// server is the PostgreSQL of the tests that do not stop it.
var server = testserver.SharedPostgreSQL()

// TestMain also plays the process that is killed, see process_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(dieEnv) != "" {
		if err := dying(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(server.Main(m))
}

// migrated is a database that has the schema, to be copied.
var migrated struct {
	mu  sync.Mutex
	dsn string
}

// fresh returns the DSN of a database with the schema and nothing in it. A copy is
// another log than its original.
func fresh(tb testing.TB) string {
	tb.Helper()
	pg := server.Get(tb)
	migrated.mu.Lock()
	defer migrated.mu.Unlock()
	if migrated.dsn == "" {
		dsn := pg.Database(tb)
		db, err := Open(tb.Context(), dsn, nil)
		if err != nil {
			tb.Fatal(err)
		}
		db.Close()
		migrated.dsn = dsn
	}
	return pg.Copy(tb, migrated.dsn)
}

// reused returns the DSN of one database for all parts of a suite, which is
// emptied each time: to make another costs a hundred times as much.
func reused(tb testing.TB) func(tb testing.TB) string {
	tb.Helper()
	dsn := fresh(tb)
	return func(tb testing.TB) string {
		tb.Helper()
		server.Get(tb).SQL(tb, dsn, `TRUNCATE ossicle.feed_log, ossicle.feed_topic, ossicle.feed_event, ossicle.feed_idempotency, ossicle.feed_outbox, ossicle.token`)
		return dsn
	}
}

func openAt(tb testing.TB, dsn string, o *Options) *DB {
	tb.Helper()
	db, err := Open(tb.Context(), dsn, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(db.Close)
	return db
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
