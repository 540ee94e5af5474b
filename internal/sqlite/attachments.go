package sqlite

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/internal/ledger"
)

// KeepReports bounds the attachment reports of a file: twice the sessions, since one
// may have a report before it is saved. Of more, those that were last written longest
// ago go.
const KeepReports = 2 * DefaultSessions

// Attachments is the ledger.Store of a file.
type Attachments struct{ db *DB }

var _ ledger.Store = (*Attachments)(nil)

// Attachments returns the attachment reports in the file.
func (db *DB) Attachments() *Attachments { return &Attachments{db} }

// SaveReport implements ledger.Store.
func (s *Attachments) SaveReport(ctx context.Context, session string, report []byte) error {
	err := s.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO attachment_report (session, report, touched) VALUES (?, ?, (SELECT coalesce(max(touched), 0) + 1 FROM attachment_report))
			ON CONFLICT (session) DO UPDATE SET report = excluded.report, touched = excluded.touched`, session, string(report))
		if err == nil {
			_, err = t.exec(`DELETE FROM attachment_report WHERE session IN (SELECT session FROM attachment_report ORDER BY touched DESC LIMIT -1 OFFSET ?)`, KeepReports)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("save attachment report: %w", err)
	}
	return nil
}

// LoadReport implements ledger.Store.
func (s *Attachments) LoadReport(ctx context.Context, session string) ([]byte, error) {
	var report []byte
	err := s.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT report FROM attachment_report WHERE session = ?`, []any{session}, func(scan func(...any) error) error {
			var text string
			err := scan(&text)
			report = []byte(text)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("load attachment report: %w", err)
	}
	return report, nil
}

// DeleteReport forgets the report of a session.
func (s *Attachments) DeleteReport(ctx context.Context, session string) error {
	err := s.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM attachment_report WHERE session = ?`, session)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete attachment report: %w", err)
	}
	return nil
}
