package monty

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// borrow takes a child from the pool. The time in the queue is not the
// program's.
func (r *run) borrow(ctx context.Context, holds uint64) error {
	r.clock.stop()
	w, err := r.s.e.pool.get(ctx, r.long, holds, r.lim.Memory)
	if err != nil {
		return err
	}
	r.w = w
	r.unwatch = context.AfterFunc(ctx, w.kill)
	r.began = time.Now()
	r.clock.start(r.cancel)
	return nil
}

// giveBack returns the child, if there is one. healthy says that it is between
// two requests.
func (r *run) giveBack(healthy bool) {
	if r.w == nil {
		return
	}
	if !r.unwatch() {
		healthy = false // it is being killed
	}
	if healthy && r.w.bloated(time.Since(r.began)) {
		healthy = false
	}
	r.s.e.pool.put(r.w, r.long, healthy)
	r.w = nil
}

// broken gives up the child and says why the run ended.
func (r *run) broken(ctx context.Context, err error) error {
	w := r.w
	if w == nil { // none was to be had
		if ctx.Err() != nil {
			return r.ended(ctx)
		}
		return err
	}
	w.kill()
	r.giveBack(false)
	if ctx.Err() != nil {
		return r.ended(ctx)
	}
	if _, ok := errors.AsType[*oversizeError](err); ok {
		return &python.LimitError{Limit: python.LimitResult, Text: fmt.Sprintf("more than %d bytes", r.s.e.resultLimit)}
	}
	if _, ok := errors.AsType[*python.LimitError](err); ok || errors.Is(err, errMemoryFixed) {
		return err
	}
	return crashed(w, err, r.lim.Memory)
}

// ended is the error of a run whose context ended.
func (r *run) ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTime) {
		return &python.LimitError{Limit: python.LimitTime, Text: fmt.Sprintf("more than %v", r.lim.Time)}
	}
	return reason(ctx)
}

// clock measures the time of a run and cancels it at the end.
type clock struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

func (c *clock) start(cancel context.CancelCauseFunc) {
	c.since = time.Now()
	c.timer = time.AfterFunc(max(c.left, time.Nanosecond), func() { cancel(errTime) })
}

func (c *clock) stop() {
	if c.timer != nil {
		c.timer.Stop()
		c.left -= time.Since(c.since)
		c.timer = nil
	}
}

// next reads the next event of the program.
func (r *run) next() (event, error) { return r.w.frames.next(r.frameLimit(), &r.out) }

// frameLimit bounds a value on the wire. It takes at most about this much more
// than in JSON: a small integer is five bytes there and two here.
func (r *run) frameLimit() int { return wireFactor*r.s.e.resultLimit + maxSmallFrame }

const wireFactor = 8
