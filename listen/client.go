package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Defaults of the reconnecting of a [Client] (specification W-050, W-051, WA-09).
const (
	// DefaultAttempts is the number of attempts to reopen before a subscription
	// fails.
	DefaultAttempts = 5
	// DefaultBackoff is the delay before the first attempt; each further one
	// waits twice as long as the one before.
	DefaultBackoff = time.Second
	// DefaultHealthy is the age at which a listen counts as healthy, so that its
	// end begins a new count of attempts.
	DefaultHealthy = 30 * time.Second
)

const (
	// overlap is how long a replaced stream is read on, for what was under way
	// when its successor was acknowledged: on its own connection, or in the queues
	// of the server.
	overlap = 500 * time.Millisecond
	// maxOverlap bounds the streams that are read on, for subscriptions that come
	// one after another: the oldest, which has seen as many round trips, goes first.
	maxOverlap = 4
)

// ErrClientClosed is returned by a [Client] that was closed.
var ErrClientClosed = errors.New("listen: client is closed")

// RefusedError says that the server left a URI out of its acknowledgement.
type RefusedError struct {
	URI string
	Err error // why, where the server told; else nil
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("server refused to announce changes of %q", e.URI)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the server's reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// Subscriber hears about one subscription of a [Client]. Its methods must not
// block and must not call the subscription's cancel.
type Subscriber interface {
	// Updated says that the resource changed: read it now. Calls coalesce.
	Updated()
	// Interrupted says that the listen ended and will be reopened after delay;
	// attempt counts from 1.
	Interrupted(cause error, attempt int, delay time.Duration)
	// Restored says that the listen is up again: read once to close the gap.
	Restored()
	// Failed says that the subscription is over for good.
	Failed(cause error)
}

// ClientOptions refine a [Client]. Zero fields take the defaults.
type ClientOptions struct {
	Attempts int
	Backoff  time.Duration
	Healthy  time.Duration
	// Logger hears of opened and lost listens; nil is none.
	Logger *slog.Logger
}

// Client keeps the subscriptions of one server alive on one listen for all
// their URIs.
//
// When the set of URIs changes it opens a listen with the new set and then
// closes the old one. When a listen ends it is opened again after 1, 2, 4, 8
// and 16 seconds, one attempt at a time for all subscriptions together; after
// the fifth failure they fail. The count begins anew once a listen was
// acknowledged and then lived for 30 seconds or delivered an update: a server
// that accepts and hangs up gets no more attempts than one that is down. A
// polite end is no failure, but is subject to the same rule.
//
// While a listen is healthy nothing runs: no timer, no request, no goroutine
// wakes (specification W-052). Close must be called.
type Client struct {
	opener Opener
	o      ClientOptions
	timer  func(time.Duration) *time.Timer // time.NewTimer; tests count

	kick   chan struct{} // capacity 1: the set of URIs changed
	ended  chan *reader
	closed chan struct{} // closed by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	running  bool
	isClosed bool
	topics   map[string][]*subscription // by URI
	cur      *reader                    // nil without a listen
	fading   []*reader                  // replaced, and read on for a while
	seq      int                        // of the last stream
	told     map[string]told            // by URI: see Client.deliver
	// attempts made since the last healthy listen.
	attempts int
}

// subscription is one call of Add. It is pending until the server has
// acknowledged its URI.
type subscription struct {
	uri     string
	sink    Subscriber
	decided chan error // capacity 1: the outcome of Add
	active  bool       // under Client.mu

	mu   sync.Mutex // held during callbacks, so that none outlives cancel
	over bool
}

// tell calls f unless the subscription is over.
func (s *subscription) tell(f func(Subscriber)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		f(s.sink)
	}
}

// fail tells the subscriber of the end, once.
func (s *subscription) fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		s.sink.Failed(cause)
	}
}

func (s *subscription) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// NewClient returns a supervisor of listens that opener opens. It opens nothing
// until something is subscribed to.
func NewClient(opener Opener, o *ClientOptions) *Client {
	c := &Client{
		opener: opener, timer: time.NewTimer, topics: map[string][]*subscription{}, told: map[string]told{},
		kick: make(chan struct{}, 1), ended: make(chan *reader), closed: make(chan struct{}),
	}
	if o != nil {
		c.o = *o
	}
	if c.o.Attempts == 0 {
		c.o.Attempts = DefaultAttempts
	}
	if c.o.Backoff == 0 {
		c.o.Backoff = DefaultBackoff
	}
	if c.o.Healthy == 0 {
		c.o.Healthy = DefaultHealthy
	}
	if c.o.Logger == nil {
		c.o.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Add subscribes to a URI and returns once the server has acknowledged it. While
// the listen is being reopened it waits for the next attempt. Calls at the same
// time share one opening. cancel ends the subscription; nothing is reported
// after it has returned. Errors: [*RefusedError], [*NoListenError],
// [ErrClientClosed], ctx's error, or why the listen could not be opened.
func (c *Client) Add(ctx context.Context, uri string, sink Subscriber) (cancel func(), err error) {
	s := &subscription{uri: uri, sink: sink, decided: make(chan error, 1)}
	if err := c.enlist(s); err != nil {
		return nil, err
	}
	select {
	case err = <-s.decided:
	case <-ctx.Done():
		err = fmt.Errorf("subscribe to %s: %w", uri, context.Cause(ctx))
	}
	if err != nil {
		c.remove(s)
		return nil, err
	}
	return func() { c.remove(s) }, nil
}

// enlist adds a subscription: at once where the listen has its URI already.
func (c *Client) enlist(s *subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return ErrClientClosed
	}
	c.topics[s.uri] = append(c.topics[s.uri], s)
	if c.cur != nil && c.cur.stream.Err() == nil && slices.ContainsFunc(c.topics[s.uri], func(o *subscription) bool { return o.active }) {
		s.active = true
		s.decided <- nil
		return nil
	}
	if !c.running {
		c.running = true
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel = cancel
		c.wg.Go(func() { c.run(ctx) })
	}
	c.change()
	return nil
}

func (c *Client) remove(s *subscription) {
	s.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropLocked(s) {
		c.change()
	}
}

// dropLocked takes a subscription out and reports whether its URI went with it.
func (c *Client) dropLocked(s *subscription) bool {
	list, ok := c.topics[s.uri]
	if !ok {
		return false
	}
	list = slices.DeleteFunc(list, func(o *subscription) bool { return o == s })
	if len(list) > 0 {
		c.topics[s.uri] = list
		return false
	}
	delete(c.topics, s.uri)
	return true
}

// change wakes the supervisor because the set of URIs is another.
func (c *Client) change() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Close cancels all subscriptions and the listen, and waits until nothing runs.
// Subscribers hear nothing more; calls of Add that wait get ErrClientClosed.
func (c *Client) Close() {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		c.wg.Wait()
		return
	}
	c.isClosed = true
	all := c.allLocked()
	c.topics = map[string][]*subscription{}
	if c.cancel != nil {
		c.cancel()
	}
	close(c.closed)
	c.mu.Unlock()
	for _, s := range all {
		s.stop()
		s.decide(ErrClientClosed)
	}
	c.wg.Wait()
}

// decide ends the wait of Add. Only the first decision counts.
func (s *subscription) decide(err error) {
	select {
	case s.decided <- err:
	default:
	}
}

func (c *Client) allLocked() []*subscription {
	var all []*subscription
	for _, list := range c.topics {
		all = append(all, list...)
	}
	return all
}
