package mcpserver

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// sessions keeps the lives of legacy sessions over HTTP: one ends when nothing,
// neither a request nor a stream, has used it for a while. The SDK's own timeout
// does not count streams, and so ends those who only listen.
type sessions struct {
	max  int
	idle time.Duration
	end  func(id string) // closes the SDK's session

	mu       sync.Mutex
	live     map[string]*session
	reserved int // initialize requests under way
	closed   bool
	ending   sync.WaitGroup
}

type session struct {
	uses  int
	timer *time.Timer
}

func newSessions(limit int, idle time.Duration, end func(string)) *sessions {
	return &sessions{max: limit, idle: idle, end: end, live: map[string]*session{}}
}

// reservation is the place of a session whose initialize is under way.
type reservation struct {
	s    *sessions
	used bool
}

// reserve makes room for a session, or returns nil; release must follow.
func (s *sessions) reserve() *reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.live)+s.reserved >= s.max {
		return nil
	}
	s.reserved++
	return &reservation{s: s}
}

// begin gives the place to the session. The id is empty where initialize has
// failed.
func (r *reservation) begin(id string) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" || r.used {
		return
	}
	r.used = true
	s.reserved--
	if s.closed {
		s.expireLocked(id)
		return
	}
	s.live[id] = &session{timer: s.timer(id)}
}

// release gives the place back if no session has taken it.
func (r *reservation) release() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if !r.used {
		r.used = true
		r.s.reserved--
	}
}

func (s *sessions) timer(id string) *time.Timer {
	return time.AfterFunc(s.idle, func() { s.expire(id) })
}

// use counts a request or a stream of the session, until done is called.
func (s *sessions) use(id string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.live[id]
	if ses == nil {
		return func() {} // the SDK answers that there is none
	}
	ses.uses++
	ses.timer.Stop()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ses.uses--; ses.uses == 0 && s.live[id] == ses {
			ses.timer.Reset(s.idle)
		}
	}
}

// forget drops a session that its client has ended. One that the SDK does not
// know is no session of ours either.
func (s *sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.live[id]; ses != nil {
		ses.timer.Stop()
		delete(s.live, id)
	}
}

func (s *sessions) expire(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.live[id]; ses == nil || ses.uses > 0 || s.closed {
		return
	}
	s.expireLocked(id)
}

// expireLocked ends a session in the background: the SDK waits for its requests.
func (s *sessions) expireLocked(id string) {
	delete(s.live, id)
	s.ending.Go(func() { s.end(id) })
}

// close ends all sessions and waits until they are, or ctx is over.
func (s *sessions) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for id, ses := range s.live {
		ses.timer.Stop()
		s.expireLocked(id)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ending.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// requests counts the HTTP requests under way, so that a shutdown can wait for
// them and end the streams that would go on for ever.
type requests struct {
	mu      sync.Mutex
	n       int
	refused bool
	idle    chan struct{} // closed when refused and none is left
	streams map[int]context.CancelFunc
	seq     int
}

func newRequests() *requests {
	return &requests{idle: make(chan struct{}), streams: map[int]context.CancelFunc{}}
}

// begin counts a request in. The context of a GET, which is a legacy session's
// stream, ends with the shutdown.
func (q *requests) begin(r *http.Request) (ctx context.Context, done func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused {
		return nil, nil, false
	}
	q.n++
	q.seq++
	id, ctx := q.seq, r.Context()
	cancel := func() {}
	if r.Method == http.MethodGet {
		ctx, cancel = context.WithCancel(ctx)
		q.streams[id] = cancel
	}
	return ctx, func() {
		cancel()
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.streams, id)
		q.n--
		q.checkLocked()
	}, true
}

// refuse lets no request in from here on, and ends the streams.
func (q *requests) refuse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = true
	for _, cancel := range q.streams {
		cancel()
	}
	q.checkLocked()
}

func (q *requests) checkLocked() {
	if !q.refused || q.n > 0 {
		return
	}
	select {
	case <-q.idle:
	default:
		close(q.idle)
	}
}

func (q *requests) wait(ctx context.Context) error {
	select {
	case <-q.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
