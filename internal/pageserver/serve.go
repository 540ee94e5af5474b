package pageserver

import (
	"context"
	"log/slog"

	"github.com/ossicle/ossicle/internal/logattr"
)

// take does what a message asks for. Rights come first: nothing is looked at for
// one that has none (specification A-21).
func (c *conn) take(ctx context.Context, text []byte) {
	r, err := parseRequest(text)
	switch {
	case err != nil:
		c.fail(r.id, err)
	case r.action == actionUnsubscribe:
		c.unsubscribe(&r)
	case r.action == actionSubscribe && !mayOpen(c.who, r.topic), r.call != nil && !mayCall(c.who, r.call):
		c.fail(r.id, errForbidden())
	case r.action == actionSubscribe:
		c.subscribe(ctx, &r)
	case r.call.inOrder():
		c.answer(c.call(ctx, &r))
	case !c.enter():
		c.fail(r.id, errTooManyCalls())
	default:
		c.work.Go(func() {
			f := c.call(ctx, &r)
			c.leave() // whoever has the answer may ask for more
			c.answer(f)
		})
	}
}

func errTooManyCalls() error {
	return Errorf(CodeTooMany, "%d requests are under way; wait for their answers", MaxCalls)
}

// enter counts a request in that is done beside others.
func (c *conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls >= MaxCalls {
		return false
	}
	c.calls++
	return true
}

func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
}

// call does what a request asks for, and returns the answer.
func (c *conn) call(ctx context.Context, r *request) *Frame {
	ctx, cancel := context.WithTimeout(ctx, r.call.limit())
	defer cancel()
	result, err := c.s.backend.Call(ctx, r.call)
	var f *Frame
	if err == nil {
		if result == nil {
			result = struct{}{}
		}
		f, err = resultFrame(r.id, result)
	}
	if err != nil {
		return errorFrame(r.id, told(err))
	}
	return f
}

func (c *conn) subscribe(ctx context.Context, r *request) {
	s := &Stream{c: c, topic: r.topic, id: r.id}
	c.mu.Lock()
	_, twice := c.streams[r.topic]
	full := len(c.streams) >= MaxSubscriptions
	if !twice && !full {
		c.streams[r.topic] = s
	}
	c.mu.Unlock()
	switch {
	case twice:
		c.fail(r.id, Errorf(CodeBadRequest, "this connection has subscribed to it already"))
	case full:
		c.fail(r.id, Errorf(CodeTooMany, "a connection has at most %d subscriptions; end one", MaxSubscriptions))
	case !c.enter():
		c.forget(s)
		c.fail(r.id, errTooManyCalls())
	default:
		c.work.Go(func() {
			defer s.settle()
			c.open(ctx, s, r.after)
		})
	}
}

// open has the backend begin a subscription.
func (c *conn) open(ctx context.Context, s *Stream, after int64) {
	limited, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	leave, err := c.s.backend.Open(limited, s.topic, after, s)
	if err != nil {
		answered := s.wasAnswered()
		if answered {
			s.Gap()
		}
		c.forget(s)
		if !answered {
			s.settle()
			c.fail(s.id, err)
		}
		return
	}
	if !s.wasAnswered() {
		c.s.log.LogAttrs(ctx, slog.LevelError, "a subscription began without its state", logattr.Reason(string(s.topic.Kind)))
		s.settle()
		c.fail(s.id, Errorf(CodeFailed, "the state could not be had"))
	}
	if s.stays(leave) {
		return
	}
	leave() // it ended while it began
}

func (s *Stream) wasAnswered() bool {
	s.c.queue.mu.Lock()
	defer s.c.queue.mu.Unlock()
	return s.answered
}

// stays keeps what ends the stream, unless it has ended.
func (s *Stream) stays(leave func()) bool {
	s.c.queue.mu.Lock()
	defer s.c.queue.mu.Unlock()
	if s.over || s.c.queue.closed {
		return false
	}
	s.leave = leave
	return true
}

// unsubscribe ends a subscription; one that is there no more is ended already.
func (c *conn) unsubscribe(r *request) {
	c.mu.Lock()
	s := c.streams[r.topic]
	c.mu.Unlock()
	if s != nil {
		c.forget(s)
	}
	f, err := resultFrame(r.id, struct{}{})
	if err != nil {
		c.fail(r.id, err)
		return
	}
	c.answer(f)
}
