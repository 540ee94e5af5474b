package pageserver

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Backend is what there is to see. It is asked for what the client may see, and
// nothing else.
type Backend interface {
	// Open begins a subscription: it calls to.Answer once with the state, and from
	// then on, until leave is called, to.Push for each change behind that state, in
	// order. Leave does not block for long, and follows exactly once unless there is
	// an error. After is where a terminal goes on, 0 for its beginning.
	Open(ctx context.Context, topic Topic, after int64, to *Stream) (leave func(), err error)
	// Call does what a client asks for, and returns the result.
	Call(ctx context.Context, call *Call) (result any, err error)
}

// ErrOver says that the client has ended the subscription, or has gone.
var ErrOver = errors.New("subscribe: it is over")

// Stream is one subscription of one client. It is safe for concurrent use.
type Stream struct {
	c     *conn
	topic Topic
	id    int64 // of the request

	settled sync.Once // the request is no longer under way

	// Under the queue's lock.
	over     bool
	answered bool
	leave    func()
}

// Topic is what the subscription is to.
func (s *Stream) Topic() Topic { return s.topic }

// May reports whether the client may see a session, or an inbox, of a topic of
// several.
func (s *Stream) May(session string) bool { return s.c.who == nil || s.c.who.Rights.Session(session) }

// Answer sends the state with which the subscription begins. It does not block.
// Errors: ErrOver.
func (s *Stream) Answer(snapshot any) error {
	f, err := resultFrame(s.id, snapshot)
	if err != nil {
		return err
	}
	s.c.queue.mu.Lock()
	over := s.over || s.c.queue.closed
	s.answered = !over
	s.c.queue.mu.Unlock()
	if over {
		return ErrOver
	}
	s.settle()
	s.c.answer(f)
	return nil
}

// settle counts the request out, before its answer is queued: whoever has that may
// ask for more.
func (s *Stream) settle() { s.settled.Do(s.c.leave) }

// Push sends a change. It does not block. It reports whether the subscription
// goes on: the backend forgets one that does not.
func (s *Stream) Push(f *Frame) bool {
	alive, hopeless := s.c.queue.push(s, f, time.Now())
	if hopeless {
		s.c.end(closeSlow, "too slow: come again")
	}
	return alive
}

// Gap ends the subscription because the backend has lost track of the changes.
func (s *Stream) Gap() {
	q := s.c.queue
	q.mu.Lock()
	hopeless := !q.closed && !s.over && q.lapse(s, time.Now())
	q.mu.Unlock()
	if hopeless {
		s.c.end(closeSlow, "too slow: come again")
	}
}

// finish marks the stream as over and returns what is left to do for it.
func (s *Stream) finish() (leave func()) {
	q := s.c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	s.over = true
	q.drop(s)
	leave, s.leave = s.leave, nil
	return leave
}
