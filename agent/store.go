package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Store keeps sessions and their transcripts. It is safe for concurrent use.
// agenttest.RunStore is its conformance suite.
type Store interface {
	// Save inserts or replaces the description of a session.
	Save(ctx context.Context, meta Meta) error
	// Sessions lists all descriptions, the oldest first.
	Sessions(ctx context.Context) ([]Meta, error)
	// Remove deletes a session and its transcript. An unknown id is ErrNotFound.
	Remove(ctx context.Context, session string) error
	// Append adds entries to the end of a transcript, all or none, and numbers
	// them from 1 without holes. The session need not have been saved.
	Append(ctx context.Context, session string, entries ...Entry) error
	// List returns entries in their order. An unknown session has none.
	List(ctx context.Context, session string, q Query) ([]Entry, error)
	// Tails calls each with the last n entries of every one of the sessions that has
	// any, in their order and without Text, Input and Output, which may be large. It
	// is one read, whose answer is never in memory as a whole; what each is given is
	// its own. It must not call the store.
	Tails(ctx context.Context, sessions []string, n int, each func(session string, tail []Entry)) error
}

// Query selects entries of a transcript.
type Query struct {
	After int64 // entries with a greater Seq
	Limit int   // at most so many; 0 means MaxPage
	Last  bool  // the last ones that fit, not the first ones
}

// MaxPage bounds one List.
const MaxPage = 5000

// Page returns the limit to apply.
func (q Query) Page() int {
	if q.Limit <= 0 || q.Limit > MaxPage {
		return MaxPage
	}
	return q.Limit
}

// Meta describes a session.
type Meta struct {
	ID           string    `json:"id"`
	Profile      string    `json:"profile,omitempty"`
	Dir          string    `json:"dir,omitempty"`
	Agent        string    `json:"agent,omitempty"`        // name and version, once known
	Conversation string    `json:"conversation,omitempty"` // the agent's id, to resume
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// EntryKind says what a transcript entry records.
type EntryKind string

// Kinds of entries.
const (
	EntryUser       EntryKind = "user"            // somebody said it
	EntryQueue      EntryKind = "queue_operation" // a notice entered, left or re-entered the queue
	EntryMonitor    EntryKind = "monitor_event"   // a notice as an attachment of a run, never a user record (W-146)
	EntryContext    EntryKind = "context"         // ossicle said it
	EntryAssistant  EntryKind = "assistant"
	EntryThought    EntryKind = "thought"
	EntryTool       EntryKind = "tool"
	EntryPermission EntryKind = "permission"
	EntryUnknown    EntryKind = "unknown" // an update that the engine does not know
	EntryRunStart   EntryKind = "run_start"
	EntryRunEnd     EntryKind = "run_end"
	EntryAgent      EntryKind = "agent" // Title: started, unavailable, exited, reset
	EntryMissing    EntryKind = "missing"
)

// Titles of EntryAgent.
const (
	titleStarted     = "started"
	titleUnavailable = "unavailable" // it could not be started
	titleExited      = "exited"
	titleReset       = "reset"
)

// Operations of EntryQueue.
const (
	OpEnqueue = "enqueue"
	OpDequeue = "dequeue"
	OpRequeue = "requeue"
	OpDrop    = "drop"
)

// Entry is one record of a transcript. Texts are cut at 64 KiB.
type Entry struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Kind EntryKind `json:"kind"`
	Run  string    `json:"run,omitempty"`
	ID   string    `json:"id,omitempty"` // of the input, notice, tool call or question
	Text string    `json:"text,omitempty"`

	From    string `json:"from,omitempty"`
	Channel string `json:"channel,omitempty"`

	Operation   string `json:"operation,omitempty"`   // EntryQueue
	TaskID      string `json:"task_id,omitempty"`     // EntryQueue, EntryMonitor
	Description string `json:"description,omitempty"` // EntryQueue, EntryMonitor
	Note        string `json:"note,omitempty"`        // EntryMonitor: the instruction

	Title  string          `json:"title,omitempty"` // EntryTool, EntryUnknown
	Status string          `json:"status,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`

	Inputs     []string `json:"inputs,omitempty"`  // EntryRunStart, EntryRunEnd
	Notices    []string `json:"notices,omitempty"` // EntryRunStart, EntryRunEnd
	Delivered  bool     `json:"delivered,omitempty"`
	Suppressed bool     `json:"suppressed,omitempty"`
	Cause      Cause    `json:"cause,omitempty"` // EntryRunEnd with an Error
	Error      string   `json:"error,omitempty"`
}

// Export writes a transcript, one JSON object a line.
func Export(ctx context.Context, store Store, session string, w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	var after int64
	for {
		page, err := store.List(ctx, session, Query{After: after})
		if err != nil {
			return fmt.Errorf("export session %q: %w", session, err)
		}
		for _, e := range page {
			if err := enc.Encode(e); err != nil {
				return fmt.Errorf("export session %q: %w", session, err)
			}
			after = e.Seq
		}
		if len(page) == 0 {
			return nil
		}
	}
}

// Default bounds of a MemoryStore.
const (
	DefaultMemorySessions = 1000
	DefaultMemoryEntries  = 20_000 // of one session
)

// MemoryStore is a Store that forgets with the process. When a transcript is
// full its oldest entries go; when there are too many sessions the one that has
// been idle longest goes.
type MemoryStore struct {
	mu       sync.Mutex
	sessions map[string]*memorySession
	max      int
	entries  int
	clock    int64 // counts touches
}

type memorySession struct {
	meta    Meta
	saved   bool
	last    int64
	entries []Entry
	touched int64 // clock of the last one
}

// NewMemoryStore makes an empty store; a bound of 0 means its default.
func NewMemoryStore(sessions, entries int) *MemoryStore {
	if sessions <= 0 {
		sessions = DefaultMemorySessions
	}
	if entries <= 0 {
		entries = DefaultMemoryEntries
	}
	return &MemoryStore{sessions: map[string]*memorySession{}, max: sessions, entries: entries}
}

// touch returns the session, making room and the session where needed.
func (m *MemoryStore) touch(id string) *memorySession {
	s := m.sessions[id]
	if s == nil {
		if len(m.sessions) >= m.max {
			delete(m.sessions, m.idlest())
		}
		s = &memorySession{}
		m.sessions[id] = s
	}
	m.clock++
	s.touched = m.clock
	return s
}

func (m *MemoryStore) idlest() string {
	var found string
	for id, s := range m.sessions {
		if found == "" || s.touched < m.sessions[found].touched {
			found = id
		}
	}
	return found
}

// Save implements Store.
func (m *MemoryStore) Save(_ context.Context, meta Meta) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.touch(meta.ID)
	s.meta, s.saved = meta, true
	return nil
}

// Sessions implements Store.
func (m *MemoryStore) Sessions(context.Context) ([]Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Meta
	for _, s := range m.sessions {
		if s.saved {
			all = append(all, s.meta)
		}
	}
	slices.SortFunc(all, func(a, b Meta) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

// Remove implements Store.
func (m *MemoryStore) Remove(_ context.Context, session string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[session] == nil {
		return ErrNotFound
	}
	delete(m.sessions, session)
	return nil
}

// Append implements Store.
func (m *MemoryStore) Append(_ context.Context, session string, entries ...Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	s := m.touch(session)
	for _, e := range entries {
		s.last++
		e.Seq = s.last
		s.entries = append(s.entries, e)
	}
	if over := len(s.entries) - m.entries; over > 0 {
		s.entries = slices.Delete(s.entries, 0, over)
	}
	return nil
}

// List implements Store.
func (m *MemoryStore) List(_ context.Context, session string, q Query) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		return nil, nil
	}
	from, _ := slices.BinarySearchFunc(s.entries, q.After+1, func(e Entry, seq int64) int { return int(e.Seq - seq) })
	found := s.entries[from:]
	if n := q.Page(); len(found) > n {
		if q.Last {
			found = found[len(found)-n:]
		} else {
			found = found[:n]
		}
	}
	return slices.Clone(found), nil
}

// Tails implements Store.
func (m *MemoryStore) Tails(_ context.Context, sessions []string, n int, each func(session string, tail []Entry)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range sessions {
		s := m.sessions[id]
		if s == nil || len(s.entries) == 0 {
			continue
		}
		tail := slices.Clone(s.entries[max(0, len(s.entries)-n):])
		for i := range tail {
			tail[i].Text, tail[i].Input, tail[i].Output = "", nil, nil
		}
		each(id, tail)
	}
	return nil
}
