package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// AuditEntry is something about a session that an operator may want to know
// later: a change of its state, who was bound, who was refused, what was blocked.
type AuditEntry struct {
	Seq     int64 // ascending in a store, which gives it
	Time    time.Time
	Session string
	Host    string // Owner of the host that saw it
	Event   string // constant: created, bound, running, refused, lost, sampling_blocked, …
	Detail  string // from outside in part; never markup
	// From and To are the state of the session before and after; equal if it stayed.
	// From is empty for the first entry.
	From, To State
	// Reason is why the session failed or was released.
	Reason string
	// Close is the code with which a connection was closed, by us or by the worker;
	// 0 for none.
	Close    CloseCode
	Versions Versions
	// InstanceID and Attempt are those of the process that is bound.
	InstanceID string
	Attempt    int64
	Epoch      int64
}

// entry describes something that happened to a session that was in the state from.
func (r Record) entry(event, detail string, from State) AuditEntry {
	reason := string(r.Failure)
	if reason == "" {
		reason = string(r.Release)
	}
	return AuditEntry{
		Session: r.ID, Event: event, Detail: detail, From: from, To: r.State, Reason: reason, Versions: r.Versions,
		InstanceID: r.InstanceID, Attempt: r.Attempt, Epoch: r.Epoch,
	}
}

// Auditor takes audit entries. It must not block, and it cannot fail: a session
// never waits for its audit. See [AuditTrail].
type Auditor interface{ Audit(e AuditEntry) }

// AuditStore keeps audit entries within the bounds of [AuditLimits].
type AuditStore interface {
	// Append adds entries in their order, all or none, and forgets the oldest that
	// are beyond the bounds.
	Append(ctx context.Context, entries []AuditEntry) error
	// Read returns at most limit entries of a session whose Seq is larger than after,
	// oldest first; none for a session that nobody knows.
	Read(ctx context.Context, session string, after int64, limit int) ([]AuditEntry, error)
}

// Defaults of AuditLimits.
const (
	DefaultAuditSession = 1000
	DefaultAuditTotal   = 100_000
	DefaultAuditAge     = 30 * 24 * time.Hour
)

// AuditLimits bound what an [AuditStore] keeps. Zero fields take the defaults.
type AuditLimits struct {
	Session int           // entries of one session
	Total   int           // entries of all
	Age     time.Duration // of an entry
}

// OrDefaults returns the limits with their defaults. Nil has all of them.
func (l *AuditLimits) OrDefaults() AuditLimits {
	var out AuditLimits
	if l != nil {
		out = *l
	}
	if out.Session <= 0 {
		out.Session = DefaultAuditSession
	}
	if out.Total <= 0 {
		out.Total = DefaultAuditTotal
	}
	if out.Age <= 0 {
		out.Age = DefaultAuditAge
	}
	return out
}

const (
	// auditQueue is how many entries wait for the store; the next are lost.
	auditQueue = 4096
	auditBatch = 256
	// auditTries and auditPause bound the attempts to write a batch; auditLost is of
	// how many sessions losses are told apart.
	auditTries = 3
	auditPause = 500 * time.Millisecond
	auditLost  = 1024
)

// AuditStats counts what became of entries.
type AuditStats struct {
	Written int64
	Lost    int64 // the queue was full, or the store failed
	Failed  int64 // attempts to write
}

// AuditTrail writes audit entries to a store, behind a queue: a store that is slow
// or fails holds no session up. What is lost is counted, logged, and said in the
// trail of its session by an entry "audit_gap". It is safe for concurrent use.
type AuditTrail struct {
	store AuditStore
	log   *slog.Logger
	wake  chan struct{}

	mu    sync.Mutex
	queue []AuditEntry
	lost  map[string]int // entries by session, not yet told
	stats AuditStats
}

// NewAuditTrail returns a trail into a store. Run writes it. A nil logger
// discards.
func NewAuditTrail(store AuditStore, log *slog.Logger) *AuditTrail {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &AuditTrail{store: store, log: log, wake: make(chan struct{}, 1), lost: map[string]int{}}
}

// Audit implements Auditor.
func (t *AuditTrail) Audit(e AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= auditQueue {
		t.lose(e)
		return
	}
	t.queue = append(t.queue, e)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// lose counts an entry that is gone; the caller holds mu.
func (t *AuditTrail) lose(e AuditEntry) {
	t.stats.Lost++
	if _, known := t.lost[e.Session]; known || len(t.lost) < auditLost {
		t.lost[e.Session]++
	}
}

// Stats returns the counts so far.
func (t *AuditTrail) Stats() AuditStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Run writes entries until ctx ends, and then those that wait, within a few
// seconds.
func (t *AuditTrail) Run(ctx context.Context) error {
	for {
		select {
		case <-t.wake:
			t.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			t.flush(last)
			return nil
		}
	}
}

// flush writes until nothing waits, or ctx ends.
func (t *AuditTrail) flush(ctx context.Context) {
	for {
		batch, own := t.take()
		if len(batch) == 0 {
			return
		}
		err := t.write(ctx, batch)
		t.mu.Lock()
		switch {
		case err == nil:
			t.stats.Written += int64(len(batch))
		case ctx.Err() != nil: // for the last flush
			t.queue = append(batch[own:], t.queue...)
			t.restore(batch[:own])
		default:
			t.restore(batch[:own])
			for _, e := range batch[own:] {
				t.lose(e)
			}
		}
		t.mu.Unlock()
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		t.log.WarnContext(ctx, "audit entries were lost", logattr.Count(len(batch)-own), logattr.Err(err))
	}
}

// take returns what is written next, and how many of the entries, which come
// first, tell of losses.
func (t *AuditTrail) take() (batch []AuditEntry, own int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return nil, 0
	}
	for id, n := range t.lost {
		batch = append(batch, AuditEntry{Time: time.Now(), Session: id, Event: "audit_gap", Detail: fmt.Sprintf("%d entries were lost", n)})
		t.stats.Written-- // no entry of anybody
		delete(t.lost, id)
		if len(batch) == auditBatch {
			break
		}
	}
	own = len(batch)
	n := min(len(t.queue), auditBatch)
	batch = append(batch, t.queue[:n]...)
	t.queue = append([]AuditEntry(nil), t.queue[n:]...)
	return batch, own
}

// restore puts back what tells of losses and was not written; the caller holds mu.
func (t *AuditTrail) restore(gaps []AuditEntry) {
	for _, e := range gaps {
		var n int
		_, _ = fmt.Sscan(e.Detail, &n)
		t.lost[e.Session] += n
		t.stats.Written++
	}
}

// write tries a batch a few times.
func (t *AuditTrail) write(ctx context.Context, batch []AuditEntry) error {
	for try := 1; ; try++ {
		call, cancel := context.WithTimeout(ctx, storeTimeout)
		err := t.store.Append(call, batch)
		cancel()
		if err == nil {
			return nil
		}
		t.mu.Lock()
		t.stats.Failed++
		t.mu.Unlock()
		if try == auditTries {
			return err
		}
		pause := time.NewTimer(auditPause << (try - 1))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// MemoryAudit is an [AuditStore] for one process. The zero value is empty and has
// the default limits.
type MemoryAudit struct {
	Limits *AuditLimits

	mu      sync.Mutex
	last    int64
	entries []AuditEntry // oldest first
}

// Append implements AuditStore.
func (m *MemoryAudit) Append(_ context.Context, entries []AuditEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.last++
		e.Seq = m.last
		m.entries = append(m.entries, e)
	}
	m.prune(entries)
	return nil
}

// prune forgets what is beyond the bounds; sessions that got no entry are within
// theirs.
func (m *MemoryAudit) prune(added []AuditEntry) {
	l := m.Limits.OrDefaults()
	oldest := time.Now().Add(-l.Age)
	count := map[string]int{}
	for _, e := range added {
		count[e.Session] = 0
	}
	kept := make([]bool, len(m.entries))
	for i := len(m.entries) - 1; i >= 0; i-- {
		e := m.entries[i]
		n, grew := count[e.Session]
		if grew {
			count[e.Session] = n + 1
		}
		kept[i] = (!grew || n < l.Session) && len(m.entries)-i <= l.Total && !e.Time.Before(oldest)
	}
	out := m.entries[:0]
	for i, e := range m.entries {
		if kept[i] {
			out = append(out, e)
		}
	}
	clear(m.entries[len(out):])
	m.entries = out
}

// Read implements AuditStore.
func (m *MemoryAudit) Read(_ context.Context, session string, after int64, limit int) ([]AuditEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []AuditEntry{}
	for _, e := range m.entries {
		if e.Session == session && e.Seq > after && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}
