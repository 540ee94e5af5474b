package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/files"
	"github.com/ossicle/ossicle/internal/nats"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/internal/redis"
	"github.com/ossicle/ossicle/internal/sqlite"
)

// logStore is a log with everything that the process wants of it.
type logStore interface {
	feed.Store
	feed.TopicReader
}

// logBackend is a store that was opened, with the bus that goes with it.
type logBackend struct {
	store  logStore
	tokens access.Store
	bus    feed.Bus
	outbox func(feed.Bus) *postgres.Outbox // nil: it has none
	close  func() error
}

func openLog(ctx context.Context, o *FeedOptions) (*logBackend, error) {
	if err := config.CheckStore(o.Store); err != nil {
		return nil, &SettingError{err}
	}
	path, file := strings.CutPrefix(o.Store, "sqlite:")
	switch {
	case o.Store == "":
		return openFileLog(ctx, filepath.Join(o.Data, FeedFile))
	case file:
		return openFileLog(ctx, path)
	}
	db, err := openPostgres(ctx, o)
	if err != nil {
		return nil, err
	}
	return &logBackend{
		store: db.Feed(), tokens: db.Tokens(), bus: db.Bus(), outbox: db.Outbox,
		close: func() error { db.Close(); return nil },
	}, nil
}

func openPostgres(ctx context.Context, o *FeedOptions) (*postgres.DB, error) {
	return postgres.Open(ctx, o.Store, &postgres.Options{Direct: o.Direct, Existing: o.Existing, Logger: o.Logger})
}

// openFileLog opens a log in a file. What is published is on the disk before it
// is acknowledged. Its bell also tells whether the file is a copy that was put
// back, whatever bus is used.
func openFileLog(ctx context.Context, path string) (*logBackend, error) {
	db, err := sqlite.Open(ctx, path, &sqlite.Options{Durable: true})
	if err != nil {
		return nil, err
	}
	bell, err := sqlite.OpenBell(ctx, db.Feed(), files.Touched)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &logBackend{store: db.Feed(), tokens: db.Tokens(), bus: bell, close: db.Close}, nil
}

// openBus opens what tells other processes that the log has grown.
func openBus(back *logBackend, o *FeedOptions) (bus feed.Bus, done func() error, err error) {
	if err := config.CheckBus(o.Bus); err != nil {
		return nil, nil, &SettingError{err}
	}
	none := func() error { return nil }
	switch scheme, _, _ := strings.Cut(o.Bus, "://"); scheme {
	case "memory":
		return &feed.Local{}, none, nil
	case "redis", "rediss":
		bus, err := redis.Open(o.Bus, &redis.Options{Logger: o.Logger})
		if err != nil { // it connects later, so there is nothing wrong but the address
			return nil, nil, &SettingError{err}
		}
		return bus, bus.Close, nil
	case "nats", "tls":
		bus, err := nats.Open(o.Bus, &nats.Options{Logger: o.Logger})
		if err != nil {
			return nil, nil, &SettingError{err}
		}
		return bus, bus.Close, nil
	case "postgres":
		if back.outbox == nil {
			return nil, nil, &SettingError{errors.New("the bus postgres goes with a postgres:// store")}
		}
	}
	return back.bus, none, nil
}

// SettingError says that a store or a bus is named in a form that nobody knows, or
// that the two do not go together.
type SettingError struct{ err error }

func (e *SettingError) Error() string { return e.err.Error() }
func (e *SettingError) Unwrap() error { return e.err }

// ErrNoLog says that there is no log yet, and that none is to be made.
var ErrNoLog = errors.New("there is no log yet")

// noLog marks the errors of stores that mean that there is none.
func noLog(err error) error {
	if errors.Is(err, postgres.ErrNoSchema) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNoLog, err)
	}
	return err
}

// ErrNoPostgres says that the store is none that can capture tables.
var ErrNoPostgres = errors.New("this needs a PostgreSQL store: give --store postgres://…, or feed.store in the configuration")

// OpenPostgres opens the database of a store, for what is done to it by hand. The
// caller closes it. Errors: ErrNoPostgres, with FeedOptions.Existing ErrNoLog.
func OpenPostgres(ctx context.Context, c *config.Config, o *FeedOptions) (*postgres.DB, error) {
	opts := o.over(c)
	if !strings.HasPrefix(opts.Store, "postgres") {
		return nil, ErrNoPostgres
	}
	db, err := openPostgres(ctx, &opts)
	if err != nil {
		return nil, noLog(err)
	}
	return db, nil
}

// CaptureScript is the SQL that would have a table of the store captured.
func CaptureScript(ctx context.Context, c *config.Config, o *FeedOptions, capture postgres.Capture) (string, error) {
	opts := o.over(c)
	if !strings.HasPrefix(opts.Store, "postgres") {
		return "", ErrNoPostgres
	}
	return postgres.InstallScript(ctx, opts.Store, capture)
}
