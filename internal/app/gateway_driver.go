package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/worker"
)

// sandboxOutput is what a worker of ours keeps of each stream, in bytes: a burst
// that is larger loses its middle. Twice that, with each byte escaped, is a
// message.
const sandboxOutput = 256 << 10

// boxSpec is a sandbox to make.
type boxSpec struct {
	session string
	env     map[string]string // of the worker, without the token
	token   string
}

// boxDriver makes the sandboxes of one profile.
type boxDriver struct {
	tier    string   // how well it keeps what is in it
	reason  string   // why not better; may be empty
	about   string   // the tier and what bounds it, in a line
	gaps    []string // what it does not keep
	control string   // the URL that its workers dial
	create  func(context.Context, boxSpec) error
	remove  func(ctx context.Context, session string) error
	kill    func(ctx context.Context, session string) error // remove, without a moment for the worker to exit
	close   func(context.Context) error
	check   func(context.Context) error // asks whether it could make a sandbox; nil: it could
}

// driver returns the driver of a profile, which is made when it is first needed.
func (g *WorkerGateway) driver(ctx context.Context, p *config.Sandbox) (*boxDriver, error) {
	g.making.Lock()
	defer g.making.Unlock()
	if d := g.made(p.Name); d != nil {
		return d, nil
	}
	make := g.newLocal
	if p.Driver == config.DriverKubernetes {
		make = g.newCluster
	}
	d, err := make(ctx, p)
	if err != nil {
		return nil, err
	}
	if d.reason != "" {
		g.log.LogAttrs(ctx, slog.LevelInfo, "sandboxes are weaker than they could be", logattr.Event(d.tier), logattr.Reason(d.reason))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drivers[p.Name] = d
	return d, nil
}

func (g *WorkerGateway) made(profile string) *boxDriver {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drivers[profile]
}

// Delete implements worker.Sandboxes.
func (g *WorkerGateway) Delete(ctx context.Context, session string) error {
	g.mu.Lock()
	delete(g.notes, session)
	g.mu.Unlock()
	g.artifacts.Forget(session)
	rec, err := g.store.Load(ctx, session)
	if errors.Is(err, worker.ErrUnknownSession) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete sandbox: %w", err)
	}
	p, known := g.config.Sandbox(rec.Profile.Name)
	d := g.made(rec.Profile.Name)
	switch {
	case !known:
		g.log.LogAttrs(ctx, slog.LevelWarn, "the profile of a sandbox is gone; nobody knows where it runs", logattr.Session(session))
		return nil
	case d == nil && p.Driver != config.DriverKubernetes:
		return nil // it ended with the process that had made it
	case d == nil:
		if d, err = g.driver(ctx, &p); err != nil {
			return err
		}
	}
	if rec.NeverCalled() {
		return d.kill(ctx, session) // nobody is about to exit by itself
	}
	return d.remove(ctx, session)
}

// closeDrivers ends the sandboxes that end with this process.
func (g *WorkerGateway) closeDrivers(ctx context.Context) error {
	g.making.Lock()
	defer g.making.Unlock()
	g.mu.Lock()
	drivers := g.drivers
	g.drivers = map[string]*boxDriver{}
	g.mu.Unlock()
	var errs []error
	for _, d := range drivers {
		errs = append(errs, d.close(ctx))
	}
	for _, d := range g.clusters {
		errs = append(errs, d.Close(ctx))
	}
	return errors.Join(errs...)
}

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
func (g *WorkerGateway) reap(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	var ran error // that of the host
	if g.o.Shared {
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

func (g *WorkerGateway) sweepDue(ctx context.Context) {
	for ctx.Err() == nil {
		next := g.sweepArtifacts(ctx)
		if !g.o.Shared {
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
		if g.o.Shared {
			continue
		}
		if _, err := g.host.Sweep(ctx); err != nil && ctx.Err() == nil {
			g.log.LogAttrs(ctx, slog.LevelWarn, "sessions that nobody holds could not be given up", logattr.Err(err))
		}
	}
}

// sweepArtifacts removes artifacts that are too old, and returns when the next are.
func (g *WorkerGateway) sweepArtifacts(ctx context.Context) (next time.Time) {
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
func (g *WorkerGateway) nextSweep(ctx context.Context) (next time.Time, err error) {
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
