package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of HostOptions.
const (
	DefaultMaxHandshakes = 256  // at once
	DefaultHandshakeRate = 2000 // a second
	DefaultMaxCalls      = 256  // under way in a session
	DefaultLease         = 15 * time.Second
	DefaultDrainBudget   = 20 * time.Second
	storeTimeout         = 5 * time.Second
	// teardownTries and teardownPause bound the attempts to delete a sandbox; the
	// cluster's own deadline is the insurance behind them.
	teardownTries = 6
	teardownPause = time.Second
)

// Errors of hosts and sessions that callers branch on.
var (
	ErrDraining       = errors.New("the host is draining; another takes over")
	ErrReleasing      = errors.New("the session is being released")
	ErrOver           = errors.New("the session is over")
	ErrUnknownOutcome = errors.New("the connection was lost during the call; whether it ran, or how it ended, is unknown")
	ErrBusy           = errors.New("too many calls are under way")
	ErrUnknownTool    = errors.New("the sandbox has no such tool")
)

// Authenticator knows which session a bearer token is for. It returns an error
// for a token that is missing, expired or not ours; the caller is answered 401
// whatever the error says.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (sessionID string, err error)
}

// Sandboxes deletes sandboxes. Delete is idempotent.
type Sandboxes interface {
	Delete(ctx context.Context, sessionID string) error
}

// Killer is what a Sandboxes is too if it can end a sandbox without giving its
// worker time to exit by itself. One that never called home has nothing to end.
type Killer interface {
	Kill(ctx context.Context, sessionID string) error
}

// HostOptions configure a [Host]. The zero value is usable.
type HostOptions struct {
	Logger *slog.Logger // nil discards
	// Image names this program in initialize and in records, for instance an image
	// tag.
	Image string
	// Owner names this host among those that share a store; empty is a random name.
	Owner string
	// Addr is where others that share the store reach this host for the sessions
	// that it holds, for instance a URL; empty is nowhere.
	Addr string
	// Lease is how long this host counts as alive after its last sign of life, see
	// Run. It must bear a store that is slow.
	Lease time.Duration
	// Audit keeps audit entries; nil logs them.
	Audit Auditor
	// Observe is told what there is to count; nil counts nothing. It must not block
	// and not call the host.
	Observe func(Observation)
	// Sandboxes deletes the sandbox of a session that ended; nil deletes nothing.
	Sandboxes Sandboxes
	// Channels are the channel versions that the host speaks, one of each major that
	// it accepts, newest first. Nil is ChannelVersion. While workers are moved to a
	// new major a host has two: the new one, and the one before until no session can
	// be of it.
	Channels []string
	// MCPVersions are acceptable in the answer to initialize. Nil is MCPVersion.
	MCPVersions []string
	// MaxHandshakes bounds connections that are not yet bound; the next get 503 and
	// Retry-After before an upgrade. There are fewer while handshakes are slow.
	MaxHandshakes int
	// HandshakeRate bounds upgrades a second.
	HandshakeRate float64
	// MaxCalls bounds the calls under way in a session.
	MaxCalls int
	// DrainBudget bounds how long Drain waits for the calls of a session, and is at
	// most DefaultDrainBudget.
	DrainBudget time.Duration
}

func (o *HostOptions) orDefaults() HostOptions {
	var out HostOptions
	if o != nil {
		out = *o
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	out.Owner = cmp.Or(out.Owner, rand.Text())
	out.Image = cmp.Or(out.Image, "unknown")
	out.MaxHandshakes = cmp.Or(out.MaxHandshakes, DefaultMaxHandshakes)
	out.HandshakeRate = cmp.Or(out.HandshakeRate, DefaultHandshakeRate)
	out.MaxCalls = cmp.Or(out.MaxCalls, DefaultMaxCalls)
	out.Lease = cmp.Or(out.Lease, DefaultLease)
	if out.DrainBudget <= 0 || out.DrainBudget > DefaultDrainBudget {
		out.DrainBudget = DefaultDrainBudget
	}
	if out.Channels == nil {
		out.Channels = []string{ChannelVersion}
	}
	if out.MCPVersions == nil {
		out.MCPVersions = []string{MCPVersion}
	}
	return out
}

// Host is the gateway side of the channel: an http.Handler for the upgrades of
// workers, and the sessions they serve. It is safe for concurrent use.
//
// A host never dials and keeps no address of a worker. Goroutines: one reader
// per connection, a writer while there is something to write; timers for the
// waits that are armed. Close waits for all of them.
type Host struct {
	auth  Authenticator
	store Store
	o     HostOptions
	rate  *rate.Limiter
	gate  *gate
	work  sync.WaitGroup
	// ending is closed by Close.
	ending chan struct{}

	mu       sync.Mutex
	sessions map[string]*Session
	draining bool
	closed   bool
}

// NewHost returns a host that trusts tokens as auth does and keeps sessions in
// store. A nil store keeps them in memory.
func NewHost(auth Authenticator, store Store, o *HostOptions) *Host {
	if store == nil {
		store = &Memory{}
	}
	h := &Host{auth: auth, store: store, o: o.orDefaults(), sessions: map[string]*Session{}, ending: make(chan struct{})}
	h.gate = newGate(h.o.MaxHandshakes)
	h.rate = rate.NewLimiter(rate.Limit(h.o.HandshakeRate), h.o.MaxHandshakes)
	return h
}

// Create begins a session whose sandbox is created now: the waits for its first
// connection start. Errors: ErrConflict for an id that exists, or what is wrong
// with the profile.
func (h *Host) Create(ctx context.Context, id string, p Profile) (*Session, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if id == "" {
		return nil, errors.New("create session: it has no id")
	}
	rec := newRecord(id, p, time.Now())
	rec.Owner = h.o.Owner
	rec.Versions.Host, rec.Versions.HostImage = ChannelVersion, h.o.Image
	if err := h.store.Create(ctx, rec); err != nil {
		return nil, err
	}
	h.audit(rec.entry("created", "profile "+p.Name, ""))
	return h.open(rec, true)
}

// open makes a session out of a record. owned is false for one that another
// host may still hold: it becomes ours when it is bound here.
func (h *Host) open(rec Record, owned bool) (*Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.draining {
		return nil, ErrDraining
	}
	if s := h.sessions[rec.ID]; s != nil {
		return s, nil
	}
	s := newSession(h, rec, owned)
	h.sessions[rec.ID] = s
	return s, nil
}

// Restore takes the sessions up that this host, by its Owner name, left in the
// store: they have what is left of their windows.
func (h *Host) Restore(ctx context.Context) error {
	recs, err := h.store.List(ctx, Filter{Live: true, Owner: h.o.Owner})
	if err != nil {
		return fmt.Errorf("restore sessions: %w", err)
	}
	for _, rec := range recs {
		if _, err := h.open(rec, true); err != nil {
			return fmt.Errorf("restore session %q: %w", rec.ID, err)
		}
	}
	return nil
}

// Session returns a session that this host holds. Errors: ErrUnknownSession.
func (h *Host) Session(id string) (*Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("find session %q: %w", id, ErrUnknownSession)
}

// Record returns a session as this host holds it, or else as the store has it.
// Errors: ErrUnknownSession.
func (h *Host) Record(ctx context.Context, id string) (Record, error) {
	if s, err := h.Session(id); err == nil {
		return s.Record(), nil
	}
	return h.store.Load(ctx, id)
}

// Sessions returns what this host holds, by id.
func (h *Host) Sessions() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*Session, 0, len(h.sessions))
	for _, id := range sortedIDs(h.sessions) {
		out = append(out, h.sessions[id])
	}
	return out
}

func sortedIDs[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// find returns the session of an upgrade: ours, or one from the store. The
// caller leaves it.
func (h *Host) find(ctx context.Context, id string) (*Session, error) {
	if s, err := h.Session(id); err == nil {
		return s.visit(), nil
	}
	rec, err := h.store.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.State.Final() {
		return nil, ErrOver
	}
	s, err := h.open(rec, rec.Owner == h.o.Owner)
	if err != nil {
		return nil, err
	}
	return s.visit(), nil
}

// forget drops a session that is final, or another host's.
func (h *Host) forget(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.id] == s {
		delete(h.sessions, s.id)
	}
}

// Drain sends all workers to other hosts, each when its calls are done or the
// drain budget ends, and refuses upgrades meanwhile. It returns when none is
// left, or with ctx.
func (h *Host) Drain(ctx context.Context) error {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	for _, s := range h.Sessions() {
		s.feed(hostDrain{})
	}
	for _, s := range h.Sessions() {
		select {
		case <-s.left:
		case <-ctx.Done():
			return fmt.Errorf("drain session %q: %w", s.id, context.Cause(ctx))
		}
	}
	return nil
}

// Close cuts all connections and waits for the host's goroutines. Sessions stay
// in the store as they are; a host that should lose none drains first.
func (h *Host) Close() {
	h.mu.Lock()
	if !h.closed {
		close(h.ending)
	}
	h.closed = true
	sessions := slices.Collect(maps.Values(h.sessions))
	h.mu.Unlock()
	for _, s := range sessions {
		s.abandon()
	}
	h.work.Wait()
}

// enter counts work of the host, unless it is closed.
func (h *Host) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.work.Add(1)
	return true
}

func (h *Host) audit(e AuditEntry) {
	e.Time, e.Host = time.Now(), h.o.Owner
	if h.o.Audit != nil {
		h.o.Audit.Audit(e)
		return
	}
	h.o.Logger.InfoContext(context.Background(), "session audit", logattr.Session(e.Session), logattr.Event(e.Event), logattr.Reason(e.Detail))
}

// teardown deletes the sandbox, with a few tries. never is whether its worker
// never called home.
func (h *Host) teardown(id string, never bool) {
	if h.o.Sandboxes == nil {
		return
	}
	remove := h.o.Sandboxes.Delete
	if k, ok := h.o.Sandboxes.(Killer); ok && never {
		remove = k.Kill
	}
	for try := range teardownTries {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		err := remove(ctx, id)
		cancel()
		if err == nil {
			return
		}
		h.o.Logger.WarnContext(context.Background(), "the sandbox could not be deleted", logattr.Session(id), logattr.Attempt(try+1), logattr.Err(err))
		pause := time.NewTimer(teardownPause << try)
		select {
		case <-pause.C:
		case <-h.ending:
			pause.Stop()
			return
		}
	}
	h.audit(AuditEntry{Session: id, Event: "leaked", Detail: "the sandbox could not be deleted"})
}
