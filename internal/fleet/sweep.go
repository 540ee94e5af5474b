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
func (g *Fleet) reap(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	var ran error // that of the host
	if g.shared {
		running.Go(func() { ran = g.host.Run(ctx) })
	}
	running.Go(func() { g.sweepDue(ctx) })
	g.down.Push("reaper", trailBudget, func(context.Context) error {
		stop()
		running.Wait()
		return ran
	})
	g.down.Push("drivers", driversBudget, g.closeDrivers)
}

func (g *Fleet) sweepDue(ctx context.Context) {
	for ctx.Err() == nil {
		next := g.sweepArtifacts(ctx)
		if !g.shared {
			due, err := g.nextSweep(ctx)
			if err != nil {
				due = time.Now().Add(sweepRetry)
				g.log.LogAttrs(ctx, slog.LevelWarn, "sessions that nobody holds could not be looked for", logattr.Err(err))
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
		if g.shared {
			continue
		}
		if _, err := g.host.Sweep(ctx); err != nil && ctx.Err() == nil {
			g.log.LogAttrs(ctx, slog.LevelWarn, "sessions that nobody holds could not be given up", logattr.Err(err))
		}
	}
}

// sweepArtifacts removes artifacts that are too old, and returns when the next are.
func (g *Fleet) sweepArtifacts(ctx context.Context) (next time.Time) {
	if g.o.Own {
		return next
	}
	s, err := g.artifacts.Sweep(time.Now())
	switch {
	case err != nil:
		g.log.LogAttrs(ctx, slog.LevelWarn, "artifacts could not be swept", logattr.Err(err))
		return time.Now().Add(sweepRetry)
	case s.Removed > 0:
		g.log.LogAttrs(ctx, slog.LevelInfo, "old artifacts were removed", logattr.Count(s.Removed), logattr.Size(s.Freed))
	}
	return s.Next
}

// nextSweep is when the first session that nobody holds is due; zero if there is
// none.
func (g *Fleet) nextSweep(ctx context.Context) (next time.Time, err error) {
	recs, err := g.store.List(ctx, worker.Filter{Live: true})
	for i := range recs {
		if _, err := g.host.Session(recs[i].ID); err == nil {
			continue
		}
		if due := recs[i].LastDeadline().Add(sweepSlack); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, err
}
