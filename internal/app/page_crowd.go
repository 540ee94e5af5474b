package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/pageserver"
)

// Windows: what changes within one is told at once. Text has the short one, for it
// is read as it comes; everything else, of which only the newest counts, the long.
const (
	textWindow  = 30 * time.Millisecond
	stateWindow = 200 * time.Millisecond
)

// crowd is who looks at a topic, and the way into its goroutine.
type crowd struct {
	name  pageserver.Topic
	log   *slog.Logger
	calls chan func(run context.Context)
	over  chan struct{} // closed when run has returned
	look  chan struct{} // holds a token when something outside has changed

	mu      sync.Mutex
	streams map[*pageserver.Stream]struct{}
}

func newCrowd(p *page, name pageserver.Topic) crowd {
	return crowd{
		name: name, log: p.log, calls: make(chan func(context.Context)), over: make(chan struct{}), look: make(chan struct{}, 1),
		streams: map[*pageserver.Stream]struct{}{},
	}
}

// admit has state run in the topic's goroutine, and lets the stream in behind it:
// what is pushed later is what comes after that state.
func (c *crowd) admit(ctx context.Context, to *pageserver.Stream, state func(run context.Context) (any, error)) (err error) {
	done := make(chan struct{})
	enter := func(run context.Context) {
		defer close(done)
		var v any
		if v, err = state(run); err == nil {
			err = to.Answer(v)
		}
		if err == nil {
			c.mu.Lock()
			c.streams[to] = struct{}{}
			c.mu.Unlock()
		}
	}
	select {
	case c.calls <- enter:
		<-done
		return err
	case <-c.over:
		return errPageEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attend is the goroutine of a topic of which only the newest state counts, until
// ctx ends. ready, if there is one, runs before somebody is let in; flush tells what
// has changed, and does not begin twice within a window.
func (c *crowd) attend(ctx context.Context, ready, flush func(context.Context)) {
	var last time.Time
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	tell := func() {
		last = time.Now()
		flush(ctx)
	}
	for {
		select {
		case enter := <-c.calls:
			if ready != nil {
				ready(ctx)
			}
			enter(ctx)
		case <-c.look:
			if wait := time.Until(last.Add(stateWindow)); wait > 0 {
				timer.Reset(wait)
				continue
			}
			tell()
		case <-timer.C:
			tell()
		case <-ctx.Done():
			return
		}
	}
}

func (c *crowd) leave(to *pageserver.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, to)
}

// ring says that something outside has changed.
func (c *crowd) ring() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// push tells everybody, or those who may see the session.
func (c *crowd) push(action string, data any, session string) {
	f, err := pageserver.NewFrame(c.name, action, data)
	if err != nil { // something in it is no JSON: nobody can be told
		c.log.Error("what changed cannot be told to the page", logattr.Event(action), logattr.Err(err))
		c.gap()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		if (session == "" || s.May(session)) && !s.Push(f) {
			delete(c.streams, s)
		}
	}
}

// gap ends all subscriptions: they begin again with the state.
func (c *crowd) gap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		s.Gap()
	}
	clear(c.streams)
}
