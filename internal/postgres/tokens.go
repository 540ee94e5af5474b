package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/internal/access"
)

// Tokens is the access.Store of a database.
type Tokens struct{ db *DB }

var _ access.Store = (*Tokens)(nil)

// Tokens returns the records of tokens in the database.
func (db *DB) Tokens() *Tokens { return &Tokens{db} }

const tokenColumns = `id, name, hash, rights, created, expires, revoked`

// Add implements access.Store.
func (s *Tokens) Add(ctx context.Context, tok access.Token) error {
	rights, err := tok.Rights.Encode()
	if err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	added := false
	// Nothing is older than the server's clock allows: who is ahead of it takes nobody's
	// token that is still good.
	err = s.db.call(ctx, `WITH ended AS (DELETE FROM ossicle.token WHERE least(revoked, expires) < least($8, clock_timestamp() - $9 * interval '1 microsecond'))
		INSERT INTO ossicle.token (`+tokenColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING true`,
		[]any{tok.ID, tok.Name, tok.Hash[:], string(rights), tok.Created, orNull(tok.Expires), orNull(tok.Revoked), tok.Created.Add(-access.KeepEnded), access.KeepEnded.Microseconds()},
		func(rows pgx.Rows) error { return rows.Scan(&added) })
	if err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	if !added {
		return access.ErrExists
	}
	return nil
}

// List implements access.Store.
func (s *Tokens) List(ctx context.Context) ([]access.Token, error) {
	rows, err := s.db.pool.Query(ctx, `SELECT `+tokenColumns+` FROM ossicle.token ORDER BY created, id`)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanToken)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return all, nil
}

// Revoke implements access.Store.
func (s *Tokens) Revoke(ctx context.Context, id string, at time.Time) error {
	found := false
	err := s.db.call(ctx, `UPDATE ossicle.token SET revoked = coalesce(revoked, $1) WHERE id = $2 RETURNING true`, []any{at, id},
		func(rows pgx.Rows) error { return rows.Scan(&found) })
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	if !found {
		return access.ErrNotFound
	}
	return nil
}

// ByHash implements access.Store.
func (s *Tokens) ByHash(ctx context.Context, hash [32]byte) (access.Token, error) {
	rows, err := s.db.pool.Query(ctx, `SELECT `+tokenColumns+` FROM ossicle.token WHERE hash = $1`, hash[:])
	if err != nil {
		return access.Token{}, fmt.Errorf("find token: %w", err)
	}
	tok, err := pgx.CollectExactlyOneRow(rows, scanToken)
	if errors.Is(err, pgx.ErrNoRows) {
		return access.Token{}, access.ErrNotFound
	}
	if err != nil {
		return access.Token{}, fmt.Errorf("find token: %w", err)
	}
	return tok, nil
}

func scanToken(row pgx.CollectableRow) (access.Token, error) {
	var tok access.Token
	var hash []byte
	var rights string
	var expires, revoked *time.Time
	if err := row.Scan(&tok.ID, &tok.Name, &hash, &rights, &tok.Created, &expires, &revoked); err != nil {
		return tok, err
	}
	if copy(tok.Hash[:], hash) != len(tok.Hash) || len(hash) != len(tok.Hash) {
		return tok, fmt.Errorf("token %s: its hash has %d bytes", tok.ID, len(hash))
	}
	var err error
	if tok.Rights, err = access.ParseRights([]byte(rights)); err != nil {
		return tok, fmt.Errorf("token %s: %w", tok.ID, err)
	}
	tok.Created, tok.Expires, tok.Revoked = tok.Created.UTC(), orZero(expires), orZero(revoked)
	return tok, nil
}

func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
