package feed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
)

const (
	retryLeast = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// retry calls f until it succeeds or ctx ends, ever more slowly, and notes what
// came of each call. A timer runs only while something is wrong.
func retry(ctx context.Context, log *slog.Logger, what string, note func(error), f func(context.Context) error) {
	for wait := retryLeast; ; wait = min(2*wait, retryMost) {
		begun := time.Now()
		err := f(ctx)
		if ctx.Err() != nil {
			return
		}
		note(err)
		if err == nil {
			return
		}
		if time.Since(begun) > retryMost {
			wait = retryLeast
		}
		log.WarnContext(ctx, "the feed tries again", logattr.Reason(what), logattr.Err(err), logattr.Delay(wait))
		if !supervise.Sleep(ctx, wait) {
			return
		}
	}
}

var errGaveUp = errors.New("listen: the bus gave up")

// hear listens to a bus until ctx ends, again and again if it must.
func hear(ctx context.Context, bus Bus, log *slog.Logger, note func(error), ring func()) {
	retry(ctx, log, "the bus cannot be heard", note, func(ctx context.Context) error {
		err := bus.Listen(ctx, func() {
			note(nil)
			ring()
		})
		if err == nil && ctx.Err() == nil {
			err = errGaveUp
		}
		return err
	})
}
