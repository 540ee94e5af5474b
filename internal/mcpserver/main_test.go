package mcpserver

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain also is the server process of the tests that need one.
func TestMain(m *testing.M) {
	if os.Getenv("OSSICLE_TEST_STDIO") != "" {
		if err := serveTestProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
