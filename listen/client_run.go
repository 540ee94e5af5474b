package listen

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// reader fetches the news of one stream.
type reader struct {
	stream *Stream
	seq    int           // streams are numbered as they are opened
	since  time.Time     // when it was acknowledged
	gone   chan struct{} // closed when everything was fetched
	hurry  chan struct{} // closed when there are too many that fade

	mu        sync.Mutex
	delivered bool
	// deferred, once the stream is replaced, is what it still had to say, with the
	// time at which that arrived: see Client.replace. Before that it is nil.
	deferred map[string]time.Time
}

// told is when subscribers were last told of a change, and the last stream that
// did so of itself.
type told struct {
	at  time.Time
	seq int
}

// run is the supervisor: it alone opens and closes streams. It waits for the set
// of URIs to change, for the stream to end, and, only between two attempts, for
// a timer.
func (c *Client) run(ctx context.Context) {
	defer c.shut()
	var retry *time.Timer
	var due <-chan time.Time
	wait := func(d time.Duration) {
		if retry != nil {
			retry.Stop()
		}
		retry, due = nil, nil
		if d > 0 {
			retry = c.timer(d)
			due = retry.C
		}
	}
	defer wait(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
			if due == nil || c.empty() {
				wait(c.reconcile(ctx))
			}
		case r := <-c.ended:
			if r == c.current() {
				wait(c.lost(ctx, r))
			}
		case <-due:
			due = nil
			wait(c.reopen(ctx))
		}
	}
}

// shut ends the stream when the supervisor ends.
func (c *Client) shut() {
	c.mu.Lock()
	cur := c.cur
	c.cur = nil
	c.mu.Unlock()
	if cur != nil {
		cur.stream.Close()
	}
}

func (c *Client) current() *reader {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur
}

func (c *Client) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.topics) == 0
}

// want returns the URIs to listen for, in a stable order.
func (c *Client) want() Filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Filter{ResourceSubscriptions: slices.Sorted(maps.Keys(c.topics))}
}

// reconcile makes the listen fit the set of URIs. It returns the delay of the
// next attempt, or 0.
func (c *Client) reconcile(ctx context.Context) time.Duration {
	old, want := c.current(), c.want()
	switch {
	case want.Empty():
		c.shut()
		c.resetAttempts()
		return 0
	case old == nil:
		return c.first(ctx, want)
	case old.stream.Err() != nil:
		return 0 // its end is on its way and opens the new set
	case slices.Equal(old.stream.Filter().ResourceSubscriptions, want.ResourceSubscriptions):
		c.grant(old.stream) // a URI that left and came back before we looked
		return 0
	default:
		return c.replace(ctx, old, want)
	}
}

// first opens a listen when there is none and nobody waits for one to come
// back: a failure is the answer to those who asked, and is not tried again.
func (c *Client) first(ctx context.Context, want Filter) time.Duration {
	s, err := c.open(ctx, want)
	if err != nil {
		c.reject(err)
		return 0
	}
	c.adopt(ctx, s, nil)
	return 0
}

// replace opens a listen for a changed set and closes the old one after it, so
// that nothing is lost in between. What the old one still has to say comes from
// before its successor was acknowledged, or is said by the successor too: it is
// held back, and told when the old one is closed unless the successor told the
// same meanwhile. Streams that must not overlap are closed first, and everything
// counts as changed.
func (c *Client) replace(ctx context.Context, old *reader, want Filter) time.Duration {
	serial := old.stream.conflict != nil && old.stream.conflict()
	if serial {
		old.stream.Close()
	}
	s, err := c.open(ctx, want)
	switch {
	case err != nil && serial:
		c.reject(err)
		c.drop(old)
		return c.failed(err)
	case err != nil:
		c.reject(err) // the old listen serves on; if the server is gone, it will end
		return 0
	}
	c.settle(old)
	retained := c.adopt(ctx, s, old)
	if serial {
		tellAll(retained, Subscriber.Updated)
	}
	return 0
}

// lost handles the end of the current stream.
func (c *Client) lost(ctx context.Context, r *reader) time.Duration {
	end := r.stream.Err()
	c.drop(r)
	if c.empty() {
		return 0
	}
	if end.reopen {
		if s, err := c.open(ctx, c.want()); err == nil {
			tellAll(c.adopt(ctx, s, nil), Subscriber.Updated)
			return 0
		}
	}
	c.o.Logger.LogAttrs(ctx, slog.LevelDebug, "listen ended", logattr.Err(end))
	return c.failed(end)
}

// reopen makes the attempt that is due.
func (c *Client) reopen(ctx context.Context) time.Duration {
	want := c.want()
	if want.Empty() {
		c.resetAttempts()
		return 0
	}
	s, err := c.open(ctx, want)
	if err != nil {
		c.reject(err)
		return c.failed(err)
	}
	tellAll(c.adopt(ctx, s, nil), Subscriber.Restored)
	return 0
}

func (c *Client) open(ctx context.Context, want Filter) (*Stream, error) {
	s, err := c.opener.Open(ctx, want)
	if err != nil {
		return nil, err
	}
	c.o.Logger.LogAttrs(ctx, slog.LevelDebug, "listen opened", logattr.Count(len(want.ResourceSubscriptions)))
	return s, nil
}

// drop forgets the current stream, which is over.
func (c *Client) drop(r *reader) {
	c.settle(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cur = nil
}

// settle counts what a stream was worth when it is over: one that lived long
// enough, or delivered, begins a new count of attempts. It is asked here rather
// than told by a timer, so that nothing runs meanwhile.
func (c *Client) settle(r *reader) {
	r.mu.Lock()
	healthy := r.delivered || time.Since(r.since) >= c.o.Healthy
	r.mu.Unlock()
	if healthy {
		c.resetAttempts()
	}
}

func (c *Client) resetAttempts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = 0
}

// failed plans the next attempt after cause, or gives up. Subscriptions that
// were promised to nobody yet are not concerned.
func (c *Client) failed(cause error) time.Duration {
	c.mu.Lock()
	c.attempts++
	n := c.attempts
	var active []*subscription
	for _, s := range c.allLocked() {
		if s.active {
			active = append(active, s)
		}
	}
	giveUp := n > c.o.Attempts || permanent(cause)
	if giveUp || len(active) == 0 {
		c.attempts = 0
		for _, s := range active {
			c.dropLocked(s)
		}
		giveUp = true
		if len(c.topics) > 0 {
			c.change() // who came meanwhile is served as a first one
		}
	}
	c.mu.Unlock()
	if giveUp {
		for _, s := range active {
			s.fail(cause)
		}
		return 0
	}
	delay := c.o.Backoff << (n - 1)
	for _, s := range active {
		s.tell(func(sink Subscriber) { sink.Interrupted(cause, n, delay) })
	}
	return delay
}

// permanent reports whether trying again is of no use. A bare HTTP 404 may be a
// proxy whose server is being replaced, so it is final only as an answer to the
// first listen.
func permanent(err error) bool {
	var p *PermanentError
	if errors.As(err, &p) {
		return true
	}
	var none *NoListenError
	var status *StatusError
	return errors.As(err, &none) && (!errors.As(none.Err, &status) || status.Status != http.StatusNotFound)
}

// reject answers those who still wait.
func (c *Client) reject(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.allLocked() {
		if !s.active {
			c.dropLocked(s)
			s.decide(err)
		}
	}
}

// adopt makes a stream the current one: it decides who is served, closes the
// stream that it replaces, if any, and starts to read. It returns those who
// were served before.
func (c *Client) adopt(ctx context.Context, s *Stream, old *reader) (retained []*subscription) {
	r := &reader{stream: s, since: time.Now(), gone: make(chan struct{}), hurry: make(chan struct{})}
	if old != nil {
		old.mu.Lock()
		old.deferred = map[string]time.Time{}
		old.mu.Unlock()
	}
	c.mu.Lock()
	c.seq++
	r.seq = c.seq
	c.cur = r
	if old != nil {
		c.fading = append(c.fading, old)
		if len(c.fading) > maxOverlap {
			close(c.fading[0].hurry)
			c.fading = c.fading[1:]
		}
	}
	maps.DeleteFunc(c.told, func(uri string, _ told) bool { return c.topics[uri] == nil })
	c.mu.Unlock()
	retained = c.grant(s)
	c.wg.Go(func() { c.read(ctx, r) })
	if old != nil {
		c.wg.Go(func() { c.retire(old) })
	}
	return retained
}

// grant decides about all whose URI the stream was asked for, and returns those
// who were served before and still are.
func (c *Client) grant(s *Stream) (retained []*subscription) {
	granted, asked := set(s.Filter().ResourceSubscriptions), set(s.asked.ResourceSubscriptions)
	var refused []*subscription
	c.mu.Lock()
	for _, sub := range c.allLocked() {
		_, wasAsked := asked[sub.uri]
		_, ok := granted[sub.uri]
		switch {
		case !wasAsked: // came meanwhile
		case ok && sub.active:
			retained = append(retained, sub)
		case ok:
			sub.active = true
			sub.decide(nil)
		case sub.active:
			c.dropLocked(sub)
			refused = append(refused, sub)
		default:
			c.dropLocked(sub)
			sub.decide(&RefusedError{URI: sub.uri, Err: s.Refusal(sub.uri)})
		}
	}
	c.mu.Unlock()
	for _, sub := range refused {
		sub.fail(&RefusedError{URI: sub.uri, Err: s.Refusal(sub.uri)})
	}
	return retained
}

func tellAll(subs []*subscription, f func(Subscriber)) {
	for _, sub := range subs {
		sub.tell(f)
	}
}

// retire closes a replaced stream after the overlap and tells what only it said.
func (c *Client) retire(old *reader) {
	t := c.timer(overlap)
	defer t.Stop()
	select {
	case <-t.C:
	case <-old.hurry:
	case <-old.stream.Done():
	case <-c.closed:
	}
	c.mu.Lock()
	c.fading = slices.DeleteFunc(c.fading, func(r *reader) bool { return r == old })
	c.mu.Unlock()
	old.stream.hangUp()
	<-old.gone
	old.mu.Lock()
	deferred := old.deferred
	old.mu.Unlock()
	for _, uri := range slices.Sorted(maps.Keys(deferred)) {
		c.deliver(uri, old.seq, deferred[uri], true)
	}
}

// read fetches the news of one stream until it ends.
func (c *Client) read(ctx context.Context, r *reader) {
	for {
		b, arrived, err := r.stream.next(ctx)
		if err != nil {
			break
		}
		if r.keep(b.URIs, arrived) {
			continue
		}
		for i, uri := range b.URIs {
			c.deliver(uri, r.seq, arrived[i], false)
		}
	}
	close(r.gone)
	select {
	case c.ended <- r:
	case <-c.closed:
	}
}

// keep notes that the stream delivered, and holds it back if the stream is
// replaced.
func (r *reader) keep(uris []string, arrived []time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered = true
	if r.deferred == nil {
		return false
	}
	for i, uri := range uris {
		r.deferred[uri] = arrived[i]
	}
	return true
}

// deliver tells the subscribers of a URI that it changed, unless they have been
// told since that arrived: what they read after that shows the change. What a
// replaced stream said and its successor told of itself, before or after, is
// the same: the successor tells of all changes since it was opened, and the old
// one knows of no later ones.
func (c *Client) deliver(uri string, seq int, arrived time.Time, replaced bool) {
	c.mu.Lock()
	last := c.told[uri]
	if last.at.After(arrived) || (replaced && last.seq > seq) {
		c.mu.Unlock()
		return
	}
	c.told[uri] = told{at: time.Now(), seq: max(last.seq, seq)}
	var subs []*subscription
	for _, sub := range c.topics[uri] {
		if sub.active {
			subs = append(subs, sub)
		}
	}
	c.mu.Unlock()
	tellAll(subs, Subscriber.Updated)
}
