package listen

import (
	"bytes"
	"errors"
	"sync"
)

// errWouldBlock says that a peer's buffer is full.
var errWouldBlock = errors.New("listen: write would block")

// writers are the few goroutines that write to all connections which can be
// written to without blocking. They come when there is work, up to limit of
// them, and go when there is none. A peer that does not keep up is handed to a
// goroutine of its own, so it delays nobody.
type writers struct {
	hub   *Hub
	limit int

	mu      sync.Mutex
	queue   []*listener
	head    int
	running int
}

// push queues a listener that is due to be written.
func (q *writers) push(l *listener) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, l)
	if q.running < min(q.limit, len(q.queue)-q.head) {
		q.running++
		q.hub.spawn(q.work)
	}
}

// pop fills batch with the next listeners. None means that the caller has to go.
func (q *writers) pop(batch []*listener) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(batch, q.queue[q.head:])
	clear(q.queue[q.head : q.head+n])
	q.head += n
	if q.head == len(q.queue) {
		q.head = 0
		if cap(q.queue) > 1024 { // a burst must not keep its memory
			q.queue = nil
		} else {
			q.queue = q.queue[:0]
		}
	}
	if n == 0 {
		q.running--
	}
	return n
}

func (q *writers) work() {
	var (
		batch [16]*listener
		w     rawWriter
	)
	w.write = w.once
	for {
		n := q.pop(batch[:])
		if n == 0 {
			return
		}
		for i, l := range batch[:n] {
			batch[i] = nil
			q.serve(l, &w)
		}
	}
}

// serve writes one round of a listener.
func (q *writers) serve(l *listener, w *rawWriter) {
	s, ok := l.sink.(*connSink)
	if !ok || !l.take(&w.round) {
		return
	}
	if w.round.last {
		q.hub.vacate(l)
	}
	w.buf = s.append(w.buf[:0], l, &w.round)
	rest, err := w.try(s)
	switch {
	case errors.Is(err, errWouldBlock):
		rest, last := bytes.Clone(rest), w.round.last
		q.hub.spawn(func() { s.catchUp(l, rest, last) })
	case err != nil:
		l.cut(err)
	case w.round.last:
		l.leave()
	case !l.settle():
		q.push(l)
	}
}

// rawWriter is what one writer goroutine works with. It writes by the file
// descriptor: one system call, no deadline, no waiting.
type rawWriter struct {
	round round
	buf   []byte
	write func(fd uintptr) bool // once, bound: a method value would be made anew each time

	n   int
	err error
}

// try writes w.buf to the connection and returns what it did not take.
func (w *rawWriter) try(s *connSink) (rest []byte, err error) {
	if err := s.raw.Write(w.write); err != nil {
		return nil, err
	}
	return w.buf[w.n:], w.err
}

// once implements the callback of [syscall.RawConn.Write].
func (w *rawWriter) once(fd uintptr) bool {
	w.n, w.err = writeNow(fd, w.buf)
	if w.err == nil && w.n < len(w.buf) {
		w.err = errWouldBlock
	}
	return true
}
