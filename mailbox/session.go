package mailbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
)

const (
	// ringWait bounds how long a writer waits for the bus, which has no say in
	// whether something is written.
	ringWait = 2 * time.Second
	// noteWait bounds a note in the store that must be made although whoever asked
	// has gone.
	noteWait = 5 * time.Second

	retryLeast = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// Options adjust a Session. The zero value, and nil, mean the defaults.
type Options struct {
	// Limits are those of the session; members may have their own.
	Limits Limits
	// Logger gets a line for each signal and each escalation, without what they
	// say. Nil discards.
	Logger *slog.Logger
}

// Part is a part of a session that can be watched.
type Part int

// Parts.
const (
	PartSignals Part = iota // those of one agent
	PartAgents
	PartNotes
	PartBoard
)

// Session is one collaboration, as this process takes part in it. It is safe for
// concurrent use. Reading and writing work at any time; what hears of changes
// needs Run.
type Session struct {
	id    string
	store Store
	bus   Bus
	o     Options
	log   *slog.Logger
	count *counters

	kicked chan struct{} // the session may have changed; holds one
	armed  chan struct{} // somebody new watches the members; holds one

	mu       sync.Mutex
	heads    Heads
	watchers map[*watcher]struct{}
	stale    map[string]bool // members that were stale at the last look
}

// watcher is who is told of changes of one part.
type watcher struct {
	part    Part
	agent   string
	all     bool           // signals of everybody
	changed func(Envelope) // the zero one for parts other than signals
}

// Open opens a session that is kept in store. What was there before counts as
// announced: who begins to watch reads first. A nil bus means that no other
// process uses the store.
func Open(ctx context.Context, id string, store Store, bus Bus, o *Options) (*Session, error) {
	if err := CheckSession(id); err != nil {
		return nil, err
	}
	s := &Session{
		id: id, store: store, bus: bus, count: newCounters(),
		kicked: make(chan struct{}, 1), armed: make(chan struct{}, 1),
		watchers: map[*watcher]struct{}{}, stale: map[string]bool{},
	}
	if o != nil {
		s.o = *o
	}
	s.o.Limits = s.o.Limits.OrDefaults()
	if s.log = s.o.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.bus == nil {
		s.bus = local{}
	}
	for { // to the end, however much there is
		c, err := store.Changes(ctx, s.heads)
		if err != nil {
			return nil, fmt.Errorf("open session %s: %w", id, err)
		}
		if c.Heads == s.heads {
			return s, nil
		}
		s.heads = c.Heads
	}
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// Enter makes an agent a member that may be one already: under its run token it
// goes on as it is. It is for processes that come and go, such as commands.
// Errors: those of Join.
func (s *Session) Enter(ctx context.Context, r Registration) (*Member, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	m := &Member{s: s, who: Identity{Agent: r.Agent, Run: r.Run}}
	err := m.touch(ctx)
	if errors.As(err, new(*LostError)) {
		return s.Join(ctx, r)
	}
	return m, err
}

// Notes returns notes with greater sequences, and where the next page begins, 0 at
// the end.
func (s *Session) Notes(ctx context.Context, after int64, limit int) ([]Note, int64, error) {
	notes, next, err := s.store.Notes(ctx, after, limit)
	if notes == nil {
		notes = []Note{}
	}
	return notes, next, err
}

// Whiteboard returns the values by key, or the one of a key if there is any.
func (s *Session) Whiteboard(ctx context.Context, key string) ([]Entry, error) {
	entries, err := s.store.Entries(ctx, key)
	if entries == nil {
		entries = []Entry{}
	}
	return entries, err
}

// Stats returns the counters.
func (s *Session) Stats() Stats { return s.count.snapshot() }

// Run tells watchers of changes, those of other processes too, until ctx ends;
// then it returns nil. It does nothing while nothing changes.
func (s *Session) Run(ctx context.Context) error {
	run, stop := context.WithCancel(ctx)
	var hearing sync.WaitGroup
	defer hearing.Wait()
	defer stop()
	hearing.Go(func() { s.hear(run) })
	next := s.lookAtMembers(ctx)
	for {
		var timer *time.Timer
		var due <-chan time.Time
		if next > 0 {
			timer = time.NewTimer(next)
			due = timer.C
		}
		look, members := false, false
		select {
		case <-s.kicked:
			look = true
		case <-s.armed:
			members = true
		case <-due:
			members = true
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil
		}
		if look && s.look(ctx) || members {
			next = s.lookAtMembers(ctx)
		}
	}
}

// hear listens to the bus, again after each failure.
func (s *Session) hear(ctx context.Context) {
	for delay := retryLeast; ; delay = min(2*delay, retryMost) {
		var heard atomic.Bool
		err := s.bus.Listen(ctx, func() {
			heard.Store(true)
			s.kick()
		})
		if ctx.Err() != nil {
			return
		}
		if heard.Load() {
			delay = retryLeast
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.deaf", logattr.Session(s.id), logattr.Delay(delay), logattr.Err(err))
		if !supervise.Sleep(ctx, delay) {
			return
		}
	}
}

// look reads what has changed and tells the watchers; it reports whether the
// members have. A failure is tried again until ctx ends.
func (s *Session) look(ctx context.Context) (members bool) {
	for delay := retryLeast; ; {
		s.mu.Lock()
		since := s.heads
		s.mu.Unlock()
		c, err := s.store.Changes(ctx, since)
		switch {
		case err != nil && ctx.Err() != nil:
			return members
		case err != nil:
			s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(s.id), logattr.Reason("read changes"), logattr.Delay(delay), logattr.Err(err))
			if !supervise.Sleep(ctx, delay) {
				return members
			}
			delay = min(2*delay, retryMost)
			continue
		case c.Heads == since:
			return members
		}
		members = members || c.Heads.Agents != since.Agents
		s.tell(since, &c)
	}
}

// tell calls the watchers of what has changed.
func (s *Session) tell(since Heads, c *Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = c.Heads
	calls := int64(0)
	for w := range s.watchers {
		switch {
		case w.part == PartSignals:
			for _, e := range c.Envelopes {
				if w.all || Reaches(e.Recipient, e.Sender, w.agent) {
					w.changed(e)
					calls++
				}
			}
		case w.part == PartAgents && c.Heads.Agents != since.Agents,
			w.part == PartNotes && c.Heads.Notes != since.Notes,
			w.part == PartBoard && c.Heads.Board != since.Board:
			w.changed(Envelope{})
			calls++
		}
	}
	if calls > 0 {
		s.count.add(func(t *Stats) { t.Announced += calls })
	}
}

// lookAtMembers tells who watches the members that one has become stale, and
// returns when the next one will. Without such watchers it reads nothing.
func (s *Session) lookAtMembers(ctx context.Context) (next time.Duration) {
	s.mu.Lock()
	watched := false
	for w := range s.watchers {
		watched = watched || w.part == PartAgents
	}
	s.mu.Unlock()
	if !watched {
		return 0
	}
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return retryMost
	}
	now := time.Now()
	stale := map[string]bool{}
	for _, a := range agents {
		if Live(a.Status, a.LastSeen, now) {
			left := a.LastSeen.Add(StaleAfter).Sub(now)
			if next == 0 || left < next {
				next = left
			}
		} else if a.Status != Sleeping {
			stale[a.ID] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := false
	for id := range stale {
		fresh = fresh || !s.stale[id]
	}
	s.stale = stale
	for w := range s.watchers {
		if fresh && w.part == PartAgents {
			w.changed(Envelope{})
		}
	}
	return next
}

// Watch calls changed after each change of a part, until stop is called; of
// signals those that reach the agent. It must not block, and is not called any
// more after stop has returned. An acknowledgement is no change: who has made it
// knows.
func (s *Session) Watch(part Part, agent string, changed func()) (stop func()) {
	return s.add(&watcher{part: part, agent: agent, changed: func(Envelope) { changed() }}, nil)
}

// add lets a watcher watch from now on; since, if not nil, is told what there was
// before.
func (s *Session) add(w *watcher, since func(Heads)) (stop func()) {
	s.mu.Lock()
	if since != nil {
		since(s.heads)
	}
	s.watchers[w] = struct{}{}
	s.mu.Unlock()
	if w.part == PartAgents {
		select {
		case s.armed <- struct{}{}:
		default:
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}
}

func (s *Session) kick() {
	select {
	case s.kicked <- struct{}{}:
	default:
	}
}

// changed tells this process and the others, after the commit.
func (s *Session) changed(ctx context.Context) {
	s.kick()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ringWait)
	defer cancel()
	if err := s.bus.Ring(ctx); err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(s.id), logattr.Reason("ring"), logattr.Err(err))
	}
}

// local is the bus of a process that is alone.
type local struct{}

// Ring implements Bus: the session has been kicked already.
func (local) Ring(context.Context) error { return nil }

// Listen implements Bus.
func (local) Listen(ctx context.Context, ring func()) error {
	ring()
	<-ctx.Done()
	return nil
}
