package app

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if play, ok := role(); ok {
		os.Exit(play())
	}
	goleak.VerifyTestMain(m)
}
