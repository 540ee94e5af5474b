package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ossicle/ossicle/internal/logattr"
)

// place is one resource of one server.
type place struct{ server, uri string }

// subscription is one watched resource: one subscription at the server and one
// reader, shared by all watches of the URI (M-15, WA-08).
//
// At most one read runs, and whatever happens meanwhile asks for exactly one
// more. Nothing runs while nothing happens: the reader is a goroutine that
// begins with a reason and ends without one.
type subscription struct {
	m      *Manager
	server Server
	uri    string

	ready chan struct{} // closed when Subscribe has answered
	err   error         // its error; read after ready
	abort context.CancelFunc

	// refs counts watches and starts; the manager's lock guards it.
	refs int

	mu          sync.Mutex
	cancel      func() // of the server's subscription
	released    bool
	failed      error
	interrupted bool
	reading     bool // the reader runs
	wanted      bool // a read is due
	joins       []*join
	watches     []*runningWatch
	last        *State
	retry       *time.Timer
	attempt     int
}

// join is a watch that waits for its baseline.
type join struct {
	watch *runningWatch
	done  chan error // buffered
	shape Shape      // set before done is
	gone  bool       // nobody waits any more
}

// acquire returns the subscription of a place once the server has acknowledged
// it, and counts a use of it. The caller releases it.
func (m *Manager) acquire(ctx context.Context, server Server, uri string) (*subscription, error) {
	at := place{server.Name(), uri}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, ErrClosed
	}
	s := m.subs[at]
	if s == nil {
		s = &subscription{m: m, server: server, uri: uri, ready: make(chan struct{}), abort: func() {}}
		m.subs[at] = s
		s.abort = m.crew.spawn(s.open)
	}
	s.refs++
	m.mu.Unlock()
	select {
	case <-s.ready:
		if s.err == nil {
			return s, nil
		}
		m.release(s)
		return nil, s.err
	case <-ctx.Done():
		m.release(s)
		return nil, fmt.Errorf("subscribe to %q: %w", uri, ctx.Err())
	case <-m.crew.over:
		m.release(s)
		return nil, ErrClosed
	}
}

// release ends the subscription with its last use.
func (m *Manager) release(s *subscription) {
	m.mu.Lock()
	s.refs--
	last := s.refs == 0
	if at := (place{s.server.Name(), s.uri}); last && m.subs[at] == s {
		delete(m.subs, at)
	}
	m.mu.Unlock()
	if last {
		s.close()
	}
}

// forget makes later starts open a subscription of their own, because this one
// is over.
func (m *Manager) forget(s *subscription) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := (place{s.server.Name(), s.uri}); m.subs[at] == s {
		delete(m.subs, at)
	}
}

// open subscribes at the server.
func (s *subscription) open(ctx context.Context) {
	defer close(s.ready)
	ctx, stop := context.WithTimeout(ctx, s.m.limits.ReadTime)
	defer stop()
	cancel, err := s.server.Subscribe(ctx, s.uri, s)
	if err != nil {
		s.err = fmt.Errorf("subscribe to %q at server %q: %w", s.uri, s.server.Name(), err)
		s.m.forget(s)
		return
	}
	s.m.log.LogAttrs(ctx, levelDetail, "watch.subscribed", logattr.URI(s.uri), logattr.Server(s.server.Name()))
	s.mu.Lock()
	s.cancel = cancel
	released := s.released
	s.mu.Unlock()
	if released {
		cancel()
	}
}

func (s *subscription) close() {
	s.abort()
	s.mu.Lock()
	s.released = true
	cancel := s.cancel
	if s.retry != nil {
		s.retry.Stop()
	}
	s.mu.Unlock()
	if cancel != nil {
		cancel() // reports nothing afterwards, and may wait for what it reports now
	}
}

// Updated asks for a read.
func (s *subscription) Updated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wantLocked()
}

// Interrupted notes that the server's listen is down.
func (s *subscription) Interrupted(cause error, attempt int, delay time.Duration) {
	s.mu.Lock()
	s.interrupted = true
	s.mu.Unlock()
	s.m.log.LogAttrs(context.Background(), levelDetail, "watch.resubscribing", logattr.URI(s.uri), logattr.Server(s.server.Name()),
		logattr.Attempt(attempt), logattr.Delay(delay), logattr.Err(cause))
}

// Restored asks for the read that closes the gap (W-053).
func (s *subscription) Restored() {
	s.m.log.LogAttrs(context.Background(), levelDetail, "watch.subscribed", logattr.URI(s.uri), logattr.Server(s.server.Name()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted, s.attempt = false, 0
	s.wantLocked()
}

// Failed ends all watches of the resource (W-051).
func (s *subscription) Failed(cause error) {
	if cause == nil {
		cause = errors.New("the subscription ended")
	}
	s.mu.Lock()
	if s.failed != nil || s.released {
		s.mu.Unlock()
		return
	}
	s.failed = cause
	watches := s.watches
	s.watches = nil
	for _, j := range s.joins {
		j.done <- cause
	}
	s.joins = nil
	if s.retry != nil {
		s.retry.Stop()
	}
	s.mu.Unlock()
	s.m.crew.spawn(func(ctx context.Context) {
		s.m.forget(s)
		for _, w := range watches {
			s.m.watchFailed(ctx, w, cause)
		}
	})
}

// join reads the baseline of a watch and attaches it: every read that begins
// later is delivered to it (W-006, W-044, W-115).
func (s *subscription) join(ctx context.Context, w *runningWatch) (Shape, error) {
	j := &join{watch: w, done: make(chan error, 1)}
	s.mu.Lock()
	if s.failed != nil {
		s.mu.Unlock()
		return "", fmt.Errorf("subscribe to %q: %w", s.uri, s.failed)
	}
	s.joins = append(s.joins, j)
	s.wantLocked()
	s.mu.Unlock()
	var err error
	select {
	case err = <-j.done:
		return j.shape, err
	case <-ctx.Done():
		err = fmt.Errorf("read %q: %w", s.uri, ctx.Err())
	case <-s.m.crew.over:
		err = ErrClosed
	}
	s.mu.Lock()
	j.gone = true
	s.mu.Unlock()
	s.leave(w)
	return "", err
}

// leave detaches a watch.
func (s *subscription) leave(w *runningWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.watches {
		if other == w {
			s.watches = append(s.watches[:i:i], s.watches[i+1:]...)
			return
		}
	}
}

func (s *subscription) wantLocked() {
	if s.released || s.failed != nil {
		return
	}
	if s.retry != nil {
		s.retry.Stop() // this read takes its place
		s.retry = nil
	}
	s.wanted = true
	if !s.reading {
		s.reading = true
		s.m.crew.spawn(s.read)
	}
}

// read is the reader: it reads as long as reads are wanted.
func (s *subscription) read(ctx context.Context) {
	for {
		s.mu.Lock()
		if !s.wanted || s.released || s.failed != nil || ctx.Err() != nil {
			s.reading = false
			for _, j := range s.joins {
				j.done <- ErrClosed
			}
			s.joins = nil
			s.mu.Unlock()
			return
		}
		s.wanted = false
		joins := s.joins
		s.joins = nil
		after, last := s.afterLocked(), s.last
		s.mu.Unlock()
		r, err := s.readOnce(ctx, after, last)
		s.distribute(r, err, joins)
	}
}

// afterLocked is the position behind which all watches want to read, nil for
// a whole read: of the cursors, the one that is farthest behind. A watch that
// is busy is given the latest read only; because that read begins behind the
// watch's own cursor, it still has everything that the watch has not seen.
func (s *subscription) afterLocked() *int64 {
	var after *int64
	for _, w := range s.watches {
		position, ok := w.position()
		if !ok {
			return nil
		}
		if after == nil || position < *after {
			after = &position
		}
	}
	return after
}

// readOnce reads the resource. An answer to a cursor that cannot belong to the
// log that the cursor was taken from is read again, whole.
func (s *subscription) readOnce(ctx context.Context, after *int64, last *State) (*reading, error) {
	body, err := s.fetch(ctx, after)
	if err != nil {
		return nil, err
	}
	r := newReading(body, last, after != nil)
	if after == nil || !s.beganAnew(r) {
		return r, nil
	}
	if body, err = s.fetch(ctx, nil); err != nil {
		return nil, err
	}
	return newReading(body, last, false), nil
}

func (s *subscription) beganAnew(r *reading) bool {
	if r.log == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.restarted(r.log) {
			return true
		}
	}
	return false
}

func (s *subscription) fetch(ctx context.Context, after *int64) (Body, error) {
	ctx, stop := context.WithTimeout(ctx, s.m.limits.ReadTime)
	defer stop()
	body, err := s.server.Read(ctx, s.uri, after)
	if err != nil {
		return Body{}, fmt.Errorf("read %q: %w", s.uri, err)
	}
	if len(body.Text) > s.m.limits.Body {
		return Body{}, fmt.Errorf("read %q: the body has %d bytes, more than %d", s.uri, len(body.Text), s.m.limits.Body)
	}
	return body, nil
}

// distribute gives a read, or its failure, to those who wait for it.
func (s *subscription) distribute(r *reading, err error, joins []*join) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && r.state != nil {
		s.last = r.state
	}
	if err != nil {
		s.retryLocked(err)
	} else {
		s.attempt = 0
		for _, w := range s.watches {
			w.offer(r)
		}
	}
	for _, j := range joins {
		s.answerLocked(j, r, err)
	}
}

func (s *subscription) answerLocked(j *join, r *reading, err error) {
	switch {
	case err == nil && s.failed != nil:
		err = s.failed
	case err == nil && r.state == nil && r.log == nil:
		err = fmt.Errorf("read %q: %s", s.uri, r.fault)
	}
	if err == nil && !j.gone {
		j.shape = r.shape
		j.watch.begin(r)
		s.watches = append(s.watches, j.watch)
	}
	j.done <- err
}

// retryLocked arms a timer after a read that failed, so that the change which
// was announced is not lost; when the tries are used up, or cannot help, the
// watches are told. A listen that is down needs none: its return asks for a read.
func (s *subscription) retryLocked(err error) {
	if len(s.watches) == 0 || s.interrupted || s.released || s.failed != nil || s.wanted {
		return
	}
	s.attempt++
	delay, ok := Backoff(s.attempt)
	if !ok || notThere(err) {
		s.attempt = 0
		for _, w := range s.watches {
			w.offer(faultReading(err))
		}
		return
	}
	s.m.log.LogAttrs(context.Background(), levelDetail, "watch.read_failed", logattr.URI(s.uri), logattr.Server(s.server.Name()),
		logattr.Attempt(s.attempt), logattr.Delay(delay), logattr.Err(err))
	s.retry = time.AfterFunc(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retry = nil
		s.wantLocked()
	})
}

// notThere reports whether the server itself says that it has no such resource
// (-32602; -32002 before 2026-07-28). Asking again would not help: when the
// resource is back, its announcement says so.
func notThere(err error) bool {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && (wire.Code == jsonrpc.CodeInvalidParams || wire.Code == -32002)
}
