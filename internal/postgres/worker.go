package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/worker"
)

// Workers is the worker.Store of a database, for hosts of any number of machines.
// Which of them lives is a matter of the server's clock alone.
type Workers struct{ db *DB }

var _ worker.Store = (*Workers)(nil)

// Workers returns the records of the tool channel in the database.
func (db *DB) Workers() *Workers { return &Workers{db} }

// Create implements worker.Store.
func (s *Workers) Create(ctx context.Context, rec worker.Record) error {
	text, err := json.Marshal(rec)
	added := false
	if err == nil {
		err = s.db.call(ctx, `SELECT ossicle.worker_create($1, $2, $3, $4, $5, $6)`,
			[]any{rec.ID, rec.Owner, rec.Epoch, rec.State.Final(), int64(worker.KeepFinal), string(text)},
			func(rows pgx.Rows) error { return rows.Scan(&added) })
	}
	if err == nil && !added {
		err = worker.ErrConflict
	}
	if err != nil {
		return fmt.Errorf("create session %q: %w", rec.ID, err)
	}
	return nil
}

// Load implements worker.Store.
func (s *Workers) Load(ctx context.Context, id string) (worker.Record, error) {
	rows, err := s.db.pool.Query(ctx, `SELECT record FROM ossicle.worker_session WHERE id = $1`, id)
	if err != nil {
		return worker.Record{}, fmt.Errorf("load session %q: %w", id, err)
	}
	rec, err := pgx.CollectExactlyOneRow(rows, scanWorker)
	if errors.Is(err, pgx.ErrNoRows) {
		err = worker.ErrUnknownSession
	}
	if err != nil {
		return worker.Record{}, fmt.Errorf("load session %q: %w", id, err)
	}
	return rec, nil
}

func scanWorker(row pgx.CollectableRow) (rec worker.Record, err error) {
	var text []byte
	if err := row.Scan(&text); err != nil {
		return rec, err
	}
	err = json.Unmarshal(text, &rec)
	return rec, err
}

// Save implements worker.Store. If ctx ends while the statement is under way, its
// outcome is not known; a repetition under the same epoch finds out.
func (s *Workers) Save(ctx context.Context, rec worker.Record, epoch int64) error {
	text, err := json.Marshal(rec)
	var outcome int
	if err == nil {
		err = s.db.call(ctx, `SELECT ossicle.worker_save($1, $2, $3, $4, $5, $6, $7)`,
			[]any{rec.ID, epoch, rec.Owner, rec.Epoch, rec.State.Final(), int64(worker.KeepFinal), string(text)},
			func(rows pgx.Rows) error { return rows.Scan(&outcome) })
	}
	switch {
	case err != nil:
	case outcome == 0:
		err = worker.ErrConflict
	case outcome < 0:
		err = worker.ErrUnknownSession
	default:
		return nil
	}
	return fmt.Errorf("save session %q: %w", rec.ID, err)
}

// List implements worker.Store.
func (s *Workers) List(ctx context.Context, f worker.Filter) ([]worker.Record, error) {
	rows, err := s.db.pool.Query(ctx, `SELECT record FROM ossicle.worker_session s WHERE (NOT $1 OR ended IS NULL) AND ($2 = '' OR owner = $2)
		AND (NOT $3 OR EXISTS (SELECT FROM ossicle.worker_host h WHERE h.owner = s.owner AND h.until <= clock_timestamp())) ORDER BY id`,
		f.Live, f.Owner, f.Orphaned)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	recs, err := pgx.CollectRows(rows, scanWorker)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return recs, nil
}

// Delete implements worker.Store.
func (s *Workers) Delete(ctx context.Context, id string) error {
	if err := s.db.call(ctx, `DELETE FROM ossicle.worker_session WHERE id = $1`, []any{id}, nil); err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	return nil
}

// Announce implements worker.Store.
func (s *Workers) Announce(ctx context.Context, h worker.HostRecord, ttl time.Duration) (lapsed bool, err error) {
	err = s.db.call(ctx, `SELECT ossicle.worker_announce($1, $2, $3, $4, $5)`,
		[]any{h.Owner, h.Addr, h.Image, ttl.Milliseconds(), worker.KeepHost.Milliseconds()},
		func(rows pgx.Rows) error { return rows.Scan(&lapsed) })
	if err != nil {
		return false, fmt.Errorf("announce host: %w", err)
	}
	return lapsed, nil
}

// Retire implements worker.Store.
func (s *Workers) Retire(ctx context.Context, owner string) error {
	err := s.db.call(ctx, `UPDATE ossicle.worker_host SET until = clock_timestamp() WHERE owner = $1 AND until > clock_timestamp()`, []any{owner}, nil)
	if err != nil {
		return fmt.Errorf("retire host: %w", err)
	}
	return nil
}

// Hosts implements worker.Store.
func (s *Workers) Hosts(ctx context.Context) ([]worker.HostRecord, error) {
	rows, err := s.db.pool.Query(ctx, `SELECT owner, addr, image, until > clock_timestamp() FROM ossicle.worker_host ORDER BY owner`)
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	hosts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h worker.HostRecord, err error) {
		err = row.Scan(&h.Owner, &h.Addr, &h.Image, &h.Alive)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	return hosts, nil
}
