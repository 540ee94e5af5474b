package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/python"
)

// Default limits of one program (specification N-5).
const (
	DefaultCodeTime   = 30 * time.Second
	DefaultCodeMemory = 256 << 20 // bytes
	DefaultCodeCalls  = 200
	DefaultCodeResult = 32 << 10 // bytes shown to the model; the rest is cut and said so
	DefaultListTime   = 10 * time.Second

	maxServersAtOnce = 8
	maxErrorText     = 2 << 10 // bytes of a tool's error
)

// CodeOptions configure code mode. The zero value of a field means its default.
type CodeOptions struct {
	Limits     python.Limits // Time, Calls and Memory of one program
	ResultSize int           // bytes of a result
	ListTime   time.Duration // for all servers to say what tools they have
	// OnNoReply hears that the model ran NO_REPLY as code: Session.EndTurn.
	OnNoReply func()
	Log       *slog.Logger
}

// CodeMode runs programs of one session in its own persistent Python scope, in
// which every tool of every connected server is an async function (N-5). It is
// safe for concurrent use; programs run one after the other.
type CodeMode struct {
	python  python.Engine
	servers []Server
	watches Watches
	opts    CodeOptions
	log     *slog.Logger

	turn chan struct{} // one program at a time; a wait for it respects ctx

	mu     sync.Mutex // under turn where both are held
	known  *catalogue // nil: ask the servers
	scope  python.Scope
	scoped *catalogue // what the scope's functions stand for
	closed bool
}

// NewCodeMode makes the code mode of one session. Servers are in the order of
// the configuration. A nil engine leaves the plain tools; with nil watches there
// are no built-ins.
func NewCodeMode(engine python.Engine, servers []Server, watches Watches, opts *CodeOptions) *CodeMode {
	var o CodeOptions
	if opts != nil {
		o = *opts
	}
	if o.Limits.Time <= 0 {
		o.Limits.Time = DefaultCodeTime
	}
	if o.Limits.Memory <= 0 {
		o.Limits.Memory = DefaultCodeMemory
	}
	if o.Limits.Calls <= 0 {
		o.Limits.Calls = DefaultCodeCalls
	}
	if o.ResultSize <= 0 {
		o.ResultSize = DefaultCodeResult
	}
	if o.Limits.Output <= 0 {
		o.Limits.Output = max(python.DefaultOutput, 2*o.ResultSize)
	}
	if o.ListTime <= 0 {
		o.ListTime = DefaultListTime
	}
	if o.OnNoReply == nil {
		o.OnNoReply = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &CodeMode{python: engine, servers: slices.Clone(servers), watches: watches, opts: o, log: o.Log, turn: make(chan struct{}, 1)}
}

// Run runs a program. What the program did wrong is a result with IsError; an
// error means that it was not run: ErrClosed or ctx's.
func (c *CodeMode) Run(ctx context.Context, code string) (ToolResult, error) {
	code = unfence(code)
	if noReplyProgram(code) {
		c.opts.OnNoReply()
		return ToolResult{Text: "The turn has ended without a reply. Stop here and write nothing more.", EndTurn: true}, nil
	}
	if c.python == nil {
		return ToolResult{Text: "The program could not be run: there is no Python interpreter. Use the other tools.", IsError: true}, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ToolResult{}, ctx.Err()
	}
	scope, lost, err := c.open(ctx)
	if err != nil {
		return ToolResult{}, err
	}
	began := time.Now()
	res, err := scope.Run(ctx, code, nil, c.opts.Limits)
	c.log.LogAttrs(ctx, slog.LevelDebug, "code.run", logattr.Size(int64(len(code))), logattr.Count(res.Calls),
		logattr.Duration(time.Since(began)), logattr.Err(err))
	if errors.Is(err, python.ErrClosed) {
		return ToolResult{}, ErrClosed
	}
	if err != nil && ctx.Err() != nil {
		return ToolResult{}, ctx.Err()
	}
	return c.result(res, err, lost), nil
}

// open returns the scope, made anew when other tools are there than before.
// Variables move to the new scope where they have a JSON shape; lost names the
// others.
func (c *CodeMode) open(ctx context.Context) (scope python.Scope, lost []string, err error) {
	known := c.catalogue(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	if c.scope != nil && (c.scoped == known || slices.Equal(c.scoped.names(), known.names())) {
		c.scoped = known
		return c.scope, nil, nil
	}
	scope, err = c.python.NewScope(python.ScopeOptions{Name: "run_code.py", Functions: known.names(), Call: c.call})
	if err != nil {
		return nil, nil, fmt.Errorf("open scope: %w", err)
	}
	old := c.scope
	c.scope, c.scoped = scope, known
	if old != nil {
		c.mu.Unlock()
		lost = move(ctx, old, scope)
		old.Close()
		c.mu.Lock()
	}
	return scope, lost, nil
}

// Bounds of what moves to a new scope.
const (
	maxMoved      = 200
	maxMovedValue = 1 << 20 // bytes of JSON
	moveTime      = 5 * time.Second
)

// move carries variables over, one by one. Functions, classes and what else has
// no JSON shape stay behind.
func move(ctx context.Context, from, to python.Scope) (lost []string) {
	lim := python.Limits{Time: moveTime}
	for i, name := range from.Names() {
		if i >= maxMoved {
			lost = append(lost, name)
			continue
		}
		res, err := from.Run(ctx, name, nil, lim)
		if err != nil || res.Value == nil || len(res.Value) > maxMovedValue {
			lost = append(lost, name)
			continue
		}
		if _, err := to.Run(ctx, name+" = moved_value", map[string]json.RawMessage{"moved_value": res.Value}, lim); err != nil {
			lost = append(lost, name)
		}
	}
	return lost
}

// call runs a function for the program.
func (c *CodeMode) call(ctx context.Context, call python.Call) (json.RawMessage, error) {
	c.mu.Lock()
	known := c.scoped
	c.mu.Unlock()
	if known == nil {
		return nil, ErrClosed // Reset came between
	}
	if slices.Contains(known.builtins, call.Name) {
		return c.builtin(ctx, call)
	}
	t, ok := known.tools[call.Name]
	if !ok {
		return nil, &python.Error{Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", call.Name)}
	}
	args, err := t.signature.bind(call)
	if err != nil {
		return nil, err
	}
	result, err := t.server.CallTool(ctx, t.tool.Name, t.signature.object(args))
	if err != nil {
		return nil, &python.Error{Type: "RuntimeError", Message: call.Name + ": " + cut(oneLine(err.Error()), maxErrorText)}
	}
	return result, nil
}

// Names lists the variables that persist, sorted.
func (c *CodeMode) Names() []string {
	c.mu.Lock()
	scope := c.scope
	c.mu.Unlock()
	if scope == nil {
		return nil
	}
	return scope.Names()
}

// maxNoted bounds the names of a scope note.
const maxNoted = 40

// ScopeNote tells a later turn which variables it can reuse (N-8, W-266); empty
// when there are none.
func (c *CodeMode) ScopeNote() string {
	names := slices.DeleteFunc(c.Names(), func(name string) bool { return python.Reserved(name) }) // modules
	if len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - maxNoted; n > 0 {
		names, more = names[:maxNoted], fmt.Sprintf(" and %d more", n)
	}
	return "[run_code variables that persist: " + strings.Join(names, ", ") + more + ". Reuse them instead of calling tools again.]"
}

// Reset drops all variables.
func (c *CodeMode) Reset() {
	c.mu.Lock()
	scope := c.scope
	c.scope, c.scoped = nil, nil
	c.mu.Unlock()
	if scope != nil {
		scope.Close()
	}
}

// Close drops the scope; a program that runs ends with ErrClosed or a limit. It
// is idempotent.
func (c *CodeMode) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Reset()
}
