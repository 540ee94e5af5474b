package notice

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

func newDelivery() string { return "d_" + strings.ToLower(rand.Text()[:16]) }

// offer claims what is due of a route and gives it to adapter r.
func (in *Inbox) offer(ctx context.Context, d *desk, head, r int) error {
	now := time.Now()
	c, err := in.store.Claim(ctx, Claim{
		Agent: d.agent, Delivery: newDelivery(), Adapter: d.routes[r].Waker.Name(), Wake: true, Fence: d.fence,
		Route: head, Now: now, Until: now.Add(d.routes[r].Timeout), Limit: in.o.Batch,
	})
	if err != nil || len(c.Records) == 0 {
		return err
	}
	return in.deliver(ctx, d, r, c)
}

// deliver gives a claim to adapter r and records what came of it. When ctx ends
// on the way the claim stays, for the next life to find out.
func (in *Inbox) deliver(ctx context.Context, d *desk, r int, c Claimed) error {
	route := d.routes[r]
	del := delivery(d.agent, c)
	tokens, began := EstimateTokens(del.Text), time.Now()
	if err := in.store.Spend(ctx, d.agent, began, 1, tokens); err != nil {
		return err
	}
	in.log.InfoContext(ctx, "notice.offered", attrAgent(d.agent), attrAdapter(c.Adapter), attrDelivery(c.Delivery), attrCount(len(del.Notices)))
	p := &proof{in: in, agent: d.agent, adapter: c.Adapter, ids: del.IDs(), best: Persisted}
	wake, cancel := context.WithTimeout(ctx, route.Timeout)
	state, err := route.Waker.Wake(wake, del, func(s State) { p.prove(ctx, s) })
	timedOut := wake.Err() != nil
	cancel()
	if err == nil {
		p.prove(ctx, atLeast(state, Notified))
	}
	best := p.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var busy *BusyError
	switch {
	case p.err != nil:
		// What was proved could not be written. Nothing else happens to the
		// agent before it is, or the notices would be shown again.
		d.unwritten = p
		return p.err
	case best == Seen:
		return nil
	case errors.As(err, &busy):
		d.pause = time.Now().Add(busy.wait())
		if err := in.store.Spend(ctx, d.agent, began, -1, -tokens); err != nil {
			return err
		}
		return in.release(ctx, d, c, r, offerBusy, "")
	case err == nil, errors.Is(err, ErrUncertain), timedOut && best != Persisted:
		return in.store.Extend(ctx, d.agent, c.Delivery, time.Now().Add(route.Patience))
	}
	in.log.WarnContext(ctx, "notice.offer_failed", attrAgent(d.agent), attrAdapter(c.Adapter), attrDelivery(c.Delivery), attrErr(err))
	return in.release(ctx, d, c, r, offerFailed, err.Error())
}

func delivery(agent string, c Claimed) Delivery {
	del := Delivery{ID: c.Delivery, Agent: agent, Attempt: 1}
	for _, r := range c.Records {
		del.Notices = append(del.Notices, r.Notice)
		del.Attempt = max(del.Attempt, r.Offers+1)
		del.Depth = max(del.Depth, r.Depth)
	}
	del.Text = Frame(del.Notices...)
	return del
}

func atLeast(s, least State) State {
	if s.Rank() < least.Rank() {
		return least
	}
	return s
}

// proof collects what an adapter proves about one delivery, in any goroutine,
// until it is closed.
type proof struct {
	in             *Inbox
	agent, adapter string
	ids            []string

	mu     sync.Mutex
	best   State
	failed State // could not be written: err
	err    error
	closed bool
}

// prove records a proof that is greater than what there was. It is written even
// if ctx has ended, because what a host did cannot be undone.
func (p *proof) prove(ctx context.Context, s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || s.Rank() <= p.best.Rank() || s != Notified && s != Woken && s != Seen {
		return
	}
	p.write(ctx, s)
}

func (p *proof) write(ctx context.Context, s State) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if _, err := p.in.move(ctx, p.agent, p.ids, Step{State: s, Adapter: p.adapter}); err != nil {
		p.failed, p.err = s, fmt.Errorf("record state %s: %w", s, err)
		return
	}
	p.best, p.err = s, nil
}

// retry writes what could not be written before.
func (p *proof) retry(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		p.write(ctx, p.failed)
	}
	return p.err
}

func (p *proof) close() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.best
}

// recover goes on with a delivery of an earlier life, whose end is unknown.
func (in *Inbox) recover(ctx context.Context, d *desk, c Claimed) error {
	in.log.InfoContext(ctx, "notice.recovering", attrAgent(d.agent), attrAdapter(c.Adapter), attrDelivery(c.Delivery), attrCount(len(c.Records)))
	r := d.routeNamed(c.Adapter)
	if r < 0 {
		return in.release(ctx, d, c, r, offerUnproved, "its adapter is configured no more")
	}
	checker, ok := d.routes[r].Waker.(Checker)
	if !ok {
		return in.store.Extend(ctx, d.agent, c.Delivery, time.Now().Add(d.routes[r].Patience))
	}
	check, cancel := context.WithTimeout(ctx, storeTimeout)
	state, err := checker.Check(check, delivery(d.agent, c))
	cancel()
	switch {
	case err == nil && state == Persisted:
		if err := in.store.Extend(ctx, d.agent, c.Delivery, time.Now().Add(d.routes[r].Timeout)); err != nil {
			return err
		}
		return in.deliver(ctx, d, r, c)
	case err == nil:
		if _, err := in.move(ctx, d.agent, delivery(d.agent, c).IDs(), Step{State: state, Adapter: c.Adapter}); err != nil {
			return err
		}
	default:
		in.log.DebugContext(ctx, "notice.check_failed", attrAgent(d.agent), attrAdapter(c.Adapter), attrErr(err))
	}
	return in.store.Extend(ctx, d.agent, c.Delivery, time.Now().Add(d.routes[r].Patience))
}

// How an offer ended that was not proved seen.
type offerEnd int

const (
	offerUnproved offerEnd = iota // its time is up
	offerFailed                   // the adapter returned an error
	offerBusy                     // the agent could not take it: does not count
)

// release lets go of a claim that adapter r had, and schedules what it holds.
func (in *Inbox) release(ctx context.Context, d *desk, c Claimed, r int, end offerEnd, reason string) error {
	var next []Next
	if end != offerBusy {
		for _, rec := range c.Records {
			next = append(next, in.plan(d, rec, r, end))
		}
	}
	step := Step{At: time.Now(), Adapter: c.Adapter, Reason: cut(reason, MaxReason)}
	return in.store.Release(ctx, d.agent, c.Delivery, next, step)
}

// plan says what becomes of a notice after an offer by adapter r: the same
// adapter again, the next one, or nothing but a pull (specification D-6).
func (in *Inbox) plan(d *desk, rec Record, r int, end offerEnd) Next {
	now := time.Now()
	n := Next{ID: rec.ID, Offers: rec.Offers + 1, Due: now}
	if r < 0 {
		n.Route = 0
		return n
	}
	tries := 1
	if rec.Route == r {
		tries += rec.Tries
	}
	switch {
	case n.Offers >= in.o.MaxOffers, tries >= d.routes[r].Tries && r+1 == len(d.routes):
		n.Route, n.Due = RouteDone, now.Add(in.o.PullWait)
	case tries >= d.routes[r].Tries:
		n.Route = r + 1
	default:
		n.Route, n.Tries = r, tries
		if end == offerFailed {
			n.Due = now.Add(min(errorDelay<<min(tries-1, 10), d.routes[r].Patience))
		}
	}
	return n
}

// giveUp deals with notices that no adapter will offer: after their wait for a
// pull they are dead; those of a route that is configured no more begin that
// wait.
func (in *Inbox) giveUp(ctx context.Context, d *desk, route int) error {
	now := time.Now()
	c, err := in.store.Claim(ctx, Claim{
		Agent: d.agent, Delivery: newDelivery(), Adapter: reservedRoute, Wake: true, Fence: d.fence,
		Route: route, Now: now, Until: now.Add(storeTimeout), Limit: in.o.Batch,
	})
	if err != nil || len(c.Records) == 0 {
		return err
	}
	next := make([]Next, len(c.Records))
	for i, rec := range c.Records {
		next[i] = Next{ID: rec.ID, Offers: rec.Offers, Route: RouteDone, Due: now.Add(in.o.PullWait), Dead: route == RouteDone}
	}
	step := Step{At: now, Adapter: reservedRoute}
	if route == RouteDone {
		step.Reason = "it was offered as often as it may be, and nothing showed it"
	}
	if err := in.store.Release(ctx, d.agent, c.Delivery, next, step); err != nil {
		return err
	}
	if route == RouteDone {
		in.log.WarnContext(ctx, "notice.dead", attrAgent(d.agent), attrNotices(delivery(d.agent, c).IDs()))
	}
	return nil
}
