package monty_test

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/monty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// found looks once, for the file is verified each time.
var found = sync.OnceValues(func() (string, error) { return monty.Find(nil) })

// binary finds the interpreter. Without it these tests prove nothing, so in CI
// that is a failure.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := found()
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" || os.Getenv("OSSICLE_REQUIRE_MONTY") != "" {
		tb.Fatal(err)
	}
	tb.Skip(err)
	return ""
}
