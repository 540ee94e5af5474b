package worker

import "time"

// ObservationKind names what a host counts.
type ObservationKind int

// Kinds of observations, with the fields that belong to them.
const (
	ObservedHandshake ObservationKind = iota // a connection was bound: Duration since its upgrade, Again
	ObservedBack                             // a session that was lost runs again: Duration without a connection
	ObservedBeat                             // a heartbeat came: Duration beyond its interval
	ObservedBroken                           // a broken frame came
	ObservedClosed                           // a connection ended: Code, Ours
	ObservedEnded                            // a session ended: Failure, or Reported and Flushed
)

// Observation is one thing that a [Host] counts, for metrics. Nothing in it comes
// from a sandbox but the code of a close.
type Observation struct {
	Kind     ObservationKind
	Duration time.Duration
	Again    bool      // the process was bound before
	Code     CloseCode // 1006 for a connection that broke
	Ours     bool      // we closed
	Failure  Failure   // empty for a session that was released
	Reported bool      // the worker answered the release
	Flushed  bool      // and nothing of its outputs was lost
}

func (h *Host) observe(o Observation) {
	if h.o.Observe != nil {
		h.o.Observe(o)
	}
}

// observeAction tells of what a session is about to do; the caller holds mu.
func (s *Session) observeAction(a hostAction) {
	now := time.Now()
	switch a := a.(type) {
	case hostSendInitialized:
		if l := s.links[a.ch]; l != nil {
			s.host.observe(Observation{Kind: ObservedHandshake, Duration: now.Sub(l.opened), Again: s.m.rec.Attempt > 0})
		}
	case hostUnbound:
		s.lostAt, s.beatAt = now, time.Time{}
	case hostRegister:
		if !s.lostAt.IsZero() && s.m.rec.EverRan {
			s.host.observe(Observation{Kind: ObservedBack, Duration: now.Sub(s.lostAt)})
		}
		s.lostAt = time.Time{}
	case hostAnswerBeat:
		if !s.beatAt.IsZero() {
			s.host.observe(Observation{Kind: ObservedBeat, Duration: max(0, now.Sub(s.beatAt)-s.m.rec.Profile.Budgets.HeartbeatInterval)})
		}
		s.beatAt = now
	case hostTeardown:
		rec := &s.m.rec
		s.host.observe(Observation{Kind: ObservedEnded, Failure: rec.Failure, Reported: rec.Reported, Flushed: rec.OutputsFlushed})
	default:
	}
}

// said returns the code with which we have closed a connection, if we have.
func (l *link) said() (CloseCode, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing == nil {
		return 0, false
	}
	return l.closing.code, true
}
