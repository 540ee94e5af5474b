//go:build linux && !amd64 && !arm64

package sandbox

import (
	"errors"
	"runtime"
)

func canFilter() error {
	return errors.New("system calls are not filtered on " + runtime.GOARCH)
}

func filterThread() error { return canFilter() }
