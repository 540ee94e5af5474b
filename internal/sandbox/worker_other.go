//go:build !linux

package sandbox

import (
	"context"

	"github.com/ossicle/ossicle/worker"
)

// RunWorker needs Linux.
func RunWorker(context.Context, func(string) (string, bool), *WorkerOptions) worker.Exit {
	return worker.Exit{Code: worker.ExitConfig, Reason: "workers need Linux"}
}
