// Package postgres keeps the event log in PostgreSQL, which several processes
// share, and makes events of what is written to tables there: the ports of the
// rooms, one file of this package per port.
//
// What must not be interrupted half way is a function of the schema "ossicle",
// called in a transaction that is sent as a whole. So a process that is killed,
// stopped or cut off at any instruction holds no lock of the log, and leaves
// either nothing or all of it.
//
// Connections are of two kinds: a pool, which may pass a pooler such as
// PgBouncer, and one that listens, which must not pass one in transaction mode.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Defaults of Options.
const (
	DefaultConnections = 8
	DefaultBatch       = 1000
	DefaultKeepalive   = 20 * time.Second
)

const (
	// leastConnections is what a drain needs: it holds one while it uses another.
	leastConnections = 2
	// callTime bounds a call, also when the server has vanished without a word.
	callTime = 30 * time.Second
)

// oldest is the first version whose functions are enough, as PostgreSQL numbers
// them.
const oldest = 130000

// Options adjust a DB. Zero fields take the defaults.
type Options struct {
	// Direct is the DSN of connections that reach the server itself, where the
	// other one leads to a pooler in transaction mode. Listening and migrations
	// need it.
	Direct string
	// Connections bounds the pool, which has at least 2. What listens comes on top.
	Connections int
	// Batch is how many rows of the outbox one transaction moves into the log.
	Batch int
	// Keepalive is how often the connection that listens asks for a sign of life
	// while nothing comes.
	Keepalive time.Duration
	// Existing opens what is there and leaves it as it is, for those who only look: no
	// schema is made or brought up to date, and a standby does too.
	Existing bool
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Connections <= 0 {
		opts.Connections = DefaultConnections
	}
	opts.Connections = max(opts.Connections, leastConnections)
	if opts.Batch <= 0 {
		opts.Batch = DefaultBatch
	}
	if opts.Keepalive <= 0 {
		opts.Keepalive = DefaultKeepalive
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

var (
	// ErrNewer says that the schema was written by a newer version of this program.
	ErrNewer = errors.New("the schema was written by a newer version")
	// ErrOlder says that the schema is of an older version, and is to be left as it is.
	ErrOlder = errors.New("the schema is of an older version; whatever writes to it, as 'ossicle serve' does, brings it up to date")
	// ErrNoSchema says that there is nothing of ours in the database, and is to be
	// nothing.
	ErrNoSchema = errors.New("the database has no schema ossicle")
	// ErrUnreachable says that no connection to the server came about.
	ErrUnreachable = errors.New("the server cannot be reached")
	// ErrUnfit says that a server cannot do what is needed.
	ErrUnfit = errors.New("the database does not fit")
	// ErrDeaf says that LISTEN works and no notification ever comes: there is a
	// pooler in transaction mode between us and the server.
	ErrDeaf = errors.New("notifications do not arrive; a pooler in transaction mode, such as PgBouncer, swallows them: give the address of the server itself as the direct DSN")
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	pool *pgxpool.Pool
	ears *listener
	o    Options

	feed   *Feed
	writes sync.WaitGroup // groups of appends under way
	// stepped, for tests that kill the process, is called between round trips.
	stepped func()
	// now is the clock of this machine, which tests set.
	now func() time.Time
}

// Open connects, finds out whether notifications arrive, and brings the schema
// "ossicle" up to date, which several processes may do at once. Errors:
// ErrUnreachable, ErrDeaf, ErrNewer, ErrUnfit, with Options.Existing ErrNoSchema and ErrOlder, and what
// the server says.
func Open(ctx context.Context, dsn string, o *Options) (*DB, error) {
	db, err := open(ctx, dsn, o.orDefaults())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", unreachable(err))
	}
	return db, nil
}

// unreachable marks an error of the network; a server that refuses the role has been
// reached.
func unreachable(err error) error {
	if errors.As(err, new(*pgconn.ConnectError)) && code(err) == "" {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

func open(ctx context.Context, dsn string, o Options) (*DB, error) {
	config, direct, err := configs(dsn, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	db := &DB{pool: pool, o: o, stepped: func() {}, now: time.Now}
	db.ears = newListener(direct, pool, o)
	db.feed = newFeed(db)
	if err := db.prepare(ctx, direct); err != nil {
		pool.Close()
		return nil, err
	}
	return db, nil
}

func configs(dsn string, o Options) (*pgxpool.Config, *pgx.ConnConfig, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(o.Connections) //nolint:gosec // a handful
	config.PingTimeout = reply
	ours(config.ConnConfig)
	if o.Existing && !strings.Contains(dsn, "default_query_exec_mode") {
		// Who only looks does not find out whether there is a pooler; see below.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if o.Direct == "" {
		return config, config.ConnConfig.Copy(), nil
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		// A pooler may give every transaction another connection, on which a
		// statement that was prepared before is not known.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	direct, err := pgx.ParseConfig(o.Direct)
	if err != nil {
		return nil, nil, fmt.Errorf("direct connection: %w", err)
	}
	ours(direct)
	return config, direct, nil
}

// ours has the kernel find out when the server is gone, and says to the server
// who we are.
func ours(c *pgx.ConnConfig) {
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: DefaultKeepalive, Interval: 5 * time.Second, Count: 3}}
	c.DialFunc = dialer.DialContext
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "ossicle"
	}
}

// prepare checks the server and migrates.
func (db *DB) prepare(ctx context.Context, direct *pgx.ConnConfig) error {
	var version int
	var encoding string
	var standby bool
	row := db.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, getdatabaseencoding(), pg_is_in_recovery()`)
	if err := row.Scan(&version, &encoding, &standby); err != nil {
		return err
	}
	switch {
	case version < oldest:
		return fmt.Errorf("%w: it is PostgreSQL %d, and 13 is the oldest that does", ErrUnfit, version/10000)
	case encoding != "UTF8":
		return fmt.Errorf("%w: its encoding is %s, and events are UTF-8", ErrUnfit, encoding)
	case db.o.Existing:
		return current(ctx, direct)
	case standby:
		return fmt.Errorf("%w: it is a standby, which cannot be written to", ErrUnfit)
	}
	if err := db.ears.test(ctx); err != nil {
		return err
	}
	if err := migrate(ctx, direct); err != nil {
		return err
	}
	// If this is a restored copy, another log begins here.
	return db.call(ctx, `SELECT ossicle.feed_begin()`, nil, nil)
}

// Close waits for running calls and closes the connections. Whatever listens or
// drains must have ended.
func (db *DB) Close() {
	db.writes.Wait()
	db.pool.Close()
}

// durable makes a commit wait for the disk whatever the settings of the server
// say, and leaves alone those that wait for more than that. If ids that somebody
// has seen could be lost in a crash, they would be given again.
const durable = `SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`

// call runs one statement in a transaction that is sent as a whole, so that no
// lock ever waits for the network or for us. Each row of the result is handed to
// scan, if there is one.
func (db *DB) call(ctx context.Context, query string, args []any, scan func(pgx.Rows) error) error {
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`)
	batch.Queue(durable)
	batch.Queue(query, args...)
	batch.Queue(`COMMIT`)
	return db.send(ctx, batch, func(results pgx.BatchResults) error {
		if err := skip(results, 2); err != nil {
			return err
		}
		if err := each(results, scan); err != nil {
			return err
		}
		return skip(results, 1)
	})
}

// snapshot runs queries that look at one moment.
func (db *DB) snapshot(ctx context.Context, batch *pgx.Batch, scans ...func(pgx.Rows) error) error {
	whole := &pgx.Batch{}
	whole.Queue(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
	whole.QueuedQueries = append(whole.QueuedQueries, batch.QueuedQueries...)
	whole.Queue(`COMMIT`)
	return db.send(ctx, whole, func(results pgx.BatchResults) error {
		if err := skip(results, 1); err != nil {
			return err
		}
		for _, scan := range scans {
			if err := each(results, scan); err != nil {
				return err
			}
		}
		return skip(results, 1)
	})
}

func (db *DB) send(ctx context.Context, batch *pgx.Batch, f func(pgx.BatchResults) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// One that was left in a transaction by an error is thrown away.
	defer conn.Release()
	db.stepped()
	results := conn.SendBatch(ctx, batch)
	db.stepped()
	err = f(results)
	if closed := results.Close(); err == nil { // else it is the same again
		err = closed
	}
	db.stepped()
	return err
}

func skip(results pgx.BatchResults, n int) error {
	for range n {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}

func each(results pgx.BatchResults, scan func(pgx.Rows) error) error {
	if scan == nil {
		return skip(results, 1)
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
