package worker

// moves are the entries of the machine that tell of a change of state. A change
// without one of them is an entry of its own, named as the new state.
var moves = map[string]bool{
	"bound": true, "lost": true, "releasing": true, "released": true, "failed": true, "drained": true, "adopted": true,
}

// audit writes an entry about the session as it is.
func (s *Session) audit(event, detail string) {
	s.host.audit(s.m.rec.entry(event, detail, s.m.rec.State))
}

// note writes what a step of the machine has to say, and each change of state once.
// ev is what caused the step, or nil.
func (s *Session) note(from State, ev hostEvent, acts []hostAction) {
	rec := s.m.rec
	code := codeOf(ev, acts)
	moved := from != rec.State
	for _, a := range acts {
		a, ok := a.(hostAudit)
		if !ok {
			continue
		}
		e := rec.entry(a.event, a.detail, rec.State)
		e.Close = code
		if moved && moves[a.event] {
			e.From, moved = from, false
		}
		s.host.audit(e)
	}
	if moved {
		e := rec.entry(string(rec.State), "", from)
		e.Close = code
		s.host.audit(e)
	}
}

// noteGuest writes that a worker was sent away by a host that does not hold its
// session, which goes on elsewhere.
func (s *Session) noteGuest(acts []hostAction) {
	for _, a := range acts {
		if a, ok := a.(hostClose); ok {
			e := s.saved.entry("refused", "by a host that does not hold the session: "+a.reason, s.saved.State)
			e.Close = a.code
			s.host.audit(e)
		}
	}
}

// codeOf is the code that a step closes connections with, or that of the
// connection whose end caused it.
func codeOf(ev hostEvent, acts []hostAction) CloseCode {
	for _, a := range acts {
		if a, ok := a.(hostClose); ok && a.code != 0 {
			return a.code
		}
	}
	if e, ok := ev.(hostClosed); ok {
		return e.code
	}
	return 0
}
