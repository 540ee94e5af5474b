package feed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
)

// DefaultRest is the least time between two rounds of a Keeper.
const DefaultRest = 30 * time.Second

// KeeperOptions adjust a Keeper. Zero fields take the defaults.
type KeeperOptions struct {
	// Rest is the least time between two rounds.
	Rest time.Duration
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

// Keeper applies the retention of topics. It works when the log has grown or the
// oldest event of a topic comes of age, and sleeps otherwise.
type Keeper struct {
	store Store
	bus   Bus
	keep  func(topic string) Retention
	o     KeeperOptions
}

// NewKeeper returns a keeper that is told by the bus when the log has grown.
func NewKeeper(store Store, bus Bus, keep func(topic string) Retention, o *KeeperOptions) *Keeper {
	k := &Keeper{store: store, bus: bus, keep: keep}
	if o != nil {
		k.o = *o
	}
	if k.o.Rest <= 0 {
		k.o.Rest = DefaultRest
	}
	if k.o.Logger == nil {
		k.o.Logger = slog.New(slog.DiscardHandler)
	}
	return k
}

// Run works until ctx ends, and returns nil. A round that fails is repeated after
// the rest, and a bus that cannot be heard is listened to again.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	grown := make(chan struct{}, 1)
	wg.Go(func() {
		hear(ctx, k.bus, k.o.Logger, func(error) {}, func() {
			select {
			case grown <- struct{}{}:
			default:
			}
		})
	})
	// Never one that is due already: Go 1.26 runs such a timer on the goroutine that stops
	// or sets it in a bubble of testing/synctest, and its race detector bears no two of
	// them at once.
	due := time.NewTimer(time.Nanosecond)
	defer due.Stop()
	for {
		select {
		case <-due.C:
		case <-grown:
		case <-ctx.Done():
			return nil
		}
		next, err := k.round(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a clean stop
		}
		if err != nil {
			k.o.Logger.WarnContext(ctx, "events that are too old or too many stay for now", logattr.Err(err))
			next = k.o.Rest
		}
		due.Stop()
		if next >= 0 {
			due.Reset(max(next, k.o.Rest))
		}
		if !supervise.Sleep(ctx, k.o.Rest) {
			return nil
		}
	}
}

// round trims every topic, and returns when the next event comes of age, or -1.
func (k *Keeper) round(ctx context.Context) (time.Duration, error) {
	topics, err := k.store.Topics(ctx)
	if err != nil {
		return 0, fmt.Errorf("list topics: %w", err)
	}
	for _, t := range topics {
		keep := k.keep(t.Name)
		for more := keep != (Retention{}); more; {
			if more, err = k.store.Trim(ctx, t.Name, keep); err != nil {
				return 0, fmt.Errorf("trim topic %s: %w", t.Name, err)
			}
		}
	}
	if topics, err = k.store.Topics(ctx); err != nil {
		return 0, fmt.Errorf("list topics: %w", err)
	}
	next := time.Duration(-1)
	for _, t := range topics {
		if age := k.keep(t.Name).Age; age > 0 && t.Count > 0 {
			if left := max(0, age-t.Age); next < 0 || left < next {
				next = left
			}
		}
	}
	return next, nil
}
