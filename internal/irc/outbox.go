package irc

import (
	"slices"
	"time"
)

// outbox holds lines that wait to be sent, and says when the next one may go.
// Its owner locks it.
type outbox struct {
	most  int           // lines
	age   time.Duration // after which a line is dropped
	lines []*queued

	burst    int
	interval time.Duration
	due      time.Time // when the bucket is full again, less the burst
}

type queued struct {
	to   *Channel
	text string
	at   time.Time
}

// add takes all lines of a reply or none.
func (o *outbox) add(to *Channel, lines []string, now time.Time) bool {
	if len(o.lines)+len(lines) > o.most {
		return false
	}
	for _, s := range lines {
		o.lines = append(o.lines, &queued{to: to, text: s, at: now})
	}
	return true
}

// expire drops lines that are too old, and returns how many.
func (o *outbox) expire(now time.Time) int {
	n := 0
	for n < len(o.lines) && now.Sub(o.lines[n].at) >= o.age {
		n++
	}
	o.lines = slices.Delete(o.lines, 0, n)
	return n
}

// remove takes a line out, if it is still there.
func (o *outbox) remove(q *queued) {
	o.lines = slices.DeleteFunc(o.lines, func(other *queued) bool { return other == q })
}

// wait says how long to wait until a line may be sent.
func (o *outbox) wait(now time.Time) time.Duration {
	return max(0, o.due.Add(-time.Duration(o.burst-1)*o.interval).Sub(now))
}

// spend counts a line that is sent.
func (o *outbox) spend(now time.Time) {
	if o.due.Before(now) {
		o.due = now
	}
	o.due = o.due.Add(o.interval)
}
