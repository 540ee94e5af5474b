package shim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/process"
)

const (
	// chunk is the most that is passed on at once, in bytes.
	chunk = 64 << 10
	// lastWords bounds the wait for the output of a server that has exited: what it
	// left behind may hold the pipe open.
	lastWords = 500 * time.Millisecond
)

// StdioOptions describe a server that is a child process. Args, In and Out are
// required.
type StdioOptions struct {
	Args []string // program and arguments
	Env  []string // the whole environment; nil inherits ours
	Dir  string   // working directory; empty is ours
	// In and Out are the host's end. In is closed at the end, if it can be: a read
	// that no close interrupts is left to the end of the process.
	In  io.Reader
	Out io.Writer
	// Err gets the server's standard error as it comes. Nil discards it.
	Err io.Writer
	// Observer sees what passes.
	Observer *observe.Observer
}

// ExitError is how the server ended, if not with code 0. A code of -1 is a signal.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return fmt.Sprintf("run server: %v", e.Err) }
func (e *ExitError) Unwrap() error { return e.Err }

// Stdio runs the server until it exits: on its own, because the host has closed
// our standard input and with it the server's, or because ctx has ended, by which
// it is told to. It returns an *ExitError if the exit code is not 0, and why the
// server could not be started.
func Stdio(ctx context.Context, o StdioOptions) error {
	pipe := o.Observer.Pipe(rand.Text())
	p, err := process.Start(process.Options{Args: o.Args, Env: o.Env, Dir: o.Dir, Stderr: o.Err})
	if err != nil {
		o.report(spawnReason(err), err.Error())
		return fmt.Errorf("run server: %w", err)
	}
	stopped := context.AfterFunc(ctx, p.Stop)
	hostDone := make(chan struct{}) // nothing more is passed on to the server
	var hostLeft atomic.Bool        // because the host has said all
	go func() {
		defer close(hostDone)
		hostLeft.Store(relay(p.Stdin, o.In, pipe.Client, nil))
		_ = p.Stdin.Close()
	}()
	out := &output{from: p.Stdout}
	serverDone := make(chan struct{})
	go func() {
		defer close(serverDone)
		relay(o.Out, out, nil, pipe.Server)
	}()
	select {
	case <-p.Done():
		out.last()
		select {
		case <-serverDone:
		case <-ctx.Done(): // the host does not read
		}
	case <-serverDone: // a host that does not read has gone
		p.Stop()
	}
	_ = p.Stdout.Close()
	stopped()
	<-p.Done()
	pipe.Close()
	if ctx.Err() == nil && !hostLeft.Load() {
		o.tellExit(p.Wait())
	}
	if c, ok := o.In.(io.Closer); ok {
		_ = c.Close()
	}
	await(hostDone, lastWords)
	await(serverDone, lastWords)
	return exitError(p.Wait())
}

// output is what the server writes. Once it has exited each read is bounded: what
// it wrote last is all read, however slow the host, but nobody waits for a
// descendant that holds the pipe open.
type output struct {
	from   io.Reader
	exited atomic.Bool
}

func (r *output) last() {
	r.exited.Store(true)
	r.bound()
}

func (r *output) bound() {
	if f, ok := r.from.(interface{ SetReadDeadline(t time.Time) error }); ok {
		_ = f.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// Read implements io.Reader.
func (r *output) Read(p []byte) (int, error) {
	if r.exited.Load() {
		r.bound()
	}
	n, err := r.from.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		// On a machine so busy that this had no turn until then, the pipe still has
		// what was written before: that is read all the same.
		r.bound()
		n, err = r.from.Read(p)
	}
	return n, err
}

// tellExit reports the end of a server which nobody told to end: a failure.
func (o *StdioOptions) tellExit(err error) {
	text := "exit status 0"
	if err != nil {
		text = err.Error()
	}
	o.report(attach.ReasonExited, text)
}

func (o *StdioOptions) report(reason attach.Reason, text string) {
	o.Observer.Failed(reason, text)
}

func spawnReason(err error) attach.Reason {
	if errors.Is(err, exec.ErrNotFound) {
		return attach.ReasonCommandNotFound
	}
	return attach.ReasonSpawnFailed
}

func exitError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &ExitError{Code: exit.ExitCode(), Err: err}
	}
	return err
}

// relay passes on what comes, at once, until either end does, and reports whether
// there was nothing more to pass on. See shows it before, saw after it was passed on.
func relay(to io.Writer, from io.Reader, see, saw func([]byte)) (all bool) {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if see != nil {
				see(buf[:n])
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				return false
			}
			if saw != nil {
				saw(buf[:n])
			}
		}
		if err != nil {
			return true
		}
	}
}

func await(done <-chan struct{}, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
