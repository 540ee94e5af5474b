package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/worker"
)

// outputKept is what a worker of ours keeps of each stream, in bytes: a burst
// that is larger loses its middle. Twice that, with each byte escaped, is a
// message.
const outputKept = 256 << 10

// Driver makes the sandboxes of one profile. It is safe for concurrent use.
type Driver interface {
	// Traits are what it can keep, and how its sandboxes come home.
	Traits() Traits
	Create(ctx context.Context, s Spec) error
	// Delete ends a sandbox, whose worker is about to exit by itself, and what is left
	// of it; one that is none is no error.
	Delete(ctx context.Context, session string) error
	// Kill is Delete without a moment for the worker to exit.
	Kill(ctx context.Context, session string) error
	// Close ends the sandboxes that end with this process.
	Close(ctx context.Context) error
}

// NewDriver makes the driver of a profile. It is called once for each, when the
// first sandbox of it is made.
type NewDriver func(ctx context.Context, p *config.Sandbox, home Home) (Driver, error)

// Home is what a driver has to know of its fleet.
type Home struct {
	// Socket is the path of the Unix socket on which the gateway takes workers.
	Socket string
	// Exited is told that a sandbox has ended, and how: in part from the sandbox.
	Exited func(session, detail string)
}

// Traits are what is known of the sandboxes of a driver.
type Traits struct {
	Tier    string   // how well it keeps what is in it
	Reason  string   // why not better; may be empty
	About   string   // the tier and what bounds it, in a line
	Gaps    []string // what it does not keep
	Control string   // the URL that its workers dial
}

// Spec is a sandbox to make.
type Spec struct {
	Session string
	Env     map[string]string // of the worker, without the token
	Token   string
}

// driver returns the driver of a profile, which is made when it is first needed.
func (g *Fleet) driver(ctx context.Context, p *config.Sandbox) (Driver, error) {
	g.making.Lock()
	defer g.making.Unlock()
	if d := g.made(p.Name); d != nil {
		return d, nil
	}
	d, err := g.newDriver(ctx, p)
	if err != nil {
		return nil, err
	}
	if t := d.Traits(); t.Reason != "" {
		g.log.LogAttrs(ctx, slog.LevelInfo, "sandboxes are weaker than they could be", logattr.Event(t.Tier), logattr.Reason(t.Reason))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drivers[p.Name] = d
	return d, nil
}

func (g *Fleet) newDriver(ctx context.Context, p *config.Sandbox) (Driver, error) {
	home := Home{Socket: g.socket, Exited: g.exited}
	if other := g.o.Drivers[p.Driver]; other != nil {
		return other(ctx, p, home)
	}
	if p.Driver == config.DriverKubernetes {
		return g.newCluster(p)
	}
	return g.newLocal(ctx, p)
}

// made is the driver of a profile if one was made, else nil.
func (g *Fleet) made(profile string) Driver {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drivers[profile]
}

// Delete implements worker.Sandboxes.
func (g *Fleet) Delete(ctx context.Context, session string) error {
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
		return d.Kill(ctx, session) // nobody is about to exit by itself
	}
	return d.Delete(ctx, session)
}

// closeDrivers ends the sandboxes that end with this process.
func (g *Fleet) closeDrivers(ctx context.Context) error {
	g.making.Lock()
	defer g.making.Unlock()
	g.mu.Lock()
	drivers := g.drivers
	g.drivers = map[string]Driver{}
	g.mu.Unlock()
	var errs []error
	for _, d := range drivers {
		errs = append(errs, d.Close(ctx))
	}
	for _, d := range g.clusters {
		errs = append(errs, d.Close(ctx))
	}
	return errors.Join(errs...)
}
