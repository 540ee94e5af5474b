// Package python is the port to a sandboxed Python interpreter.
//
// Two rooms run programs that a model wrote: watch runs filters, agent runs
// code mode. Neither knows which interpreter does it. An [Engine] hands out
// [Scope]s: a scope is one persistent set of global variables, and runs in it
// are one REPL session. The conformance suite of the port is in the
// pythontest package; every engine passes it.
package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Default limits of one run in a watch filter (specification W-161, W-162).
const (
	DefaultTime   = 2 * time.Second
	DefaultCalls  = 10
	DefaultMemory = 64 << 20 // bytes
	DefaultOutput = 64 << 10 // bytes
	// MaxSource bounds the program text, in bytes: compile time grows faster
	// than linearly with nesting.
	MaxSource = 64 << 10
)

// ErrClosed is returned by a scope or an engine that was closed.
var ErrClosed = errors.New("python: closed")

// Engine makes scopes. It is safe for concurrent use.
type Engine interface {
	// NewScope makes an empty scope. It starts no process and does not block.
	NewScope(ScopeOptions) (Scope, error)
	// Name identifies the engine and its version, for logs and doctor.
	Name() string
	// Close ends all interpreters of the engine and waits for them.
	Close() error
}

// Checker is an optional power of an [Engine]: it finds, without running the
// program, names that are unknown in branches that a dry run does not take
// (specification W-111, W-265).
type Checker interface {
	// Check looks at source, in which the given names are known besides the
	// built-in ones. It returns nil, an *Error of type NameError for the first
	// unknown name by position, ctx's error, or another error when the check
	// could not be made. It prefers silence to a false alarm: a name that the
	// source also mentions where it does not read it, which is where it may
	// assign it, counts as known.
	Check(ctx context.Context, source string, names []string) error
}

// ScopeOptions configure one scope.
type ScopeOptions struct {
	// Name is the file name that tracebacks show, for instance "on_event.py".
	Name string
	// Functions are the names of the host functions that the program can call.
	// A call is written with or without await; several run concurrently under
	// asyncio.gather.
	Functions []string
	// Call runs a host function. It is called from several goroutines at once.
	// An *Error that it returns is raised in the program as that exception
	// type; any other error becomes a RuntimeError. Nil means that there are
	// no host functions.
	//
	// ctx ends with the run at the latest, and Call must return soon after:
	// Run waits for it, but not for ever.
	Call func(ctx context.Context, call Call) (json.RawMessage, error)
}

// Call is one call of a host function by the program. A value without a JSON
// shape, such as a function or a date, arrives as the string str(value), also
// inside a container.
type Call struct {
	Name   string
	Args   []json.RawMessage          // positional arguments
	Kwargs map[string]json.RawMessage // keyword arguments; nil when there are none
}

// Limits bound one run. Zero fields take the defaults of this package.
type Limits struct {
	Time   time.Duration // wall time, host calls included
	Calls  int           // host calls; the call after the last raises RuntimeError
	Memory int           // bytes of interpreter memory
	Output int           // bytes of printed text; more is cut, and the run goes on
}

// Scope is one persistent set of global variables. Runs in one scope are
// serialised; different scopes run concurrently. A scope at rest holds bytes,
// not a process.
type Scope interface {
	// Run executes source, with each input bound to a global variable of that
	// name first. An input belongs to the run: a later one may find it gone. The
	// result is the value of the last expression statement.
	//
	// Errors: *Error when the program raised or did not compile, *LimitError
	// when a limit ended it, ErrClosed, ctx's error, or another error when the
	// run could not be made at all (an input that is not JSON, no interpreter).
	// After an *Error the variables that were assigned so far persist, as in a
	// REPL. After any other error the scope is as it was before the run.
	//
	// Host calls that the program did not await are awaited before Run returns,
	// and the failure of one is the run's *Error: no call fails in silence.
	Run(ctx context.Context, source string, inputs map[string]json.RawMessage, lim Limits) (Result, error)
	// Names lists the global variables that the programs have assigned,
	// sorted, without inputs and host functions.
	Names() []string
	// Close drops the variables. It is idempotent.
	Close()
}

// Result is what a run left behind.
type Result struct {
	// Value is the last expression's value as compact JSON, key order and
	// integers exact, for values that have a JSON shape; otherwise nil. Tuples
	// and sets are arrays; a dict key that is a number, a bool or None is
	// spelled as json.dumps does it; floats keep their point (1.0). NaN,
	// infinities, bytes, dates, functions and instances have no JSON shape, nor
	// has a container of one. No value and None are null.
	Value json.RawMessage
	// None says that there was no value or that it was None.
	None bool
	// Text is str(value): the string itself for a string, and empty for None.
	Text string
	// Output is the printed text, cut at Limits.Output.
	Output string
	// OutputCut says that Output was cut.
	OutputCut bool
	// Calls counts the host calls that were made.
	Calls int
}

// Error is a Python exception or a compile error.
type Error struct {
	Type       string // Python's name of the exception, "SyntaxError"
	Message    string
	Func       string // innermost function, empty at module level
	SourceLine string // text of the line, if known
	Line, Col  int    // 1-based; 0 when unknown
}

func (e *Error) Error() string {
	s := e.Type
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Line > 0 {
		s += fmt.Sprintf(" (line %d)", e.Line)
	}
	return s
}

// Static reports whether the error is one that the program text alone causes,
// so that no input can cure it: a syntax error, an unknown name, a missing
// module, or a construct that the interpreter does not have (W-111).
func (e *Error) Static() bool {
	switch e.Type {
	case "SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError",
		"ImportError", "ModuleNotFoundError", "NotImplementedError":
		return true
	}
	return false
}

// The kinds of a LimitError.
const (
	LimitTime      = "time"
	LimitMemory    = "memory" // while running, or of the variables that would persist
	LimitRecursion = "recursion"
	LimitSource    = "source"
	LimitResult    = "result" // the last value is too large to hand over
	LimitCrash     = "crash"  // the interpreter died of the program
)

// LimitError says which limit ended a run.
type LimitError struct {
	Limit string // one of the constants above
	Text  string // what was exceeded, with the bound
}

func (e *LimitError) Error() string { return "python: " + e.Limit + " limit: " + e.Text }
