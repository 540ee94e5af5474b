package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Session is a sandbox as its host sees it: the tools of one worker process,
// which may come and go on several connections. It is safe for concurrent use.
type Session struct {
	id   string
	host *Host
	// left is closed when this host has the session no longer: it ended, or it is
	// another host's.
	left chan struct{}

	mu       sync.Mutex // guards what follows; held while the record is saved
	m        *hostMachine
	owned    bool
	saved    Record
	links    map[channelID]*hostLink
	timers   map[timerID]*time.Timer
	last     channelID
	nextID   int64
	pending  map[int64]pendingAnswer
	tools    []*mcp.Tool
	listing  *listing
	calls    map[string]*call
	callSeq  int64
	changed  chan struct{} // closed and replaced with each step
	gone     error         // why no call can be made any more
	visitors int           // upgrades under way
	seeker   *time.Timer   // see seek
	pause    time.Duration // of seeker
	lostAt   time.Time     // when the bound connection was lost; zero while there is one
	beatAt   time.Time     // of the last heartbeat on the bound connection
}

// pendingAnswer waits for the answer to a request of ours on one connection.
type pendingAnswer struct {
	ch   channelID
	take func(f frame)
}

func newSession(h *Host, rec Record, owned bool) *Session {
	s := &Session{
		id: rec.ID, host: h, owned: owned, saved: rec, left: make(chan struct{}), changed: make(chan struct{}),
		links: map[channelID]*hostLink{}, timers: map[timerID]*time.Timer{},
		pending: map[int64]pendingAnswer{}, calls: map[string]*call{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var acts []hostAction
	s.m, acts = newHostMachine(rec, h.o.Image, h.o.MCPVersions, time.Now())
	s.m.channels = h.o.Channels
	s.m.patience = h.o.DrainBudget
	s.execute(acts)
	return s
}

// ID is the id of the session, the only one on the channel.
func (s *Session) ID() string { return s.id }

// Record returns the session as it stands.
func (s *Session) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.rec.clone()
}

// Left is closed when this host has the session no longer.
func (s *Session) Left() <-chan struct{} { return s.left }

// Running waits until tools can be called. Errors: ErrOver with the reason, or
// that of ctx.
func (s *Session) Running(ctx context.Context) error {
	return s.await(ctx, func(r Record) bool { return r.State == StateRunning })
}

// await waits for a state.
func (s *Session) await(ctx context.Context, ok func(Record) bool) error {
	for {
		s.mu.Lock()
		done, gone, changed := ok(s.m.rec), s.gone, s.changed
		s.mu.Unlock()
		switch {
		case done:
			return nil
		case gone != nil:
			return gone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for session %q: %w", s.id, context.Cause(ctx))
		}
	}
}

// Release asks the worker to end and waits for the end: its report, or the end
// of the grace time. A release that is not forced waits for calls first. It is
// idempotent.
func (s *Session) Release(ctx context.Context, reason Reason) (Record, error) {
	if !reason.Valid() {
		return Record{}, fmt.Errorf("release session %q: the reason %q is not of the contract", s.id, reason)
	}
	s.feed(hostReleaseAsked{reason})
	err := s.await(ctx, func(r Record) bool { return r.State.Final() })
	if errors.Is(err, ErrOver) {
		err = nil
	}
	return s.Record(), err
}

// WindDown has the next heartbeat answered with continue false, once no call is
// under way.
func (s *Session) WindDown() { s.feed(hostWindDown{}) }

// CutBudgets lowers what the next heartbeat grants. Zero changes nothing; more
// than the profile has is the profile's.
func (s *Session) CutBudgets(idle, exec time.Duration) { s.feed(hostBudgets{idle, exec}) }

// Exited says that the sandbox ended without a word, with what is known of it.
func (s *Session) Exited(why string) { s.feed(hostExited{why}) }

// Kill says that somebody wants the sandbox to end at once, and why: nothing is
// flushed.
func (s *Session) Kill(why string) { s.feed(hostKilled{why}) }

// feed takes one event and executes what follows.
func (s *Session) feed(ev hostEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feedLocked(ev)
}

func (s *Session) feedLocked(ev hostEvent) {
	from, had := s.m.rec.State, s.m.bound != 0
	acts := s.m.step(time.Now(), ev)
	if !s.owned && s.m.rec.State.Final() { // a guest's failure is not the session's
		s.noteGuest(acts)
		for _, a := range acts {
			s.speak(a) // but what it is told is the truth
		}
		s.lose()
		return
	}
	switch err := s.save(); {
	case isConflict(err) && s.retakeSoon(had):
	case isConflict(err) && s.welcomeGuest(ev, acts):
		return
	case isConflict(err), errors.Is(err, ErrUnknownSession):
		s.lose()
		return
	case err != nil && s.m.rec.State.Final():
		s.saveLater(had) // there is no next change
	}
	s.note(from, ev, acts)
	s.execute(acts)
	s.loseGuest()
	s.seek()
	close(s.changed)
	s.changed = make(chan struct{})
}

// save writes the record if anything changed that another host would need. A
// store that fails is not a reason to stop: the next change tries again.
func (s *Session) save() error {
	rec := s.m.rec
	if !s.owned || sameRecord(rec, s.saved) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := s.host.store.Save(ctx, rec, rec.Epoch); err != nil {
		s.host.o.Logger.WarnContext(ctx, "the session could not be saved", logattr.Session(s.id), logattr.Err(err))
		return err
	}
	s.saved = rec.clone()
	return nil
}

// sameRecord compares what must survive. Heartbeats alone are not written.
func sameRecord(a, b Record) bool {
	a.LastBeat, a.Beat, a.Deadline.Exec = b.LastBeat, b.Beat, b.Deadline.Exec
	return reflect.DeepEqual(a, b)
}

// lose gives up a session that another host has.
func (s *Session) lose() {
	for ch, l := range s.links {
		if ch == s.m.bound {
			l.close(CloseSuperseded, "another host serves the session")
			continue
		}
		l.close(closeTryLater, "another host has the session") // its next dial may be the one
	}
	acts := s.m.step(time.Now(), hostSuperseded{})
	s.execute(slices.DeleteFunc(acts, func(a hostAction) bool { return a == hostForget{} }))
	s.depart(ErrConflict)
}

// abandon cuts the connections of a host that closes.
func (s *Session) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		l.close(closeGoingAway, "the host ends")
	}
	s.m.gone = true
	s.depart(ErrDraining)
}

// depart ends the session for this host. Calls that wait end with the reason.
func (s *Session) depart(why error) {
	for id, t := range s.timers {
		t.Stop()
		delete(s.timers, id)
	}
	s.rest()
	if s.gone != nil {
		return
	}
	s.gone = why
	for _, c := range s.calls {
		c.end(nil, why)
	}
	close(s.left)
	close(s.changed)
	s.changed = make(chan struct{})
	s.host.forget(s)
}

// execute does what the machine decided, in order; the caller holds mu.
func (s *Session) execute(acts []hostAction) {
	for _, a := range acts {
		s.observeAction(a)
		switch a := a.(type) {
		case hostArm:
			s.arm(a.timer, a.at)
		case hostDisarm:
			if t := s.timers[a.timer]; t != nil {
				t.Stop()
				delete(s.timers, a.timer)
			}
		case hostAudit: // see note
		case hostRegister:
			s.register(a.ch, a.tools)
		case hostUnbound:
			s.orphan()
		case hostTeardown:
			why := fmt.Errorf("%w: %s", ErrOver, s.ending())
			s.depart(why)
			if s.host.enter() {
				never := s.m.rec.NeverCalled()
				go func() {
					defer s.host.work.Done()
					s.host.teardown(s.id, never)
				}()
			}
		case hostForget:
			s.depart(ErrDraining)
		default:
			s.speak(a)
		}
	}
}

// ending describes a final state for an error.
func (s *Session) ending() string {
	rec := s.m.rec
	if rec.State == StateReleased {
		return "released"
	}
	if rec.Detail == "" {
		return string(rec.Failure)
	}
	return string(rec.Failure) + ": " + rec.Detail
}

func (s *Session) arm(id timerID, at time.Time) {
	if t := s.timers[id]; t != nil {
		t.Stop()
	}
	s.timers[id] = time.AfterFunc(time.Until(at), func() { s.feed(hostFired{id}) })
}

// speak writes frames and closes connections.
func (s *Session) speak(a hostAction) {
	switch a := a.(type) {
	case hostSendInitialize:
		ch := a.ch
		s.request(ch, func(id jsontext.Value) []byte {
			return initializeFrame(id, s.id, s.host.o.Image, channelOf(s.m.channels, s.m.majors[ch]), s.m.rec.Profile)
		}, func(f frame) { s.initializeAnswered(ch, f) })
	case hostSendInitialized:
		if l := s.links[a.ch]; l != nil {
			s.host.gate.learn(time.Since(l.opened), s.m.rec.Profile.Budgets.Handshake)
			l.release()
			l.send(initializedFrame())
		}
	case hostSendList:
		s.list(a.ch)
	case hostSendRelease:
		ch := a.ch
		s.request(ch, func(id jsontext.Value) []byte {
			return releaseFrame(id, releaseParams{s.id, a.reason, seconds(a.grace)})
		}, func(f frame) { s.releaseAnswered(ch, f) })
	case hostAnswerBeat:
		s.write(a.ch, heartbeatAnswer(a.id, a.result))
	case hostRefuseBeat:
		s.write(a.ch, errorFrame(a.id, a.err))
	case hostSendError:
		s.write(a.ch, errorFrame(nullID, a.err))
	case hostClose:
		if l := s.links[a.ch]; l != nil {
			l.release()
			l.close(a.code, a.reason)
		}
	}
}

func (s *Session) write(ch channelID, b []byte) {
	if l := s.links[ch]; l != nil {
		l.send(b)
	}
}

// request sends a request of ours and has take called, under mu, with its
// answer from the same connection.
func (s *Session) request(ch channelID, build func(id jsontext.Value) []byte, take func(frame)) (int64, bool) {
	l := s.links[ch]
	if l == nil {
		return 0, false
	}
	s.nextID++
	id := s.nextID
	b := build(intID(id))
	if len(b) > MaxMessage {
		return 0, false
	}
	s.pending[id] = pendingAnswer{ch, take}
	l.send(b)
	return id, true
}

// visit keeps a session that is not ours while an upgrade for it is under way;
// leave ends that.
func (s *Session) visit() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visitors++
	return s
}

func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visitors--
	s.loseGuest()
}

// loseGuest drops a session that is another host's and has no connection here.
func (s *Session) loseGuest() {
	if !s.owned && len(s.links) == 0 && s.visitors == 0 {
		s.lose()
	}
}

// admit gives the session a connection that was upgraded. done is called when
// its handshake is over, one way or the other.
func (s *Session) admit(ws *websocket.Conn, major int, done func()) (*hostLink, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	l, ctx := openLink(ws, &s.host.work)
	hl := &hostLink{link: l, s: s, ch: s.last, opened: time.Now(), release: sync.OnceFunc(done)}
	s.links[hl.ch] = hl
	s.feedLocked(hostOpened{hl.ch, major})
	return hl, ctx
}

// serve reads a connection until it ends.
func (s *Session) serve(ctx context.Context, l *hostLink) {
	end := l.read(ctx, l.take)
	l.release()
	code, ours := l.said()
	if !ours {
		code = end.code
	}
	s.host.observe(Observation{Kind: ObservedClosed, Code: code, Ours: ours})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l.ch)
	for id, p := range s.pending {
		if p.ch == l.ch {
			delete(s.pending, id)
		}
	}
	if end.tooBig {
		s.feedLocked(hostBadFrames{l.ch})
	}
	s.feedLocked(hostClosed{l.ch, end.code})
}
