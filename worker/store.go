package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Errors of stores and sessions.
var (
	// ErrUnknownSession is for an id that nobody created, or that was deleted.
	ErrUnknownSession = errors.New("no such session")
	// ErrConflict is for a record that another host has changed: it bound the
	// session, or created one of the same id.
	ErrConflict = errors.New("the session is another host's now")
)

// Store keeps the records of sessions, for hosts that share them. Each change
// of who is bound raises the epoch, so of two hosts one loses and knows it.
type Store interface {
	// Create adds a record. Errors: ErrConflict if the id exists.
	Create(ctx context.Context, rec Record) error
	// Load returns a record. Errors: ErrUnknownSession.
	Load(ctx context.Context, id string) (Record, error)
	// Save replaces the record rec.ID if its epoch is still the given one. Errors:
	// ErrConflict, ErrUnknownSession.
	Save(ctx context.Context, rec Record, epoch int64) error
	// List returns all records by id.
	List(ctx context.Context) ([]Record, error)
	// Delete removes a record; one that is not there is no error.
	Delete(ctx context.Context, id string) error
}

// keepFinal is how many sessions that are over a [Memory] remembers; the oldest go
// first.
const keepFinal = 1000

// Memory is a [Store] for hosts of one process. The zero value is empty. Of
// sessions that are over it remembers the last thousand.
type Memory struct {
	mu    sync.Mutex
	recs  map[string]Record
	final []string // ids of those that are over, oldest first
}

// Create implements Store.
func (s *Memory) Create(_ context.Context, rec Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.recs[rec.ID]; ok {
		return fmt.Errorf("create session %q: %w", rec.ID, ErrConflict)
	}
	if s.recs == nil {
		s.recs = map[string]Record{}
	}
	s.recs[rec.ID] = rec.clone()
	return nil
}

// Load implements Store.
func (s *Memory) Load(_ context.Context, id string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, ok := s.recs[id]
	if !ok {
		return Record{}, fmt.Errorf("load session %q: %w", id, ErrUnknownSession)
	}
	return rec.clone(), nil
}

// Save implements Store.
func (s *Memory) Save(_ context.Context, rec Record, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ok := s.recs[rec.ID]
	switch {
	case !ok:
		return fmt.Errorf("save session %q: %w", rec.ID, ErrUnknownSession)
	case now.Epoch != epoch:
		return fmt.Errorf("save session %q: %w", rec.ID, ErrConflict)
	}
	s.recs[rec.ID] = rec.clone()
	if rec.State.Final() && !now.State.Final() {
		s.final = append(s.final, rec.ID)
	}
	for len(s.final) > keepFinal {
		if old, ok := s.recs[s.final[0]]; ok && old.State.Final() {
			delete(s.recs, s.final[0])
		}
		s.final = s.final[1:]
	}
	return nil
}

// List implements Store.
func (s *Memory) List(context.Context) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Record, 0, len(s.recs))
	for _, id := range sortedIDs(s.recs) {
		out = append(out, s.recs[id].clone())
	}
	return out, nil
}

// Delete implements Store.
func (s *Memory) Delete(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recs, id)
	return nil
}
