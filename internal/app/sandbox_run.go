package app

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

// sandboxStart bounds the way of a sandbox on this machine to its first call.
const sandboxStart = 30 * time.Second

// RunSandbox runs a program with its arguments in a new sandbox, with a gateway of
// its own, and ends the sandbox. The result is as far as it came also with an
// error. Errors: ErrNoSandbox, SandboxProfileError, worker.ErrOver for a sandbox
// that was lost, and that of ctx, which ends command and sandbox.
func RunSandbox(ctx context.Context, c *config.Config, args []string, o *SandboxOptions) (res SandboxResult, err error) {
	r := &sandboxRun{}
	if o != nil {
		r.o = *o
	}
	if r.o.Logger == nil {
		r.o.Logger = slog.New(slog.DiscardHandler)
	}
	r.o.Profile = cmp.Or(r.o.Profile, worker.Light().Name)
	r.o.Timeout = min(cmp.Or(r.o.Timeout, SandboxTimeout), SandboxTimeout)
	r.gateway, err = OpenGateway(ctx, c, &GatewayOptions{Artifacts: r.o.Artifacts, Own: r.o.Artifacts != "", Program: r.o.Program, Quiet: true, Logger: r.o.Logger})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.gateway.Close(context.WithoutCancel(ctx))) }()
	err = r.start(ctx)
	if d := r.gateway.made(r.o.Profile); d != nil {
		res.Tier = d.tier
	}
	if err == nil {
		err = r.exec(ctx, args, &res)
	}
	res.Session, err = r.release(ctx, err)
	return res, err
}

// sandboxRun is a gateway with one sandbox.
type sandboxRun struct {
	o       SandboxOptions
	gateway *WorkerGateway
	session *worker.Session
}

// start makes the sandbox and waits until it can be used.
func (r *sandboxRun) start(ctx context.Context) (err error) {
	if r.session, err = r.gateway.Start(ctx, "", r.o.Profile, ""); err != nil {
		return err
	}
	wait := sandboxStart
	if p, _ := r.gateway.config.Sandbox(r.o.Profile); p.Driver == config.DriverKubernetes {
		wait = p.Outer()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the sandbox was not ready within %s", wait))
	defer cancel()
	return r.session.Running(ctx)
}

// exec runs the command and passes its output on as it comes.
func (r *sandboxRun) exec(ctx context.Context, args []string, res *SandboxResult) error {
	to := map[string]io.Writer{"stdout": r.o.Stdout, "stderr": r.o.Stderr}
	job := &sandboxJob{session: r.session, timeout: r.o.Timeout, pass: func(stream, text string) error {
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
func (r *sandboxRun) release(ctx context.Context, before error) (worker.Record, error) {
	if r.session == nil {
		return worker.Record{}, before
	}
	grace := r.session.Record().Profile.Budgets.ReleaseGrace
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+sandboxMargin)
	defer cancel()
	if before != nil && !r.session.Record().EverRan {
		// Nothing in it is worth a wait: its end is a failure, with what is known of it.
		if d := r.gateway.made(r.o.Profile); d != nil {
			before = errors.Join(before, d.kill(ctx, r.session.ID()))
		}
		return r.session.Record(), before
	}
	rec, err := r.session.Release(ctx, worker.ReasonExplicit)
	return rec, errors.Join(before, err)
}
