package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/ossicle/ossicle/internal/process"
)

const (
	// maxTerminals bounds the commands that an agent keeps; it must release
	// some before it gets more.
	maxTerminals = 32
	// DefaultTerminalOutput and maxTerminalOutput bound the kept tail of a
	// command's output, in bytes.
	DefaultTerminalOutput = 1 << 20
	maxTerminalOutput     = 8 << 20
	// drainTime bounds the wait for the rest of the output after the exit.
	drainTime = 500 * time.Millisecond
)

// Errors of the agent's terminal requests.
var (
	ErrTooManyTerminals = fmt.Errorf("more than %d terminals", maxTerminals)
	ErrNoTerminal       = errors.New("no such terminal")
)

// terminals are the commands that an agent has us run.
type terminals struct {
	mu     sync.Mutex
	last   int
	open   map[string]*terminal
	closed bool
}

// terminal is one command with the tail of what it says.
type terminal struct {
	p    *process.Process
	out  *ring
	done chan struct{} // closed after the exit, when all output is in
}

// create runs a command. Without arguments the command is a line for the
// shell: agents send "ls -l | wc" that way.
func (ts *terminals) create(q terminalNewParams, env []string, dir string) (string, error) {
	args, env := append([]string{q.Command}, q.Args...), slices.Clone(env)
	if len(q.Args) == 0 {
		args = []string{"/bin/sh", "-c", q.Command}
	}
	for _, e := range q.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	limit := int64(DefaultTerminalOutput)
	if q.OutputByteLimit != nil {
		limit = min(max(*q.OutputByteLimit, 0), maxTerminalOutput)
	}

	ts.mu.Lock()
	defer ts.mu.Unlock()
	switch {
	case ts.closed:
		return "", ErrNoTerminal
	case len(ts.open) >= maxTerminals:
		return "", ErrTooManyTerminals
	}
	t := &terminal{out: &ring{limit: int(limit)}, done: make(chan struct{})}
	p, err := process.Start(process.Options{Args: args, Env: env, Dir: dir, Stderr: t.out, StderrLimit: 1})
	if err != nil {
		return "", fmt.Errorf("run command: %w", err)
	}
	t.p = p
	_ = p.Stdin.Close()
	go t.attend()
	ts.last++
	id := "terminal-" + strconv.Itoa(ts.last)
	if ts.open == nil {
		ts.open = map[string]*terminal{}
	}
	ts.open[id] = t
	return id, nil
}

// attend collects the output and waits for the end.
func (t *terminal) attend() {
	defer close(t.done)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(t.out, t.p.Stdout)
	}()
	<-t.p.Done()
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C: // a descendant outside the group holds the pipe
	}
	_ = t.p.Stdout.Close()
	<-copied
}

func (ts *terminals) get(id string) (*terminal, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.open[id]
	if t == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoTerminal, clip(id))
	}
	return t, nil
}

func (ts *terminals) release(id string) error {
	ts.mu.Lock()
	t := ts.open[id]
	delete(ts.open, id)
	ts.mu.Unlock()
	if t == nil {
		return fmt.Errorf("%w: %s", ErrNoTerminal, clip(id))
	}
	t.end()
	return nil
}

// close ends all commands and refuses new ones.
func (ts *terminals) close() {
	ts.mu.Lock()
	ts.closed = true
	open := ts.open
	ts.open = nil
	ts.mu.Unlock()
	for _, t := range open {
		t.end()
	}
}

func (t *terminal) end() {
	t.p.Kill()
	<-t.done
}

func (t *terminal) kill() { t.p.Kill() }

func (t *terminal) output() terminalOutputResult {
	text, cut := t.out.text()
	r := terminalOutputResult{Output: text, Truncated: cut}
	select {
	case <-t.done:
		s := t.status()
		r.ExitStatus = &s
	default:
	}
	return r
}

func (t *terminal) wait(ctx context.Context) (exitStatus, error) {
	select {
	case <-t.done:
		return t.status(), nil
	case <-ctx.Done():
		return exitStatus{}, fmt.Errorf("wait for command: %w", context.Cause(ctx))
	}
}

// status is called after the exit.
func (t *terminal) status() exitStatus {
	code := 0
	var exit *exec.ExitError
	if errors.As(t.p.Wait(), &exit) {
		code = exit.ExitCode()
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			name := w.Signal().String()
			return exitStatus{Signal: &name}
		}
	}
	return exitStatus{ExitCode: &code}
}

// ring keeps the last limit bytes.
type ring struct {
	mu    sync.Mutex
	limit int
	buf   []byte
	cut   bool
}

func (r *ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = append(r.buf, b...)
	// Moving the tail down at twice the limit keeps the cost of a byte constant.
	if len(r.buf) > 2*r.limit {
		r.trim()
	}
	return len(b), nil
}

func (r *ring) trim() {
	if over := len(r.buf) - r.limit; over > 0 {
		r.cut = true
		r.buf = append(r.buf[:0], r.buf[over:]...)
	}
}

// text starts at a character's beginning.
func (r *ring) text() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim()
	b := r.buf
	for r.cut && len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return string(b), r.cut
}
