package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/worker"
)

// ErrNoSandbox is for a machine that cannot keep a sandbox: nothing was run.
var ErrNoSandbox = errors.New("no sandbox on this machine")

// MaxTime is the time of a command that asks for none, and the most that one can ask
// for.
const MaxTime = 10 * time.Minute

// RunOptions configure a run in a sandbox. The zero value is usable.
type RunOptions struct {
	Logger  *slog.Logger // nil discards
	Profile string       // kind of sandbox; empty is light
	// Timeout bounds the command; zero is MaxTime, which is also the most.
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

// Result is how a command in a sandbox ended, and its sandbox.
type Result struct {
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

// startTime bounds the way of a sandbox on this machine to its first call.
const startTime = 30 * time.Second

// Run runs a program with its arguments in a new sandbox, with a gateway of
// its own, and ends the sandbox. The result is as far as it came also with an
// error. Errors: ErrNoSandbox, ProfileError, worker.ErrOver for a sandbox
// that was lost, and that of ctx, which ends command and sandbox.
func Run(ctx context.Context, c *config.Config, args []string, o *RunOptions) (res Result, err error) {
	r := &single{}
	if o != nil {
		r.o = *o
	}
	if r.o.Logger == nil {
		r.o.Logger = slog.New(slog.DiscardHandler)
	}
	r.o.Profile = cmp.Or(r.o.Profile, worker.Light().Name)
	r.o.Timeout = min(cmp.Or(r.o.Timeout, MaxTime), MaxTime)
	r.fleet, err = Open(ctx, c, &Options{Artifacts: r.o.Artifacts, Own: r.o.Artifacts != "", Program: r.o.Program, Quiet: true, Logger: r.o.Logger})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.fleet.Close(context.WithoutCancel(ctx))) }()
	err = r.start(ctx)
	if d := r.fleet.made(r.o.Profile); d != nil {
		res.Tier = d.Traits().Tier
	}
	if err == nil {
		err = r.exec(ctx, args, &res)
	}
	res.Session, err = r.release(ctx, err)
	return res, err
}

// single is a gateway with one sandbox.
type single struct {
	o       RunOptions
	fleet   *Fleet
	session *worker.Session
}

// start makes the sandbox and waits until it can be used.
func (r *single) start(ctx context.Context) (err error) {
	if r.session, err = r.fleet.Start(ctx, "", r.o.Profile, ""); err != nil {
		return err
	}
	wait := startTime
	if p, _ := r.fleet.config.Sandbox(r.o.Profile); p.Driver == config.DriverKubernetes {
		wait = p.Outer()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the sandbox was not ready within %s", wait))
	defer cancel()
	return r.session.Running(ctx)
}

// exec runs the command and passes its output on as it comes.
func (r *single) exec(ctx context.Context, args []string, res *Result) error {
	to := map[string]io.Writer{"stdout": r.o.Stdout, "stderr": r.o.Stderr}
	job := &followedJob{session: r.session, timeout: r.o.Timeout, pass: func(stream, text string) error {
		w := to[stream]
		if w == nil {
			return nil
		}
		if _, err := io.WriteString(w, text); err != nil {
			return fmt.Errorf("pass output on: %w", err)
		}
		return nil
	}}
	_, end, timedOut, err := job.run(ctx, map[string]any{"command": shellCommand(args)})
	res.TimedOut = timedOut
	if err != nil {
		return err
	}
	res.Exit, res.Signal, res.Duration = end.ExitCode, end.Signal, time.Duration(end.DurationMS)*time.Millisecond
	res.Stdout, res.Stderr, res.Omitted = end.Stdout, end.Stderr, end.Omitted
	return nil
}

// release ends the sandbox, whatever happened before; also when ctx has ended.
func (r *single) release(ctx context.Context, before error) (worker.Record, error) {
	if r.session == nil {
		return worker.Record{}, before
	}
	grace := r.session.Record().Profile.Budgets.ReleaseGrace
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+margin)
	defer cancel()
	if before != nil && !r.session.Record().EverRan {
		// Nothing in it is worth a wait: its end is a failure, with what is known of it.
		if d := r.fleet.made(r.o.Profile); d != nil {
			before = errors.Join(before, d.Kill(ctx, r.session.ID()))
		}
		return r.session.Record(), before
	}
	rec, err := r.session.Release(ctx, worker.ReasonExplicit)
	return rec, errors.Join(before, err)
}
