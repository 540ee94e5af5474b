package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
)

// The changes of a row, which are also the types of the events. A table of which
// deletions are captured also has events of type "truncate", without a key.
const (
	Insert = "insert"
	Update = "update"
	Delete = "delete"
)

// maxColumns bounds the columns of a capture.
const maxColumns = 500

// Capture says which changes of a table become events.
//
// The data of an event is {"op","table","new","old"}: new and old are objects of
// the columns, as far as the change has them. If it is larger than an event may
// be, "omitted" names what is missing, first "old", then "new".
type Capture struct {
	// Table is the name, with or without its schema: first as it is, then as SQL
	// reads it.
	Table string
	// Columns are the names of the columns to tell, as they are.
	Columns []string
	// On are the changes to tell. Nil means all three.
	On []string
	// Topic is that of the events. Empty means the table's name in lower case.
	Topic string
	// Key are the columns that the event's key is made of, joined by "/". Nil means
	// the primary key, if there is one.
	Key []string
	// Silent triggers do not ring: what they write is found with what others ring
	// for, and by the sign of life. Writers that use PREPARE TRANSACTION need this,
	// since the server forbids it after a NOTIFY.
	Silent bool
}

// Captured is a capture that is installed.
type Captured struct {
	Table   string   `json:"table"` // with its schema; empty if the table is gone
	Topic   string   `json:"topic"`
	Columns []string `json:"columns"`
	Key     []string `json:"key"`
	On      []string `json:"on"`
	// Problem says what keeps it from working. Empty: nothing.
	Problem string `json:"problem,omitzero"`
}

var (
	// ErrNoTable says that there is no such table.
	ErrNoTable = errors.New("there is no such table")
	// ErrNotInstalled says that changes of the table are not captured.
	ErrNotInstalled = errors.New("the table is not captured")
	// ErrBusy says that the table was in use for too long.
	ErrBusy = errors.New("transactions that write to the table hold it; try again when they are over")
)

// Install has the changes of a table captured from now on, or changes how. It
// needs a short moment in which nobody writes to the table, and the role must own
// it. Errors: ErrNoTable, ErrBusy, *feed.InvalidError, and what the server says.
func (db *DB) Install(ctx context.Context, c Capture) (Captured, error) {
	var done Captured
	err := db.admin(ctx, func(tx pgx.Tx) error {
		p, err := plan(ctx, tx, c)
		if err != nil {
			return err
		}
		done = Captured{Table: p.label(), Topic: p.Topic, Columns: p.Columns, Key: p.Key, On: p.On}
		if _, err := tx.Exec(ctx, strings.Join(p.statements(), ";\n")); err != nil {
			return err
		}
		return prune(ctx, tx)
	})
	if err != nil {
		return Captured{}, fmt.Errorf("capture table %s: %w", c.Table, err)
	}
	return done, nil
}

// InstallScript returns the SQL that Install would run on the database of a DSN,
// with that which makes the schema if it is not there. It changes nothing.
func InstallScript(ctx context.Context, dsn string, c Capture) (string, error) {
	script, err := installScript(ctx, dsn, c)
	if err != nil {
		return "", fmt.Errorf("capture table %s: %w", c.Table, err)
	}
	return script, nil
}

func installScript(ctx context.Context, dsn string, c Capture) (script string, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", unreachable(err)
	}
	defer hangUp(ctx, conn)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return "", err
	}
	p, err := plan(ctx, tx, c)
	if err != nil {
		return "", err
	}
	statements := p.statements()
	if !p.schema {
		schema, err := schemaStatements()
		if err != nil {
			return "", err
		}
		statements = append(schema, statements...)
	}
	return "BEGIN;\n" + strings.Join(statements, ";\n") + ";\nCOMMIT;\n", nil
}

// Uninstall ends the capture of a table. Events and rows that wait are kept.
// Errors: ErrNoTable, ErrNotInstalled, ErrBusy, and what the server says.
func (db *DB) Uninstall(ctx context.Context, table string) error {
	// Of a table that is gone nobody can say the name, so it is forgotten whatever is said.
	err := db.admin(ctx, func(tx pgx.Tx) error { return prune(ctx, tx) })
	if err != nil {
		return fmt.Errorf("end the capture of table %s: %w", table, err)
	}
	err = db.admin(ctx, func(tx pgx.Tx) error {
		t, err := find(ctx, tx, table)
		if err != nil {
			return err
		}
		triggers, err := installed(ctx, tx, t.oid)
		if err != nil {
			return err
		}
		if len(triggers) == 0 {
			return ErrNotInstalled
		}
		for _, trigger := range triggers {
			if _, err := tx.Exec(ctx, `DROP TRIGGER `+ident(trigger.name)+` ON `+t.name()); err != nil {
				return err
			}
		}
		return prune(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("end the capture of table %s: %w", table, err)
	}
	return nil
}

// Remove takes everything out of the database that this package has put there:
// triggers, outbox and log.
func (db *DB) Remove(ctx context.Context) error {
	err := db.admin(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DROP SCHEMA ossicle CASCADE`)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove schema ossicle: %w", err)
	}
	return nil
}

// prune removes what is left of captures whose triggers are gone.
func prune(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `DELETE FROM ossicle.feed_capture c
		WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = to_regproc('ossicle.capture_' || c.id)) RETURNING id`)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`DROP FUNCTION IF EXISTS ossicle.capture_%d()`, id)); err != nil {
			return err
		}
	}
	return nil
}

// Captures lists what is installed, by table.
func (db *DB) Captures(ctx context.Context) ([]Captured, error) {
	rows, err := db.pool.Query(ctx, `SELECT coalesce((SELECT n.nspname || '.' || r.relname FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace WHERE r.oid = t.tgrelid), ''), c.topic, c.columns, c.key, c.ops, coalesce(t.enabled, '{}'),
			ARRAY(SELECT x FROM unnest(c.columns || c.key) x WHERE t.tgrelid IS NOT NULL AND NOT EXISTS (
				SELECT FROM pg_attribute a WHERE a.attrelid = t.tgrelid AND a.attname = x AND a.attnum > 0 AND NOT a.attisdropped))
		FROM ossicle.feed_capture c LEFT JOIN (
			SELECT tgfoid, tgrelid, array_agg(tgenabled::text) AS enabled FROM pg_trigger WHERE tgparentid = 0 GROUP BY 1, 2
		) t ON t.tgfoid = to_regproc('ossicle.capture_' || c.id)
		ORDER BY 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("list captures: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Captured, error) {
		var c Captured
		var enabled, missing []string
		err := row.Scan(&c.Table, &c.Topic, &c.Columns, &c.Key, &c.On, &enabled, &missing)
		switch {
		case c.Table == "":
			c.Problem = "the table or its trigger is gone; the next installation or uninstallation of any table forgets it"
		case slices.ContainsFunc(enabled, func(e string) bool { return e != "A" }):
			c.Problem = "a trigger is disabled, or not enabled for all sessions; install it again"
		case slices.Contains(c.On, Delete) && len(enabled) < 2:
			c.Problem = "a trigger is gone; install it again"
		case len(missing) > 0:
			c.Problem = "columns are gone: " + strings.Join(missing, ", ") + "; install it again"
		}
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list captures: %w", err)
	}
	return all, nil
}

// admin runs f in a transaction that gives up when it has to wait for a table, so
// that writers do not queue behind it for long.
func (db *DB) admin(ctx context.Context, f func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, db.pool, pgx.TxOptions{BeginQuery: `BEGIN; SET LOCAL lock_timeout = '5s'`}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE ossicle.feed_capture IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		return f(tx)
	})
	switch code(err) {
	case "55P03":
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case "42501":
		return fmt.Errorf("%w; the role needs the rights of the table's owner and of the schema's, as a superuser or a member of both has them; such a one can also run what --print shows", err)
	}
	return err
}

// distinct returns the names without those that are there twice.
func distinct(names []string) []string {
	var kept []string
	for _, name := range names {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// check fills in what is not said.
func (c *Capture) check(t table) error {
	if len(c.On) == 0 {
		c.On = []string{Insert, Update, Delete}
	}
	c.On, c.Columns = distinct(c.On), distinct(c.Columns)
	for _, on := range c.On {
		if on != Insert && on != Update && on != Delete {
			return &feed.InvalidError{Field: "change", Reason: fmt.Sprintf("%q is none of insert, update, delete", on)}
		}
	}
	if c.Topic == "" {
		c.Topic = strings.ToLower(t.relation)
	}
	if err := feed.CheckTopic(c.Topic); err != nil {
		return fmt.Errorf("topic %q: %w", c.Topic, err)
	}
	if c.Key == nil {
		c.Key = t.primary
	}
	if len(c.Columns) == 0 || len(c.Columns) > maxColumns {
		return &feed.InvalidError{Field: "columns", Reason: fmt.Sprintf("name 1 to %d; the table has %s", maxColumns, strings.Join(t.columnNames(), ", "))}
	}
	for _, name := range slices.Concat(c.Columns, c.Key) {
		if _, ok := t.columns[name]; !ok {
			return &feed.InvalidError{Field: "columns", Reason: fmt.Sprintf("there is no %q; the table has %s", name, strings.Join(t.columnNames(), ", "))}
		}
	}
	return nil
}
