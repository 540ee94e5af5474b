// Package monty runs Python in Monty, an interpreter that is a program of its
// own: children of this process, one session at a time each.
//
// # Design
//
// A scope at rest is bytes in this process: a dump of the interpreter. A run
// borrows a child from a pool, sends "reset, load the dump, run the program" in
// one write, and asks for the new dump when the program has ended. Three things
// follow.
//
//   - Any number of scopes share a few children, and a scope is exactly what it
//     was, functions, classes and shared lists included: the interpreter wrote it
//     down itself.
//   - A run that hits a limit costs nothing to undo. The child is killed or
//     reset, and the bytes from before the run are still there.
//   - A program that waits for a host call is dumped in the middle of the wait,
//     and its child serves others (see run.park).
//
// Loading and dumping a small scope takes some 30 µs. A scope with much data
// pays by its size (a set of 100,000 strings: 10 ms to dump, 30 ms to load), so
// the child that holds the newest state of a large scope is preferred, and then
// nothing is loaded.
//
// Two kinds of growth would make a scope that lives for weeks ever larger. Each
// program that runs leaves its source in the dump; state.go says how a program
// that runs again takes the place of its last copy. And each function, lambda or
// class that is defined again leaves the old definition; rebuild.go says how the
// variables move to a fresh session.
//
// The interpreter's own duration limit adds up over the life of a scope, so it
// is never set. The time limit is a timer here that kills the child.
//
// # Where it falls short of Python
//
//   - Monty 0.0.23 has no yield, match, del, inheritance, decorators of methods,
//     "%" on strings, no next() of a generator expression, no clock, and few
//     modules. The conformance test lists what fails of the corpus.
//   - The error of a host call that a task under asyncio.gather awaits ends the
//     whole gather; the task itself cannot catch it.
//   - A program without the word await gets the values of its host calls at once.
//     With it, a call that is not awaited is a coroutine, as in Python, though it
//     is made, counted and waited for. A coroutine that outlives its run cannot be
//     awaited.
//   - The text of an instance as the result is "<P object>", whatever its
//     __str__ says; str() and print in the program do what they should.
//   - The result of a host call may nest 30 objects deep; inputs as deep as the
//     recursion limit.
//   - A scope whose variables are not plain data and that defines functions on
//     each run grows by the size of their code, until StateLimit ends its runs.
package monty

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// Defaults of Options.
const (
	// MinWorkers and MaxWorkers bound the default number of children, which is
	// the number of processors in between.
	MinWorkers         = 2
	MaxWorkers         = 8
	DefaultStateLimit  = 8 << 20 // bytes
	DefaultResultLimit = 1 << 20 // bytes
	DefaultHostGrace   = 2 * time.Second
)

// Options tune an engine. Nil and zero fields take the defaults.
type Options struct {
	// Workers is the largest number of children at any time. It also bounds the
	// programs that run at once.
	Workers int
	// StateLimit bounds the saved variables of one scope, in bytes. A run that
	// would leave more is undone with a "memory" LimitError.
	StateLimit int
	// ResultLimit bounds the value of a run, and the arguments of a host call, in
	// bytes of JSON. A larger value undoes the run with a "result" LimitError; a
	// host call with larger arguments raises RuntimeError.
	ResultLimit int
	// HostGrace is how long a run waits for host calls after their context
	// ended. One that ignores its context longer goes on without its run.
	HostGrace time.Duration
	// Logger gets starts and ends of children, at debug level. Nil discards.
	Logger *slog.Logger
}

// Engine is a python.Engine and python.Checker. It is safe for concurrent use.
type Engine struct {
	pool        *pool
	stateLimit  int
	resultLimit int
	hostGrace   time.Duration
	lastState   atomic.Uint64

	mu     sync.Mutex
	closed bool
	active map[*activity]struct{}
	work   sync.WaitGroup // one for each active
}

var (
	_ python.Engine  = (*Engine)(nil)
	_ python.Checker = (*Engine)(nil)
)

// New makes an engine that runs the interpreter at path, which is usually from
// Find. It starts nothing.
func New(path string, o *Options) (*Engine, error) {
	if path == "" {
		return nil, &NotFoundError{}
	}
	if o == nil {
		o = &Options{}
	}
	e := &Engine{
		stateLimit:  positive(o.StateLimit, DefaultStateLimit),
		resultLimit: positive(o.ResultLimit, DefaultResultLimit),
		hostGrace:   o.HostGrace,
		active:      map[*activity]struct{}{},
	}
	if e.hostGrace <= 0 {
		e.hostGrace = DefaultHostGrace
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	workers := positive(o.Workers, min(MaxWorkers, max(MinWorkers, runtime.GOMAXPROCS(0))))
	e.pool = newPool(path, workers, log)
	return e, nil
}

func positive(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// Name is the interpreter and its version.
func (e *Engine) Name() string { return "monty " + Version }

// Processes is the number of children now.
func (e *Engine) Processes() int { return e.pool.processes() }

// NewScope makes an empty scope. Errors: python.ErrClosed, or a function whose
// name is no identifier.
func (e *Engine) NewScope(o python.ScopeOptions) (python.Scope, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, python.ErrClosed
	}
	return newScope(e, o)
}

// Close ends all runs with python.ErrClosed, then all children, and waits for
// both.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	for a := range e.active {
		a.cancel(python.ErrClosed)
	}
	e.mu.Unlock()
	e.work.Wait()
	e.pool.close()
	return nil
}

// activity is something that uses children: a run, a check, a look at names.
type activity struct{ cancel context.CancelCauseFunc }

// enter registers an activity, so that Close ends it and waits for its leave.
func (e *Engine) enter(cancel context.CancelCauseFunc) (*activity, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, python.ErrClosed
	}
	a := &activity{cancel: cancel}
	e.active[a] = struct{}{}
	e.work.Add(1)
	return a, nil
}

func (e *Engine) leave(a *activity) {
	a.cancel(nil)
	e.mu.Lock()
	delete(e.active, a)
	e.mu.Unlock()
	e.work.Done()
}

// nextState is an id for a new state.
func (e *Engine) nextState() uint64 { return e.lastState.Add(1) }

func checkNames(kind string, names []string) error {
	for _, n := range names {
		if !identifier(n) {
			return fmt.Errorf("python: %s %q is no identifier", kind, n)
		}
	}
	return nil
}
