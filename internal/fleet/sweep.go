package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/worker"
)

const (
	// sweepSlack is how long after its last deadline a session is given up that
	// nobody holds; worker.Host.Sweep takes a minute.
	sweepSlack = time.Minute + time.Second
	// sweepRetry is the pause after a store that failed.
	sweepRetry = time.Minute
)

// reap gives up sessions that nobody holds, and removes artifacts that are too old.
// Among hosts that share a store the former is worker.Host.Run; a store of our own
// has such sessions only if another process used it once. So there is a timer for
// what falls due first, and none if nothing does.
func (f *Fleet) reap(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	var ran error // that of the host
	if f.shared {
		running.Go(func() { ran = f.host.Run(ctx) })
	}
	running.Go(func() { f.sweepDue(ctx) })
	f.down.Push("reaper", trailBudget, func(context.Context) error {
		stop()
		running.Wait()
		return ran
	})
	f.down.Push("drivers", driversBudget, f.closeDrivers)
}

func (f *Fleet) sweepDue(ctx context.Context) {
	for ctx.Err() == nil {
		next := f.sweepArtifacts(ctx)
		if !f.shared {
			due, err := f.nextSweep(ctx)
			if err != nil {
				due = time.Now().Add(sweepRetry)
				f.log.LogAttrs(ctx, slog.LevelWarn, "sessions that nobody holds could not be looked for", logattr.Err(err))
			}
			if next.IsZero() || !due.IsZero() && due.Before(next) {
				next = due
			}
		}
		if next.IsZero() {
			return
		}
		timer := time.NewTimer(max(time.Until(next), time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if f.shared {
			continue
		}
		if _, err := f.host.Sweep(ctx); err != nil && ctx.Err() == nil {
			f.log.LogAttrs(ctx, slog.LevelWarn, "sessions that nobody holds could not be given up", logattr.Err(err))
		}
	}
}

// sweepArtifacts removes artifacts that are too old, and returns when the next are.
func (f *Fleet) sweepArtifacts(ctx context.Context) (next time.Time) {
	if f.o.Own {
		return next
	}
	s, err := f.artifacts.Sweep(time.Now())
	switch {
	case err != nil:
		f.log.LogAttrs(ctx, slog.LevelWarn, "artifacts could not be swept", logattr.Err(err))
		return time.Now().Add(sweepRetry)
	case s.Removed > 0:
		f.log.LogAttrs(ctx, slog.LevelInfo, "old artifacts were removed", logattr.Count(s.Removed), logattr.Size(s.Freed))
	}
	return s.Next
}

// nextSweep is when the first session that nobody holds is due; zero if there is
// none.
func (f *Fleet) nextSweep(ctx context.Context) (next time.Time, err error) {
	recs, err := f.store.List(ctx, worker.Filter{Live: true})
	for i := range recs {
		if _, err := f.host.Session(recs[i].ID); err == nil {
			continue
		}
		if due := recs[i].LastDeadline().Add(sweepSlack); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, err
}
