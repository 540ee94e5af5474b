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
func (f *Fleet) driver(ctx context.Context, p *config.Sandbox) (Driver, error) {
	f.making.Lock()
	defer f.making.Unlock()
	if d := f.made(p.Name); d != nil {
		return d, nil
	}
	d, err := f.newDriver(ctx, p)
	if err != nil {
		return nil, err
	}
	if t := d.Traits(); t.Reason != "" {
		f.log.LogAttrs(ctx, slog.LevelInfo, "sandboxes are weaker than they could be", logattr.Event(t.Tier), logattr.Reason(t.Reason))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drivers[p.Name] = d
	return d, nil
}

func (f *Fleet) newDriver(ctx context.Context, p *config.Sandbox) (Driver, error) {
	home := Home{Socket: f.socket, Exited: f.exited}
	if other := f.o.Drivers[p.Driver]; other != nil {
		return other(ctx, p, home)
	}
	if p.Driver == config.DriverKubernetes {
		return f.newCluster(p)
	}
	return f.newLocal(ctx, p)
}

// made is the driver of a profile if one was made, else nil.
func (f *Fleet) made(profile string) Driver {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drivers[profile]
}

// Delete implements worker.Sandboxes.
func (f *Fleet) Delete(ctx context.Context, session string) error {
	f.mu.Lock()
	delete(f.notes, session)
	f.mu.Unlock()
	f.artifacts.Forget(session)
	rec, err := f.store.Load(ctx, session)
	if errors.Is(err, worker.ErrUnknownSession) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete sandbox: %w", err)
	}
	p, known := f.config.Sandbox(rec.Profile.Name)
	d := f.made(rec.Profile.Name)
	switch {
	case !known:
		f.log.LogAttrs(ctx, slog.LevelWarn, "the profile of a sandbox is gone; nobody knows where it runs", logattr.Session(session))
		return nil
	case d == nil && p.Driver != config.DriverKubernetes:
		return nil // it ended with the process that had made it
	case d == nil:
		if d, err = f.driver(ctx, &p); err != nil {
			return err
		}
	}
	if rec.NeverCalled() {
		return d.Kill(ctx, session) // nobody is about to exit by itself
	}
	return d.Delete(ctx, session)
}

// closeDrivers ends the sandboxes that end with this process.
func (f *Fleet) closeDrivers(ctx context.Context) error {
	f.making.Lock()
	defer f.making.Unlock()
	f.mu.Lock()
	drivers := f.drivers
	f.drivers = map[string]Driver{}
	f.mu.Unlock()
	var errs []error
	for _, d := range drivers {
		errs = append(errs, d.Close(ctx))
	}
	for _, d := range f.clusters {
		errs = append(errs, d.Close(ctx))
	}
	return errors.Join(errs...)
}
