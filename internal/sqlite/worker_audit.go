package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// WorkerAudit is the worker.AuditStore of a file.
type WorkerAudit struct {
	db     *DB
	limits worker.AuditLimits
}

var _ worker.AuditStore = (*WorkerAudit)(nil)

// WorkerAudit returns the audit of the tool channel in the file, within limits; nil
// has the defaults.
func (db *DB) WorkerAudit(limits *worker.AuditLimits) *WorkerAudit {
	return &WorkerAudit{db, limits.OrDefaults()}
}

// Append implements worker.AuditStore.
func (s *WorkerAudit) Append(ctx context.Context, entries []worker.AuditEntry) error {
	texts := make([]string, len(entries))
	for i, e := range entries {
		e.Seq = 0
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("append audit: %w", err)
		}
		texts[i] = string(text)
	}
	err := s.db.write(ctx, func(t *tx) error {
		grew := map[string]bool{}
		for i, e := range entries {
			grew[e.Session] = true
			if _, err := t.exec(`INSERT INTO worker_audit (session, time, entry) VALUES (?, ?, ?)`, e.Session, e.Time.UnixMilli(), texts[i]); err != nil {
				return err
			}
		}
		return s.prune(t, grew)
	})
	if err != nil {
		return fmt.Errorf("append audit: %w", err)
	}
	return nil
}

func (s *WorkerAudit) prune(t *tx, grew map[string]bool) error {
	for session := range grew {
		if _, err := t.exec(`DELETE FROM worker_audit WHERE session = ? AND seq <=
			(SELECT seq FROM worker_audit WHERE session = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)`, session, session, s.limits.Session); err != nil {
			return err
		}
	}
	if _, err := t.exec(`DELETE FROM worker_audit WHERE seq <= (SELECT max(seq) FROM worker_audit) - ?`, s.limits.Total); err != nil {
		return err
	}
	_, err := t.exec(`DELETE FROM worker_audit WHERE time < ?`, time.Now().Add(-s.limits.Age).UnixMilli())
	return err
}

// Read implements worker.AuditStore.
func (s *WorkerAudit) Read(ctx context.Context, session string, after int64, limit int) ([]worker.AuditEntry, error) {
	out := []worker.AuditEntry{}
	err := s.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT seq, entry FROM worker_audit WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?`, []any{session, after, max(0, limit)},
			func(scan func(...any) error) error {
				var seq int64
				var text []byte
				if err := scan(&seq, &text); err != nil {
					return err
				}
				var e worker.AuditEntry
				err := json.Unmarshal(text, &e)
				e.Seq = seq
				out = append(out, e)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read audit of %q: %w", session, err)
	}
	return out, nil
}
