package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// Tokens is the access.Store of a file. Several processes may use it at once.
type Tokens struct{ db *DB }

var _ access.Store = (*Tokens)(nil)

// Tokens returns the records of tokens in the file.
func (db *DB) Tokens() *Tokens { return &Tokens{db} }

// Add implements access.Store.
func (s *Tokens) Add(ctx context.Context, tok access.Token) error {
	rights, err := tok.Rights.Encode()
	if err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	err = s.db.write(ctx, func(t *tx) error {
		added, err := t.exec(`INSERT INTO token (id, name, hash, rights, created, expires, revoked) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			tok.ID, tok.Name, tok.Hash[:], string(rights), tok.Created.UnixMilli(), millis(tok.Expires), millis(tok.Revoked))
		if err == nil && added == 0 {
			err = access.ErrExists
		}
		if err == nil {
			_, err = t.exec(`DELETE FROM token WHERE min(coalesce(revoked, expires), coalesce(expires, revoked)) < ?`, tok.Created.Add(-access.KeepEnded).UnixMilli())
		}
		return err
	})
	return wrapToken("add token", err)
}

// List implements access.Store.
func (s *Tokens) List(ctx context.Context) ([]access.Token, error) {
	all := []access.Token{}
	err := s.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT id, name, hash, rights, created, expires, revoked FROM token ORDER BY created, id`, nil,
			func(scan func(...any) error) error {
				tok, err := scanToken(scan)
				all = append(all, tok)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return all, nil
}

// Revoke implements access.Store.
func (s *Tokens) Revoke(ctx context.Context, id string, at time.Time) error {
	err := s.db.write(ctx, func(t *tx) error {
		found, err := t.exec(`UPDATE token SET revoked = coalesce(revoked, ?) WHERE id = ?`, at.UnixMilli(), id)
		if err == nil && found == 0 {
			err = access.ErrNotFound
		}
		return err
	})
	return wrapToken("revoke token", err)
}

// ByHash implements access.Store.
func (s *Tokens) ByHash(ctx context.Context, hash [32]byte) (access.Token, error) {
	var tok access.Token
	err := s.db.read(ctx, func(t *tx) error {
		found := false
		err := t.each(`SELECT id, name, hash, rights, created, expires, revoked FROM token WHERE hash = ?`, []any{hash[:]},
			func(scan func(...any) error) (err error) {
				found = true
				tok, err = scanToken(scan)
				return err
			})
		if err == nil && !found {
			err = access.ErrNotFound
		}
		return err
	})
	if err != nil {
		return access.Token{}, wrapToken("find token", err)
	}
	return tok, nil
}

func scanToken(scan func(...any) error) (access.Token, error) {
	var tok access.Token
	var hash []byte
	var rights string
	var created int64
	var expires, revoked sql.NullInt64
	if err := scan(&tok.ID, &tok.Name, &hash, &rights, &created, &expires, &revoked); err != nil {
		return tok, err
	}
	if copy(tok.Hash[:], hash) != len(tok.Hash) || len(hash) != len(tok.Hash) {
		return tok, fmt.Errorf("token %s: its hash has %d bytes", tok.ID, len(hash))
	}
	var err error
	if tok.Rights, err = access.ParseRights([]byte(rights)); err != nil {
		return tok, fmt.Errorf("token %s: %w", tok.ID, err)
	}
	tok.Created, tok.Expires, tok.Revoked = time.UnixMilli(created).UTC(), fromMillis(expires), fromMillis(revoked)
	return tok, nil
}

// wrapToken says what failed; errors of the port stay bare.
func wrapToken(verb string, err error) error {
	if err == nil || errors.Is(err, access.ErrExists) || errors.Is(err, access.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w", verb, err)
}

func millis(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

func fromMillis(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMilli(n.Int64).UTC()
}
