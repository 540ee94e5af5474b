package mailbox

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// TurnTime is how long an escalated turn may take where its end is told by the
// recipient's client, and how long one is taken to last where nobody tells
// (specification S-17).
const TurnTime = 60 * time.Second

// Escalator begins a turn of one agent by the means that its client has.
type Escalator interface {
	// Name is the means, in logs.
	Name() string
	// Means reports whether the client can be asked for a turn now.
	Means() bool
	// Escalate begins a turn with the signals and returns when it is over. An
	// error says that there was none, or none that ended well: the signals stay
	// unread either way.
	Escalate(ctx context.Context, e Escalation) error
}

// Escalate takes note of the signals that arrive from now on. The function that it
// returns begins turns of the agent for those that the gate lets through, one at a
// time, and returns when its context ends; it must be called, once. What was there
// before is left alone. turn bounds one turn; zero means TurnTime.
func (m *Member) Escalate(to Escalator, turn time.Duration) (run func(context.Context)) {
	if turn <= 0 {
		turn = TurnTime
	}
	r := &runner{m: m, to: to, turn: turn, kicked: make(chan struct{}, 1)}
	stop := m.s.add(&watcher{part: PartSignals, agent: m.who.Agent, changed: r.arrived}, func(h Heads) {
		r.after = h.Signals
		r.last.Store(h.Signals)
	})
	return func(ctx context.Context) {
		defer stop()
		for {
			select {
			case <-r.kicked:
				r.next(ctx)
			case <-ctx.Done():
				return
			}
		}
	}
}

// runner escalates the signals of one agent by one means.
type runner struct {
	m      *Member
	to     Escalator
	turn   time.Duration
	kicked chan struct{}
	last   atomic.Int64 // sequence of the last signal that arrived
	after  int64        // what came up to there is done with
}

// arrived is told of each signal. What can never pass is counted here, and costs
// nothing else.
func (r *runner) arrived(e Envelope) {
	s := Signal{Type: e.Type, Priority: e.Priority, Depth: e.Depth}
	if why := Gate(&s, r.to.Means(), 0, 1); why != Passed {
		r.refuse(why, 1)
		return
	}
	r.last.Store(e.Sequence)
	signalOne(r.kicked)
}

func (r *runner) refuse(why Refusal, n int64) {
	r.m.s.count.add(func(t *Stats) { t.Refused[why] += n })
	r.m.s.log.LogAttrs(context.Background(), slog.LevelDebug, "mailbox.not_escalated", logattr.Session(r.m.s.id), agentAttr(r.m.who.Agent), logattr.Reason(string(why)))
}

// next escalates what has arrived.
func (r *runner) next(ctx context.Context) {
	s := r.m.s
	from := r.after
	r.after = r.last.Load()
	now := time.Now()
	e, err := s.store.Escalate(ctx, Escalate{
		ID: newEscalationID(), Agent: r.m.who.Agent, After: from, Limits: s.o.Limits, Now: now, Until: now.Add(r.turn),
	})
	switch {
	case err != nil:
		s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(s.id), agentAttr(r.m.who.Agent), logattr.Reason("escalate"), logattr.Err(err))
		return
	case e.Refused != Passed:
		r.refuse(e.Refused, 1)
		return
	case len(e.Signals) == 0:
		return // read meanwhile, or taken by another means of the same agent
	case len(e.Signals) == MaxEscalated: // what did not fit is next
		r.after = e.Signals[MaxEscalated-1].Sequence
		signalOne(r.kicked)
	}
	turn, cancel := context.WithTimeout(ctx, r.turn)
	err = r.to.Escalate(turn, e)
	timedOut := turn.Err() != nil && ctx.Err() == nil
	cancel()
	r.m.settle(ctx, e.ID)
	s.ended(ctx, r.m.who.Agent, r.to.Name(), &e, time.Since(now), err, timedOut)
}

// settle notes that a turn is over, also when nobody waits for that any more.
func (m *Member) settle(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	if err := m.s.store.Settle(ctx, m.who.Agent, id); err != nil {
		m.s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(m.s.id), agentAttr(m.who.Agent), logattr.Reason("settle"), logattr.Err(err))
	}
}

// ended counts and logs one escalation, once.
func (s *Session) ended(ctx context.Context, agent, means string, e *Escalation, took time.Duration, err error, timedOut bool) {
	outcome, level := OutcomeDone, slog.LevelInfo
	switch {
	case timedOut:
		outcome, level = OutcomeTimeout, slog.LevelWarn
	case err != nil:
		outcome, level = OutcomeFailed, slog.LevelWarn
	}
	s.count.add(func(t *Stats) {
		t.Escalated++
		t.Outcomes[outcome]++
		t.Turns += took
	})
	attrs := []slog.Attr{
		logattr.Session(s.id), agentAttr(agent), slog.String("means", means), logattr.Count(len(e.Signals)),
		slog.String("outcome", outcome), logattr.Duration(took),
	}
	if err != nil {
		attrs = append(attrs, logattr.Err(err))
	}
	s.log.LogAttrs(ctx, level, "mailbox.escalated", attrs...)
}

// Await is Wait for an agent whose client cannot be asked for turns: its open
// call is the means by which it is escalated to, so that signals which demand a
// turn return through the gate (specification S-18). The turn counts as escalated
// until the next Await, or TurnTime is over. When ctx ends first it returns what is
// unread, and no error.
func (m *Member) Await(ctx context.Context) (Page, error) {
	arrived := make(chan struct{}, 1)
	defer m.s.Watch(PartSignals, m.who.Agent, func() { signalOne(arrived) })()
	m.mu.Lock()
	last := m.turn
	m.mu.Unlock()
	m.EndTurn(ctx, last)
	if err := m.touch(ctx); err != nil {
		return Page{Signals: []Signal{}}, err
	}
	for {
		p, err := m.peek(ctx, Selection{})
		if err != nil {
			return p, err
		}
		wait, ready, err := m.offer(ctx, &p)
		if err != nil || ready {
			return p, err
		}
		var free <-chan time.Time
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			free = timer.C
		}
		select {
		case <-arrived:
		case <-free:
		case <-ctx.Done():
			rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
			defer cancel()
			return m.peek(rest, Selection{})
		}
	}
}

// offer decides whether an open call returns with a page.
func (m *Member) offer(ctx context.Context, p *Page) (wait time.Duration, ready bool, err error) {
	if len(p.Signals) == 0 {
		return 0, false, nil
	}
	now := time.Now()
	e, err := m.s.store.Escalate(ctx, Escalate{
		ID: newEscalationID(), Agent: m.who.Agent, Limits: m.s.o.Limits, Now: now, Until: now.Add(TurnTime), Retry: true,
	})
	switch {
	case err != nil:
		return 0, false, err
	case len(e.Signals) > 0:
		m.mu.Lock()
		m.turn = e.ID
		m.mu.Unlock()
		m.s.ended(ctx, m.who.Agent, "wait_signals", &e, 0, nil, false)
		return 0, true, nil
	case e.Refused == TooMany:
		m.s.count.add(func(t *Stats) { t.Refused[TooMany]++ })
		for i := range p.Signals {
			if s := &p.Signals[i]; !s.Demanding() || s.Depth > 0 {
				return 0, true, nil // those that need no gate
			}
		}
		return e.Wait, false, nil
	}
	return 0, true, nil
}

// errVanished says that a client went away within an escalated turn.
var errVanished = errors.New("the client is gone")

// Vanished is the error of an Escalator whose client is gone.
func Vanished() error { return errVanished }
