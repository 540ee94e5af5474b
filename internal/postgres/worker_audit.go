package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/worker"
)

// WorkerAudit is the worker.AuditStore of a database.
type WorkerAudit struct {
	db     *DB
	limits worker.AuditLimits
}

var _ worker.AuditStore = (*WorkerAudit)(nil)

// WorkerAudit returns the audit of the tool channel in the database, within limits;
// nil has the defaults.
func (db *DB) WorkerAudit(limits *worker.AuditLimits) *WorkerAudit {
	return &WorkerAudit{db, limits.OrDefaults()}
}

// Append implements worker.AuditStore.
func (s *WorkerAudit) Append(ctx context.Context, entries []worker.AuditEntry) error {
	sessions, times, texts := make([]string, len(entries)), make([]int64, len(entries)), make([]string, len(entries))
	for i, e := range entries {
		e.Seq = 0
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("append audit: %w", err)
		}
		sessions[i], times[i], texts[i] = e.Session, e.Time.UnixMilli(), string(text)
	}
	l := s.limits
	err := s.db.call(ctx, `SELECT ossicle.worker_audit_append($1, $2, $3, $4, $5, $6)`,
		[]any{sessions, times, texts, int64(l.Session), int64(l.Total), l.Age.Milliseconds()}, nil)
	if err != nil {
		return fmt.Errorf("append audit: %w", err)
	}
	return nil
}

// Read implements worker.AuditStore.
func (s *WorkerAudit) Read(ctx context.Context, session string, after int64, limit int) ([]worker.AuditEntry, error) {
	rows, err := s.db.pool.Query(ctx, `SELECT seq, entry FROM ossicle.worker_audit WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
		session, after, int64(max(0, limit)))
	if err != nil {
		return nil, fmt.Errorf("read audit of %q: %w", session, err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e worker.AuditEntry, err error) {
		var seq int64
		var text []byte
		if err := row.Scan(&seq, &text); err != nil {
			return e, err
		}
		err = json.Unmarshal(text, &e)
		e.Seq = seq
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read audit of %q: %w", session, err)
	}
	return entries, nil
}
