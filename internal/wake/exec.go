package wake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/notice"
)

// ExitTryLater is the exit code by which a command says that its agent is busy
// (EX_TEMPFAIL). The notices are offered again and the try does not count.
const ExitTryLater = 75

// execBusyRetry is when a command that exited with ExitTryLater is run again.
const execBusyRetry = 30 * time.Second

// ExecOptions adjust an Exec. Zero fields take the defaults.
type ExecOptions struct {
	// Env is added to our environment.
	Env []string
	Dir string
	// Proof is what exit code 0 proves. The default is notice.Seen, right for a
	// command that runs a whole turn ("claude -p"); one that only rings a bell
	// proves notice.Notified.
	Proof notice.State
	// Stdout gets what the command prints; nil discards it.
	Stdout io.Writer
}

// Exec runs a command for each delivery (specification D-14). The message is on
// its standard input and in its environment:
//
//	OSSICLE_AGENT     the addressee
//	OSSICLE_DELIVERY  an id that is the same when a delivery is repeated
//	OSSICLE_NOTICES   the ids of the notices, separated by commas
//	OSSICLE_COUNT     their number
//	OSSICLE_SOURCE, OSSICLE_NAME, OSSICLE_URI, OSSICLE_FROM
//	                  of the newest notice, on one line each
//	OSSICLE_TEXT      the message
//
// Exit code 0 is proof as ExecOptions.Proof says, ExitTryLater means later, and
// any other that the delivery failed. When the time of a wake is up the command
// is stopped with all that it started.
type Exec struct {
	args []string
	o    ExecOptions
}

var (
	_ notice.Waker  = (*Exec)(nil)
	_ notice.Doctor = (*Exec)(nil)
)

// NewExec returns an adapter for a program and its arguments.
func NewExec(args []string, o *ExecOptions) *Exec {
	e := &Exec{args: args}
	if o != nil {
		e.o = *o
	}
	if e.o.Proof == "" {
		e.o.Proof = notice.Seen
	}
	return e
}

// Name implements notice.Waker.
func (e *Exec) Name() string { return "exec" }

// Reach implements notice.Waker: the program must exist.
func (e *Exec) Reach(context.Context, string) error {
	if len(e.args) == 0 {
		return process.ErrNoCommand
	}
	_, err := exec.LookPath(e.args[0])
	return err
}

// Wake implements notice.Waker.
func (e *Exec) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	p, err := process.Start(process.Options{Args: e.args, Env: append(append(os.Environ(), e.o.Env...), environment(d)...), Dir: e.o.Dir})
	if err != nil {
		return "", err
	}
	var streams sync.WaitGroup
	streams.Go(func() {
		_, err := io.WriteString(p.Stdin, d.Text+"\n")
		if err := errors.Join(err, p.Stdin.Close()); err == nil {
			proved(notice.Notified)
		}
	})
	streams.Go(func() { drain(e.o.Stdout, p.Stdout) })
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop()
	}
	streams.Wait()
	if ctx.Err() != nil {
		return "", fmt.Errorf("run command: %w", ctx.Err())
	}
	return e.proof(p)
}

func (e *Exec) proof(p *process.Process) (notice.State, error) {
	err := p.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return e.o.Proof, nil
	case !errors.As(err, &exit):
		return "", fmt.Errorf("run command: %w", err)
	case exit.ExitCode() == ExitTryLater:
		return "", &notice.BusyError{Reason: "the command said so", Retry: execBusyRetry}
	}
	return "", &notice.HostError{Op: "run command", Code: exit.ExitCode(), Detail: p.Stderr()}
}

// drain keeps the child from blocking on a full pipe, also when nobody wants
// to hear it.
func drain(to io.Writer, from io.Reader) {
	if to != nil {
		_, _ = io.Copy(to, from)
	}
	_, _ = io.Copy(io.Discard, from)
}

// environment describes a delivery. Values are plain lines, so that they can
// carry neither a NUL nor a second variable.
func environment(d notice.Delivery) []string {
	newest := d.Notices[len(d.Notices)-1]
	return []string{
		"OSSICLE_AGENT=" + d.Agent,
		"OSSICLE_DELIVERY=" + d.ID,
		"OSSICLE_NOTICES=" + strings.Join(d.IDs(), ","),
		"OSSICLE_COUNT=" + strconv.Itoa(len(d.Notices)),
		"OSSICLE_SOURCE=" + string(newest.Source),
		"OSSICLE_NAME=" + notice.Plain(newest.Title, 128),
		"OSSICLE_URI=" + notice.Plain(newest.Meta[notice.MetaURI], 2048),
		"OSSICLE_FROM=" + notice.Plain(newest.Meta[notice.MetaFrom], 128),
		"OSSICLE_TEXT=" + d.Text,
	}
}

// Doctor implements notice.Doctor.
func (e *Exec) Doctor(ctx context.Context) []notice.Check {
	if err := e.Reach(ctx, ""); err != nil {
		return []notice.Check{bad("command", err.Error(), "install the program, or give its full path")}
	}
	if e.o.Dir != "" {
		if info, err := os.Stat(e.o.Dir); err != nil || !info.IsDir() {
			return []notice.Check{bad("directory", e.o.Dir+" is no directory", "make it, or name another")}
		}
	}
	return []notice.Check{ok("command")}
}
