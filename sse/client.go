package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Defaults of Options.
const (
	// DefaultSilence is three heartbeats of 15 s.
	DefaultSilence    = 45 * time.Second
	DefaultMinBackoff = time.Second
	DefaultMaxBackoff = 30 * time.Second
	DefaultHealthy    = 10 * time.Second
)

const (
	// MaxID bounds the id that a client remembers, in bytes. A longer one, or one
	// that no header can carry, is not remembered.
	MaxID = 1024
	// MaxRetryAfter bounds for how long a server can turn a client away.
	MaxRetryAfter = 5 * time.Minute
)

// Options adjust a Client. Zero fields take the defaults.
type Options struct {
	// HTTP sends the requests. It must not have a Timeout, which would end every
	// stream. Default: a client on http.DefaultTransport.
	HTTP *http.Client
	// Header is added to every request.
	Header http.Header
	// LastID is where to resume; empty means that the server decides.
	LastID string
	// MaxEvent bounds one event, in bytes: DefaultMaxEvent.
	MaxEvent int
	// Silence is for how long a server may send nothing at all, also before it
	// answers. Negative means for ever.
	Silence time.Duration
	// MinBackoff and MaxBackoff bound the wait between two connections: it
	// doubles from one to the other, and up to a second of jitter is added.
	MinBackoff, MaxBackoff time.Duration
	// Healthy is how long a stream must live, and have delivered an event or a
	// comment, for the backoff to begin anew. A server that accepts, greets and
	// closes is never hammered.
	Healthy time.Duration
	// Lost, when set, is told why there is no stream and when the next try is.
	Lost func(cause error, wait time.Duration)
}

// Handler takes one event. An error ends the client; the event then counts as
// not handled.
type Handler func(ctx context.Context, e Event) error

// Client follows one event stream across connections (specification F-23). Each
// event that the server sends is handled at least once.
type Client struct {
	url     string
	handler Handler
	o       Options
	jitter  func() time.Duration

	mu   sync.Mutex
	last string
}

// NewClient returns a client of the stream at the address, which must be http or
// https. Nothing is sent before Run.
func NewClient(address string, handler Handler, o *Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("new client: %q is no http or https address", u.Redacted())
	}
	c := &Client{url: address, handler: handler, jitter: func() time.Duration { return rand.N(time.Second) }}
	if o != nil {
		c.o = *o
	}
	c.o.setDefaults()
	if !c.remember(c.o.LastID) {
		return nil, fmt.Errorf("new client: %w", &FieldError{"Last-Event-ID", c.o.LastID})
	}
	return c, nil
}

func (o *Options) setDefaults() {
	if o.HTTP == nil {
		o.HTTP = &http.Client{}
	}
	if o.Silence == 0 {
		o.Silence = DefaultSilence
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = DefaultMinBackoff
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = DefaultMaxBackoff
	}
	o.MaxBackoff = max(o.MaxBackoff, o.MinBackoff)
	if o.Healthy <= 0 {
		o.Healthy = DefaultHealthy
	}
}

// LastID is the id of the last event that was handled, or the later one that the
// server sent without an event.
func (c *Client) LastID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Resumable reports whether a header can carry an id. A client goes on from the last
// one that is.
func Resumable(id string) bool {
	return len(id) <= MaxID && !strings.ContainsFunc(id, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f })
}

// remember keeps an id if it can be sent.
func (c *Client) remember(id string) bool {
	if !Resumable(id) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = id
	return true
}

// Run follows the stream until ctx ends, when it returns nil, or until waiting
// cannot help. Errors: *StatusError that is not Temporary (204 among them: the
// server wants no reconnection), *ContentTypeError, ErrTooLarge (resuming would
// meet the same event again), *HandlerError. It must not be called twice at once.
func (c *Client) Run(ctx context.Context) error {
	pace := pace{min: c.o.MinBackoff, max: c.o.MaxBackoff, healthy: c.o.Healthy}
	for {
		opened := time.Now()
		s := stream{client: c}
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a clean stop
		}
		if final(err) {
			return err
		}
		wait := pace.next(time.Since(opened), s.proven, s.retry, err) + c.jitter()
		if c.o.Lost != nil {
			c.o.Lost(err, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// final reports whether the next connection would end in the same way.
func final(err error) bool {
	var status *StatusError
	var content *ContentTypeError
	var handler *HandlerError
	if errors.As(err, &status) {
		return !status.Temporary()
	}
	return errors.As(err, &content) || errors.As(err, &handler) || errors.Is(err, ErrTooLarge)
}

// pace says how long to wait between connections.
type pace struct {
	min, max, healthy time.Duration
	wait              time.Duration // the last one; zero at the start
	base              time.Duration // what the server asked for, within bounds
}

// next is the wait after a connection that lived so long and ended with err.
func (p *pace) next(lived time.Duration, proven bool, retry time.Duration, err error) time.Duration {
	if retry > 0 {
		p.base = retry
	}
	if proven && lived >= p.healthy {
		p.wait = 0
	}
	p.wait = min(max(2*p.wait, p.min, min(p.base, p.max)), p.max)
	var status *StatusError
	if errors.As(err, &status) {
		return max(p.wait, status.RetryAfter)
	}
	return p.wait
}

// stream is one connection of a client.
type stream struct {
	client *Client
	proven bool          // an event or a comment came
	retry  time.Duration // what the server asked for
}

// follow opens the stream and hands out its events until it ends, which is
// always an error.
func (s *stream) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := newWatchdog(s.client.o.Silence, cancel)
	defer dog.stop()
	dog.start()
	res, err := s.client.open(ctx)
	dog.stop()
	if err != nil {
		return cause(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := check(res); err != nil {
		return err
	}
	events := NewReader(&watched{res.Body, dog}, s.client.o.MaxEvent)
	events.All = true
	events.id, events.last = s.client.LastID(), s.client.LastID()
	events.Comment = func() { s.proven = true }
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // an event stream has no end
		}
		if err != nil {
			return fmt.Errorf("read stream: %w", cause(ctx, err))
		}
		if err := s.take(ctx, e); err != nil {
			return err
		}
	}
}

func (s *stream) take(ctx context.Context, e Event) error {
	if e.Retry != "" {
		// Digits of any length: what overflows is as long as can be.
		d, err := time.ParseDuration(e.Retry + "ms")
		if err != nil {
			d = s.client.o.MaxBackoff
		}
		s.retry = d
	}
	if e.Data != nil {
		s.proven = true
		if err := s.client.handler(ctx, e); err != nil {
			if ctx.Err() != nil {
				return cause(ctx, err)
			}
			return &HandlerError{ID: e.ID, Err: err}
		}
	}
	s.client.remember(e.ID)
	return nil
}

func (c *Client) open(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	for name, values := range c.o.Header {
		req.Header[name] = append([]string(nil), values...)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Cache-Control", "no-store")
	// Compression would hold events back until a block is full.
	req.Header.Set("Accept-Encoding", "identity")
	if id := c.LastID(); id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	res, err := c.o.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return res, nil
}

// cause prefers the reason why ctx was ended to what the reader made of it.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
