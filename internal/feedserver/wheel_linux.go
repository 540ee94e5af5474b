package feedserver

import (
	"math"
	"time"
)

const spokes = 64

// wheel keeps streams by the time that they are due, to within a sixtieth of the
// longest such time. To write to a stream does not touch it: who is found to have
// been written to when its time comes is put back.
type wheel struct {
	lists [spokes]list
	step  int64 // ms from one list to the next
	at    int64 // steps that are done
}

func (w *wheel) init(longest time.Duration) {
	w.step = max(longest.Milliseconds()/(spokes-4), 1)
	for i := range w.lists {
		w.lists[i].init()
	}
}

// add puts a stream in, to come up at the given time.
func (w *wheel) add(st *stream, due int64) {
	st.due = due
	step := min(max((due+w.step-1)/w.step, w.at+1), w.at+spokes-1)
	w.lists[step%spokes].add(st)
}

// turn takes out what is due and calls f for each, which may add it again.
func (w *wheel) turn(now int64, f func(*stream)) {
	to := now / w.step
	from := max(w.at, to-spokes)
	w.at = max(w.at, to)
	for step := from + 1; step <= to; step++ {
		var due list
		due.init()
		l := &w.lists[step%spokes]
		for !l.empty() {
			st := l.root.next
			st.unlink()
			due.add(st)
		}
		for !due.empty() {
			st := due.root.next
			st.unlink()
			f(st)
		}
	}
}

// next is when there may be something due.
func (w *wheel) next() int64 {
	for step := w.at + 1; step < w.at+spokes; step++ {
		if !w.lists[step%spokes].empty() {
			return step * w.step
		}
	}
	return math.MaxInt64 / int64(time.Millisecond) / 2
}
