package watchtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/internal/python"
)

// Program stands for a Python program: a Go function that is run when a scope
// is given the source text under which it was registered.
type Program func(ctx context.Context, run *Run) (python.Result, error)

// Run is what a Program has.
type Run struct {
	// Event is the input of that name.
	Event map[string]any
	// Raw is its text.
	Raw json.RawMessage
	// Vars are the variables of the scope; they last from run to run.
	Vars map[string]any
	// Limits are those of the run.
	Limits python.Limits
	// Call calls a host function, under the limit of calls.
	Call func(name string, kwargs map[string]any) (json.RawMessage, error)
}

// Engine is a python.Engine whose programs are Go functions. A source that is
// not registered is a SyntaxError.
type Engine struct {
	mu       sync.Mutex
	programs map[string]Program
	open     int
	runs     int
	checks   func(source string, names []string) error
}

// NewEngine makes an engine without programs.
func NewEngine() *Engine { return &Engine{programs: map[string]Program{}} }

// Register gives a source text its program.
func (e *Engine) Register(source string, p Program) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.programs[source] = p
}

// OnCheck says what the static check finds.
func (e *Engine) OnCheck(f func(source string, names []string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checks = f
}

// Open counts the scopes that are not closed.
func (e *Engine) Open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// Runs counts the runs so far.
func (e *Engine) Runs() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs
}

// Name implements python.Engine.
func (e *Engine) Name() string { return "watchtest" }

// Close implements python.Engine.
func (e *Engine) Close() error { return nil }

// Check implements python.Checker.
func (e *Engine) Check(_ context.Context, source string, names []string) error {
	e.mu.Lock()
	f := e.checks
	e.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(source, names)
}

// NewScope implements python.Engine.
func (e *Engine) NewScope(o python.ScopeOptions) (python.Scope, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open++
	return &scope{engine: e, options: o, vars: map[string]any{}}, nil
}

type scope struct {
	engine  *Engine
	options python.ScopeOptions

	run    sync.Mutex // runs are serialised
	mu     sync.Mutex
	closed bool
	vars   map[string]any
}

func (s *scope) Run(ctx context.Context, source string, inputs map[string]json.RawMessage, lim python.Limits) (python.Result, error) {
	s.run.Lock()
	defer s.run.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return python.Result{}, python.ErrClosed
	}
	s.engine.mu.Lock()
	s.engine.runs++
	program, ok := s.engine.programs[source]
	s.engine.mu.Unlock()
	if !ok {
		return python.Result{}, &python.Error{Type: "SyntaxError", Message: "invalid syntax", Line: 1, SourceLine: source}
	}
	run := &Run{Vars: s.vars, Limits: lim, Raw: inputs["event"]}
	if err := json.Unmarshal(run.Raw, &run.Event); err != nil {
		return python.Result{}, fmt.Errorf("decode event: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, lim.Time)
	defer cancel()
	calls := 0
	run.Call = func(name string, kwargs map[string]any) (json.RawMessage, error) {
		if calls++; calls > lim.Calls {
			return nil, &python.Error{Type: "RuntimeError", Message: fmt.Sprintf("more than %d calls in one run", lim.Calls)}
		}
		return s.call(limited, name, kwargs)
	}
	result, err := program(limited, run)
	result.Calls = min(calls, lim.Calls)
	if err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return python.Result{}, &python.LimitError{Limit: "time", Text: fmt.Sprintf("more than %s", lim.Time)}
	}
	return result, err
}

func (s *scope) call(ctx context.Context, name string, kwargs map[string]any) (json.RawMessage, error) {
	if !slices.Contains(s.options.Functions, name) {
		return nil, &python.Error{Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", name), Line: 1}
	}
	call := python.Call{Name: name, Kwargs: map[string]json.RawMessage{}}
	for k, v := range kwargs {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode argument: %w", err)
		}
		call.Kwargs[k] = raw
	}
	result, err := s.options.Call(ctx, call)
	if _, ok := errors.AsType[*python.Error](err); err != nil && !ok {
		return nil, &python.Error{Type: "RuntimeError", Message: err.Error(), Line: 1}
	}
	return result, err
}

func (s *scope) Names() []string { return nil }

func (s *scope) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.engine.mu.Lock()
		s.engine.open--
		s.engine.mu.Unlock()
	}
}

// None is the result of a program that leaves None.
func None() (python.Result, error) { return python.Result{None: true}, nil }

// Text is the result of a program that leaves a string.
func Text(s string) (python.Result, error) {
	raw, err := json.Marshal(s)
	return python.Result{Value: raw, Text: s}, err
}
