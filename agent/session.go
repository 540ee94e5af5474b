package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Session owns one agent and its conversation.
//
// Who does what: callers of Submit and Notify put items into the queue; the
// goroutine of Run decides what happens next and owns all others; one worker at
// a time starts the agent, claims the queue, runs the turn and settles it; the
// engine's goroutines bring events. Everything they share is under mu, which is
// never held over a call to an engine, a store, a channel or a callback. Lock
// order: mu, then the locks inside transcript and feed.
//
// Enqueueing, claiming and the idle check are each one step under mu. So an
// accepted item is either claimed by a run or handed back: nothing waits for a
// turn that never comes (D-5).
type Session struct {
	id        string
	newEngine func() (Engine, error)
	store     Store
	frame     Framer
	opts      Options
	log       *slog.Logger

	transcript *transcript
	feed       *feed
	bell       chan struct{} // rings when Run has something to look at

	mu        sync.Mutex
	state     lifecycle
	queue     queue
	working   bool      // a worker is starting the agent, or has a run
	workSince time.Time // working is true since
	active    *run      // the run of the worker; nil while it starts the agent
	held      bool      // a person cancelled: notices wait for a prompt
	busy      busy
	perms     permissions
	tools     map[string]ToolCall // of the agent, latest state, bounded
	engine    life
	told      string // last note of Options.Context that the agent has
	meta      Meta
	troubles  troubles
	// messages counts those that the agent has finished, in turns and out of them.
	messages int64

	started     bool
	gated       bool      // waits for Options.Ready
	gateBy      time.Time // at most until then
	drainAt     time.Time // draining: when the run is cancelled
	steering    bool      // an offer to the running turn is on its way
	impatient   bool      // the agent has been busy on its own account for too long
	cancelAside bool      // a person wants it to stop that
	rested      bool      // OnIdle has been called since there was something to do
	resets      []chan error
	idlers      []chan struct{}
	leaving     chan struct{} // closed when nothing is accepted any more
	begun       chan struct{} // closed when what was before is known
	done        chan struct{} // closed when Run has returned
}

type lifecycle int

const (
	fresh lifecycle = iota // Run has not been called; the queue fills
	open
	draining // nothing is accepted, the run may finish
	closed
)

// NewSession makes a session with a stable id. It starts nothing before Run;
// what is submitted earlier waits for it. newEngine makes an engine for each
// life of the agent.
func NewSession(id string, newEngine func() (Engine, error), store Store, frame Framer, opts *Options) (*Session, error) {
	if id == "" || newEngine == nil || store == nil || frame == nil {
		return nil, errors.New("make session: id, engine, store and frame are required")
	}
	o := opts.orDefaults()
	if err := o.Policy.Valid(); err != nil {
		return nil, fmt.Errorf("make session: %w", err)
	}
	now := time.Now()
	s := &Session{
		id: id, newEngine: newEngine, store: store, frame: frame, opts: o, log: o.Log,
		transcript: newTranscript(id, store, o.Log),
		feed:       newFeed(),
		bell:       make(chan struct{}, 1),
		queue:      newQueue(o.Inputs, o.Notices),
		tools:      map[string]ToolCall{},
		meta:       Meta{ID: id, Profile: o.Profile, Dir: o.Dir, CreatedAt: now, UpdatedAt: now},
		leaving:    make(chan struct{}),
		begun:      make(chan struct{}),
		done:       make(chan struct{}),
	}
	s.transcript.written = s.feed.ring
	if o.Missing != nil {
		s.noAgent(o.Missing)
	}
	return s, nil
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// Subscribe returns the updates from now on.
func (s *Session) Subscribe() *Subscription { return s.feed.subscribe() }

// Begun is closed when Run has read what an earlier life of the session left: from
// then on Status tells how its last turn ended.
func (s *Session) Begun() <-chan struct{} { return s.begun }

// Done is closed when Run has returned and nothing of the session is left.
func (s *Session) Done() <-chan struct{} { return s.done }

// Run lives the session until ctx ends or Close is called: it finishes or
// cancels the run within its grace time, hands back what was not delivered and
// leaves no child process (specification N-15). It returns nil on a clean stop,
// and can be called once.
func (s *Session) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.started
	s.started = true
	s.mu.Unlock()
	if again {
		return errors.New("run session: it was run before")
	}
	begun := s.begin(ctx)
	close(s.begun)
	s.saveMeta(ctx)
	// Stop is not cancel: turns outlive ctx by the grace time.
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	var workers, writer sync.WaitGroup
	writing, stopWriting := context.WithCancel(work)
	writer.Go(func() { s.transcript.run(writing) })

	s.loop(ctx, work, abandon, &workers)

	workers.Wait()
	s.end(work)
	stopWriting()
	writer.Wait()
	abandon(nil)
	flushed := s.transcript.flush(work)
	s.publish(Update{Stream: StreamRuntime, Event: EventClosed})
	s.feed.close()
	close(s.done)
	return errors.Join(begun, flushed)
}

// loop takes one step after the other until there is nothing left to do.
func (s *Session) loop(ctx, work context.Context, abandon context.CancelCauseFunc, workers *sync.WaitGroup) {
	// Set when there is something to wait for. It is never one that is due already: Go
	// 1.26 runs such a timer on the goroutine that stops or sets it in a bubble of
	// testing/synctest, and its race detector bears no two of them at once.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	stop, gate := ctx.Done(), s.opts.Ready
	for {
		st := s.next(time.Now())
		s.act(work, st, workers)
		if st.abandon {
			abandon(errShutdown)
		}
		if st.over {
			return
		}
		var deadline <-chan time.Time
		if st.wait > 0 {
			timer.Reset(st.wait)
			deadline = timer.C
		}
		select {
		case <-s.bell:
		case <-deadline:
		case <-gate:
			gate = nil
			s.openGate()
		case <-stop:
			stop = nil
			s.Close()
		}
	}
}

// step is what the loop has to do next.
type step struct {
	work    bool          // start a worker
	offer   []*item       // offer these to the running turn
	to      *run          // that turn
	woken   *run          // tell the owners of its notices
	answers []*question   // questions that ran out of time
	cancel  Engine        // ask it to stop what it does out of turn
	idle    bool          // say that there is nothing to do
	abandon bool          // the grace time is over
	over    bool          // the session has ended
	wait    time.Duration // until something runs out; 0: nothing does
}

// next looks at everything at once and marks what it hands out.
func (s *Session) next(now time.Time) step {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st step
	wait := func(until time.Time) bool {
		d := until.Sub(now)
		if d > 0 && (st.wait == 0 || d < st.wait) {
			st.wait = d
		}
		return d > 0
	}

	st.answers = s.perms.expired(wait)
	if r := s.active; r != nil {
		if r.wokenDue {
			r.wokenDue, st.woken = false, r
		}
		if !r.endBy.IsZero() && !wait(r.endBy) {
			r.stop(errNoReply)
		}
	}
	if s.state == draining {
		switch {
		case !s.working:
			st.over = true
		case wait(s.drainAt):
		default:
			if s.active != nil {
				s.active.stop(errShutdown)
			}
			st.abandon = !wait(s.drainAt.Add(s.opts.StopWait))
		}
		return st
	}
	if s.gated && !wait(s.gateBy) {
		s.gated = false
	}
	if s.busy.active() && !s.working && !wait(s.busy.until(s.opts.Quiet, s.opts.MaxBusy)) {
		s.impatient = now.Before(s.busy.last.Add(s.opts.Quiet))
		s.endAside()
	}
	if s.cancelAside {
		s.cancelAside, st.cancel = false, s.engine.engine
	}
	if !s.idleLocked() {
		s.rested = false
	}
	switch {
	case s.working:
		st.offer, st.to = s.offerLocked()
	case s.idleLocked():
		s.tellIdle()
		st.idle, s.rested = !s.rested, true
	case len(s.resets) > 0, !s.gated && !s.blocked() && (s.engine.warm || s.queue.claimable(s.held)):
		st.work, s.working, s.workSince = true, true, now
	}
	return st
}

// act does what next found, outside of the lock.
func (s *Session) act(work context.Context, st step, workers *sync.WaitGroup) {
	for _, q := range st.answers {
		s.answer(q, choose(q.permission.Options, RejectOnce), "nobody answered in time")
	}
	if st.cancel != nil {
		workers.Go(func() { s.askToStop(work, st.cancel) })
	}
	if st.woken != nil {
		s.tellWoken(st.woken)
	}
	if len(st.offer) > 0 {
		workers.Go(func() { s.steer(work, st.to, st.offer) })
	}
	if st.idle && s.opts.OnIdle != nil {
		s.opts.OnIdle()
	}
	if st.work {
		workers.Go(func() { s.worker(work) })
	}
}

// begin opens the session and recalls what an earlier life left in the store.
// When that fails the session drains, so that what waits is handed back.
func (s *Session) begin(ctx context.Context) error {
	meta, seen, last, err := s.recall(ctx)
	if err != nil {
		s.Close()
		return fmt.Errorf("run session: %w", err)
	}
	why := ""
	if last != nil {
		why = s.scrub(last.Why)
	}
	s.mu.Lock()
	for _, id := range seen {
		s.queue.seen.add(id)
	}
	known := s.queue.dropSeen()
	s.mu.Unlock()
	for _, it := range known {
		s.tell(it, Ack{State: AckSeen})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if meta != nil {
		s.meta.Conversation, s.meta.CreatedAt, s.meta.Agent = meta.Conversation, meta.CreatedAt, meta.Agent
	}
	if s.state != fresh {
		return nil // closed before it ran
	}
	s.state = open
	s.goOn(last, why)
	s.gated = s.opts.Ready != nil
	s.gateBy = time.Now().Add(s.opts.ReadyWait)
	s.engine.warm = s.opts.Warm
	if s.opts.OnStart != "" {
		// It opens no gate and addresses nobody: Chatter.
		s.enqueueInput(Input{Text: s.opts.OnStart, From: "on-start", Channel: s.firstChannel(), Chatter: true}, newTicket())
	}
	return nil
}

// goOn tells what became of the last turn of an earlier life. One that its process
// did not end is recorded as cut off: from here on every run of the transcript but
// the running one has an end. Why is its error as it may be shown. The caller holds mu.
func (s *Session) goOn(last *LastTurn, why string) {
	if err := s.opts.Missing; err != nil {
		s.transcript.add(Entry{Kind: EntryAgent, Title: titleUnavailable, Error: "start agent: " + err.Error()})
	}
	if last == nil {
		return
	}
	if last.Ended.IsZero() {
		e := Entry{Time: time.Now(), Kind: EntryRunEnd, Run: last.Run, Error: errCutOff.Error(), Cause: CauseCutOff}
		if last.start != nil {
			e.Inputs, e.Notices = last.start.Inputs, last.start.Notices
		}
		s.transcript.add(e)
		last.Ended, last.Cause = e.Time, CauseCutOff
	}
	s.troubles.ended(last.since(), last.Cause, why)
}

// recall reads the description and the ids of notices whose run completed. It
// closes the gap between the end of a turn and the note of it in somebody
// else's inbox: what is offered again after a crash is not shown again (D-4).
func (s *Session) recall(ctx context.Context) (*Meta, []string, *LastTurn, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	all, err := s.store.Sessions(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var meta *Meta
	for i := range all {
		if all[i].ID == s.id {
			meta = &all[i]
		}
	}
	entries, err := s.store.List(ctx, s.id, Query{Limit: recallLast, Last: true})
	if err != nil {
		return nil, nil, nil, err
	}
	var seen []string
	for _, e := range entries {
		if e.Kind == EntryRunEnd && e.Delivered {
			seen = append(seen, e.Notices...)
		}
	}
	return meta, seen, FindLastTurn(entries), nil
}

// end closes the engine and hands back what no run has claimed.
func (s *Session) end(ctx context.Context) {
	s.mu.Lock()
	s.state = closed
	left := s.queue.drain()
	questions := s.perms.all()
	resets := s.resets
	s.resets = nil
	s.endAside()
	s.tellIdle()
	s.mu.Unlock()
	for _, q := range questions {
		s.answer(q, "", "the session ended")
	}
	s.closeEngine(ctx)
	for _, it := range left {
		s.fail(it, "", errShutdown)
	}
	for _, c := range resets {
		c <- errShutdown
	}
}

// Close asks the session to stop, as the end of Run's context does. It does not
// wait; Done does.
func (s *Session) Close() {
	s.mu.Lock()
	s.drainLocked()
	s.mu.Unlock()
	s.ring()
}

func (s *Session) drainLocked() {
	if s.state == fresh || s.state == open {
		s.state = draining
		close(s.leaving)
		s.drainAt = time.Now().Add(s.opts.Grace)
	}
}

func (s *Session) openGate() {
	s.mu.Lock()
	s.gated = false
	s.mu.Unlock()
}

// ring makes Run look again.
func (s *Session) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// publish stamps an update and hands it to the subscribers.
func (s *Session) publish(u Update) {
	u.Time, u.Session = time.Now(), s.id
	s.feed.publish(u)
}

func (s *Session) firstChannel() Channel {
	if len(s.opts.Channels) > 0 {
		return s.opts.Channels[0]
	}
	return nil
}
