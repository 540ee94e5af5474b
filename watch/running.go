package watch

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/python"
)

// runningWatch is one watch: a cursor, a worker that takes events through the
// stages, and a batch of lines under a debounce timer.
//
// The worker is busy for as long as its filter takes; readings that come
// meanwhile replace each other, so that a slow filter costs one reading of
// memory and delays nobody. A state then yields its net diff; an event log is
// read from the watch's own cursor on (see subscription.afterLocked), so that
// nothing is lost that the server still has.
type runningWatch struct {
	spec    spec
	server  string
	shape   Shape // set before the watch is installed
	sub     *subscription
	stages  []stage
	scope   python.Scope // nil without a filter
	limits  *Limits
	log     *slog.Logger
	crew    *crew
	out     *outbox
	looking *observers // hear that the counts are others

	// over is set when the subscription failed before the watch was installed;
	// number orders watches by their start. The manager's lock guards both.
	over   error
	number int

	queued bool // stands in the outbox; its lock guards it

	mu      sync.Mutex
	cursor  cursor
	pending *reading
	working bool
	halt    context.CancelFunc // of the worker
	closed  bool
	batch   batch
	timer   *time.Timer
	events  int
	notices int
}

// begin takes the baseline.
func (w *runningWatch) begin(r *reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursor = r.baseline()
}

// position is the seq behind which the watch wants to read, if its log can be
// read so.
func (w *runningWatch) position() (int64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cursor.log.last, w.cursor.log.resumable
}

func (w *runningWatch) restarted(l *logBody) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cursor.log.restarted(l)
}

// offer hands over a reading. It does not block.
func (w *runningWatch) offer(r *reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.pending != nil && r.state == nil && r.log == nil {
		both := *w.pending
		both.fault = r.fault
		r = &both
	}
	w.pending = r
	if !w.working {
		w.working = true
		w.halt = w.crew.spawn(w.work)
	}
}

// work takes readings until there are none.
func (w *runningWatch) work(ctx context.Context) {
	for {
		w.mu.Lock()
		r, c := w.pending, w.cursor
		w.pending = nil
		if r == nil || w.closed {
			w.working = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		events := c.advance(r)
		w.mu.Lock()
		w.cursor = c
		w.mu.Unlock()
		w.process(ctx, events)
	}
}

// process takes events through the stages, in passes: between them other
// watches get their turn (W-125, WA-22). None is dropped.
func (w *runningWatch) process(ctx context.Context, events []Event) {
	for len(events) > 0 {
		var pass []Event
		pass, events = nextPass(events, w.limits.Events)
		for i := range pass {
			if ctx.Err() != nil {
				return
			}
			w.handle(ctx, &pass[i])
		}
		runtime.Gosched()
	}
}

func nextPass(events []Event, limit int) (pass, rest []Event) {
	n := min(len(events), limit)
	return events[:n], events[n:]
}

func (w *runningWatch) handle(ctx context.Context, e *Event) {
	t := &ticket{event: e}
	kept := true
	for _, s := range w.stages {
		if kept = s.apply(ctx, t); !kept {
			break
		}
	}
	w.log.LogAttrs(ctx, levelDetail, "watch.event", logattr.Watch(w.spec.Name), logattr.URI(w.spec.URI),
		logattr.Event(bound(e.Type, MaxName)), logattr.Kept(kept))
	defer w.looking.changed()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	if !kept || w.closed {
		return
	}
	for _, remark := range t.remarks {
		w.gatherLocked(remark)
	}
	if t.line != "" {
		w.gatherLocked(t.line)
	}
}

// gatherLocked adds a line and moves the flush (W-120, W-121).
func (w *runningWatch) gatherLocked(line string) {
	now := time.Now()
	// Never a timer that is due already: Go 1.26 runs one on this goroutine in a bubble
	// of testing/synctest, and its race detector bears no two of them at once.
	wait := max(w.batch.add(line, now).Sub(now), time.Nanosecond)
	if w.timer == nil {
		w.timer = time.AfterFunc(wait, func() { w.out.enqueue(w) })
		return
	}
	w.timer.Reset(wait)
}

// mayFall claims the one default line that a batch has for failed filter runs.
func (w *runningWatch) mayFall() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	claimed := !w.batch.fellBack
	w.batch.fellBack = true
	return claimed
}

// compose makes a notice of the lines that wait, if there are any.
func (w *runningWatch) compose() (Notice, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.batch.empty() {
		return Notice{}, false
	}
	return w.notice(KindEvents, w.batch.take()), true
}

func (w *runningWatch) notice(kind Kind, lines []string) Notice {
	return Notice{Watch: w.spec.Name, URI: w.spec.URI, Kind: kind, Lines: lines, Time: time.Now().UTC()}
}

func (w *runningWatch) sent() {
	defer w.looking.changed()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices++
}

// close ends the watch: no event is processed and no line is added afterwards.
// Lines that wait stay for a last compose. It is idempotent.
func (w *runningWatch) close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	w.pending = nil
	halt := w.halt
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if halt != nil {
		halt()
	}
	w.sub.leave(w)
	w.sub.m.release(w.sub)
	if w.scope != nil {
		w.scope.Close()
	}
}

func (w *runningWatch) counts() (events, notices int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events, w.notices
}
