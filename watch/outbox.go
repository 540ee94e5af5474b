package watch

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/internal/logattr"
)

// outbox delivers to the sink, one notice at a time. A watch stands in it at
// most once, and its notice is made when its turn comes: lines that come while
// the sink is slow leave together. Notices that are no lines of a watch (one
// failed, the saved ones were restored) are kept as they are, at most
// Limits.Queue; when there are more the oldest is dropped, and logged.
type outbox struct {
	sink  Sink
	log   *slog.Logger
	limit int
	crew  *crew

	mu      sync.Mutex
	queue   []delivery
	running bool
}

// delivery is one of both.
type delivery struct {
	watch  *runningWatch
	notice *Notice
}

func (o *outbox) enqueue(w *runningWatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w.queued {
		return
	}
	w.queued = true
	o.putLocked(delivery{watch: w})
}

func (o *outbox) enqueueNotice(n Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := 0
	for _, d := range o.queue {
		if d.notice != nil {
			kept++
		}
	}
	if kept >= o.limit {
		i := slices.IndexFunc(o.queue, func(d delivery) bool { return d.notice != nil })
		logUnsent(o.log, slog.LevelWarn, *o.queue[i].notice, "queue full")
		o.queue = slices.Delete(o.queue, i, i+1)
	}
	o.putLocked(delivery{notice: &n})
}

func (o *outbox) putLocked(d delivery) {
	o.queue = append(o.queue, d)
	if !o.running {
		o.running = true
		o.crew.spawn(o.run)
	}
}

func (o *outbox) run(ctx context.Context) {
	for {
		d, ok := o.next(ctx)
		if !ok {
			return
		}
		n := d.notice
		if d.watch != nil {
			made, ok := d.watch.compose()
			if !ok {
				continue
			}
			n = &made
		}
		o.deliver(ctx, *n, d.watch)
	}
}

func (o *outbox) next(ctx context.Context) (delivery, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 || ctx.Err() != nil {
		o.running = false
		return delivery{}, false
	}
	d := o.queue[0]
	o.queue = o.queue[1:]
	if d.watch != nil {
		d.watch.queued = false
	}
	return d, true
}

func (o *outbox) deliver(ctx context.Context, n Notice, w *runningWatch) {
	if err := o.sink.Notify(ctx, n); err != nil {
		if ctx.Err() != nil {
			logUnsent(o.log, slog.LevelInfo, n, "engine closed")
			return
		}
		o.log.LogAttrs(ctx, slog.LevelWarn, "watch.notice_failed", logattr.Watch(n.Watch), logattr.URI(n.URI),
			logattr.Lines(len(n.Lines)), logattr.Err(err))
		return
	}
	if w != nil {
		w.sent()
	}
	o.log.LogAttrs(ctx, slog.LevelInfo, "watch.notice", logattr.Watch(n.Watch), logattr.URI(n.URI), logattr.Lines(len(n.Lines)))
}

// drain empties the outbox into the log, after the crew is dismissed (WA-35).
func (o *outbox) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.queue {
		if d.notice != nil {
			logUnsent(o.log, slog.LevelInfo, *d.notice, "engine closed")
		}
	}
	o.queue = nil
}

// lineAttr is a line of a notice.
func lineAttr(line string) slog.Attr { return slog.String("line", line) }

// logUnsent puts the lines of a notice that nobody will see into the log. Lines
// are bounded and neutralised, so they may stand there.
func logUnsent(log *slog.Logger, level slog.Level, n Notice, reason string) {
	for _, line := range n.Lines {
		log.LogAttrs(context.Background(), level, "watch.unsent", logattr.Watch(n.Watch), logattr.URI(n.URI),
			logattr.Reason(reason), lineAttr(line))
	}
}
