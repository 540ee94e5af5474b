package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// run is one turn of the agent and what it has claimed.
type run struct {
	id     string
	engine Engine
	began  time.Time

	// The rest is under the session's lock.
	items    []*item
	channel  Channel // where the reply goes
	calling  bool    // Engine.Turn has been called and has not returned
	proven   bool    // the agent has shown that the turn began
	wokenDue bool    // the owners of the notices have not been told
	told     sync.Mutex
	tell     int // notices already told that they are woken
	text     reply
	usage    *Usage
	endBy    time.Time // the model ran NO_REPLY: cancelled then, or when the call ends
	cause    error     // why it was stopped
	stopped  chan struct{}

	offers  sync.WaitGroup // offers to the running turn that are on their way
	noOffer func()         // ends them
}

// stop asks the worker to end the run; the first cause counts. The caller holds
// the session's lock.
func (r *run) stop(cause error) {
	if r.cause == nil {
		r.cause = cause
		close(r.stopped)
	}
}

func (r *run) ids() (inputs, notices []string) {
	for _, it := range r.items {
		if it.input != nil {
			inputs = append(inputs, it.id)
		} else {
			notices = append(notices, it.id)
		}
	}
	return inputs, notices
}

// worker brings the agent up, claims what waits, and runs one turn with it. The
// claim comes last, so that whatever arrives during a slow start is part of
// the same run.
func (s *Session) worker(ctx context.Context) {
	defer s.ring()
	s.reset(ctx)
	var engine Engine
	var err error
	if s.wanted() {
		engine, err = s.ensureEngine(ctx)
		s.pull(ctx)
	}
	r := s.claim(engine, err)
	if r == nil {
		return
	}
	prompt, contexts := s.compose(r.items)
	if !s.enter(r, contexts, err) {
		return
	}
	var out Outcome
	if err == nil {
		out, err = s.call(ctx, r, prompt)
	}
	s.settle(ctx, r, out, err)
}

// wanted reports whether there is a reason to have an agent.
func (s *Session) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.warm || s.queue.claimable(s.held)
}

// pull fetches what waits elsewhere, if a run is due anyway.
func (s *Session) pull(ctx context.Context) {
	s.mu.Lock()
	due, user := s.state == open && !s.held && s.queue.claimable(false), s.queue.inputs > 0
	s.mu.Unlock()
	if s.opts.Pull == nil || !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	for _, w := range s.opts.Pull(ctx, user) {
		if err := s.Notify(w.Notice, w.Ack); err != nil && w.Ack != nil {
			w.Ack(Ack{State: AckUndelivered, Err: err})
		}
	}
}

// claim takes everything that waits for a run (W-153). Without a run the worker
// is done: nothing waits any more, or the agent is busy on its own account.
func (s *Session) claim(engine Engine, err error) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == draining || !s.queue.claimable(s.held) || err == nil && s.blocked() || len(s.resets) > 0 {
		s.working = false
		s.feed.ring()
		return nil
	}
	r := &run{id: newID("run"), engine: engine, began: time.Now(), stopped: make(chan struct{})}
	r.items = s.queue.claim(s.held)
	s.active = r
	return r
}

// enter makes the claim a run, and opens the turn to events. If the agent has
// become busy meanwhile, everything goes back to where it was.
func (s *Session) enter(r *run, contexts []string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.blocked() && r.cause == nil {
		s.told = ""
		s.queue.pushFront(r.items)
		s.active, s.working = nil, false
		s.feed.ring()
		return false
	}
	s.endAside()
	s.impatient = false
	r.channel = s.route(r.items)
	r.calling = err == nil && r.cause == nil
	inputs, notices := r.ids()
	s.transcript.add(Entry{Kind: EntryRunStart, Run: r.id, Inputs: inputs, Notices: notices, Channel: name(r.channel)})
	s.publish(Update{Stream: StreamRuntime, Event: EventRunStarted, Run: r.id, Inputs: inputs, Notices: notices, Channel: name(r.channel)})
	for _, text := range contexts {
		s.transcript.add(Entry{Kind: EntryContext, Run: r.id, Text: text})
	}
	for _, it := range r.items {
		s.recordClaim(it, r.id)
	}
	return true
}

// recordClaim notes that a run has taken a notice: as a monitor event, never as
// something that the user said (W-146, W-242). Inputs were noted on arrival.
func (s *Session) recordClaim(it *item, run string) {
	if it.notice == nil {
		return
	}
	s.recordQueue(it, OpDequeue)
	s.transcript.add(Entry{
		Kind: EntryMonitor, Run: run, ID: it.id, Text: it.notice.Text, Note: s.opts.Note,
		TaskID: it.notice.TaskID(), Description: it.notice.Description(),
	})
}

// route says where the reply of a run goes (W-153, W-154): to the most recent
// channel among those who addressed the agent, else among those who spoke at
// all; a run of notices alone goes where the agent was last addressed, else to
// the first configured channel, else nowhere (WA-33).
func (s *Session) route(items []*item) Channel {
	var addressed, spoken Channel
	for _, it := range items {
		if it.input == nil || it.input.Channel == nil {
			continue
		}
		spoken = it.input.Channel
		if !it.input.Chatter {
			addressed = spoken
		}
	}
	switch {
	case addressed != nil:
		return addressed
	case spoken != nil:
		return spoken
	case s.queue.addressed != nil:
		return s.queue.addressed
	}
	return s.firstChannel()
}

type ended struct {
	out Outcome
	err error
}

// call runs the turn. When it has to end early the agent is asked politely,
// asked again, then its context goes, then the agent itself: each step has its
// time, so that no agent can hold a session.
func (s *Session) call(ctx context.Context, r *run, p Prompt) (Outcome, error) {
	if cause := s.cause(r); cause != nil { // cancelled before it began
		return Outcome{}, cause
	}
	turn, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	done := make(chan ended, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		out, err := r.engine.Turn(turn, p)
		s.returned(r)
		done <- ended{out, err}
	})
	limit := time.NewTimer(s.opts.TurnTime)
	defer limit.Stop()
	select {
	case e := <-done:
		return e.out, e.err
	case <-limit.C:
		s.mu.Lock()
		r.stop(errTurnTime)
		s.mu.Unlock()
	case <-r.stopped:
	}
	s.cancelQuestions(r)
	ask := func() { s.askToStop(ctx, r.engine) }
	for _, push := range []func(){ask, ask, func() { abandon(s.cause(r)) }} {
		push()
		if e, ok := s.await(ctx, done); ok {
			return e.out, e.err
		}
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "agent.killed", logattr.Session(s.id), logattr.Reason("it did not end its turn when asked to"))
	s.killed(ctx, r)
	e := <-done
	return e.out, e.err
}

// returned closes the turn to events: what comes now is out of turn.
func (s *Session) returned(r *run) {
	s.mu.Lock()
	r.calling = false
	s.mu.Unlock()
}

func (s *Session) cause(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.cause
}

// await gives the agent half of its time to end the turn.
func (s *Session) await(ctx context.Context, done <-chan ended) (ended, bool) {
	s.mu.Lock()
	pace := s.opts.CancelWait / 2
	if s.state == draining {
		pace = s.opts.StopWait / 2
	}
	s.mu.Unlock()
	timer := time.NewTimer(pace)
	defer timer.Stop()
	select {
	case e := <-done:
		return e, true
	case <-timer.C:
	case <-ctx.Done(): // the grace time is over
	}
	select {
	case e := <-done:
		return e, true
	default:
		return ended{}, false
	}
}

func (s *Session) askToStop(ctx context.Context, engine Engine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.StopWait)
	defer cancel()
	if err := engine.Cancel(ctx); err != nil && !errors.Is(err, ErrClosed) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "agent.cancel_failed", logattr.Session(s.id), logattr.Err(err))
	}
}

// killed ends an agent that does not obey. The next turn starts another.
func (s *Session) killed(ctx context.Context, r *run) {
	s.mu.Lock()
	n := s.engine.count
	s.mu.Unlock()
	s.exited(ctx, n, errors.New("stop agent: it did not end its turn when asked to"))
	if err := r.engine.Close(); err != nil && !errors.Is(err, ErrClosed) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "agent.close_failed", logattr.Session(s.id), logattr.Err(err))
	}
}

// Cancel ends the running turn because a person wants it to. Its notices, and
// those that wait, are held until somebody addresses the agent again
// (specification N-22). It does not wait for the end of the run. It reports
// whether there was anything to cancel.
func (s *Session) Cancel() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != open {
		return false
	}
	switch {
	case s.active != nil:
		s.active.stop(ErrCancelled)
	case s.working: // the agent is starting: this would be its first run
		for _, it := range s.queue.claim(true) {
			it.ticket.settle(Result{}, ErrCancelled)
		}
	case s.busy.active():
		s.cancelAside = true
	default:
		return false
	}
	s.held = true
	s.publish(Update{Stream: StreamWaiting, Event: EventHeld, Reason: "a person cancelled"})
	s.ring()
	return true
}

// EndTurn says that the model ran NO_REPLY as code: the turn is over without a
// reply (specification N-7). The agent gets the chance to end it by itself;
// after its tool call, or a moment, it is cancelled.
func (s *Session) EndTurn() {
	s.mu.Lock()
	if r := s.active; r != nil && r.endBy.IsZero() {
		r.endBy = time.Now().Add(endTurnWait)
	}
	s.mu.Unlock()
	s.ring()
}
