package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/internal/python"
)

// Python is an engine that knows a splinter of the language, enough to try what
// surrounds an interpreter. A line is one of
//
//	NAME = VALUE        VALUE        print(VALUE)        raise TYPE: MESSAGE
//	limit KIND          wait         def NAME
//
// and a VALUE is JSON, a name, or [await] NAME(VALUE, key=VALUE, …). `wait` runs
// until the context ends; `def` makes a variable without a JSON shape.
type Python struct {
	mu     sync.Mutex
	scopes int
	limits []python.Limits
}

// Scopes counts the scopes that were made.
func (p *Python) Scopes() int { p.mu.Lock(); defer p.mu.Unlock(); return p.scopes }

// Limits are the limits of all runs so far.
func (p *Python) Limits() []python.Limits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.limits)
}

// Name implements python.Engine.
func (p *Python) Name() string { return "splinter" }

// Close implements python.Engine.
func (p *Python) Close() error { return nil }

// NewScope implements python.Engine.
func (p *Python) NewScope(o python.ScopeOptions) (python.Scope, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scopes++
	return &scope{engine: p, opts: o, vars: map[string]json.RawMessage{}}, nil
}

type scope struct {
	engine *Python
	opts   python.ScopeOptions

	mu     sync.Mutex
	vars   map[string]json.RawMessage // nil value: no JSON shape
	closed bool
}

func (s *scope) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.vars))
}

func (s *scope) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// machine is one run.
type machine struct {
	scope  *scope
	inputs map[string]json.RawMessage
	limits python.Limits
	result python.Result
}

var (
	assignment = regexp.MustCompile(`^([A-Za-z_]\w*) = (.*)$`)
	calling    = regexp.MustCompile(`^(?:await )?([A-Za-z_]\w*)\((.*)\)$`)
	named      = regexp.MustCompile(`^\s*([A-Za-z_]\w*)\s*=\s*`)
)

func (s *scope) Run(ctx context.Context, source string, inputs map[string]json.RawMessage, lim python.Limits) (python.Result, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	s.engine.mu.Lock()
	s.engine.limits = append(s.engine.limits, lim)
	s.engine.mu.Unlock()
	if closed {
		return python.Result{}, python.ErrClosed
	}
	m := &machine{scope: s, inputs: inputs, limits: lim, result: python.Result{None: true, Value: json.RawMessage("null")}}
	for i, line := range strings.Split(source, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := m.line(ctx, line); err != nil {
			if raised, ok := err.(*python.Error); ok && raised.Line == 0 { //nolint:errorlint // made here
				raised.Line, raised.SourceLine = i+1, line
			}
			return m.result, err
		}
	}
	return m.result, nil
}

func (m *machine) line(ctx context.Context, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "raise":
		kind, message, _ := strings.Cut(rest, ": ")
		return &python.Error{Type: kind, Message: message}
	case "limit":
		return &python.LimitError{Limit: rest, Text: "over the limit"}
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	case "def":
		m.set(rest, nil)
		return nil
	}
	if found := assignment.FindStringSubmatch(line); found != nil {
		v, err := m.value(ctx, found[2])
		if err == nil {
			m.set(found[1], v)
		}
		return err
	}
	if arg, ok := strings.CutPrefix(line, "print("); ok {
		v, err := m.value(ctx, strings.TrimSuffix(arg, ")"))
		m.print(str(v))
		return err
	}
	v, err := m.value(ctx, line)
	if err != nil {
		return err
	}
	m.result.Value, m.result.Text, m.result.None = v, str(v), string(v) == "null"
	if v == nil {
		m.result.Text = "<function>"
	}
	return nil
}

func (m *machine) print(text string) {
	out := m.result.Output + text + "\n"
	if n := m.limits.Output; n > 0 && len(out) > n {
		out, m.result.OutputCut = out[:n], true
	}
	m.result.Output = out
}

func (m *machine) set(name string, v json.RawMessage) {
	m.scope.mu.Lock()
	defer m.scope.mu.Unlock()
	m.scope.vars[name] = v
}

func (m *machine) value(ctx context.Context, text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	if text == "None" {
		return json.RawMessage("null"), nil
	}
	if found := calling.FindStringSubmatch(text); found != nil {
		return m.call(ctx, found[1], found[2])
	}
	m.scope.mu.Lock()
	v, ok := m.scope.vars[text]
	m.scope.mu.Unlock()
	if !ok {
		v, ok = m.inputs[text]
	}
	if !ok {
		return nil, &python.Error{Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", text)}
	}
	return v, nil
}

func (m *machine) call(ctx context.Context, name, args string) (json.RawMessage, error) {
	if !slices.Contains(m.scope.opts.Functions, name) {
		return nil, &python.Error{Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", name)}
	}
	call := python.Call{Name: name}
	for args = strings.TrimSpace(args); args != ""; {
		key := ""
		if found := named.FindStringSubmatch(args); found != nil {
			key, args = found[1], args[len(found[0]):]
		}
		text, rest := argument(args)
		args = strings.TrimSpace(rest)
		v, err := m.value(ctx, text)
		if err != nil {
			return nil, err
		}
		if key == "" {
			call.Args = append(call.Args, v)
			continue
		}
		if call.Kwargs == nil {
			call.Kwargs = map[string]json.RawMessage{}
		}
		call.Kwargs[key] = v
	}
	m.result.Calls++
	if n := m.limits.Calls; n > 0 && m.result.Calls > n {
		return nil, &python.Error{Type: "RuntimeError", Message: fmt.Sprintf("more than %d calls", n)}
	}
	v, err := m.scope.opts.Call(ctx, call)
	if err != nil {
		if raised, ok := err.(*python.Error); ok { //nolint:errorlint // as the port says
			return nil, raised
		}
		return nil, &python.Error{Type: "RuntimeError", Message: err.Error()}
	}
	return v, nil
}

// argument splits the first argument off: JSON, or text up to a comma.
func argument(s string) (first, rest string) {
	dec := json.NewDecoder(strings.NewReader(s))
	var raw json.RawMessage
	if dec.Decode(&raw) == nil {
		rest = strings.TrimSpace(s[dec.InputOffset():])
		return string(raw), strings.TrimPrefix(rest, ",")
	}
	first, rest, _ = strings.Cut(s, ",")
	return first, rest
}

func str(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}
