package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
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
	// List returns the records that the filter lets through, by id.
	List(ctx context.Context, f Filter) ([]Record, error)
	// Delete removes a record; one that is not there is no error.
	Delete(ctx context.Context, id string) error

	// Announce says that a host lives, and will for ttl from now by the clock of the
	// store. It reports whether the host was not known to live until now: others may
	// have taken its sessions over. Hosts that have been dead for a day are
	// forgotten.
	Announce(ctx context.Context, h HostRecord, ttl time.Duration) (lapsed bool, err error)
	// Retire says that a host lives no longer.
	Retire(ctx context.Context, owner string) error
	// Hosts returns the hosts that announced themselves, by name.
	Hosts(ctx context.Context) ([]HostRecord, error)
}

// Filter narrows a list of records. The zero value lets all through.
type Filter struct {
	Live     bool   // those that are not over
	Orphaned bool   // those of hosts that announced themselves once and live no longer
	Owner    string // those of one host; empty is any
}

// HostRecord is a host among those that share a store.
type HostRecord struct {
	Owner string
	// Addr is where others reach the host for the sessions that it holds; empty is
	// nowhere. It is the host's own word.
	Addr  string
	Image string
	// Alive is whether its last announcement holds. The store sets it.
	Alive bool
}

const (
	// KeepFinal is how many sessions that are over a store remembers; the oldest go
	// first.
	KeepFinal = 1000
	// KeepHost is how long a store remembers a host that is dead, so that its
	// sessions are known to be nobody's.
	KeepHost = 24 * time.Hour
)

// Memory is a [Store] for hosts of one process. The zero value is empty. Of
// sessions that are over it remembers KeepFinal.
type Memory struct {
	mu    sync.Mutex
	recs  map[string]Record
	final []string // ids of those that are over, oldest first
	hosts map[string]announced
}

type announced struct {
	HostRecord

	until time.Time
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
	s.ended(rec, false)
	return nil
}

// ended keeps the number of sessions that are over within its bound.
func (s *Memory) ended(rec Record, before bool) {
	if rec.State.Final() && !before {
		s.final = append(s.final, rec.ID)
	}
	for len(s.final) > KeepFinal {
		if old, ok := s.recs[s.final[0]]; ok && old.State.Final() {
			delete(s.recs, s.final[0])
		}
		s.final = s.final[1:]
	}
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
	s.ended(rec, now.State.Final())
	return nil
}

// List implements Store.
func (s *Memory) List(_ context.Context, f Filter) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, now := []Record{}, time.Now()
	for _, id := range sortedIDs(s.recs) {
		rec := s.recs[id]
		host, known := s.hosts[rec.Owner]
		orphan := known && !now.Before(host.until)
		if (!f.Live || !rec.State.Final()) && (!f.Orphaned || orphan) && (f.Owner == "" || f.Owner == rec.Owner) {
			out = append(out, rec.clone())
		}
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

// Announce implements Store.
func (s *Memory) Announce(_ context.Context, h HostRecord, ttl time.Duration) (lapsed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	lapsed = !now.Before(s.hosts[h.Owner].until)
	if s.hosts == nil {
		s.hosts = map[string]announced{}
	}
	s.hosts[h.Owner] = announced{h, now.Add(ttl)}
	maps.DeleteFunc(s.hosts, func(_ string, a announced) bool { return now.Sub(a.until) > KeepHost })
	return lapsed, nil
}

// Retire implements Store.
func (s *Memory) Retire(_ context.Context, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.hosts[owner]; ok {
		a.until = time.Now()
		s.hosts[owner] = a
	}
	return nil
}

// Hosts implements Store.
func (s *Memory) Hosts(context.Context) ([]HostRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	out := []HostRecord{}
	for _, owner := range sortedIDs(s.hosts) {
		h := s.hosts[owner].HostRecord
		h.Alive = now.Before(s.hosts[owner].until)
		out = append(out, h)
	}
	return out, nil
}
