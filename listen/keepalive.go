package listen

import (
	"sync"
	"time"
)

// beats sends the keep-alives of all event streams by one timer. Every stream
// has the same interval, so those due next stand first in a list that only ever
// grows at its end. Without streams there is no timer.
type beats struct {
	interval time.Duration // not positive: none

	mu          sync.Mutex
	first, last *listener
	timer       *time.Timer
}

// add lists a listener for its first keep-alive, one interval from now.
func (b *beats) add(l *listener) {
	if b.interval <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.beat.due = time.Now().Add(b.interval)
	b.append(l)
	if b.first == l {
		b.arm()
	}
}

func (b *beats) remove(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.beat.listed {
		b.unlink(l)
	}
	if b.first == nil && b.timer != nil {
		b.timer.Stop()
	}
}

// fire reminds all whose time has come.
func (b *beats) fire() {
	for _, l := range b.collect() {
		l.remind()
	}
}

func (b *beats) collect() []*listener {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var due []*listener
	for l := b.first; l != nil && !l.beat.due.After(now); l = b.first {
		b.unlink(l)
		l.beat.due = now.Add(b.interval)
		b.append(l)
		due = append(due, l)
	}
	if b.first != nil {
		b.arm()
	}
	return due
}

// arm sets the timer for the first of the list.
func (b *beats) arm() {
	d := time.Until(b.first.beat.due)
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.fire)
		return
	}
	b.timer.Reset(d)
}

func (b *beats) append(l *listener) {
	l.beat.listed = true
	l.beat.prev, l.beat.next = b.last, nil
	if b.last == nil {
		b.first = l
	} else {
		b.last.beat.next = l
	}
	b.last = l
}

func (b *beats) unlink(l *listener) {
	if l.beat.prev == nil {
		b.first = l.beat.next
	} else {
		l.beat.prev.beat.next = l.beat.next
	}
	if l.beat.next == nil {
		b.last = l.beat.prev
	} else {
		l.beat.next.beat.prev = l.beat.prev
	}
	l.beat = beat{}
}
