package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// Workers is the worker.Store of a file. Hosts of several processes may share it.
type Workers struct{ db *DB }

var _ worker.Store = (*Workers)(nil)

// Workers returns the records of the tool channel in the file.
func (db *DB) Workers() *Workers { return &Workers{db} }

// ended is the number of a session that is over: it keeps the one that it has.
const endedNumber = `CASE WHEN ? THEN coalesce((SELECT ended FROM worker_session WHERE id = ?), (SELECT coalesce(max(ended), 0) + 1 FROM worker_session)) END`

// Create implements worker.Store.
func (s *Workers) Create(ctx context.Context, rec worker.Record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("create session %q: %w", rec.ID, err)
	}
	err = s.db.write(ctx, func(t *tx) error {
		added, err := t.exec(`INSERT INTO worker_session (id, owner, epoch, ended, record) VALUES (?, ?, ?, `+endedNumber+`, ?) ON CONFLICT DO NOTHING`,
			rec.ID, rec.Owner, rec.Epoch, rec.State.Final(), rec.ID, string(text))
		switch {
		case err != nil:
			return err
		case added == 0:
			return worker.ErrConflict
		}
		return pruneWorkers(t, rec)
	})
	if err != nil {
		return fmt.Errorf("create session %q: %w", rec.ID, err)
	}
	return nil
}

// pruneWorkers removes the oldest of those that are over, if the record is another
// one of them.
func pruneWorkers(t *tx, rec worker.Record) error {
	if !rec.State.Final() {
		return nil
	}
	_, err := t.exec(`DELETE FROM worker_session WHERE ended <= (SELECT max(ended) FROM worker_session) - ?`, worker.KeepFinal)
	return err
}

// Load implements worker.Store.
func (s *Workers) Load(ctx context.Context, id string) (rec worker.Record, err error) {
	err = s.db.read(ctx, func(t *tx) error {
		var text []byte
		err := t.one(`SELECT record FROM worker_session WHERE id = ?`, []any{id}, &text)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return worker.ErrUnknownSession
		case err != nil:
			return err
		}
		return json.Unmarshal(text, &rec)
	})
	if err != nil {
		return worker.Record{}, fmt.Errorf("load session %q: %w", id, err)
	}
	return rec, nil
}

// Save implements worker.Store.
func (s *Workers) Save(ctx context.Context, rec worker.Record, epoch int64) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("save session %q: %w", rec.ID, err)
	}
	err = s.db.write(ctx, func(t *tx) error {
		saved, err := t.exec(`UPDATE worker_session SET owner = ?, epoch = ?, ended = `+endedNumber+`, record = ? WHERE id = ? AND epoch = ?`,
			rec.Owner, rec.Epoch, rec.State.Final(), rec.ID, string(text), rec.ID, epoch)
		if err != nil {
			return err
		}
		if saved > 0 {
			return pruneWorkers(t, rec)
		}
		var known int
		if err := t.one(`SELECT count(*) FROM worker_session WHERE id = ?`, []any{rec.ID}, &known); err != nil {
			return err
		}
		if known == 0 {
			return worker.ErrUnknownSession
		}
		return worker.ErrConflict
	})
	if err != nil {
		return fmt.Errorf("save session %q: %w", rec.ID, err)
	}
	return nil
}

// List implements worker.Store.
func (s *Workers) List(ctx context.Context, f worker.Filter) ([]worker.Record, error) {
	out := []worker.Record{}
	err := s.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT record FROM worker_session s WHERE (NOT ? OR ended IS NULL) AND (? = '' OR owner = ?)
			AND (NOT ? OR EXISTS (SELECT 1 FROM worker_host h WHERE h.owner = s.owner AND h.until <= ?)) ORDER BY id`,
			[]any{f.Live, f.Owner, f.Owner, f.Orphaned, time.Now().UnixMilli()}, func(scan func(...any) error) error {
				var text []byte
				if err := scan(&text); err != nil {
					return err
				}
				var rec worker.Record
				err := json.Unmarshal(text, &rec)
				out = append(out, rec)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return out, nil
}

// Delete implements worker.Store.
func (s *Workers) Delete(ctx context.Context, id string) error {
	err := s.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM worker_session WHERE id = ?`, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	return nil
}

// Announce implements worker.Store.
func (s *Workers) Announce(ctx context.Context, h worker.HostRecord, ttl time.Duration) (lapsed bool, err error) {
	err = s.db.write(ctx, func(t *tx) error {
		now := time.Now() // after the wait for other writers
		var until int64
		if err := t.one(`SELECT coalesce(max(until), 0) FROM worker_host WHERE owner = ?`, []any{h.Owner}, &until); err != nil {
			return err
		}
		lapsed = until <= now.UnixMilli()
		if _, err := t.exec(`INSERT INTO worker_host (owner, addr, image, until) VALUES (?, ?, ?, ?)
			ON CONFLICT (owner) DO UPDATE SET addr = excluded.addr, image = excluded.image, until = excluded.until`,
			h.Owner, h.Addr, h.Image, now.Add(ttl).UnixMilli()); err != nil {
			return err
		}
		_, err := t.exec(`DELETE FROM worker_host WHERE until < ?`, now.Add(-worker.KeepHost).UnixMilli())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("announce host: %w", err)
	}
	return lapsed, nil
}

// Retire implements worker.Store.
func (s *Workers) Retire(ctx context.Context, owner string) error {
	err := s.db.write(ctx, func(t *tx) error {
		now := time.Now().UnixMilli()
		_, err := t.exec(`UPDATE worker_host SET until = ? WHERE owner = ? AND until > ?`, now, owner, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("retire host: %w", err)
	}
	return nil
}

// Hosts implements worker.Store.
func (s *Workers) Hosts(ctx context.Context) ([]worker.HostRecord, error) {
	out := []worker.HostRecord{}
	err := s.db.read(ctx, func(t *tx) error {
		now := time.Now().UnixMilli()
		return t.each(`SELECT owner, addr, image, until > ? FROM worker_host ORDER BY owner`, []any{now}, func(scan func(...any) error) error {
			var h worker.HostRecord
			err := scan(&h.Owner, &h.Addr, &h.Image, &h.Alive)
			out = append(out, h)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	return out, nil
}
