//go:build !linux

package sandbox

import (
	"context"
	"fmt"
	"runtime"

	"github.com/ossicle/ossicle/worker/tools"
)

type hierarchy struct{}

// Local makes sandboxes on this machine, which needs Linux: here there is none.
type Local struct{}

func notHere() error {
	return fmt.Errorf("%w: sandboxes need Linux, and this is %s; a process without a sandbox is not run", ErrNoSandbox, runtime.GOOS)
}

// NewLocal needs Linux; the error wraps ErrNoSandbox, also if AllowPlain is set.
func NewLocal(context.Context, string, string, []string, *LocalOptions) (*Local, error) {
	return nil, notHere()
}

// ShellOptions needs Linux; the error wraps ErrNoSandbox.
func ShellOptions(Tier, string, string, Limits) (tools.Options, error) {
	return tools.Options{}, notHere()
}

// Probe is what the driver found: nothing.
func (*Local) Probe() Probe { return Probe{} }

// Create needs Linux.
func (*Local) Create(context.Context, Spec) error { return notHere() }

// Delete needs Linux.
func (*Local) Delete(context.Context, string) error { return notHere() }

// Kill needs Linux.
func (*Local) Kill(context.Context, string) error { return notHere() }

// Close does nothing.
func (*Local) Close(context.Context) error { return nil }

// Sessions lists the sessions whose sandbox runs: none.
func (*Local) Sessions() []string { return nil }
