// Package process runs child programs that must never outlive us.
//
// A child gets a process group of its own. It is ended by closing its standard
// input, then SIGTERM to the group, then SIGKILL to the group; what it leaves
// behind in the group when it exits is killed. A child on a terminal leads a
// session, is sent SIGHUP first, and what it leaves in the session is killed too. When we are killed ourselves,
// the kernel kills the child and a guard process kills its group
// (specification M-17).
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Defaults of Options.
const (
	DefaultStderrLimit = 16 << 10 // bytes
	DefaultGrace       = 2 * time.Second
	// drainTime bounds the wait for the end of stderr after the child's exit: a
	// descendant that left the group may hold the pipe open.
	drainTime = 500 * time.Millisecond
)

// ErrNoCommand is returned for empty Args.
var ErrNoCommand = errors.New("no command given")

// Options describe a child. Args is required; zero fields take the defaults.
type Options struct {
	Args []string // program and arguments; the program is looked up in PATH
	Env  []string // the whole environment; nil inherits ours, empty is empty
	Dir  string   // working directory; empty is ours
	// StderrLimit bounds the kept tail of standard error, in bytes. Older text
	// is dropped.
	StderrLimit int
	// Stderr also gets what the child writes to standard error, as it comes.
	// Its errors are ignored. Nil keeps the tail only.
	Stderr io.Writer
	// Grace is the time given to each step of Stop before the next.
	Grace time.Duration
	// Terminal is the child's side of a terminal: its standard streams, and the
	// terminal that controls its session. The caller closes it after Start. Stdin,
	// Stdout and Stderr are then nil and empty. Nil gives it pipes.
	Terminal *os.File
}

// Process is a running child. Stdin and Stdout are its standard streams, nil on a
// terminal; the caller must keep reading Stdout, or the child blocks.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	cmd    *exec.Cmd
	tty    bool
	grace  time.Duration
	stderr *tail
	done   chan struct{}
	err    error // set before done is closed

	mu     sync.Mutex
	reaped bool // under mu: the group id may belong to somebody else from now on
}

// Find finds a program as Start does. Its error is that of Start for one that is not
// there, and names the program once.
func Find(program string) (path string, err error) {
	if path, err = exec.LookPath(program); err == nil {
		return path, nil
	}
	if named, ok := errors.AsType[*exec.Error](err); ok {
		err = named.Err
	}
	if named, ok := errors.AsType[*fs.PathError](err); ok {
		err = named.Err
	}
	return "", fmt.Errorf("start %s: %w", program, err)
}

// Start runs a child. Errors: ErrNoCommand, or why the program did not start.
func Start(o Options) (*Process, error) {
	if len(o.Args) == 0 || o.Args[0] == "" {
		return nil, ErrNoCommand
	}
	if o.StderrLimit <= 0 {
		o.StderrLimit = DefaultStderrLimit
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	p := &Process{grace: o.Grace, tty: o.Terminal != nil, stderr: &tail{limit: o.StderrLimit, also: o.Stderr}, done: make(chan struct{})}
	p.cmd = &exec.Cmd{Path: o.Args[0], Args: o.Args, Env: o.Env, Dir: o.Dir, SysProcAttr: attributes()}
	if p.tty {
		// A session's leader leads a group too. Ctty is a number of the child's.
		a := p.cmd.SysProcAttr
		a.Setpgid, a.Setsid, a.Setctty, a.Ctty = false, true, true, 0
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = o.Terminal, o.Terminal, o.Terminal
	}
	path, err := Find(o.Args[0])
	if err != nil {
		return nil, err
	}
	p.cmd.Path = path

	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Args[0], err)
	}
	return p, nil
}

// run starts the child, waits for it and reaps it. It stays on one thread,
// because the kernel sends the parent-death signal when the thread that
// started the child ends.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	pipes, err := &pipes{}, error(nil)
	if !p.tty {
		pipes, err = openPipes(p.cmd)
	}
	if err != nil {
		started <- err
		return
	}
	err = p.cmd.Start()
	pipes.closeChildEnds()
	if err != nil {
		pipes.closeOurEnds()
		started <- err
		return
	}
	release := guardGroup(p.cmd.Process.Pid)
	drained := make(chan struct{})
	if p.tty {
		close(drained)
	} else {
		p.Stdin, p.Stdout = pipes.stdin, pipes.stdout
		go func() {
			defer close(drained)
			p.drain(pipes.stderr)
		}()
	}
	started <- nil

	awaitExit(p.cmd)
	p.mu.Lock()
	// The leader is a zombie, so the group id is still ours: end what it left.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if p.tty {
		killSession(p.cmd.Process.Pid)
	}
	p.err = p.cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	if !p.tty {
		_ = pipes.stderr.SetReadDeadline(time.Now().Add(drainTime))
		<-drained
		_ = p.Stdin.Close()
	}
	release() // before anybody is told: nothing is left then, no guard either
	close(p.done)
}

// drain keeps what the child writes to standard error, up to the deadline that its
// end sets. On a machine so busy that this had no turn until then, the pipe still
// has what was written before: that is read all the same.
func (p *Process) drain(stderr *os.File) {
	if _, err := io.Copy(p.stderr, stderr); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = stderr.SetReadDeadline(time.Now().Add(drainTime / 10))
		_, _ = io.Copy(p.stderr, stderr)
	}
	_ = stderr.Close()
}

// Pid is the process id of the child, which is also its group's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed once the child has been reaped, and nothing of ours is left of it.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child and returns nil for exit code 0, otherwise an
// *exec.ExitError.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Stderr returns the tail of what the child wrote to standard error.
func (p *Process) Stderr() string { return p.stderr.String() }

// Stop ends the child: it closes standard input, or sends SIGHUP to the group of a
// child on a terminal, then signals the group with
// SIGTERM, then with SIGKILL, each after Options.Grace, and waits until the
// child is reaped. It is idempotent and takes at most a little over twice the
// grace time.
func (p *Process) Stop() {
	defer p.closeStdout()
	if p.tty {
		p.signal(syscall.SIGHUP)
	} else {
		_ = p.Stdin.Close()
	}
	if p.exited(p.grace) {
		return
	}
	p.signal(syscall.SIGTERM)
	if !p.exited(p.grace) {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// Kill ends the child's group at once and waits until the child is reaped.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
	p.closeStdout()
}

func (p *Process) closeStdout() {
	if !p.tty {
		_ = p.Stdout.Close()
	}
}

// signal reaches the group only while its id is known to be the child's.
func (p *Process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

func (p *Process) exited(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// pipes are the parent's and the child's ends of the three standard streams.
// They are made here, not by os/exec, so that what the child wrote last can
// still be read after it was reaped.
type pipes struct {
	stdin, stdout, stderr *os.File
	child                 []*os.File
}

func openPipes(cmd *exec.Cmd) (*pipes, error) {
	p := &pipes{}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.child = inW, append(p.child, inR)
	outR, outW, err := os.Pipe()
	if err != nil {
		p.closeChildEnds()
		p.closeOurEnds()
		return nil, err
	}
	p.stdout, p.child = outR, append(p.child, outW)
	errR, errW, err := os.Pipe()
	if err != nil {
		p.closeChildEnds()
		p.closeOurEnds()
		return nil, err
	}
	p.stderr, p.child = errR, append(p.child, errW)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	return p, nil
}

func (p *pipes) closeChildEnds() {
	for _, f := range p.child {
		_ = f.Close()
	}
}

func (p *pipes) closeOurEnds() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// tail keeps the last limit bytes that were written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	also  io.Writer
	buf   []byte
	cut   bool
}

func (t *tail) Write(b []byte) (int, error) {
	if t.also != nil {
		_, _ = t.also.Write(b)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.cut = true
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String starts at a line's beginning when older text was dropped.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	if t.cut {
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i+1 < len(b) {
			b = b[i+1:]
		}
	}
	return string(b)
}
