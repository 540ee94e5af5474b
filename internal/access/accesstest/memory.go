package accesstest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// Store is an access.Store in memory. The zero Store is ready.
type Store struct {
	mu     sync.Mutex
	tokens []access.Token
	err    error
	reads  int
}

// Fail has ByHash fail with an error, until it is nil again.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Reads is how often ByHash was asked.
func (s *Store) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// Add implements access.Store.
func (s *Store) Add(_ context.Context, t access.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.tokens, func(o access.Token) bool { return o.ID == t.ID || o.Hash == t.Hash }) {
		return access.ErrExists
	}
	before := t.Created.Add(-access.KeepEnded)
	s.tokens = slices.DeleteFunc(s.tokens, func(o access.Token) bool {
		return !o.Revoked.IsZero() && o.Revoked.Before(before) || !o.Expires.IsZero() && o.Expires.Before(before)
	})
	s.tokens = append(s.tokens, t)
	return nil
}

// List implements access.Store.
func (s *Store) List(context.Context) ([]access.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.tokens), func(a, b access.Token) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	}), nil
}

// Revoke implements access.Store.
func (s *Store) Revoke(_ context.Context, id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tokens {
		if t := &s.tokens[i]; t.ID == id {
			if t.Revoked.IsZero() {
				t.Revoked = access.Moment(at)
			}
			return nil
		}
	}
	return access.ErrNotFound
}

// ByHash implements access.Store.
func (s *Store) ByHash(_ context.Context, hash [32]byte) (access.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return access.Token{}, s.err
	}
	for _, t := range s.tokens {
		if t.Hash == hash {
			return t, nil
		}
	}
	return access.Token{}, access.ErrNotFound
}
