package kubernetes

import (
	"context"
	"net/url"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
)

// How watches are begun again.
const (
	leastRewatch   = 500 * time.Millisecond
	mostRewatch    = 30 * time.Second
	healthyRewatch = 30 * time.Second
)

// watched are the resources that are watched, with what of them.
func watched() map[string]url.Values {
	ours := url.Values{"labelSelector": {labelApp + "=" + appName + "," + labelManager + "=ossicle"}}
	return map[string]url.Values{
		"jobs": ours, "pods": ours,
		"events": {"fieldSelector": {"involvedObject.kind=Job,reason=FailedCreate"}},
	}
}

// Watch begins to watch the namespace, as the first Create does: for a gateway that
// took sessions up whose sandboxes another process has made. What ended before is
// told, too, as long as the cluster keeps it. Errors: ErrClosed.
func (d *Driver) Watch() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if d.cancel != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.running.Go(func() { d.observe(ctx) })
	o := supervise.Options{Least: leastRewatch, Most: mostRewatch, Healthy: healthyRewatch, Logger: d.o.Logger}
	for resource, selector := range watched() {
		w := &watcher{c: d.c, resource: resource, selector: selector, sink: d.sink}
		d.running.Go(func() { supervise.Loop(ctx, o.OrDefaults(), d.health.Part(), "watch "+resource, w.try) })
	}
	return nil
}

func (d *Driver) sink(ctx context.Context, c change) error {
	select {
	case d.changes <- c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tell has the one who knows the sandboxes do f, if there is one.
func (d *Driver) tell(ctx context.Context, f func(*tracker)) {
	d.mu.Lock()
	runs := d.cancel != nil
	d.mu.Unlock()
	if !runs {
		return
	}
	select {
	case d.tells <- f:
	case <-d.ended:
	case <-ctx.Done():
	}
}

// observe takes what the watches see and tells what there is to tell.
func (d *Driver) observe(ctx context.Context) {
	t := newTracker()
	// Never one that is due already: Go 1.26 runs such a timer on the goroutine that stops
	// or sets it in a bubble of testing/synctest, and its race detector bears no two of
	// them at once.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		var out []outcome
		select {
		case <-ctx.Done():
			return
		case c := <-d.changes:
			out = t.apply(c, time.Now())
		case f := <-d.tells:
			f(t)
		case <-timer.C:
			out = t.expire(time.Now())
		}
		for _, o := range out {
			d.report(ctx, o)
		}
		if at, ok := t.next(); ok {
			timer.Reset(max(time.Until(at), time.Nanosecond))
		} else {
			timer.Stop()
		}
	}
}

func (d *Driver) report(ctx context.Context, o outcome) {
	switch {
	case o.exit != nil && d.o.Exited != nil:
		d.o.Exited(o.session, *o.exit)
	case o.exit != nil:
		d.o.Logger.InfoContext(ctx, "a sandbox is over", logattr.Session(o.session), logattr.Reason(o.exit.String()))
	case d.o.Noted != nil:
		d.o.Noted(o.session, *o.note)
	default:
		d.o.Logger.WarnContext(ctx, "a sandbox waits, or is there twice", logattr.Session(o.session), logattr.Reason(o.note.String()))
	}
}
