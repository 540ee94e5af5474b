package monty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// outcome is the end of a host call.
type outcome struct {
	id    uint32
	name  string
	value json.RawMessage
	err   error
	// excused is that of the open call.
	excused bool
}

// callSet runs the host calls of one run. Each has a goroutine; drain waits for
// them.
type callSet struct {
	fn   func(context.Context, python.Call) (json.RawMessage, error)
	made int // calls so far; the run's own

	mu      sync.Mutex
	open    []openCall // calls without an outcome that was taken
	running int        // calls whose function has not returned
	ready   []outcome  // at most one per call
	bell    chan struct{}
}

// openCall is a call whose outcome nobody took yet.
type openCall struct {
	id uint32
	// excused says that the program may have awaited it in vain: an error of
	// another call came first, which ends a gather.
	excused bool
}

func newCallSet(fn func(context.Context, python.Call) (json.RawMessage, error)) *callSet {
	return &callSet{fn: fn, bell: make(chan struct{}, 1)}
}

// start runs a call.
func (c *callSet) start(ctx context.Context, id uint32, call python.Call) {
	c.mu.Lock()
	c.running++
	c.open = append(c.open, openCall{id: id})
	c.mu.Unlock()
	go func() {
		value, err := c.fn(ctx, call)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		c.ready = append(c.ready, outcome{id: id, name: call.Name, value: value, err: err})
		select {
		case c.bell <- struct{}{}:
		default: // it rings already
		}
	}()
}

// take returns the outcomes that came since the last time.
func (c *callSet) take() []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.ready
	c.ready = nil
	for i, o := range out {
		c.open = slices.DeleteFunc(c.open, func(open openCall) bool {
			if open.id == o.id {
				out[i].excused = open.excused
			}
			return open.id == o.id
		})
	}
	return out
}

// excuse notes that the program is told of an error while other calls are open.
func (c *callSet) excuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.open {
		c.open[i].excused = true
	}
}

// isOwing reports whether a call is open that the program cannot have awaited
// in vain.
func (c *callSet) isOwing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.open, func(open openCall) bool { return !open.excused })
}

// isOpen reports whether an outcome of the call can still be taken.
func (c *callSet) isOpen(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.open, func(open openCall) bool { return open.id == id })
}

func (c *callSet) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running > 0
}

// drain waits until no call runs, at most for the given time.
func (c *callSet) drain(atMost time.Duration) bool {
	if !c.isRunning() {
		return true
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for c.isRunning() {
		select {
		case <-c.bell:
		case <-timer.C:
			return !c.isRunning()
		}
	}
	return true
}

// appendOutcome appends the body of an ExtFunctionResult. What the interpreter
// could not take becomes an exception of the program.
func appendOutcome(b []byte, o outcome, memory int) []byte {
	if o.err != nil {
		return appendMessage(b, 2, exception(o.err))
	}
	fail := func(format string, args ...any) []byte {
		return appendMessage(b, 2, exception(fmt.Errorf("result of %s "+format, append([]any{o.name}, args...)...)))
	}
	if len(o.value) > memory {
		return fail("is larger than the memory limit of %d bytes", memory)
	}
	value, depth, err := encodeJSON(o.value)
	switch {
	case err != nil:
		return fail("is not usable: %w", err)
	case depth > maxMessageDepth:
		return fail("is nested too deeply")
	}
	return appendMessage(b, 1, value)
}

// raisable are the exceptions that a host function can raise. The interpreter
// takes an unknown name for a broken protocol.
var raisable = []string{
	"ArithmeticError", "AssertionError", "AttributeError", "Exception", "FileExistsError", "FileNotFoundError",
	"ImportError", "IndexError", "IsADirectoryError", "KeyError", "LookupError", "MemoryError", "ModuleNotFoundError",
	"NameError", "NotADirectoryError", "NotImplementedError", "OSError", "OverflowError", "PermissionError",
	"RecursionError", "RuntimeError", "StopIteration", "SyntaxError", "TimeoutError", "TypeError",
	"UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError",
	"json.JSONDecodeError",
}

// exception is the body of a RaisedException for an error of a host function.
func exception(err error) []byte {
	name, message := "RuntimeError", err.Error()
	if pe, ok := errors.AsType[*python.Error](err); ok {
		if slices.Contains(raisable, pe.Type) {
			name, message = pe.Type, pe.Message
		} else {
			message = pe.Type + ": " + pe.Message
		}
	}
	return appendString(appendString(nil, 1, name), 2, clip(message, maxMessage))
}
