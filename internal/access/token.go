package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// TokenPrefix is what tokens begin with, so that people and scanners of secrets
// know one when they see it.
const TokenPrefix = "ossicle_"

const (
	tokenBytes = 32 // of randomness in a token: 256 bits
	idBytes    = 10 // of randomness in an id: 80 bits
	maxName    = 128
)

// Errors of tokens and of stores of them.
var (
	// ErrInvalidToken is wrapped by what is said of a token or ticket that is not
	// good.
	ErrInvalidToken = errors.New("invalid token")
	// ErrNotFound: there is no such token.
	ErrNotFound = errors.New("there is no such token")
	// ErrExists: a token with this id or hash is there already.
	ErrExists = errors.New("a token with this id is there already")
)

// Token is the record of a token that was given out. The token itself is known
// to whoever got it and to nobody else.
type Token struct {
	ID   string   // names the record; it is no secret
	Name string   // whom it was given to
	Hash [32]byte // SHA-256 of the token
	// Rights are what it allows.
	Rights Rights
	// Created, Expires and Revoked have whole milliseconds, in UTC. Expires is
	// zero for a token that does not end, Revoked for one that was not revoked.
	Created, Expires, Revoked time.Time
}

// KeepEnded is how long the record of a token is kept that was revoked or has
// expired, so that it can still be looked up whose it was.
const KeepEnded = 90 * 24 * time.Hour

// Store keeps the records of tokens. It is safe for concurrent use, also by
// several processes. accesstest.RunStore is its contract as tests.
type Store interface {
	// Add keeps a new record, and removes those of tokens that had ended KeepEnded
	// before this one was made. Errors: ErrExists.
	Add(ctx context.Context, t Token) error
	// List returns all records, expired and revoked ones too, by Created and ID.
	List(ctx context.Context) ([]Token, error)
	// Revoke marks a record. One that is marked keeps its first time. Errors:
	// ErrNotFound.
	Revoke(ctx context.Context, id string, at time.Time) error
	// ByHash returns the record with a hash, whatever its state. Errors:
	// ErrNotFound.
	ByHash(ctx context.Context, hash [32]byte) (Token, error)
}

var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New makes a token for name with the given rights, which ends at expires unless
// that is zero. It returns the record, for a [Store], and the token, which cannot
// be had again.
func New(name string, rights Rights, expires time.Time) (Token, string, error) {
	if name == "" || len(name) > maxName || !printable(name) {
		return Token{}, "", fmt.Errorf("make token: name %.80q: use 1 to %d bytes of printable text", name, maxName)
	}
	if err := rights.Check(); err != nil {
		return Token{}, "", fmt.Errorf("make token: %w", err)
	}
	now := time.Now()
	if !expires.IsZero() && !expires.After(now) {
		return Token{}, "", errors.New("make token: it would have expired before it was made")
	}
	secret := TokenPrefix + random(tokenBytes)
	return Token{
		ID: random(idBytes), Name: name, Hash: Hash(secret), Rights: rights,
		Created: Moment(now), Expires: Moment(expires),
	}, secret, nil
}

// Hash is what is kept of a token.
func Hash(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// Moment is a time as records have it: in UTC, of whole milliseconds, without a
// monotonic reading. Zero stays zero.
func Moment(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond).Round(0)
}

// Known reports whether a string has the form of a token that [New] made. One
// that has not need not be looked for.
func Known(token string) bool {
	random, ok := strings.CutPrefix(token, TokenPrefix)
	return ok && len(random) == alphabet.EncodedLen(tokenBytes)
}

// Principal returns who the token belongs to, or an error that wraps
// ErrInvalidToken if it is good no longer.
func (t Token) Principal(now time.Time) (*Principal, error) {
	switch {
	case !t.Revoked.IsZero():
		return nil, fmt.Errorf("%w: it was revoked", ErrInvalidToken)
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return nil, fmt.Errorf("%w: it has expired", ErrInvalidToken)
	}
	return &Principal{Name: t.Name, Rights: t.Rights, Expires: t.Expires, TokenHash: t.Hash}, nil
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it cannot fail
	return alphabet.EncodeToString(b)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
