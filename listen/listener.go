package listen

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// errStuck says that a peer did not take a write within the write timeout.
var errStuck = errors.New("listen: peer does not read")

// phase is where a listener is in its life; it only ever grows.
type phase uint8

const (
	phaseOpening phase = iota // news are collected and nothing is sent: the ack goes first
	phaseLive
	phaseEnding // what is pending is sent, then the polite end
	phaseGone   // nothing is sent any more
)

// sink is the way to one peer.
type sink interface {
	// schedule sees to it that the listener's news are written soon by another
	// goroutine. It is called with listener.mu held, and never while an earlier
	// schedule of the same listener is still being worked off: from schedule
	// until [listener.take] or [listener.settle] says that nothing is left, one
	// goroutine owns the writing.
	schedule(l *listener)
	// close ends the way at once; writes under way fail. It is called once.
	close(l *listener)
}

// blockingSink is a sink whose writes may block, though no longer than the
// write timeout.
type blockingSink interface {
	sink
	write(l *listener, r *round) error
}

// round is what one write tells: topics in the order of their news, then a
// keep-alive, then the end.
type round struct {
	topics    []*topic
	keepAlive bool
	last      bool
}

// maxRound is about the number of bytes after which a round takes no further
// topic, so that a write under the write timeout has a bounded size; frameSize
// is about that of an update without its URI.
const (
	maxRound  = 64 << 10
	frameSize = 200
)

// listener is one peer's listen, or all subscriptions of one legacy session. Its
// pending set is bounded by the number of its topics: news of a topic that is
// pending already change nothing.
type listener struct {
	hub  *Hub
	sink sink
	id   string // the literal of the request's id; empty for a legacy session
	// watchers are those of a listen; a legacy session keeps its own.
	watchers []watcher

	mu        sync.Mutex // after topic.mu, before writers.mu, beats.mu and Hub.mu
	phase     phase
	busy      bool // scheduled, see sink
	keepAlive bool
	ending    bool // the end was asked for while the listener was opening
	pending   []*watcher
	cancel    context.CancelFunc // ends the opening; nil when there is none

	beat    beat // guarded by beats.mu
	vacated bool // its place is free; guarded by Hub.mu
}

// beat is a listener's place in the list of keep-alives.
type beat struct {
	due        time.Time
	prev, next *listener
	listed     bool
}

// observed implements [observer].
func (l *listener) observed(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.pending || l.phase >= phaseEnding {
		return
	}
	w.pending = true
	l.pending = append(l.pending, w)
	l.wake()
}

// wake schedules the writing, unless somebody is at it or it is not time yet.
// It needs l.mu.
func (l *listener) wake() {
	if !l.busy && (l.phase == phaseLive || l.phase == phaseEnding) {
		l.busy = true
		l.sink.schedule(l)
	}
}

// attach sets the way to the peer, once it is known. It reports false if the
// listener has ended meanwhile; then the sink is the caller's to close.
func (l *listener) attach(s sink) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseGone {
		return false
	}
	l.sink = s
	return true
}

// activate lets news go out: the acknowledgement is on the wire. A listen that
// honours nothing ends at once, politely: the peer has been told why, and there
// is nothing to wait for. With beats it gets keep-alives. From here on whoever
// ends the listener stops its watchers; if it has ended already, activate does.
func (l *listener) activate(b *beats) {
	l.mu.Lock()
	gone := l.phase == phaseGone
	if !gone {
		l.phase = phaseLive
		if len(l.watchers) == 0 || l.ending {
			l.phase = phaseEnding
		}
		if b != nil {
			b.add(l)
		}
		if l.hasNewsLocked() {
			l.wake()
		}
	}
	l.mu.Unlock()
	if gone {
		l.stopWatchers()
	}
}

// abandon gives up a listener that was not activated.
func (l *listener) abandon() {
	l.leave()
	l.stopWatchers()
}

// end ends the listen politely, after what is pending. One that is still opening
// it asks to hurry.
func (l *listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.phase {
	case phaseOpening:
		l.ending = true
		if l.cancel != nil {
			l.cancel()
		}
	case phaseLive:
		l.phase = phaseEnding
		l.wake()
	default: // has ended, or is about to
	}
}

// opening notes how to end the opening, or that there is nothing to end any more.
func (l *listener) opening(cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
	if cancel != nil && (l.ending || l.phase == phaseGone) {
		cancel()
	}
}

// state tells an opener whether to go on: the listener has gone, or it is to end.
func (l *listener) state() (gone, ending bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == phaseGone, l.ending
}

// remind makes a keep-alive due.
func (l *listener) remind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase <= phaseLive {
		l.keepAlive = true
		l.wake()
	}
}

// take moves what is pending into r. If there is nothing, or the listener is
// gone, it reports false and the caller no longer owns the writing.
func (l *listener) take(r *round) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasNewsLocked() {
		l.busy = false
		return false
	}
	r.topics = r.topics[:0]
	for size := 0; len(r.topics) < len(l.pending) && size < maxRound; {
		w := l.pending[len(r.topics)]
		w.pending = false
		r.topics = append(r.topics, w.topic)
		size += len(w.topic.uri) + frameSize
	}
	rest := copy(l.pending, l.pending[len(r.topics):])
	clear(l.pending[rest:])
	l.pending = l.pending[:rest]
	r.keepAlive, l.keepAlive = l.keepAlive, false
	r.last = l.phase == phaseEnding && rest == 0
	return true
}

// settle gives up the writing if nothing is left, and reports whether it did.
func (l *listener) settle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = l.hasNewsLocked()
	return !l.busy
}

func (l *listener) hasNewsLocked() bool {
	switch l.phase {
	case phaseLive:
		return len(l.pending) > 0 || l.keepAlive
	case phaseEnding:
		return true
	default:
		return false
	}
}

// drain writes until nothing is pending: the work of a goroutine that may block.
func (l *listener) drain(s blockingSink) {
	var r round
	for l.take(&r) {
		if r.last {
			l.hub.vacate(l)
		}
		if err := s.write(l, &r); err != nil {
			l.cut(err)
			return
		}
		if r.last {
			l.leave()
			return
		}
	}
}

// forget drops the news of a watcher that its owner has stopped.
func (l *listener) forget(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range l.pending {
		if p == w {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			return
		}
	}
}

// cut removes a listener that cannot be written to. Whoever else noticed may have
// been quicker; that a peer does not read only the writer knows.
func (l *listener) cut(err error) {
	l.leave()
	if errors.Is(err, errStuck) || errors.Is(err, os.ErrDeadlineExceeded) {
		l.hub.cutOff(l, err)
	}
}

// leave ends the listener at once, whoever calls first: its watchers stop, its
// way is closed, nothing more is written.
func (l *listener) leave() {
	l.mu.Lock()
	if l.phase == phaseGone {
		l.mu.Unlock()
		return
	}
	opened := l.phase != phaseOpening
	l.phase = phaseGone
	l.pending = nil
	if l.cancel != nil {
		l.cancel()
	}
	s := l.sink
	l.mu.Unlock()
	if opened { // otherwise the opener still adds watchers, and stops them
		l.stopWatchers()
	}
	s.close(l)
	l.hub.remove(l)
}

func (l *listener) stopWatchers() {
	for i := range l.watchers {
		l.watchers[i].stop()
	}
}

// gone reports whether nothing may be written any more.
func (l *listener) gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == phaseGone
}
