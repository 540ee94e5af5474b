package acp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/process"
)

// Defaults of Options.
const (
	DefaultInitializeTimeout = 60 * time.Second
	DefaultSessionTimeout    = 60 * time.Second
	// DefaultBlockedTimeout is for agents that were seen at their MCP servers: two of
	// five answer only once they have given up on one that hangs, after 64 s and 85 s.
	DefaultBlockedTimeout = 120 * time.Second
	DefaultCancelGrace    = 30 * time.Second
	DefaultStderrLimit    = 64 << 10 // bytes
)

const (
	// progressEvery is the time between two progress reports.
	progressEvery = 5 * time.Second
	// steerTimeout bounds the wait for the outcome of an offer.
	steerTimeout = 10 * time.Second
	// lastWords is how long the reader may go on after the agent's exit.
	lastWords = 500 * time.Millisecond
)

// Errors of an engine.
var (
	// ErrBusy means that a turn is in flight; nothing was sent.
	ErrBusy = errors.New("agent has a turn in flight")
	// ErrStarted means that Start was called before.
	ErrStarted = errors.New("engine was started before")
	// ErrUnresponsive is the reason in an agent.ExitError for an agent that was
	// killed because it did not end a cancelled turn.
	ErrUnresponsive = errors.New("agent did not end a cancelled turn and was killed")
	// ErrAuthentication means that the agent wants a login that it does not
	// have; the text names its methods.
	ErrAuthentication = errors.New("agent wants authentication")
	// ErrVersion means that the agent does not speak protocol version 1.
	ErrVersion = errors.New("agent speaks another protocol version")
)

// Options change an engine. The zero value is the default.
type Options struct {
	Logger *slog.Logger // nil: silent
	// Env is the agent's environment before StartOptions.Env; nil inherits ours.
	Env []string
	// Frames gets every line on the wire and on standard error as JSON lines,
	// for a probe. They hold the secrets of StartOptions.MCPServers. It must
	// return quickly.
	Frames io.Writer
	// Mode is a session mode to set (session/set_mode) after opening.
	Mode string
	// Authenticate is an authentication method to use before opening.
	Authenticate string
	// NoFiles and NoTerminals do not offer fs/* and terminal/* to the agent.
	NoFiles, NoTerminals bool

	InitializeTimeout time.Duration
	SessionTimeout    time.Duration // session/new, load, resume, set_mode each
	// BlockedTimeout takes the place of SessionTimeout where the agent was seen at
	// its MCP servers and has not answered: it may wait for one of them.
	BlockedTimeout time.Duration
	// CancelGrace is how long a cancelled turn may go on before the agent is
	// killed.
	CancelGrace time.Duration
	// ExitGrace is given to each step of ending the process; see
	// process.Options.Grace.
	ExitGrace   time.Duration
	StderrLimit int
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&d.InitializeTimeout, DefaultInitializeTimeout},
		{&d.SessionTimeout, DefaultSessionTimeout},
		{&d.BlockedTimeout, max(DefaultBlockedTimeout, d.SessionTimeout)},
		{&d.CancelGrace, DefaultCancelGrace},
	} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	if d.StderrLimit <= 0 {
		d.StderrLimit = DefaultStderrLimit
	}
	return d
}

// Engine runs one ACP agent. It implements agent.Engine and agent.Steerer.
type Engine struct {
	command []string
	o       Options
	log     *slog.Logger
	spawn   func(process.Options) (child, io.Writer, io.ReadCloser, error) // process.Start, except in tests

	mu      sync.Mutex
	started bool
	closing bool
	ready   bool // Start has succeeded: a death is an event from now on
	killed  error
	child   child
	c       *conn
	h       *host
	session string
	turn    *turn
	stop    context.CancelFunc
	exit    *agent.ExitError // set before gone is closed

	wg   sync.WaitGroup
	gone chan struct{} // closed when the agent is dead and read out
}

// child is a process.Process.
type child interface {
	Done() <-chan struct{}
	Wait() error
	Stop()
	Kill()
	Stderr() string
	Pid() int
}

var (
	_ agent.Engine  = (*Engine)(nil)
	_ agent.Steerer = (*Engine)(nil)
)

// New returns an engine for the agent that command starts.
func New(command []string, o *Options) *Engine {
	e := &Engine{command: command, o: o.withDefaults(), spawn: startProcess, gone: make(chan struct{})}
	e.log = e.o.Logger
	return e
}

func startProcess(o process.Options) (child, io.Writer, io.ReadCloser, error) {
	p, err := process.Start(o)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, p.Stdin, p.Stdout, nil
}

// Close ends the agent and everything it started. See agent.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	if !e.started {
		e.started = true
		close(e.gone)
	}
	child, c := e.child, e.c
	e.mu.Unlock()
	if c != nil {
		c.fail(agent.ErrClosed)
	}
	if child != nil {
		child.Stop()
	}
	<-e.gone
	e.wg.Wait()
	return nil
}

// launch starts the process and the goroutines that read, write and attend.
func (e *Engine) launch(ctx context.Context, so agent.StartOptions, emit agent.Sink) error {
	env := e.o.Env
	if env == nil {
		env = os.Environ()
	}
	env = environ(env, so.Env)
	rec := &recorder{w: e.o.Frames}
	c := newConn(e.log, rec)
	h := newHost(c, e.log, emit)
	h.env, h.attachment = env, so.Attachment
	if err := h.offer(so.Dir, e.o); err != nil {
		return err
	}
	p, in, out, err := e.spawn(process.Options{
		Args: e.command, Env: env, Dir: so.Dir, StderrLimit: e.o.StderrLimit, Stderr: rec, Grace: e.o.ExitGrace,
	})
	if err != nil {
		h.close()
		return err
	}
	e.log.InfoContext(ctx, "agent started", logattr.PID(p.Pid()))

	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.mu.Lock()
	e.child, e.c, e.h, e.stop = p, c, h, stop
	closing := e.closing
	e.mu.Unlock()
	e.wg.Go(func() { c.write(in) })
	read := make(chan struct{})
	e.wg.Go(func() {
		defer close(read)
		c.read(life, out, h)
	})
	e.wg.Go(func() { e.attend(p, out, read, emit) })
	if closing {
		c.fail(agent.ErrClosed)
		p.Stop()
	}
	return nil
}

// offer opens what the agent will be offered. Terminals need the directory too.
func (h *host) offer(dir string, o Options) error {
	if o.NoFiles && o.NoTerminals {
		return nil
	}
	f, err := openFiles(dir)
	if err != nil {
		return err
	}
	h.files, h.noFiles = f, o.NoFiles
	if !o.NoTerminals {
		h.terms = &terminals{}
	}
	return nil
}

// attend waits for the end of the process or of the conversation, whichever
// comes first, sees to the other, and says that the agent is gone.
func (e *Engine) attend(p child, out io.Closer, read <-chan struct{}, emit agent.Sink) {
	select {
	case <-p.Done():
		t := time.NewTimer(lastWords)
		select {
		case <-read:
		case <-t.C: // a descendant outside the group holds the pipe
		}
		t.Stop()
	case <-e.c.done:
		p.Stop()
	}
	_ = out.Close()
	<-read
	<-p.Done()
	e.stop()
	e.h.close()

	e.mu.Lock()
	e.exit = &agent.ExitError{Err: e.reason(p), Stderr: p.Stderr()}
	silent := e.closing || !e.ready
	e.mu.Unlock()
	e.log.Debug("agent ended", logattr.PID(p.Pid()), logattr.Err(e.exit.Err))
	if !silent {
		emit(agent.Exited{Err: e.exit})
	}
	close(e.gone)
}

// reason says why the agent is gone. What we found wrong with it tells more
// than how it ended after that.
func (e *Engine) reason(p child) error {
	err := p.Wait()
	switch cause := e.c.err; {
	case e.killed != nil:
		return e.killed
	case errors.Is(cause, ErrNoise), errors.Is(cause, ErrStalled):
		return cause
	case err == nil:
		return errors.New("exit status 0")
	}
	return err
}

// Stderr is the end of what the agent wrote to standard error, from a bounded ring
// in memory, and whether the agent still runs. It stays after the agent's end.
func (e *Engine) Stderr() (text string, live bool) {
	e.mu.Lock()
	child := e.child
	e.mu.Unlock()
	if child == nil {
		return "", false
	}
	select {
	case <-child.Done():
	default:
		live = true
	}
	return child.Stderr(), live
}

// dead returns why there is no agent, after gone is closed.
func (e *Engine) dead() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || e.exit == nil {
		return agent.ErrClosed
	}
	return e.exit
}
