// Package sqlite keeps what must survive in one SQLite file: the stores of the
// rooms, one file of this package per port.
//
// The file is in WAL mode. One connection writes, in transactions that begin
// with BEGIN IMMEDIATE, so that writers queue instead of failing half way; a
// few connections read, each transaction in one snapshot. Several processes may
// use the same file. Commits survive the death of the process at any
// instruction; with Options.Durable also the loss of power.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Defaults of Options.
const (
	DefaultBusyTimeout = 5 * time.Second
	DefaultReaders     = 4
)

const (
	// migrateTries bounds the repeats of a migration that another process ran
	// at the same time.
	migrateTries = 20
	// walLimit is what is left of the log file after a checkpoint, in bytes.
	walLimit = 16 << 20
)

//go:embed migrations/*.sql
var migrations embed.FS

//go:embed mailboxes/*.sql
var mailboxes embed.FS

// Options adjust a DB. Zero fields take the defaults.
type Options struct {
	// BusyTimeout is how long a call waits for another process that writes.
	BusyTimeout time.Duration
	// Readers bounds the connections that read.
	Readers int
	// Durable waits for the disk on every commit. Without it a loss of power
	// (not the death of the process) may take back the last commits.
	Durable bool
	// Existing opens what is there and leaves it as it is, for those who only look: no
	// file is made and no schema brought up to date.
	Existing bool
}

// Errors about the version of a file.
var (
	// ErrNewer says that the file was written by a newer version of this program.
	ErrNewer = errors.New("the file was written by a newer version")
	// ErrOlder says that the file was written by an older version, and is to be left
	// as it is.
	ErrOlder = errors.New("the file was written by an older version; whatever writes to it, as 'ossicle serve' does, brings it up to date")
)

// DB is an open file. It is safe for concurrent use.
type DB struct {
	writer, reader *conns
	appends        *appendGroup
	// stepped, for tests that kill the process, is called between the
	// instructions of a transaction.
	stepped func()
}

// Open opens the file at path, which it makes readable by its owner only if it
// does not exist, and brings its schema up to date. Errors: ErrNewer, with
// Options.Existing ErrOlder and fs.ErrNotExist, and what the file system and the
// database say.
func Open(ctx context.Context, path string, o *Options) (*DB, error) {
	return openSchema(ctx, path, o, migrations, "migrations")
}

// openSchema opens a file whose schema is that of a directory of migrations.
func openSchema(ctx context.Context, path string, o *Options, schemas fs.FS, dir string) (*DB, error) {
	schema, err := fs.Sub(schemas, dir)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.BusyTimeout <= 0 {
		opts.BusyTimeout = DefaultBusyTimeout
	}
	if opts.Readers <= 0 {
		opts.Readers = DefaultReaders
	}
	prepare, update := create, migrate
	if opts.Existing {
		prepare, update = exists, current
	}
	if err := prepare(path); err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	writer, err := sql.Open("sqlite", dsn(path, opts, true))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	writer.SetMaxOpenConns(1)
	if err := update(ctx, writer, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), writer.Close())
	}
	reader, err := sql.Open("sqlite", dsn(path, opts, false))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), writer.Close())
	}
	reader.SetMaxOpenConns(opts.Readers)
	reader.SetMaxIdleConns(opts.Readers)
	return &DB{writer: newConns(writer), reader: newConns(reader), appends: newAppendGroup(), stepped: func() {}}, nil
}

// Close waits for running calls and closes the file.
func (db *DB) Close() error { return errors.Join(db.reader.close(), db.writer.close()) }

// create makes the file before the driver does, for its mode; the log files
// beside it get the same one.
func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// current checks that the schema is the one that is known.
func current(ctx context.Context, db *sql.DB, sources fs.FS) error {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sources, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	known := p.ListSources()
	target := known[len(known)-1].Version
	var there int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'`).Scan(&there); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	version, tables := int64(0), 0
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables); err == nil && tables == 0 {
		return fs.ErrNotExist // an attempt that came to nothing
	}
	if there > 0 {
		if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM schema_version WHERE is_applied`).Scan(&version); err != nil {
			return fmt.Errorf("read schema version: %w", err)
		}
	}
	switch {
	case version < target:
		return ErrOlder
	case version > target:
		return fmt.Errorf("%w: its schema is %d and %d is known", ErrNewer, version, target)
	}
	return nil
}

func dsn(path string, o Options, write bool) string {
	synchronous := "NORMAL"
	if o.Durable {
		synchronous = "FULL"
	}
	q := url.Values{"_pragma": {
		"busy_timeout(" + strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10) + ")",
		"journal_mode(WAL)",
		"synchronous(" + synchronous + ")",
		"foreign_keys(1)",
	}}
	if write {
		q["_pragma"] = append(q["_pragma"], "journal_size_limit("+strconv.Itoa(walLimit)+")", "secure_delete(1)")
		q.Set("_txlock", "immediate")
	} else {
		q["_pragma"] = append(q["_pragma"], "query_only(1)")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// migrate brings the schema up to date. Several processes may do so at once;
// whoever comes second fails, looks again and finds it done.
func migrate(ctx context.Context, db *sql.DB, sources fs.FS) error {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sources, goose.WithTableName("schema_version"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	for try := 1; ; try++ {
		if _, err = p.Up(ctx); err == nil || try == migrateTries || ctx.Err() != nil {
			break
		}
		pause := time.NewTimer(time.Duration(try)*5*time.Millisecond + rand.N(10*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if current > target {
		return fmt.Errorf("%w: its schema is %d and %d is known", ErrNewer, current, target)
	}
	return nil
}

// conns is a pool with the statements that were prepared on it. All of them are
// constants of this package, so there is a bounded number.
type conns struct {
	db *sql.DB

	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func newConns(db *sql.DB) *conns { return &conns{db: db, stmts: map[string]*sql.Stmt{}} }

func (c *conns) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.db.Close())...)
}

// tx is a transaction that prepares each of its statements once per pool.
type tx struct {
	*sql.Tx
	ctx     context.Context //nolint:containedctx // lives as long as the call
	conns   *conns
	fresh   map[string]*sql.Stmt // prepared in this transaction
	stepped func()
}

// stmt returns a prepared statement. One that the pool does not have yet is
// prepared in the transaction, whose connection may be the only one, and kept
// by the pool for later.
func (t *tx) stmt(query string) (*sql.Stmt, error) {
	t.conns.mu.Lock()
	kept := t.conns.stmts[query]
	t.conns.mu.Unlock()
	if kept != nil {
		return t.StmtContext(t.ctx, kept), nil
	}
	if s := t.fresh[query]; s != nil {
		return s, nil
	}
	s, err := t.PrepareContext(t.ctx, query)
	if err == nil {
		t.fresh[query] = s
	}
	return s, err
}

// keep has the pool prepare what the transaction was the first to need.
func (c *conns) keep(ctx context.Context, fresh map[string]*sql.Stmt) {
	for query := range fresh {
		s, err := c.db.PrepareContext(ctx, query)
		if err != nil {
			return // the next transaction prepares it anew
		}
		c.mu.Lock()
		if c.stmts[query] == nil {
			c.stmts[query], s = s, nil
		}
		c.mu.Unlock()
		if s != nil {
			_ = s.Close()
		}
	}
}

func (t *tx) exec(query string, args ...any) (int64, error) {
	t.stepped()
	s, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// one reads the first row; it returns sql.ErrNoRows if there is none.
func (t *tx) one(query string, args []any, dest ...any) error {
	t.stepped()
	s, err := t.stmt(query)
	if err != nil {
		return err
	}
	return s.QueryRowContext(t.ctx, args...).Scan(dest...)
}

// each calls f for every row.
func (t *tx) each(query string, args []any, f func(scan func(dest ...any) error) error) (err error) {
	t.stepped()
	s, err := t.stmt(query)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// write runs f in a transaction that is committed if f returns nil.
func (db *DB) write(ctx context.Context, f func(*tx) error) error {
	return db.in(ctx, db.writer, nil, f)
}

// read runs f in one snapshot.
func (db *DB) read(ctx context.Context, f func(*tx) error) error {
	return db.in(ctx, db.reader, &sql.TxOptions{ReadOnly: true}, f)
}

func (db *DB) in(ctx context.Context, c *conns, o *sql.TxOptions, f func(*tx) error) error {
	begun, err := c.db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	t := &tx{Tx: begun, ctx: ctx, conns: c, fresh: map[string]*sql.Stmt{}, stepped: db.stepped}
	if err := f(t); err != nil {
		if rollback := begun.Rollback(); rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
			err = errors.Join(err, rollback)
		}
		return err
	}
	db.stepped()
	if err := begun.Commit(); err != nil {
		return err
	}
	db.stepped()
	c.keep(ctx, t.fresh)
	return nil
}
