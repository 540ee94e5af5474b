package notice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A desk delivers to one agent. One goroutine serves it, so that there is one
// outstanding wake per agent; the claims on disk say so to other processes and
// to the next life of this one.
//
// It never looks at the store without a cause: a kick (something was posted,
// shown, freed, or the agent became idle), or the time of the earliest thing
// that becomes due. A kick stays pending until the desk has drained it, which
// it does before it looks; so what happens after a look causes another one, and
// no notice waits for a turn that never comes.
type desk struct {
	agent  string
	routes []Route
	fence  int64
	kick   chan struct{} // holds one
	done   chan struct{} // closed when it is served no more

	// Under Inbox.mu.
	cancel context.CancelFunc // set while it is served
	gone   bool

	// Of the serving goroutine.
	recovered   bool          // claims of an earlier life were dealt with
	unwritten   *proof        // what the store would not take yet
	pause       time.Time     // the agent was busy when it was woken
	unreachable time.Duration // until the next look at adapters that do not reach
	failing     time.Duration // likewise for a store that fails
}

func (d *desk) look() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Attach gives an agent its adapters, in the order in which they are tried, and
// makes the agent known. It ends what another process, or an earlier call,
// attached. An agent without routes is only ever pulled for. It must not be
// called from within a Waker.
func (in *Inbox) Attach(ctx context.Context, agent string, routes ...Route) error {
	if err := in.Register(ctx, agent); err != nil {
		return err
	}
	in.Detach(agent)
	fence, err := in.store.Fence(ctx, agent)
	if err != nil {
		return err
	}
	d := &desk{agent: agent, fence: fence, kick: make(chan struct{}, 1), done: make(chan struct{})}
	for _, r := range routes {
		d.routes = append(d.routes, r.withDefaults())
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.desks[agent] = d
	in.fresh = append(in.fresh, d)
	select {
	case in.attached <- struct{}{}:
	default:
	}
	return nil
}

// Detach ends the delivery to an agent and waits for a wake under way to
// return. Its notices stay.
func (in *Inbox) Detach(agent string) {
	in.mu.Lock()
	d := in.desks[agent]
	delete(in.desks, agent)
	var served bool
	if d != nil {
		d.gone = true
		if served = d.cancel != nil; served {
			d.cancel()
		}
	}
	in.mu.Unlock()
	if served {
		<-d.done
	}
}

// Run delivers to all attached agents until ctx ends, then waits for the wakes
// under way to return. It returns nil, or an error if it already runs. What was
// not finished is on disk; the next Run goes on with it.
func (in *Inbox) Run(ctx context.Context) error {
	in.mu.Lock()
	if in.running {
		in.mu.Unlock()
		return errors.New("run inbox: it already runs")
	}
	in.running = true
	for _, d := range in.desks { // after an earlier Run all are to be served again
		if !slices.Contains(in.fresh, d) {
			d.done, d.cancel = make(chan struct{}), nil
			in.fresh = append(in.fresh, d)
		}
	}
	in.mu.Unlock()

	var desks sync.WaitGroup
	for {
		in.startFresh(ctx, &desks)
		select {
		case <-in.attached:
		case <-ctx.Done():
			desks.Wait()
			in.mu.Lock()
			in.running = false
			in.mu.Unlock()
			return nil
		}
	}
}

func (in *Inbox) startFresh(ctx context.Context, desks *sync.WaitGroup) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, d := range in.fresh {
		if d.gone {
			continue
		}
		served, cancel := context.WithCancel(ctx)
		d.cancel = cancel
		desks.Go(func() {
			defer close(d.done)
			defer cancel()
			in.serve(served, d)
		})
	}
	in.fresh = nil
}

func (in *Inbox) serve(ctx context.Context, d *desk) {
	d.recovered = false
	in.prune(ctx, d.agent)
	for ctx.Err() == nil {
		select {
		case <-d.kick:
		default:
		}
		next, err := in.work(ctx, d)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrFenced), errors.As(err, new(*UnknownAgentError)):
			in.log.ErrorContext(ctx, "notice.delivery_ended", attrAgent(d.agent), attrErr(err))
			return
		case err != nil:
			d.failing = min(max(2*d.failing, storeRetryMin), storeRetryMax)
			next = time.Now().Add(d.failing)
			in.log.ErrorContext(ctx, "notice.delivery_failed", attrAgent(d.agent), attrErr(err))
		default:
			d.failing = 0
		}
		if d.wait(ctx, next) {
			d.pause = time.Time{}
		}
	}
}

// wait returns when there is a cause to look again; kicked says that it was not
// the time.
func (d *desk) wait(ctx context.Context, next time.Time) (kicked bool) {
	var due <-chan time.Time
	if !next.IsZero() {
		// Never a timer that is due already: Go 1.26 runs one on this goroutine in a bubble
		// of testing/synctest, and its race detector bears no two of them at once.
		timer := time.NewTimer(max(time.Until(next), time.Nanosecond))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-d.kick:
		return true
	case <-due:
	case <-ctx.Done():
	}
	return false
}

// work does all that can be done now, and returns when there will be more; zero
// if only a kick can tell.
func (in *Inbox) work(ctx context.Context, d *desk) (time.Time, error) {
	for {
		again, next, err := in.step(ctx, d)
		if err != nil || !again {
			return next, err
		}
	}
}

func (in *Inbox) step(ctx context.Context, d *desk) (again bool, next time.Time, err error) {
	if d.unwritten != nil {
		if err := d.unwritten.retry(ctx); err != nil {
			return false, next, err
		}
		d.unwritten = nil
	}
	s, next, err := in.inspect(ctx, d)
	if err != nil {
		return false, next, err
	}
	now := time.Now()
	if c := s.Claimed; c != nil {
		switch {
		case !d.recovered:
			d.recovered = true
			return true, next, in.recover(ctx, d, *c)
		case now.Before(c.Until):
			return false, earliest(next, c.Until), nil
		}
		r := d.routeNamed(c.Adapter)
		return true, next, in.release(ctx, d, *c, r, offerUnproved, "no proof that it was shown")
	}
	d.recovered = true
	if len(d.routes) == 0 {
		return false, next, nil
	}
	return in.deliverDue(ctx, d, s, next)
}

// inspect reads the desk's state and the time at which its oldest notice
// expires, after expiring what is too old.
func (in *Inbox) inspect(ctx context.Context, d *desk) (Desk, time.Time, error) {
	for pruned := false; ; pruned = true {
		s, err := in.store.Desk(ctx, d.agent, time.Now(), len(d.routes))
		if err != nil || s.Oldest.IsZero() {
			return s, time.Time{}, err
		}
		expiry := s.Oldest.Add(in.o.Retention.PendingAge + 1) // older than the age
		if time.Now().Before(expiry) {
			return s, expiry, nil
		}
		if pruned { // a claim holds it: its time will come
			return s, time.Now().Add(time.Minute), nil
		}
		in.prune(ctx, d.agent)
	}
}

// deliverDue offers the first due notices whose adapter can take them.
func (in *Inbox) deliverDue(ctx context.Context, d *desk, s Desk, next time.Time) (bool, time.Time, error) {
	now := time.Now()
	held, lost, asked := false, false, false
	for _, head := range s.Heads {
		switch {
		case head.Due.After(now):
			next = earliest(next, head.Due)
			continue
		case head.Route < 0 || head.Route >= len(d.routes):
			return true, next, in.giveUp(ctx, d, head.Route)
		case now.Before(d.pause):
			next = earliest(next, d.pause)
			continue
		case !asked:
			var err error
			asked = true
			if held, err = in.held(ctx, d.agent, s); err != nil {
				return false, next, err
			}
		}
		if held {
			continue
		}
		r, wait := in.reach(ctx, d, head.Route)
		switch {
		case r >= 0:
			d.unreachable = 0
			return true, next, in.offer(ctx, d, head.Route, r)
		case wait.IsZero():
			lost = true
		default:
			next = earliest(next, wait)
		}
	}
	if lost {
		d.unreachable = min(max(2*d.unreachable, unreachableMin), unreachableMax)
		next = earliest(next, now.Add(d.unreachable))
	}
	return false, next, nil
}

// held says whether the agent must not be woken, and begins a hold when the
// budget is spent.
func (in *Inbox) held(ctx context.Context, agent string, s Desk) (bool, error) {
	if s.Hold.Reason != "" {
		return true, nil
	}
	b := in.o.Budget
	var reason string
	switch {
	case s.Spent.WakesMinute >= b.WakesPerMinute:
		reason = fmt.Sprintf("the budget of %d wakes a minute is spent", b.WakesPerMinute)
	case s.Spent.WakesHour >= b.WakesPerHour:
		reason = fmt.Sprintf("the budget of %d wakes an hour is spent", b.WakesPerHour)
	case s.Spent.TokensHour >= b.TokensPerHour:
		reason = fmt.Sprintf("the budget of %d tokens an hour is spent", b.TokensPerHour)
	default:
		return false, nil
	}
	in.log.WarnContext(ctx, "notice.held", attrAgent(agent), attrReason(reason))
	return true, in.store.SetHold(ctx, agent, Hold{Reason: reason, At: time.Now()})
}

// reach returns the first adapter from the given one on that can take a notice
// now, or -1 and when to ask again; zero if none reaches the agent at all. A
// busy agent is waited for: another way into it would only be busy too.
func (in *Inbox) reach(ctx context.Context, d *desk, from int) (int, time.Time) {
	for r := from; r < len(d.routes); r++ {
		err := in.reachOne(ctx, d, r)
		var busy *BusyError
		switch {
		case err == nil:
			return r, time.Time{}
		case errors.As(err, &busy):
			return -1, time.Now().Add(busy.wait())
		}
		in.log.DebugContext(ctx, "notice.unreachable", attrAgent(d.agent), attrAdapter(d.routes[r].Waker.Name()), attrErr(err))
	}
	return -1, time.Time{}
}

func (in *Inbox) reachOne(ctx context.Context, d *desk, r int) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return d.routes[r].Waker.Reach(ctx, d.agent)
}

func (e *BusyError) wait() time.Duration {
	if e.Retry > 0 {
		return e.Retry
	}
	return DefaultBusyWait
}

func (d *desk) routeNamed(adapter string) int {
	return slices.IndexFunc(d.routes, func(r Route) bool { return r.Waker.Name() == adapter })
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
