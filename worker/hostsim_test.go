package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// hostSim drives a host machine through virtual time without anything else: it
// keeps the timers that the machine armed and the connections that are open.
type hostSim struct {
	t     *testing.T
	m     *hostMachine
	now   time.Time
	begun time.Time
	armed timers
	open  map[channelID]bool
	next  channelID
	log   []hostAction
}

var simStart = time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)

func newHostSim(t *testing.T, change func(*Profile)) *hostSim {
	t.Helper()
	p := Light()
	if change != nil {
		change(&p)
	}
	s := &hostSim{t: t, now: simStart, begun: simStart, armed: timers{}, open: map[channelID]bool{}}
	m, acts := newHostMachine(newRecord("s1", p, s.now), "api:1", []string{MCPVersion}, s.now)
	s.m = m
	s.apply(acts)
	return s
}

func (s *hostSim) apply(acts []hostAction) {
	s.log = append(s.log, acts...)
	for _, a := range acts {
		switch a := a.(type) {
		case hostArm:
			s.armed[a.timer] = a.at
		case hostDisarm:
			delete(s.armed, a.timer)
		case hostClose:
			if !s.open[a.ch] {
				s.t.Errorf("closed connection %d, which is not open", a.ch)
			}
			delete(s.open, a.ch)
		}
	}
}

func (s *hostSim) step(ev hostEvent) []hostAction {
	if e, ok := ev.(hostClosed); ok {
		delete(s.open, e.ch)
	}
	acts := s.m.step(s.now, ev)
	s.apply(acts)
	return acts
}

// advance moves the clock, firing what comes due in order.
func (s *hostSim) advance(d time.Duration) {
	end := s.now.Add(d)
	for {
		id, at, ok := s.earliest()
		if !ok || at.After(end) {
			break
		}
		s.now = maxTime(s.now, at)
		delete(s.armed, id)
		s.step(hostFired{id})
	}
	s.now = end
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (s *hostSim) earliest() (timerID, time.Time, bool) {
	var best timerID
	var at time.Time
	for id, t := range s.armed {
		if at.IsZero() || t.Before(at) || (t.Equal(at) && id.String() < best.String()) {
			best, at = id, t
		}
	}
	return best, at, !at.IsZero()
}

func (s *hostSim) dial() channelID {
	s.next++
	s.open[s.next] = true
	s.step(hostOpened{s.next, 1})
	return s.next
}

func (s *hostSim) answer(ch channelID, instance string, attempt int64) []hostAction {
	return s.step(hostAnswered{ch, MCPVersion, implementation{WorkerName, "img:2"}, welcome{"s1", ChannelVersion, instance, attempt}})
}

func (s *hostSim) ready(ch channelID) { s.step(hostReady{ch, "s1", []string{"exec", "file"}}) }
func (s *hostSim) list(ch channelID)  { s.step(hostListed{ch, []string{"exec", "file"}}) }

func (s *hostSim) run(instance string, attempt int64) channelID {
	ch := s.dial()
	s.answer(ch, instance, attempt)
	s.ready(ch)
	s.list(ch)
	return ch
}

func (s *hostSim) beat(ch channelID, idle time.Duration) []hostAction {
	return s.step(hostBeat{ch, []byte("1"), Heartbeat{SessionID: "s1", ChannelVersion: s.m.rec.Versions.Effective, Idle: idle}})
}

// closes lists how connections were closed.
func (s *hostSim) closes() []string {
	var out []string
	for _, a := range s.log {
		if c, ok := a.(hostClose); ok {
			out = append(out, fmt.Sprintf("%d:%d", c.ch, c.code))
		}
	}
	return out
}

func (s *hostSim) want(state State, failure Failure, closes ...string) {
	s.t.Helper()
	if s.m.rec.State != state || s.m.rec.Failure != failure || !slices.Equal(s.closes(), closes) {
		s.t.Errorf("state %s failure %q closes %v, want %s %q %v; at %s", s.m.rec.State, s.m.rec.Failure, s.closes(), state, failure, closes, s.now.Sub(s.begun))
	}
}

// startup lists the armed start-up waits: those that would fail the session.
func (s *hostSim) startup() []timerID {
	var out []timerID
	m := s.m
	for id := range s.armed {
		switch id.kind {
		case timerDial, timerReady:
			out = append(out, id)
		case timerHandshake:
			if m.bound == 0 && len(m.candidates) > 0 && m.candidates[len(m.candidates)-1].ch == id.channel {
				out = append(out, id)
			}
		default:
		}
	}
	return out
}

func countOf[T hostAction](acts []hostAction) (n int) {
	for _, a := range acts {
		if _, ok := a.(T); ok {
			n++
		}
	}
	return n
}

func lastOf[T hostAction](t *testing.T, acts []hostAction) T {
	t.Helper()
	for _, a := range slices.Backward(acts) {
		if a, ok := a.(T); ok {
			return a
		}
	}
	var zero T
	t.Fatalf("no %T among %v", zero, acts)
	return zero
}
