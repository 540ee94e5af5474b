package app

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// ErrNoSandbox is for a machine that cannot keep a sandbox: nothing was run.
var ErrNoSandbox = errors.New("no sandbox on this machine")

// SandboxTimeout is the time of a command that asks for none, and the most that
// one can ask for.
const SandboxTimeout = 10 * time.Minute

// SandboxOptions configure a run in a sandbox. The zero value is usable.
type SandboxOptions struct {
	Logger  *slog.Logger // nil discards
	Profile string       // kind of sandbox; empty is light
	// Timeout bounds the command; zero is SandboxTimeout, which is also the most.
	Timeout time.Duration
	// Artifacts is a directory that keeps what the command left in out/ of its
	// workspace; empty keeps nothing.
	Artifacts string
	// Program is the absolute path of the worker with its arguments; nil is this
	// program's own.
	Program []string
	// Stdout and Stderr get the command's output as it comes; nil discards.
	Stdout, Stderr io.Writer
}

// SandboxResult is how a command in a sandbox ended, and its sandbox.
type SandboxResult struct {
	// Exit is the command's exit code; nil if it was ended by a signal or by us.
	Exit     *int
	Signal   string // that ended it
	TimedOut bool
	Duration time.Duration
	Stdout   string // within the bounds of the tool exec
	Stderr   string
	Omitted  int64 // bytes left out of the two together
	Tier     string
	// Session is the record of the sandbox after its release.
	Session worker.Record
}
