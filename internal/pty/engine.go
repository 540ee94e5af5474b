package pty

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/process"
)

// Defaults of Options.
const (
	DefaultStartWait = 30 * time.Second
	DefaultStill     = 2 * time.Second
	DefaultTakeWait  = 2 * time.Minute
	DefaultShowWait  = 5 * time.Second
	DefaultEndStill  = 5 * time.Second
)

const (
	// settle is how still the screen must be for a step of a prompt.
	settle = 300 * time.Millisecond
	// lastWords is how long the reader may go on after the program's exit.
	lastWords = 500 * time.Millisecond
	// screenEvery bounds how often the session is told that the screen moves.
	screenEvery = 500 * time.Millisecond
	// maxLast is how much of the last screen an error quotes, in bytes.
	maxLast = 2 << 10
)

// Errors of an engine.
var (
	// ErrBusy means that a turn is in flight; nothing was typed.
	ErrBusy = errors.New("agent has a turn in flight")
	// ErrStarted means that Start was called before.
	ErrStarted = errors.New("engine was started before")
	// ErrNotStill means that the screen did not come to rest, that somebody has begun
	// a line and not sent it, or that keys would not be text; nothing was typed. It is
	// an agent.ErrUntaken.
	ErrNotStill = fmt.Errorf("the terminal is in use: %w", agent.ErrUntaken)
	// ErrNotShown means that the screen did not show what was pasted, as when a
	// dialog is open; Enter was not pressed. It is an agent.ErrUntaken.
	ErrNotShown = fmt.Errorf("the terminal did not show the prompt, so it was not sent; a dialog may be open: %w", agent.ErrUntaken)
)

// Options change an engine. The zero value is the default.
type Options struct {
	// Kind overrides what the command's name says.
	Kind Kind
	// Env is the program's environment before StartOptions.Env; nil inherits ours.
	Env []string
	// StartWait bounds the wait for the program's first picture.
	StartWait time.Duration
	// Still is for how long the screen must show the same before a prompt is typed;
	// TakeWait bounds the wait for that.
	Still, TakeWait time.Duration
	// ShowWait bounds the wait until the screen shows what was pasted.
	ShowWait time.Duration
	// EndStill is for how long the screen must show the same for a turn to be over.
	EndStill time.Duration
	// ExitGrace is given to each step of ending the program; see
	// process.Options.Grace.
	ExitGrace time.Duration
	Logger    *slog.Logger // nil: silent
}

func (o *Options) withDefaults(command []string) Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	d.Kind = cmp.Or(d.Kind, KindOf(command))
	d.StartWait = cmp.Or(max(0, d.StartWait), DefaultStartWait)
	d.Still = cmp.Or(max(0, d.Still), DefaultStill)
	d.TakeWait = cmp.Or(max(0, d.TakeWait), DefaultTakeWait)
	d.ShowWait = cmp.Or(max(0, d.ShowWait), DefaultShowWait)
	d.EndStill = cmp.Or(max(0, d.EndStill), DefaultEndStill)
	return d
}

// Engine is one life of a program in a terminal. It implements agent.Engine.
type Engine struct {
	term    *Terminal
	command []string
	o       Options
	log     *slog.Logger
	saw     func(attach.Evidence) // set by Start

	mu      sync.Mutex
	started bool
	closing bool
	ready   bool // Start has succeeded: a death is an event from now on
	child   *process.Process
	turn    *turn
	told    time.Time // when the session was last told that the screen moves
	exit    *agent.ExitError

	wg   sync.WaitGroup
	stop chan struct{} // closed when the program has ended
	gone chan struct{} // closed when it is dead, read out and cleared away
}

var _ agent.Engine = (*Engine)(nil)

// New returns an engine for the program that command starts, in a terminal that it
// does not own.
func New(term *Terminal, command []string, o *Options) *Engine {
	e := &Engine{term: term, command: command, o: o.withDefaults(command), stop: make(chan struct{}), gone: make(chan struct{})}
	e.log = e.o.Logger
	return e
}

// Start starts the program with the MCP servers in its own configuration, and
// returns when it has drawn its first picture, or StartWait is over. See
// agent.Engine.
func (e *Engine) Start(ctx context.Context, so agent.StartOptions, sink agent.Sink) (agent.Info, error) {
	if err := e.claim(); err != nil {
		return agent.Info{}, err
	}
	servers := so.MCPServers
	e.saw = func(attach.Evidence) {}
	if so.Attachment != nil {
		e.saw = so.Attachment.Saw
		var err error
		if servers, err = so.Attachment.Servers(ctx); err != nil {
			close(e.gone)
			return agent.Info{}, err
		}
	}
	info := agent.Info{Name: filepath.Base(e.command[0]), Protocol: "terminal"}
	env := e.o.Env
	if env == nil {
		env = os.Environ()
	}
	dir := filepath.Join(os.TempDir(), "ossicle-"+randomName())
	plan := e.plan(servers, so.System, dir, slices.Concat(env, so.Env))
	info.Injected, info.System = plan.Decided, plan.System
	sink(agent.Progress{What: "starting " + info.Name})
	err := e.launch(ctx, so.Dir, plan, slices.Concat(env, so.Env, plan.Env), dir, sink)
	if err != nil {
		e.failed(attach.ReasonSpawnFailed, err)
		_ = os.RemoveAll(dir)
		close(e.gone)
		return agent.Info{}, err
	}
	e.accepted(plan)
	err = e.term.firstPicture(ctx, e.o.StartWait, e.stop)
	if err == nil {
		err = e.rise()
	}
	if err != nil {
		return agent.Info{}, e.startFailed(err)
	}
	return info, nil
}

// startFailed closes the engine and prefers the program's death as the reason.
func (e *Engine) startFailed(err error) error {
	e.mu.Lock()
	closed := e.closing
	e.mu.Unlock()
	_ = e.Close()
	switch {
	case closed:
		return agent.ErrClosed
	case errors.Is(err, errEnded):
		return e.exit // set before gone was closed
	}
	return err
}

func (e *Engine) claim() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return agent.ErrClosed
	case e.started:
		return ErrStarted
	case len(e.command) == 0 || e.command[0] == "":
		e.started = true
		close(e.gone)
		return errors.New("no command given")
	}
	e.started = true
	return nil
}

// rise makes the engine ready, unless the program has died meanwhile.
func (e *Engine) rise() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return agent.ErrClosed
	case e.exit != nil:
		return e.exit
	}
	e.ready = true
	return nil
}

// launch starts the program and the goroutines that read, type and attend.
func (e *Engine) launch(ctx context.Context, dir string, plan Plan, env []string, private string, emit agent.Sink) error {
	if _, err := process.Find(e.command[0]); err != nil {
		return err
	}
	master, tty, err := open()
	if err != nil {
		return fmt.Errorf("open terminal: %w", err)
	}
	defer func() { _ = tty.Close() }()
	moved := func() { e.moved(emit) }
	if err := e.term.begin(master, moved); err != nil {
		_ = master.Close()
		return fmt.Errorf("open terminal: %w", err)
	}
	p, err := process.Start(process.Options{
		Args: insert(e.command, plan.Args), Env: terminalEnv(env), Dir: dir, Grace: e.o.ExitGrace, Terminal: tty,
	})
	if err != nil {
		e.term.end("[" + err.Error() + "]")
		_ = master.Close()
		return err
	}
	e.log.InfoContext(ctx, "agent started", logattr.PID(p.Pid()))
	e.mu.Lock()
	e.child = p
	closing := e.closing
	e.mu.Unlock()
	read := make(chan struct{})
	e.wg.Go(func() {
		defer close(read)
		e.read(master)
	})
	e.wg.Go(func() { e.term.typist(master, e.stop) })
	e.wg.Go(func() { e.attend(p, master, read, private, emit) })
	if closing {
		p.Stop()
	}
	return nil
}

// terminalEnv says what the terminal is; what it says of another one is wrong.
func terminalEnv(env []string) []string {
	return slices.Concat(env, []string{"TERM=xterm-256color", "COLORTERM=truecolor", "TERM_PROGRAM=ossicle", "LINES=", "COLUMNS="})
}

// open makes a terminal. Its master can be closed while it is read and written:
// the library leaves it in a state in which it cannot.
func open() (master, tty *os.File, err error) {
	m, tty, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = m.Close() }()
	fd, err := unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = tty.Close()
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), m.Name()), tty, nil
}

// read takes what the program draws, until it has ended.
func (e *Engine) read(master io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := master.Read(buf)
		if n > 0 {
			e.term.take(buf[:n])
		}
		if err != nil {
			return // EIO: nobody has the other side open
		}
	}
}

// moved tells the session that the screen shows something else, now and then.
func (e *Engine) moved(emit agent.Sink) {
	now := time.Now()
	e.mu.Lock()
	tell := e.ready && !e.closing && now.Sub(e.told) >= screenEvery
	if tell {
		e.told = now
	}
	e.mu.Unlock()
	if tell {
		emit(agent.Screen{})
	}
}

// attend waits for the end of the program, and clears away.
func (e *Engine) attend(p *process.Process, master io.Closer, read <-chan struct{}, private string, emit agent.Sink) {
	<-p.Done()
	t := time.NewTimer(lastWords)
	select {
	case <-read:
	case <-t.C: // somebody who left the session holds the terminal
	}
	t.Stop()
	_ = master.Close()
	<-read
	err := p.Wait()
	text := e.term.Text()
	if err == nil {
		err = errors.New("exit status 0")
	}
	e.term.end(fmt.Sprintf("[%s has ended: %v]", filepath.Base(e.command[0]), err))
	if private != "" {
		_ = os.RemoveAll(private)
	}
	e.mu.Lock()
	e.exit = &agent.ExitError{Err: err}
	if !e.ready { // later, the screen is a conversation, and those who want to see it do
		e.exit.Stderr = lastText(text)
	}
	silent := e.closing || !e.ready
	e.mu.Unlock()
	close(e.stop)
	e.log.Info("agent ended", logattr.PID(p.Pid()), logattr.Err(err))
	if !silent {
		emit(agent.Exited{Err: e.exit})
	}
	close(e.gone)
}

// lastText is the end of what the screen shows.
func lastText(text string) string {
	if over := len(text) - maxLast; over > 0 {
		text = text[over:]
	}
	return Clean(text)
}

// Close ends the program and everything in its terminal. See agent.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	if !e.started {
		e.started = true
		close(e.gone)
	}
	p := e.child
	e.mu.Unlock()
	if p != nil {
		p.Stop()
	}
	<-e.gone
	e.wg.Wait()
	return nil
}

// Stderr is what is recent of the program's output: what the screen shows. Live
// says that it runs.
func (e *Engine) Stderr() (text string, live bool) {
	e.mu.Lock()
	live = e.child != nil && e.exit == nil
	e.mu.Unlock()
	return e.term.Text(), live
}

// dead returns why there is no program, after gone is closed.
func (e *Engine) dead() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || e.exit == nil {
		return agent.ErrClosed
	}
	return e.exit
}
