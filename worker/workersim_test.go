package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// workerSim drives a worker machine through virtual time.
type workerSim struct {
	t     *testing.T
	m     *workerMachine
	now   time.Time
	armed timers
	open  map[channelID]bool
	next  channelID
	log   []workerAction
	mute  bool // executors let no heartbeat out
}

func newWorkerSim(t *testing.T, chance float64) *workerSim {
	t.Helper()
	s := &workerSim{t: t, now: simStart, armed: timers{}, open: map[channelID]bool{}}
	m, acts := newWorkerMachine(workerSetup{"s1", "i", []string{MCPVersion}, Budgets{}, 0, func() float64 { return chance }}, s.now)
	s.m = m
	s.apply(acts)
	return s
}

func (s *workerSim) apply(acts []workerAction) {
	s.log = append(s.log, acts...)
	for _, a := range acts {
		switch a := a.(type) {
		case workerArm:
			s.armed[a.timer] = a.at
		case workerDisarm:
			delete(s.armed, a.timer)
		case workerClose:
			if !s.open[a.ch] {
				s.t.Errorf("closed connection %d, which is not open", a.ch)
			}
			delete(s.open, a.ch)
		case workerExit:
			clear(s.open) // the driver closes what is left
		case workerSendBeat:
			if !s.mute {
				defer s.step(workerBeatSent(a))
			}
		}
	}
}

func (s *workerSim) step(ev workerEvent) []workerAction {
	if e, ok := ev.(workerClosed); ok {
		delete(s.open, e.ch)
	}
	acts := s.m.step(s.now, ev)
	s.apply(acts)
	return acts
}

func (s *workerSim) earliest() (timerID, time.Time, bool) {
	h := hostSim{armed: s.armed}
	return h.earliest()
}

func (s *workerSim) advance(d time.Duration) {
	end := s.now.Add(d)
	for {
		id, at, ok := s.earliest()
		if !ok || at.After(end) {
			break
		}
		s.now = maxTime(s.now, at)
		delete(s.armed, id)
		s.step(workerFired{id})
	}
	s.now = end
}

func (s *workerSim) connect() channelID {
	s.next++
	s.open[s.next] = true
	s.step(workerDialed{s.next})
	return s.next
}

func (s *workerSim) hello(ch channelID, change func(*workerHello)) []workerAction {
	e := workerHello{ch: ch, id: []byte("1"), mcpVersion: MCPVersion, hello: hello{"s1", ChannelVersion, "light", DefaultBudgets()}}
	if change != nil {
		change(&e)
	}
	return s.step(e)
}

func (s *workerSim) serve() channelID {
	ch := s.connect()
	s.hello(ch, nil)
	s.step(workerInitialized{ch})
	s.step(workerPrepared{})
	s.step(workerListed{ch})
	return ch
}

func (s *workerSim) answer(ch channelID) {
	s.step(workerBeatAnswered{ch, s.m.seq, heartbeatResult{true, seconds(90 * time.Second), seconds(900 * time.Second)}})
}

func (s *workerSim) closes() []string {
	var out []string
	for _, a := range s.log {
		if c, ok := a.(workerClose); ok {
			out = append(out, fmt.Sprintf("%d:%d", c.ch, c.code))
		}
	}
	return out
}

func (s *workerSim) exit() (ExitCode, bool) {
	for _, a := range s.log {
		if e, ok := a.(workerExit); ok {
			return e.code, true
		}
	}
	return exitNone, false
}

// want checks the state, how connections were closed, and the exit code or
// exitNone.
func (s *workerSim) want(state workerState, exit ExitCode, closes ...string) {
	s.t.Helper()
	code, _ := s.exit()
	if s.m.state != state || code != exit || !slices.Equal(s.closes(), closes) {
		s.t.Errorf("state %s exit %d closes %v, want %s %d %v; at %s", s.m.state, code, s.closes(), state, exit, closes, s.now.Sub(simStart))
	}
}

func countAct[T workerAction](acts []workerAction) (n int) {
	for _, a := range acts {
		if _, ok := a.(T); ok {
			n++
		}
	}
	return n
}

func lastAct[T workerAction](t *testing.T, acts []workerAction) T {
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
