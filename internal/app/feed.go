package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/files"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/internal/telemetry"
	"github.com/ossicle/ossicle/listen"
)

// FeedFile is the name of the log in the data directory.
const FeedFile = "feed.db"

const hubBudget = 5 * time.Second

// FeedOptions say which log a process uses. Empty fields are as configured.
type FeedOptions struct {
	Store string // sqlite:PATH or a postgres:// URL
	Bus   string // memory, postgres, redis:// or nats://
	// Direct is the DSN of the database itself where Store leads to a pooler.
	Direct string
	Data   string // data directory
	// Existing leaves the log as it is, for those who only look: none is made, and none
	// brought up to date. The error is then ErrNoLog where there is none.
	Existing bool
	// Encode makes the frame of an event; see feed.Options.
	Encode func(feed.Event) []byte
	// Telemetry measures what happens. Nil does not.
	Telemetry *telemetry.Telemetry
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// Feed is the event feed of a process: the log, the hub on it, and who may use
// it.
type Feed struct {
	Hub       *feed.Hub
	Store     feed.Store
	Tokens    access.Store
	Resources *feed.Resources

	publisher feed.Publisher // the hub, measured
	telemetry *telemetry.Telemetry

	files []listen.Source
	down  teardown.Stack
}

// OpenFeed opens the log and runs its hub until Close.
func OpenFeed(ctx context.Context, c *config.Config, o *FeedOptions) (_ *Feed, err error) {
	opts := o.over(c)
	f := &Feed{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.down.Run(context.WithoutCancel(ctx)))
		}
	}()
	back, err := openLog(ctx, &opts)
	if err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	f.down.Push("log", storeBudget, func(context.Context) error { return back.close() })
	f.Store, f.Tokens = back.store, back.tokens
	bus, closeBus, err := openBus(back, &opts)
	if err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	f.down.Push("bus", hubBudget, func(context.Context) error { return closeBus() })
	f.telemetry = opts.Telemetry
	if f.telemetry != nil {
		f.Store, bus = f.telemetry.Store(back.store), f.telemetry.Bus(bus)
	}
	if f.Hub, err = feed.NewHub(ctx, f.Store, bus, &feed.Options{
		Ring: c.Feed.Ring, Lag: c.Feed.Lag, Policy: c.Feed.Policy, Encode: opts.Encode, Logger: opts.Logger,
	}); err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	f.publisher = f.Hub
	if f.telemetry != nil {
		f.telemetry.Hub(f.Hub)
		f.publisher = f.telemetry.Publisher(f.Hub)
	}
	f.Resources = feed.NewResources(f.Hub, back.store, back.store, &feed.ResourcesOptions{Logger: opts.Logger})
	if err := f.share(c.Feed.Files, opts.Logger); err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	f.work(ctx, "hub", f.Hub.Run)
	keeper := feed.NewKeeper(f.Store, bus, c.Feed.Keep, &feed.KeeperOptions{Spare: c.Feed.Named(), Logger: opts.Logger})
	f.work(ctx, "retention", keeper.Run)
	if back.outbox != nil {
		outbox := back.outbox(bus)
		if f.telemetry != nil {
			f.telemetry.Outbox(func(ctx context.Context) (telemetry.Backlog, error) {
				lag, err := outbox.Lag(ctx)
				return telemetry.Backlog{Rows: lag.Rows, Age: lag.Age}, err
			})
		}
		f.work(ctx, "outbox", outbox.Run)
	}
	return f, nil
}

// share offers directories and files as resources beside the topics
// (specification F-12).
func (f *Feed) share(paths []string, log *slog.Logger) error {
	if len(paths) == 0 {
		return nil
	}
	roots := make([]files.Root, len(paths))
	for i, path := range paths {
		roots[i].Path = path
	}
	source, err := files.New(roots, &files.Options{Logger: log})
	if err != nil {
		return err
	}
	f.files = append(f.files, source)
	f.down.Push("files", hubBudget, func(context.Context) error { return source.Close() })
	return nil
}

// work runs something until Close.
func (f *Feed) work(ctx context.Context, name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	f.down.Push(name, hubBudget, func(context.Context) error {
		stop()
		return <-ended
	})
}

// ready reports whether the log can be read. No feed is always ready.
func (f *Feed) ready(context.Context) error {
	if f == nil {
		return nil
	}
	if s := f.Hub.Stats().Store; s.Err != "" {
		return errors.New("the log of the feed cannot be used now") // the cause is in the log, and may name what is not for everybody
	}
	return nil
}

// Close stops the hub and closes the log. Whoever subscribed gets ErrStopped.
func (f *Feed) Close(ctx context.Context) error { return f.down.Run(ctx) }

// over puts the options over the configuration.
func (o *FeedOptions) over(c *config.Config) FeedOptions {
	var opts FeedOptions
	if o != nil {
		opts = *o
	}
	for _, d := range []struct {
		field *string
		value string
	}{{&opts.Store, c.Feed.Store}, {&opts.Bus, c.Feed.Bus}, {&opts.Direct, c.Feed.Direct}, {&opts.Data, c.Home}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// OpenTokens opens the store of tokens alone. The caller closes it.
func OpenTokens(ctx context.Context, c *config.Config, o *FeedOptions) (access.Store, func() error, error) {
	opts := o.over(c)
	if opts.Existing {
		return existingTokens(ctx, &opts)
	}
	back, err := openLog(ctx, &opts)
	if err != nil {
		return nil, nil, fmt.Errorf("open tokens: %w", err)
	}
	return back.tokens, back.close, nil
}

// existingTokens are those of a log that is there.
func existingTokens(ctx context.Context, o *FeedOptions) (access.Store, func() error, error) {
	if err := config.CheckStore(o.Store); err != nil {
		return nil, nil, fmt.Errorf("open tokens: %w", &SettingError{err})
	}
	path, file := strings.CutPrefix(o.Store, "sqlite:")
	if o.Store == "" {
		path, file = filepath.Join(o.Data, FeedFile), true
	}
	if file {
		db, err := sqlite.Open(ctx, path, &sqlite.Options{Existing: true})
		if err != nil {
			return nil, nil, fmt.Errorf("open tokens: %w", noLog(err))
		}
		return db.Tokens(), db.Close, nil
	}
	db, err := openPostgres(ctx, o)
	if err != nil {
		return nil, nil, fmt.Errorf("open tokens: %w", noLog(err))
	}
	return db.Tokens(), func() error { db.Close(); return nil }, nil
}
