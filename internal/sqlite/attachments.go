package sqlite

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/internal/ledger"
)

// Attachments is the ledger.Store of a file.
type Attachments struct{ db *DB }

var _ ledger.Store = (*Attachments)(nil)

// Attachments returns the attachment reports in the file.
func (db *DB) Attachments() *Attachments { return &Attachments{db} }

// SaveReport implements ledger.Store.
func (s *Attachments) SaveReport(ctx context.Context, session string, report []byte) error {
	err := s.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO attachment_report (session, report) VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET report = excluded.report`,
			session, string(report))
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
