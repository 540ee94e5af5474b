package monty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/internal/python"
)

// defaultScript is the file name of a scope without one.
const defaultScript = "program.py"

// errTime is the cause of a context that ended with the time of a run.
var errTime = errors.New("time limit")

// scope is a python.Scope. turn serialises its runs; mu guards the rest, and is
// held only to read or change it.
type scope struct {
	e     *Engine
	opts  python.ScopeOptions
	known map[string]bool // host functions
	turn  chan struct{}   // holds a token while nobody runs

	mu      sync.Mutex
	closed  bool
	cancel  context.CancelCauseFunc // of the run in progress
	mem     memory
	names   []string // variables of mem.state, if namesOf is its id
	namesOf uint64
}

// memory is all that a scope keeps between runs.
type memory struct {
	state  *state   // nil before the first run
	source string   // the last program
	number uint64   // under which the interpreter filed it
	next   uint64   // a number that no program has
	words  *wordSet // of all programs
	inputs map[string]bool
	// rebuildAt is the size of state from which a rebuild is worth trying.
	rebuildAt int
}

func newScope(e *Engine, o python.ScopeOptions) (*scope, error) {
	if err := checkNames("host function", o.Functions); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = defaultScript
	}
	s := &scope{e: e, opts: o, known: map[string]bool{}, turn: make(chan struct{}, 1)}
	if o.Call != nil {
		for _, f := range o.Functions {
			s.known[f] = true
		}
	}
	s.mem = memory{words: &wordSet{}, inputs: map[string]bool{}, rebuildAt: rebuildMin}
	s.turn <- struct{}{}
	return s, nil
}

// Run implements python.Scope. The time limit does not run while the run waits
// for its turn in the scope or for an interpreter; ctx bounds that.
func (s *scope) Run(ctx context.Context, source string, inputs map[string]json.RawMessage, lim python.Limits) (python.Result, error) {
	lim = withDefaults(lim)
	if len(source) > python.MaxSource {
		return python.Result{}, &python.LimitError{
			Limit: python.LimitSource, Text: fmt.Sprintf("%d bytes, at most %d", len(source), python.MaxSource),
		}
	}
	in, err := encodeInputs(inputs, lim.Memory)
	if err != nil {
		return python.Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	act, err := s.e.enter(cancel)
	if err != nil {
		return python.Result{}, err
	}
	defer s.e.leave(act)

	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return python.Result{}, reason(ctx)
	}
	mem, err := s.begin(cancel)
	if err != nil {
		return python.Result{}, err
	}
	r := newRun(s, mem, source, in, lim, cancel)
	res, err := r.do(ctx)
	s.end(r)
	return res, err
}

func withDefaults(lim python.Limits) python.Limits {
	if lim.Time <= 0 {
		lim.Time = python.DefaultTime
	}
	lim.Calls = positive(lim.Calls, python.DefaultCalls)
	lim.Memory = positive(lim.Memory, python.DefaultMemory)
	lim.Output = positive(lim.Output, python.DefaultOutput)
	return lim
}

// reason is why ctx ended, in the words of the port.
func reason(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, python.ErrClosed) {
		return python.ErrClosed
	}
	return ctx.Err()
}

// begin hands out what the scope remembers.
func (s *scope) begin(cancel context.CancelCauseFunc) (memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return memory{}, python.ErrClosed
	}
	s.cancel = cancel
	return s.mem, nil
}

// end takes over what a run left, if it is to stay.
func (s *scope) end(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = nil
	if r.commit && !s.closed {
		s.mem = r.mem
	}
}

// Close implements python.Scope. A run in progress ends with ErrClosed.
func (s *scope) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.mem, s.names = memory{}, nil
	if s.cancel != nil {
		s.cancel(python.ErrClosed)
	}
}

// input is a value for a global variable.
type input struct {
	name  string
	value []byte // a MontyObject
	deep  bool   // value is a str with JSON, because the wire nests less deeply
}

// encodeInputs encodes the inputs of a run, in the order of their names.
func encodeInputs(inputs map[string]json.RawMessage, memory int) ([]input, error) {
	var out []input
	size := 0
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		text := inputs[name]
		if !identifier(name) {
			return nil, fmt.Errorf("python: input %q is no identifier", name)
		}
		if size += len(text); size > memory {
			return nil, memoryLimit(memory)
		}
		value, depth, err := encodeJSON(text)
		if err != nil {
			return nil, fmt.Errorf("python: input %s: %w", name, err)
		}
		in := input{name: name, value: value, deep: depth > maxMessageDepth}
		if in.deep {
			in.value = appendString(nil, objStr, string(text))
		}
		out = append(out, in)
	}
	return out, nil
}

// appendFeed appends the frame that runs a program.
func appendFeed(b []byte, source string, inputs []input) []byte {
	size := len(source)
	for _, in := range inputs {
		size += len(in.value) + len(in.name) + maxFrameOverhead
	}
	body := appendString(make([]byte, 0, size+maxFrameOverhead), 1, source)
	for _, in := range inputs {
		body = appendMessage(body, 2, appendMessage(appendString(nil, 1, in.name), 2, in.value))
	}
	return appendFrame(b, reqFeed, body)
}
