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

// uniqueViolation is what the server calls a key that is there already.
const uniqueViolation = "23505"

// Add implements access.Store.
func (s *Tokens) Add(ctx context.Context, t access.Token) error {
	rights, err := t.Rights.Encode()
	if err == nil {
		err = s.db.call(ctx, `INSERT INTO ossicle.token (id, name, hash, rights, created, expires, revoked) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			[]any{t.ID, t.Name, t.Hash[:], rights, t.Created, orNull(t.Expires), orNull(t.Revoked)}, nil)
	}
	if code(err) == uniqueViolation {
		err = access.ErrExists
	}
	if err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	return nil
}

const selectTokens = `SELECT id, name, hash, rights, created, expires, revoked FROM ossicle.token `

// List implements access.Store.
func (s *Tokens) List(ctx context.Context) ([]access.Token, error) {
	rows, err := s.db.pool.Query(ctx, selectTokens+`ORDER BY created, id`)
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
	err := s.db.call(ctx, `UPDATE ossicle.token SET revoked = coalesce(revoked, $2) WHERE id = $1 RETURNING true`, []any{id, access.Moment(at)},
		func(rows pgx.Rows) error { return rows.Scan(&found) })
	if err == nil && !found {
		err = access.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	return nil
}

// ByHash implements access.Store.
func (s *Tokens) ByHash(ctx context.Context, hash [32]byte) (access.Token, error) {
	rows, err := s.db.pool.Query(ctx, selectTokens+`WHERE hash = $1`, hash[:])
	if err != nil {
		return access.Token{}, fmt.Errorf("look up token: %w", err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, scanToken)
	if errors.Is(err, pgx.ErrNoRows) {
		err = access.ErrNotFound
	}
	if err != nil {
		return access.Token{}, fmt.Errorf("look up token: %w", err)
	}
	return t, nil
}

func scanToken(row pgx.CollectableRow) (access.Token, error) {
	var t access.Token
	var hash, rights []byte
	var expires, revoked *time.Time
	if err := row.Scan(&t.ID, &t.Name, &hash, &rights, &t.Created, &expires, &revoked); err != nil {
		return t, err
	}
	if copy(t.Hash[:], hash) != len(t.Hash) {
		return t, fmt.Errorf("token %s: its hash has %d bytes", t.ID, len(hash))
	}
	t.Created, t.Expires, t.Revoked = access.Moment(t.Created), fromNull(expires), fromNull(revoked)
	var err error
	t.Rights, err = access.ParseRights(rights)
	return t, err
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func fromNull(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return access.Moment(*t)
}
