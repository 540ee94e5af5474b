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
	// Spare are topics that are kept although they are empty for long.
	Spare []string
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

// sweepEvery is how often a Keeper that works looks at topics that need nothing as
// far as their counts tell: idempotency keys may have come of age.
const sweepEvery = time.Hour

// Keeper applies the retention of topics, and has those forgotten that have been
// empty for ForgetAfter. It works when the log has grown, the oldest event of a topic
// comes of age, or an empty topic has been so for long enough, and sleeps otherwise.
type Keeper struct {
	store Store
	bus   Bus
	keep  func(topic string) Retention
	o     KeeperOptions
	swept time.Time // the last time that every topic was looked at
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

// round trims the topics that need it, has the empty ones forgotten, and returns when
// the next event or topic falls due, or -1.
func (k *Keeper) round(ctx context.Context) (time.Duration, error) {
	topics, err := k.store.Topics(ctx)
	if err != nil {
		return 0, fmt.Errorf("list topics: %w", err)
	}
	all := k.swept.IsZero() || time.Since(k.swept) >= sweepEvery
	for _, t := range topics {
		keep := k.keep(t.Name)
		for more := keep != (Retention{}) && (all || !keep.fits(t)); more; {
			if more, err = k.store.Trim(ctx, t.Name, keep); err != nil {
				return 0, fmt.Errorf("trim topic %s: %w", t.Name, err)
			}
		}
	}
	if all {
		k.swept = time.Now()
	}
	if topics, err = k.store.Topics(ctx); err != nil {
		return 0, fmt.Errorf("list topics: %w", err)
	}
	next, empty := time.Duration(-1), false
	for _, t := range topics {
		if empty = empty || t.Count == 0; t.Count == 0 {
			continue
		}
		if age := k.keep(t.Name).Age; age > 0 {
			next = sooner(next, max(0, age-t.Age))
		}
	}
	if !empty {
		return next, nil
	}
	left, err := k.forget(ctx)
	return sooner(next, left), err
}

// fits reports whether a topic has nothing to remove as far as its counts tell.
func (r Retention) fits(t Topic) bool {
	return (r.Count <= 0 || t.Count <= r.Count) && (r.Bytes <= 0 || t.Bytes <= r.Bytes) && (r.Age <= 0 || t.Count == 0 || t.Age < r.Age)
}

// forget has topics forgotten that have been empty for long.
func (k *Keeper) forget(ctx context.Context) (time.Duration, error) {
	for {
		next, err := k.store.Forget(ctx, k.o.Spare, ForgetAfter)
		if err != nil {
			return 0, fmt.Errorf("forget topics: %w", err)
		}
		if next != 0 {
			return next, nil
		}
	}
}

// sooner is the sooner of two times until something, of which less than 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
