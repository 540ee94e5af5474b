package pageserver

import (
	"sync"
	"time"
)

// queue holds what is to be written to one client. It is bounded: when it fills,
// the subscription that fills it ends with a gap and takes back what was queued
// for it, so that the others go on; when that is not enough, or happens again and
// again, the connection is over.
type queue struct {
	messages, bytes int           // bounds
	bell            chan struct{} // holds a token when there is something to do

	mu     sync.Mutex
	items  []item
	size   int // bytes of items
	lapsed []*Stream
	gaps   int // since gapsAt
	gapsAt time.Time
	closed bool
	gapped func() // counts gaps
}

type item struct {
	frame  *Frame
	stream *Stream // nil for answers and gaps
}

func newQueue(messages, bytes int, gapped func()) *queue {
	return &queue{messages: messages, bytes: bytes, bell: make(chan struct{}, 1), gapped: gapped}
}

func (q *queue) ring() {
	select {
	case q.bell <- struct{}{}:
	default:
	}
}

func (q *queue) full(more int) bool { return len(q.items) >= q.messages || q.size+more > q.bytes }

func (q *queue) add(i item) {
	q.items = append(q.items, i)
	q.size += len(i.frame.text)
	q.ring()
}

// answer queues an answer. It fails where there is no room.
func (q *queue) answer(f *Frame) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return true // nobody waits for it
	}
	if q.full(len(f.text)) {
		return false
	}
	q.add(item{frame: f})
	return true
}

// push queues what is pushed for a stream. It reports whether the stream lives,
// and whether the connection is too slow to go on.
func (q *queue) push(s *Stream, f *Frame, now time.Time) (alive, hopeless bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || s.over:
		return false, false
	case !q.full(len(f.text)):
		q.add(item{f, s})
		return true, false
	}
	return false, q.lapse(s, now)
}

// lapse ends a stream with a gap. q.mu is held.
func (q *queue) lapse(s *Stream, now time.Time) (hopeless bool) {
	s.over = true
	q.drop(s)
	q.lapsed = append(q.lapsed, s)
	q.gapped()
	if now.Sub(q.gapsAt) > gapTime {
		q.gaps, q.gapsAt = 0, now
	}
	q.gaps++
	f := gapFrame(s.topic)
	if q.gaps > maxGaps || q.full(len(f.text)) {
		return true
	}
	q.add(item{frame: f})
	return false
}

// drop takes back what is queued for a stream. q.mu is held.
func (q *queue) drop(s *Stream) {
	left := q.items[:0]
	for _, i := range q.items {
		if i.stream == s {
			q.size -= len(i.frame.text)
			continue
		}
		left = append(left, i)
	}
	clear(q.items[len(left):])
	q.items = left
}

// next returns the next frame, and the streams that have lapsed before.
func (q *queue) next() (f *Frame, lapsed []*Stream) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lapsed, q.lapsed = q.lapsed, nil
	if len(q.items) == 0 {
		return nil, lapsed
	}
	f = q.items[0].frame
	q.items[0] = item{}
	q.items = q.items[1:]
	q.size -= len(f.text)
	if len(q.items) == 0 {
		q.items = nil
	}
	return f, lapsed
}

// close takes nothing more, and forgets what is there.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.items, q.size = nil, 0
}
