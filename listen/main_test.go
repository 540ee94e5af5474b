package listen_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine survives the package.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
