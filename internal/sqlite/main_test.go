package sqlite

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also plays the process that is killed, see crash_test.go, and the one
// that publishes, see feed_process_test.go, or sends, see mailbox_process_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		if err := crashLife(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(feedEnv) != "" {
		if err := feedLife(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(mailboxEnv) != "" {
		if err := mailboxLife(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
