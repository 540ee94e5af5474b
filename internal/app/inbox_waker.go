package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// The adapter of sessions that we host.
const (
	sessionAdapter = "session"
	// sessionTimeout bounds one wake: a turn that is under way and the turn that
	// carries the notices, at their longest.
	sessionTimeout = 2*agent.DefaultTurnTime + 10*time.Minute
	// sessionBatch is what one wake carries; it fits into a session's queue.
	sessionBatch = agent.DefaultNotices / 2
	// noteTime bounds a note in the inbox that must be made although whoever
	// asked has gone.
	noteTime = 5 * time.Second
)

// sessionWaker wakes an agent that we host: by a turn of its session
// (specification D-10). Its proof is the session's own: woken when the agent has
// shown that a turn with the notices began, seen when that turn has completed.
type sessionWaker struct {
	inbox   *notice.Inbox
	session *agent.Session
	log     *slog.Logger
	gate    *restoreGate
}

var (
	_ notice.Waker   = (*sessionWaker)(nil)
	_ notice.Checker = (*sessionWaker)(nil)
)

// Name implements notice.Waker.
func (w *sessionWaker) Name() string { return sessionAdapter }

// Reach implements notice.Waker. A session that is busy is reached all the same:
// it keeps notices in its own queue and spends one run on all of them.
func (w *sessionWaker) Reach(context.Context, string) error {
	select {
	case <-w.session.Done():
		return agent.ErrClosed
	default:
		return nil
	}
}

// Check implements notice.Checker: nothing of an earlier life is in the session
// but what its transcript knows as seen, and that it says again when it is asked
// again. So whatever it was, it can be offered anew.
func (w *sessionWaker) Check(context.Context, notice.Delivery) (notice.State, error) {
	return notice.Persisted, nil
}

// Wake implements notice.Waker.
func (w *sessionWaker) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	done := make(chan struct{})
	o := newOffer(d.IDs())
	o.woke, o.over, o.late = func() { proved(notice.Woken) }, func() { close(done) }, func(id string) { w.note(id) }
	restored := false
	for _, n := range d.Notices {
		if err := w.session.Notify(toAgent(n), o.ack(n.ID)); err != nil {
			o.end(n.ID, err)
		}
		restored = restored || n.Meta[metaKind] == string(watch.KindRestored)
	}
	w.gate.handed(restored)
	defer w.gate.done()
	proved(notice.Notified)
	select {
	case <-done:
	case <-ctx.Done():
		if seen, left := o.abandon(); left {
			w.note(seen...)
			return "", fmt.Errorf("wait for the turn: %w", context.Cause(ctx))
		}
		<-done
	}
	if o.err == nil && !o.written {
		return notice.Seen, nil
	}
	w.note(o.seen...)
	if o.err == nil {
		return notice.Notified, nil
	}
	if errors.Is(o.err, agent.ErrClosed) || errors.Is(o.err, agent.ErrQueueFull) || errors.Is(o.err, agent.ErrUntaken) {
		return "", &notice.BusyError{Reason: o.err.Error()}
	}
	return "", o.err
}

// restoreGate holds back the first turn until the notice of restored watches can
// be part of it: until a wake has handed it to the session; or, when a wake has
// the session in hand already, until it is in the inbox, from where the turn
// fetches it. A wake that goes on from an earlier life ends only with that turn.
type restoreGate struct {
	open func() // idempotent

	mu     sync.Mutex
	posted bool
	wakes  int // that have handed over what they have
}

// post says that the notice is in the inbox.
func (g *restoreGate) post() {
	g.mu.Lock()
	g.posted = true
	enough := g.wakes > 0
	g.mu.Unlock()
	if enough {
		g.open()
	}
}

// handed says that a wake has handed over its notices, that one among them or
// not; done must follow.
func (g *restoreGate) handed(restored bool) {
	g.mu.Lock()
	g.wakes++
	enough := restored || g.posted
	g.mu.Unlock()
	if enough {
		g.open()
	}
}

func (g *restoreGate) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakes--
}

// pull fetches what waits in the inbox for a run that is due anyway.
func (w *sessionWaker) pull(ctx context.Context, user bool) []agent.Waiting {
	p, err := w.inbox.Pull(ctx, w.session.ID(), sessionAdapter, &notice.PullOptions{User: user, Limit: sessionBatch})
	if err != nil {
		w.warn("read what waits for a turn", err)
		return nil
	}
	var ids []string
	for _, n := range p.Notices {
		ids = append(ids, n.ID)
	}
	o := newOffer(ids)
	o.over = func() { w.settle(p, o) }
	var waiting []agent.Waiting
	for _, n := range p.Notices {
		waiting = append(waiting, agent.Waiting{Notice: toAgent(n), Ack: o.ack(n.ID)})
	}
	return waiting
}

// settle notes what became of a pull once all of it has come to an end.
func (w *sessionWaker) settle(p *notice.Pull, o *offer) {
	w.note(o.seen...)
	if o.err == nil && !o.written {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	if err := p.Release(ctx); err != nil {
		w.warn("take notices back", err)
	}
}

// note records what a turn has shown, where no wake does it.
func (w *sessionWaker) note(seen ...string) {
	if len(seen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	if err := w.inbox.Seen(ctx, w.session.ID(), sessionAdapter, seen...); err != nil {
		w.warn("note what a turn showed", err)
	}
}

// warn says which step between the inbox and the session failed.
func (w *sessionWaker) warn(step string, err error) {
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "inbox failed", logattr.Session(w.session.ID()), logattr.Reason(step), logattr.Err(err))
}

// offer gathers what becomes of notices that a session was given together.
// Its functions are called outside of its lock.
type offer struct {
	woke func()       // once, when all are in a turn
	over func()       // once, when all have come to an end
	late func(string) // for each that was seen after abandon

	mu        sync.Mutex
	open      map[string]bool // without an end; true: in no turn yet
	sleeping  int
	abandoned bool // nobody waits

	// Complete when over is called.
	seen    []string
	written bool  // some were handed over without proof
	err     error // the first
}

func newOffer(ids []string) *offer {
	nothing := func() {}
	o := &offer{woke: nothing, over: nothing, late: func(string) {}, open: map[string]bool{}}
	for _, id := range ids {
		o.open[id] = true
	}
	o.sleeping = len(o.open)
	return o
}

// ack is what the session tells of one notice.
func (o *offer) ack(id string) func(agent.Ack) {
	return func(a agent.Ack) {
		switch a.State {
		case agent.AckWoken:
			o.wake(id)
		case agent.AckSeen:
			o.end(id, nil)
		case agent.AckWritten:
			o.end(id, errWritten)
		case agent.AckUndelivered:
			err := a.Err
			if err == nil {
				err = errUndelivered
			}
			o.end(id, err)
		}
	}
}

// errWritten ends a notice that was handed over without proof that it was read.
var errWritten = errors.New("nothing tells whether the model has read it")

var errUndelivered = errors.New("no turn with the notice completed")

// wake notes that a notice is in a turn.
func (o *offer) wake(id string) {
	o.mu.Lock()
	sleeping := o.open[id]
	if sleeping {
		o.open[id] = false
		o.sleeping--
	}
	all := sleeping && o.sleeping == 0 && !o.abandoned
	o.mu.Unlock()
	if all {
		o.woke()
	}
}

// end notes the end of a notice; the first one counts.
func (o *offer) end(id string, err error) {
	o.mu.Lock()
	_, known := o.open[id]
	delete(o.open, id)
	late := known && o.abandoned
	if known && !late {
		switch {
		case err == nil:
			o.seen = append(o.seen, id)
		case errors.Is(err, errWritten):
			o.written = true
		case o.err == nil:
			o.err = err
		}
	}
	last := known && !late && len(o.open) == 0
	o.mu.Unlock()
	switch {
	case late && err == nil:
		o.late(id)
	case last:
		o.over()
	}
}

// abandon says that nobody waits any more, and returns what was seen so far.
// Without anything left over has been called, or is just about to be.
func (o *offer) abandon() (seen []string, left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = len(o.open) > 0
	return o.seen, o.abandoned
}
