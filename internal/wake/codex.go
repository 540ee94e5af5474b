package wake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/notice"
)

// CodexOptions adjust a Codex. Zero fields take the defaults.
type CodexOptions struct {
	// Queue puts messages into Codex's own queue ("codex queue") instead of
	// running the turn. Codex takes them from there when some app-server has the
	// thread loaded; whether and when, nobody says.
	Queue bool
	// Command is the program and its first arguments; empty means "codex".
	Command []string
	Env     []string // added to our environment
	Dir     string
}

// Codex reaches a thread of Codex (specification D-15): it runs a turn in an
// app-server of its own, resuming the thread from disk, or leaves the message in
// Codex's queue. A terminal that has the same thread open shows nothing of a
// turn that an app-server ran.
type Codex struct {
	thread string
	o      CodexOptions
}

var (
	_ notice.Waker  = (*Codex)(nil)
	_ notice.Doctor = (*Codex)(nil)
)

// How long the parts of a wake may take that are not the turn.
const (
	codexHandshake = 60 * time.Second
	codexGrace     = 2 * time.Second
)

// codexOverloaded is the error code by which an app-server asks for patience.
const codexOverloaded = -32001

// NewCodex returns the adapter of a thread.
func NewCodex(thread string, o *CodexOptions) *Codex {
	c := &Codex{thread: thread}
	if o != nil {
		c.o = *o
	}
	if len(c.o.Command) == 0 {
		c.o.Command = []string{"codex"}
	}
	return c
}

// Name implements notice.Waker.
func (c *Codex) Name() string { return "codex" }

// Reach implements notice.Waker: the program must exist.
func (c *Codex) Reach(context.Context, string) error {
	if c.thread == "" {
		return errors.New("reach codex: no thread is named")
	}
	_, err := exec.LookPath(c.o.Command[0])
	return err
}

func (c *Codex) start(args ...string) (*process.Process, error) {
	return process.Start(process.Options{
		Args: append(append([]string{}, c.o.Command...), args...),
		Env:  append(os.Environ(), c.o.Env...), Dir: c.o.Dir, Grace: codexGrace,
	})
}

// Wake implements notice.Waker.
func (c *Codex) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	if c.o.Queue {
		return c.queue(ctx, d)
	}
	rpc, err := c.connect(ctx)
	if err != nil {
		return "", err
	}
	defer rpc.close()
	return c.turn(ctx, rpc, d, proved)
}

// queue hands the message over to Codex itself.
func (c *Codex) queue(ctx context.Context, d notice.Delivery) (notice.State, error) {
	ctx, cancel := context.WithTimeout(ctx, codexHandshake)
	defer cancel()
	p, err := c.start("queue", "--thread", c.thread, "--message", d.Text)
	if err != nil {
		return "", err
	}
	defer p.Kill()
	_ = p.Stdin.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, p.Stdout)
	}()
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop()
	}
	<-read
	if ctx.Err() != nil {
		return "", fmt.Errorf("queue message: %w (%w)", ctx.Err(), notice.ErrUncertain)
	}
	var exit *exec.ExitError
	if errors.As(p.Wait(), &exit) {
		return "", &notice.HostError{Op: "queue message", Code: exit.ExitCode(), Detail: p.Stderr()}
	}
	return notice.Notified, nil
}

type codexThread struct {
	ThreadID string `json:"threadId"`
}

type codexTurnStart struct {
	ThreadID string       `json:"threadId"`
	Input    []codexInput `json:"input"`
}

type codexInput struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type codexTurn struct {
	ThreadID string `json:"threadId"`
	Turn     struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	} `json:"turn"`
}

// connect starts an app-server and resumes the thread.
func (c *Codex) connect(ctx context.Context) (*codexRPC, error) {
	ctx, cancel := context.WithTimeout(ctx, codexHandshake)
	defer cancel()
	p, err := c.start("app-server")
	if err != nil {
		return nil, err
	}
	rpc := newCodexRPC(p)
	info := map[string]any{"clientInfo": map[string]string{"name": version.Name, "title": version.Name, "version": version.Number()}}
	if err = rpc.call(ctx, "initialize", info, nil); err == nil {
		err = rpc.notify(ctx, "initialized")
	}
	var resumed struct {
		Thread struct {
			Status struct {
				Type string `json:"type"`
			} `json:"status"`
		} `json:"thread"`
	}
	if err == nil {
		err = rpc.call(ctx, "thread/resume", codexThread{c.thread}, &resumed)
	}
	if err == nil && resumed.Thread.Status.Type == "active" {
		err = &notice.BusyError{Reason: "the thread runs a turn", Retry: busyRetry}
	}
	if err != nil {
		rpc.close()
		return nil, err
	}
	return rpc, nil
}

// turn runs a turn and waits for its end.
func (c *Codex) turn(ctx context.Context, rpc *codexRPC, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	var started codexTurn
	start := codexTurnStart{ThreadID: c.thread, Input: []codexInput{{Type: "text", Text: d.Text}}}
	if err := rpc.call(ctx, "turn/start", start, &started); err != nil {
		return "", err
	}
	proved(notice.Notified)
	best := notice.Notified
	for {
		method, turn, err := rpc.next(ctx)
		switch {
		case err != nil:
			return best, fmt.Errorf("run turn: %w", err)
		case turn.ThreadID != c.thread || turn.Turn.ID != started.Turn.ID:
			continue
		case method == "turn/started":
			best = notice.Woken
			proved(best)
		case method == "turn/completed" && turn.Turn.Status == "completed":
			return notice.Seen, nil
		case method == "turn/completed":
			return best, &notice.HostError{Op: "run turn", Detail: "the turn ended " + notice.Plain(turn.Turn.Status, 40)}
		}
	}
}

// Doctor implements notice.Doctor. It resumes the thread and starts no turn.
func (c *Codex) Doctor(ctx context.Context) []notice.Check {
	if err := c.Reach(ctx, ""); err != nil {
		return []notice.Check{bad("program", err.Error(), "install Codex, and name the thread of a session (\"codex resume\" lists them)")}
	}
	checks := []notice.Check{ok("program")}
	rpc, err := c.connect(ctx)
	var host *notice.HostError
	switch {
	case err == nil:
		rpc.close()
		checks = append(checks, ok("thread"))
	case errors.As(err, new(*notice.BusyError)):
		checks = append(checks, ok("thread"))
	case errors.As(err, &host):
		checks = append(checks, bad("thread", host.Error()+": "+host.Detail, "name a thread that exists, and log in to Codex"))
	default:
		checks = append(checks, bad("app-server", err.Error(), "update Codex: it must know \"codex app-server\""))
	}
	if c.o.Queue && err == nil {
		checks = append(checks, notice.Check{Name: "queue", OK: true, Cause: "Codex takes queued messages only while some app-server has the thread loaded"})
	}
	return checks
}
