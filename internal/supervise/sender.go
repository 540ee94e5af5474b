package supervise

import (
	"context"
	"errors"
	"sync"
	"time"
)

// DefaultTimeout is how long Send waits.
const DefaultTimeout = time.Second

// tryTime bounds one try of a Sender, which may have to connect first. It is
// longer than anybody waits for it.
const tryTime = 5 * time.Second

// Errors of Send.
var (
	// ErrClosed: the sender was closed.
	ErrClosed = errors.New("it is closed")
	// ErrSlow: the server has not answered in time. It will be tried again.
	ErrSlow = errors.New("no answer in time")
)

// Sender passes on values of which only the newest matters. While one is on its
// way the next ones replace each other, and what could not be sent is sent when
// the server is back, or whatever is newer by then. So it holds at most two
// values, and whoever sends never waits for long.
type Sender[T any] struct {
	send    func(ctx context.Context, v T) error
	part    *Part
	o       Options
	timeout time.Duration
	bell    chan struct{} // there is a turn
	nudge   chan struct{} // it may work again
	cancel  context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	next   *turn[T] // what is to be sent next
	down   error    // of the last try
	closed bool
}

// turn is a value and those who wait until it is sent.
type turn[T any] struct {
	v    T
	done chan struct{} // closed when err is set
	err  error
}

// NewSender returns a sender that works until Close. Send waits for timeout at
// the most; each call of send has a deadline. part is told how it went. what names
// it in the log.
func NewSender[T any](o Options, timeout time.Duration, part *Part, what string, send func(ctx context.Context, v T) error) *Sender[T] {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender[T]{
		send: send, part: part, o: o, timeout: timeout,
		bell: make(chan struct{}, 1), nudge: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		s.run(ctx, what)
	}()
	return s
}

// Send returns when v, or something newer, was sent. It returns an error at once
// while the server is down or has kept somebody waiting, and else after the
// timeout; v is sent later all the same. Errors: ErrClosed, ErrSlow, that of ctx,
// that of the last try.
func (s *Sender[T]) Send(ctx context.Context, v T) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.next == nil {
		s.next = &turn[T]{done: make(chan struct{})}
	}
	t := s.next
	t.v = v
	down := s.down
	s.mu.Unlock()
	signal(s.bell)
	if down != nil {
		return down
	}
	limit := time.NewTimer(s.timeout)
	defer limit.Stop()
	select {
	case <-t.done:
		return t.err
	case <-limit.C:
		return s.slow(t)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow has nobody else wait until the try under way has come to an end.
func (s *Sender[T]) slow(t *turn[T]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.done: // just now
		return t.err
	default:
	}
	if s.down == nil {
		s.down = ErrSlow
		s.part.Note(ErrSlow)
	}
	return ErrSlow
}

// Nudge has a sender whose server was down try at once.
func (s *Sender[T]) Nudge() { signal(s.nudge) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close ends the try that is under way, and waits for it. What was not sent is
// dropped.
func (s *Sender[T]) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	<-s.done
}

func (s *Sender[T]) run(ctx context.Context, what string) {
	failures := 0
	for {
		if failures == 0 {
			select {
			case <-s.bell:
			case <-ctx.Done():
			}
		}
		t := s.take()
		if ctx.Err() != nil {
			s.finish(t, ErrClosed)
			return
		}
		if t == nil {
			continue
		}
		err := s.try(ctx, t.v)
		s.finish(t, err)
		if err == nil {
			s.o.recovered(ctx, what, failures)
			failures = 0
			continue
		}
		failures++
		s.owe(t.v)
		pause := s.o.pause(failures)
		if ctx.Err() == nil {
			s.o.report(ctx, what, err, failures, pause)
		}
		sleep(ctx, pause, s.nudge) // an old nudge costs one try
	}
}

func (s *Sender[T]) try(ctx context.Context, v T) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.timeout, tryTime))
	defer cancel()
	return s.send(ctx, v)
}

func (s *Sender[T]) take() *turn[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.next
	s.next = nil
	return t
}

// finish tells those who wait for a turn.
func (s *Sender[T]) finish(t *turn[T], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
	s.part.Note(err)
	if t != nil {
		t.err = err
		close(t.done)
	}
}

// owe keeps a value to be sent, unless there is a newer one.
func (s *Sender[T]) owe(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &turn[T]{v: v, done: make(chan struct{})}
	}
}
