package agent

import (
	"context"
	"time"
)

// Idle reports whether there is nothing to do: no run, no agent at work, and
// nothing in the queue that could start a run (specification W-156). Notices
// held back after a cancel do not count.
func (s *Session) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleLocked()
}

func (s *Session) idleLocked() bool {
	return !s.working && !s.busy.active() && !s.gated && !s.queue.claimable(s.held) && !s.engine.warm && len(s.resets) == 0
}

// CloseIfIdle stops the session if it is idle. The check and the end of intake
// are one step, so that nothing accepted is left behind; it reports whether the
// session is stopping.
func (s *Session) CloseIfIdle() bool {
	s.mu.Lock()
	if s.state == open && s.idleLocked() {
		s.drainLocked()
	}
	stopping := s.state == draining || s.state == closed
	s.mu.Unlock()
	s.ring()
	return stopping
}

// WaitIdle waits until the session is idle or closed.
func (s *Session) WaitIdle(ctx context.Context) error {
	s.mu.Lock()
	if s.state == closed || s.state == open && s.idleLocked() {
		s.mu.Unlock()
		return nil
	}
	c := make(chan struct{})
	s.idlers = append(s.idlers, c)
	s.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// blocked reports whether turns wait for the agent to fall silent.
func (s *Session) blocked() bool { return s.busy.active() && !s.impatient }

func (s *Session) tellIdle() {
	for _, c := range s.idlers {
		close(c)
	}
	s.idlers = nil
}

// Status is a snapshot of a session.
type Status struct {
	Meta  Meta   `json:"meta"`
	State string `json:"state"` // fresh, starting, running, busy, idle, draining or closed
	// Since is when State began, of starting, running, busy and draining.
	Since   time.Time `json:"since,omitzero"`
	Run     string    `json:"run,omitempty"`
	Inputs  int       `json:"inputs"`  // unclaimed
	Notices int       `json:"notices"` // unclaimed
	Held    bool      `json:"held,omitempty"`
	Asked   int       `json:"questions,omitempty"`
	Agent   Info      `json:"agent"`
	Trouble *Trouble  `json:"trouble,omitempty"` // nil: nothing is known to be wrong
}

// Status returns what is going on.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	inputs, notices := s.queue.counts()
	st := Status{Meta: s.meta, Inputs: inputs, Notices: notices, Held: s.held, Asked: len(s.perms.open), Agent: s.engine.info, Trouble: s.troubles.worst()}
	switch {
	case s.state == fresh:
		st.State = "fresh"
	case s.state == closed:
		st.State = "closed"
	case s.state == draining:
		st.State, st.Since = "draining", s.drainAt.Add(-s.opts.Grace)
	case s.active != nil:
		st.State, st.Run, st.Since = "running", s.active.id, s.active.began
	case s.working:
		st.State, st.Since = "starting", s.workSince
	case s.busy.active():
		st.State, st.Since = "busy", s.busy.since
	default:
		st.State = "idle"
	}
	return st
}
