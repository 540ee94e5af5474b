package postgres

import (
	"fmt"
	"os"
	"os/exec"
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
