package monty_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/monty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// binary finds the interpreter. Without it these tests prove nothing, so in CI
// that is a failure.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := monty.Find(nil)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" || os.Getenv("OSSICLE_REQUIRE_MONTY") != "" {
		tb.Fatal(err)
	}
	tb.Skip(err)
	return ""
}
