// Package agenttest has hand-written fakes of the agent room's ports, which also
// misbehave, and the conformance suite of its store.
package agenttest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
)

// Agent is a scripted agent over all its lives. Its New makes the next life; it
// is what agent.NewSession takes. The script answers turn after turn, whatever
// the life; when it has ended, turns are answered "ok".
type Agent struct {
	// Info is what every life reports of itself.
	Info agent.Info
	// OnStart runs inside Start, if it is set; its error is Start's.
	OnStart func(ctx context.Context, life int, opts agent.StartOptions, sink agent.Sink) error
	// OnSteer answers Steer, if it is set.
	OnSteer func(ctx context.Context, p agent.Prompt) (agent.SteerOutcome, error)
	// Deaf makes Cancel have no effect.
	Deaf bool

	mu       sync.Mutex
	script   []Handler
	starts   []agent.StartOptions
	prompts  []agent.Prompt
	overlaps int
	cancels  int
	closed   int
	current  *life
}

// Handler plays one turn.
type Handler func(t *Turn) (agent.Outcome, error)

// Turn is a turn being played.
type Turn struct {
	Ctx    context.Context //nolint:containedctx // it lives as long as the turn
	Prompt agent.Prompt
	// Cancelled is closed when the session cancels, the agent aborts the turn
	// because another prompt came, or the life ends.
	Cancelled <-chan struct{}
	life      *life
}

// New makes an agent with a script.
func New(script ...Handler) *Agent {
	return &Agent{script: script, Info: agent.Info{Name: "scripted", Version: "1", Protocol: "test", System: true}}
}

// Then adds to the script.
func (a *Agent) Then(script ...Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.script = append(a.script, script...)
}

// New makes the next life.
func (a *Agent) New() (agent.Engine, error) { return &life{agent: a}, nil }

// Prompts are the prompts of all turns so far.
func (a *Agent) Prompts() []agent.Prompt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]agent.Prompt(nil), a.prompts...)
}

// Starts are the options of all starts so far.
func (a *Agent) Starts() []agent.StartOptions {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]agent.StartOptions(nil), a.starts...)
}

// Overlaps counts the turns that were called while one was in flight. A session
// keeps it at zero.
func (a *Agent) Overlaps() int { a.mu.Lock(); defer a.mu.Unlock(); return a.overlaps }

// Cancels counts the calls of Cancel.
func (a *Agent) Cancels() int { a.mu.Lock(); defer a.mu.Unlock(); return a.cancels }

// Closed counts the lives that were closed.
func (a *Agent) Closed() int { a.mu.Lock(); defer a.mu.Unlock(); return a.closed }

// Emit brings an event of the current life, in a turn or out of it.
func (a *Agent) Emit(events ...agent.Event) {
	a.mu.Lock()
	l := a.current
	a.mu.Unlock()
	for _, ev := range events {
		l.emit(ev)
	}
}

// Die ends the current life as a crash does.
func (a *Agent) Die(stderr string) {
	a.mu.Lock()
	l := a.current
	a.mu.Unlock()
	l.die(stderr)
}

// life is one engine.
type life struct {
	agent *Agent

	mu     sync.Mutex
	sink   agent.Sink
	abort  chan struct{} // of the turn in flight
	aborts bool          // abort was closed
	exit   *agent.ExitError
	closed bool
	turns  sync.WaitGroup
}

var _ agent.Steerer = (*life)(nil)

func (l *life) Start(ctx context.Context, opts agent.StartOptions, sink agent.Sink) (agent.Info, error) {
	a := l.agent
	a.mu.Lock()
	a.starts = append(a.starts, opts)
	n := len(a.starts)
	a.current = l
	info := a.Info
	a.mu.Unlock()
	l.mu.Lock()
	l.sink = sink
	l.mu.Unlock()
	if a.OnStart != nil {
		if err := a.OnStart(ctx, n, opts, sink); err != nil {
			return agent.Info{}, err
		}
	}
	return info, nil
}

func (l *life) Turn(ctx context.Context, p agent.Prompt) (agent.Outcome, error) {
	a := l.agent
	l.mu.Lock()
	if l.closed || l.exit != nil {
		defer l.mu.Unlock()
		if l.exit != nil {
			return agent.Outcome{}, l.exit
		}
		return agent.Outcome{}, agent.ErrClosed
	}
	if l.abort != nil { // what Gemini does with a second prompt
		a.mu.Lock()
		a.overlaps++
		a.mu.Unlock()
		l.cut()
	}
	abort := make(chan struct{})
	l.abort, l.aborts = abort, false
	l.turns.Add(1)
	l.mu.Unlock()
	defer l.turns.Done()

	a.mu.Lock()
	a.prompts = append(a.prompts, p)
	play := Say("ok")
	if len(a.script) > 0 {
		play, a.script = a.script[0], a.script[1:]
	}
	a.mu.Unlock()
	out, err := play(&Turn{Ctx: ctx, Prompt: p, Cancelled: abort, life: l})

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.abort == abort {
		l.abort = nil
	}
	switch {
	case l.exit != nil:
		return agent.Outcome{}, l.exit
	case l.closed:
		return agent.Outcome{}, agent.ErrClosed
	}
	return out, err
}

// cut closes the abort channel of the turn in flight. The caller holds mu.
func (l *life) cut() {
	if l.abort != nil && !l.aborts {
		l.aborts = true
		close(l.abort)
	}
}

func (l *life) Cancel(context.Context) error {
	l.agent.mu.Lock()
	l.agent.cancels++
	deaf := l.agent.Deaf
	l.agent.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !deaf {
		l.cut()
	}
	return nil
}

func (l *life) Steer(ctx context.Context, p agent.Prompt) (agent.SteerOutcome, error) {
	if l.agent.OnSteer == nil {
		return agent.SteerFailed, errors.New("steering is not scripted")
	}
	return l.agent.OnSteer(ctx, p)
}

func (l *life) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.cut()
	l.mu.Unlock()
	l.turns.Wait()
	if first {
		l.agent.mu.Lock()
		l.agent.closed++
		l.agent.mu.Unlock()
	}
	return nil
}

func (l *life) emit(ev agent.Event) {
	l.mu.Lock()
	sink := l.sink
	if l.closed {
		sink = nil
	}
	l.mu.Unlock()
	if sink != nil {
		sink(ev)
	}
}

func (l *life) die(stderr string) {
	l.mu.Lock()
	if l.exit == nil {
		l.exit = &agent.ExitError{Err: errors.New("exit status 3"), Stderr: stderr}
	}
	exit := l.exit
	l.cut()
	l.mu.Unlock()
	l.emit(agent.Exited{Err: exit})
}

// Emit brings events of the turn.
func (t *Turn) Emit(events ...agent.Event) {
	for _, ev := range events {
		t.life.emit(ev)
	}
}

// Wait waits for d, or returns false as soon as the turn is cancelled.
func (t *Turn) Wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.Cancelled:
	case <-t.Ctx.Done():
	}
	return false
}

// Drain asks the session for what waits, as Qwen does between tool batches.
func (t *Turn) Drain(answer error) agent.Prompt {
	var got agent.Prompt
	t.Emit(agent.Drain{Reply: func(p agent.Prompt) error { got = p; return answer }})
	return got
}

// End is the outcome of a turn that ran to its end.
func End() (agent.Outcome, error) { return agent.Outcome{Stop: agent.StopEndTurn}, nil }

// Aborted is the outcome of a turn that was cut off.
func Aborted() (agent.Outcome, error) { return agent.Outcome{Stop: agent.StopCancelled}, nil }

// Say answers with a text.
func Say(text string) Handler {
	return func(t *Turn) (agent.Outcome, error) {
		t.Emit(agent.Text{Text: text})
		return End()
	}
}

// Silent answers with nothing.
func Silent() Handler { return func(*Turn) (agent.Outcome, error) { return End() } }

// Slow works for d and then says a text; it can be cancelled.
func Slow(d time.Duration, text string) Handler {
	return func(t *Turn) (agent.Outcome, error) {
		t.Emit(agent.Thought{Text: "working"})
		if !t.Wait(d) {
			return Aborted()
		}
		t.Emit(agent.Text{Text: text})
		return End()
	}
}

// Abort ends the turn as cancelled although nobody has asked for it.
func Abort() Handler { return func(*Turn) (agent.Outcome, error) { return Aborted() } }

// Fail breaks the turn.
func Fail(err error) Handler {
	return func(*Turn) (agent.Outcome, error) { return agent.Outcome{}, err }
}

// Die crashes in the middle of the turn.
func Die(stderr string) Handler {
	return func(t *Turn) (agent.Outcome, error) {
		t.Emit(agent.Text{Text: "I am about to"})
		t.life.die(stderr)
		return agent.Outcome{}, nil
	}
}

// Ask asks for permission before its tool call is known, as Gemini does, then
// makes the call and says which option was chosen, "none" for none.
func Ask(call agent.ToolCall, options ...agent.PermissionOption) Handler {
	return func(t *Turn) (agent.Outcome, error) {
		answer := make(chan string, 1)
		t.Emit(agent.Permission{Call: call, Options: options, Reply: func(option string) { answer <- option }})
		var chosen string
		select {
		case chosen = <-answer:
		case <-t.Cancelled:
			chosen = <-answer // a cancelled request is answered all the same
		}
		if chosen == "" {
			t.Emit(agent.Text{Text: "none"})
			return Aborted()
		}
		call.Status = agent.ToolRunning
		t.Emit(call)
		t.Emit(agent.ToolCall{ID: call.ID, Status: agent.ToolCompleted})
		t.Emit(agent.Text{Text: chosen})
		return End()
	}
}
