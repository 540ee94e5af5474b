package httpserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// Defaults of [StoredOptions].
const (
	DefaultTokenAge = 10 * time.Second
	DefaultTokens   = 10_000
)

// StoredOptions adjust [StoredTokens]. Zero fields take the defaults.
type StoredOptions struct {
	// Age is for how long a token that was found is not looked for again. A token
	// that is revoked elsewhere is let in for that long at most.
	Age time.Duration
	// Tokens bounds those that are remembered. One that finds no room is looked
	// for every time.
	Tokens int
	// Now is the clock. Nil is the system's.
	Now func() time.Time
}

// StoredTokens is an [Authenticator] of the tokens in a store, which remembers
// them for a short time. A token that the store does not know is never
// remembered, so a new one is good at once.
type StoredTokens struct {
	store access.Store
	o     StoredOptions

	mu    sync.Mutex
	known map[[32]byte]seenToken
}

type seenToken struct {
	token access.Token
	until time.Time
}

// NewStoredTokens returns an authenticator of the tokens in store.
func NewStoredTokens(store access.Store, o *StoredOptions) *StoredTokens {
	s := &StoredTokens{store: store, known: map[[32]byte]seenToken{}}
	if o != nil {
		s.o = *o
	}
	if s.o.Age <= 0 {
		s.o.Age = DefaultTokenAge
	}
	if s.o.Tokens <= 0 {
		s.o.Tokens = DefaultTokens
	}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	return s
}

// Verify implements [Authenticator].
func (s *StoredTokens) Verify(ctx context.Context, token string) (*access.Principal, error) {
	if !access.Known(token) { // it need not cost a query
		return nil, fmt.Errorf("%w: it is not one of those that were given out", access.ErrInvalidToken)
	}
	return s.principal(ctx, access.Hash(token))
}

// Recheck implements [Rechecker]. A principal without a stored token stands.
func (s *StoredTokens) Recheck(ctx context.Context, p *access.Principal) error {
	if p.TokenHash == [32]byte{} {
		return nil
	}
	_, err := s.principal(ctx, p.TokenHash)
	return err
}

// Revoke marks a token in the store. This process does not take it any more,
// others do for [StoredOptions.Age] at most. Errors: access.ErrNotFound.
func (s *StoredTokens) Revoke(ctx context.Context, id string) error {
	err := s.store.Revoke(ctx, id, s.o.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, seen := range s.known {
		if seen.token.ID == id {
			delete(s.known, hash)
		}
	}
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	return nil
}

func (s *StoredTokens) principal(ctx context.Context, hash [32]byte) (*access.Principal, error) {
	now := s.o.Now()
	s.mu.Lock()
	seen, ok := s.known[hash]
	s.mu.Unlock()
	if ok && now.Before(seen.until) {
		return seen.token.Principal(now)
	}
	token, err := s.store.ByHash(ctx, hash)
	switch {
	case errors.Is(err, access.ErrNotFound):
		s.forget(hash)
		return nil, fmt.Errorf("%w: it is not one of those that were given out", access.ErrInvalidToken)
	case err != nil:
		return nil, fmt.Errorf("look for token: %w", err)
	}
	s.remember(hash, seenToken{token, now.Add(s.o.Age)}, now)
	return token.Principal(now)
}

func (s *StoredTokens) forget(hash [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
}

// remember makes room by dropping what is too old.
func (s *StoredTokens) remember(hash [32]byte, seen seenToken, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[hash]; !ok && len(s.known) >= s.o.Tokens {
		for h, old := range s.known {
			if !now.Before(old.until) {
				delete(s.known, h)
			}
		}
		if len(s.known) >= s.o.Tokens {
			return
		}
	}
	s.known[hash] = seen
}
