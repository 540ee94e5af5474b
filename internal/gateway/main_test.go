package gateway_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also plays a gateway of its own, and a process full of workers, see
// rolling_kit_test.go.
func TestMain(m *testing.M) {
	for env, life := range map[string]func() error{gatewayEnv: gatewayLife, crowdEnv: crowdLife} {
		if os.Getenv(env) == "" {
			continue
		}
		if err := life(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
