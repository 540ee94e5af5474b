//go:build !linux

package app

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/worker"
)

// RunSandbox needs Linux; the error wraps ErrNoSandbox.
func RunSandbox(context.Context, []string, *SandboxOptions) (SandboxResult, error) {
	return SandboxResult{}, fmt.Errorf("%w: sandboxes need Linux", ErrNoSandbox)
}

// RunWorker needs Linux.
func RunWorker(context.Context, func(string) (string, bool), WorkerOptions) worker.Exit {
	return worker.Exit{Code: worker.ExitConfig, Reason: "workers need Linux"}
}
