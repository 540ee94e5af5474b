package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// How many random lives each machine goes through, and how long they are.
const (
	propertyRuns  = 1500
	propertySteps = 60
)

// checkHost states what holds of a session after any event.
func checkHost(s *hostSim, ended State) error {
	m := s.m
	switch {
	case ended != "" && m.rec.State != ended:
		return fmt.Errorf("left the final state %s for %s", ended, m.rec.State)
	case m.bound != 0 && !s.open[m.bound]:
		return fmt.Errorf("bound to connection %d, which is closed", m.bound)
	case len(m.candidates) > maxCandidates:
		return fmt.Errorf("%d candidates", len(m.candidates))
	}
	for _, c := range m.candidates {
		if !s.open[c.ch] || c.ch == m.bound {
			return fmt.Errorf("candidate %d is closed or bound", c.ch)
		}
		if _, ok := s.armed[timerID{timerHandshake, c.ch}]; !ok {
			return fmt.Errorf("candidate %d has no deadline", c.ch)
		}
	}
	for ch := range s.open {
		if ch != m.bound && !m.isCandidate(ch) {
			return fmt.Errorf("connection %d is open and nobody's", ch)
		}
	}
	for id := range s.armed {
		if id.channel != 0 && !s.open[id.channel] {
			return fmt.Errorf("timer %s outlived its socket", id)
		}
	}
	if fmt.Sprint(len(s.armed)) != fmt.Sprint(len(m.armed)) {
		return fmt.Errorf("armed %v, the machine believes %v", s.armed, m.armed)
	}
	return checkHostWaits(s)
}

// checkHostWaits states which waits are armed in which state.
func checkHostWaits(s *hostSim) error {
	m := s.m
	has := func(kind timerKind, ch channelID) bool { _, ok := s.armed[timerID{kind, ch}]; return ok }
	state := m.rec.State
	if state.Final() || m.gone {
		if len(s.armed) > 0 || len(s.open) > 0 {
			return fmt.Errorf("%s with timers %v and connections %v", state, s.armed, s.open)
		}
		return nil
	}
	starting := state == StateAwaitingDial || state == StateHandshaking || state == StateReadying
	redial := state == StateAwaitingDial && len(s.startup()) == 0 && s.next > 0
	if n := len(s.startup()); starting && n != 1 && !redial {
		return fmt.Errorf("%s with start-up waits %v", state, s.startup())
	}
	if !m.rec.EverRan && starting != has(timerOuter, 0) {
		return fmt.Errorf("%s, never ran, outer bound armed: %t", state, has(timerOuter, 0))
	}
	switch state {
	case StateRunning:
		if !has(timerHeartbeat, m.bound) || len(s.startup()) > 0 {
			return fmt.Errorf("running with %v", s.armed)
		}
	case StateDetached:
		if has(timerReconnect, 0) == (len(m.candidates) > 0) {
			return fmt.Errorf("detached with %d candidates and %v", len(m.candidates), s.armed)
		}
	case StateReleasing:
		if has(timerRelease, 0) == has(timerClosing, m.bound) {
			return fmt.Errorf("releasing with %v", s.armed)
		}
	default:
	}
	return nil
}

// randomHostEvent draws an event about a connection that was ever open, so that
// late and stale events are drawn too.
func randomHostEvent(s *hostSim, r *rand.Rand) hostEvent {
	ch := min(channelID(1+r.IntN(int(s.next)+1)), s.next)
	id := []byte("1")
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	switch r.IntN(22) {
	case 0, 1, 2:
		return hostAnswered{ch, pick(MCPVersion, MCPVersion, MCPVersion, MCPVersion, "2024-11-05"), implementation{}, welcome{pick("s1", "s1", "s1", "s1", "s1", "s2"), pick("1.0.0", "1.1.0", "1.1.0", "1.2.0", "2.0.0"), pick("i", "i", "i", "i", "j"), int64(r.IntN(12))}}
	case 3, 4, 5:
		return hostReady{ch, pick("s1", "s1", "s1", "s1", "s1", "s2"), [][]string{{"exec", "file"}, {"exec", "file"}, {"exec", "file", "x"}, {"exec"}}[r.IntN(4)]}
	case 6, 7, 8:
		return hostListed{ch, [][]string{{"exec", "file"}, {"file", "exec"}, {"exec", "file", "x"}, {}}[r.IntN(4)]}
	case 9, 10:
		return hostBeat{ch, id, Heartbeat{SessionID: pick("s1", "s1", "s1", "s1", "s2"), ChannelVersion: pick(s.m.rec.Versions.Effective, s.m.rec.Versions.Effective, s.m.rec.Versions.Effective, "9.9.9"), Idle: time.Duration(r.IntN(100)) * time.Second, ActiveToolCalls: r.IntN(2)}}
	case 11:
		return hostBadFrames{ch}
	case 12:
		return hostCallBegan{}
	case 13:
		return hostCallEnded{}
	case 14:
		return hostReleaseAsked{[]Reason{ReasonIdle, ReasonExplicit, ReasonDeadline, ReasonFailed}[r.IntN(4)]}
	case 15:
		return hostReported{ch, Report{OutputsFlushed: r.IntN(2) == 0}}
	case 16:
		return []hostEvent{hostWindDown{}, hostBudgets{idle: time.Second}, hostDrain{}, hostSuperseded{}, hostExited{"x"}, hostVersion{"a", "b"}, hostRefused{ch, "error"}}[r.IntN(7)]
	case 17:
		return hostFired{timerID{[]timerKind{timerDial, timerOuter, timerReady, timerHeartbeat, timerReconnect, timerRelease, timerHandshake}[r.IntN(7)], ch}}
	}
	return nil
}

// ONE-1, DL-13, DL-17, SCO-9: through random orders of events, late and stale
// ones too, a session has at most one bound connection, exactly one start-up
// wait until it runs, final states that stay, and no timer without its socket;
// and left alone it ends within the sum of its deadlines.
func TestHostMachineProperties(t *testing.T) {
	t.Parallel()
	reached := map[State]int{}
	for seed := range uint64(propertyRuns) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newHostSim(t, nil)
		var ended State
		for i := range propertySteps {
			if ev := randomHostEvent(s, r); ev != nil && s.next > 0 {
				s.step(ev)
			} else {
				switch r.IntN(4) {
				case 0:
					s.dial()
				case 1:
					s.run("i", int64(i))
				case 2:
					if open := sortedKeys(s.open); len(open) > 0 {
						s.step(hostClosed{open[r.IntN(len(open))], []CloseCode{closeAbnormal, closeGoingAway, CloseReleased, CloseBadFrames}[r.IntN(4)]})
					}
				default:
					s.advance(time.Duration(r.IntN(15000)) * time.Millisecond)
				}
			}
			if err := checkHost(s, ended); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
			if ended == "" && s.m.rec.State.Final() {
				ended = s.m.rec.State
			}
		}
		reached[s.m.rec.State]++
		if s.advance(time.Hour); !s.m.rec.State.Final() && !s.m.gone {
			t.Fatalf("seed %d: an hour later the session is %s with %v", seed, s.m.rec.State, s.armed)
		}
	}
	if len(reached) < 6 {
		t.Errorf("the walk is too tame: %v", reached)
	}
}

func sortedKeys(m map[channelID]bool) []channelID {
	var out []channelID
	for ch := range m {
		out = append(out, ch)
	}
	slices.Sort(out)
	return out
}

// checkWorker states what holds of a worker after any event.
func checkWorker(s *workerSim, exits int) error {
	m := s.m
	if n := countAct[workerExit](s.log); n > 1 || (n == 1) != (m.state == workerEnded) || n < exits {
		return fmt.Errorf("%s after %d exits", m.state, n)
	}
	if m.state == workerEnded {
		if len(s.armed) > 0 || m.ch != 0 {
			return fmt.Errorf("ended with timers %v, connection %d", s.armed, m.ch)
		}
		return nil
	}
	if len(s.open) > 1 || (m.ch != 0 && !s.open[m.ch]) || (m.ch == 0 && len(s.open) > 0) {
		return fmt.Errorf("connections %v, current %d", s.open, m.ch)
	}
	for id := range s.armed {
		if id.channel != 0 && !s.open[id.channel] {
			return fmt.Errorf("timer %s outlived its socket", id)
		}
	}
	has := func(kind timerKind, ch channelID) bool { _, ok := s.armed[timerID{kind, ch}]; return ok }
	waits := map[workerState]bool{
		workerDialing:   has(timerWindow, 0),
		workerWaiting:   has(timerHandshake, m.ch) && has(timerWindow, 0),
		workerPreparing: has(timerReady, m.ch),
		workerAnnounced: has(timerReadyAck, m.ch),
		workerServing:   has(timerBeat, m.ch) && (has(timerGrace, m.ch) || len(m.sent) == 0),
		workerLost:      has(timerBackoff, 0) && has(timerWindow, 0),
		workerWinding:   has(timerFlush, 0),
	}
	if !waits[m.state] {
		return fmt.Errorf("%s waits without a deadline: %v", m.state, s.armed)
	}
	if m.wind == nil && !has(timerExec, 0) {
		return fmt.Errorf("%s without a ceiling", m.state)
	}
	return nil
}

func randomWorkerEvent(s *workerSim, r *rand.Rand) workerEvent {
	ch := min(channelID(1+r.IntN(int(s.next)+1)), s.next)
	switch r.IntN(16) {
	case 0, 1:
		e := workerHello{ch: ch, id: []byte("1"), mcpVersion: MCPVersion, hello: hello{"s1", ChannelVersion, "light", DefaultBudgets()}}
		switch r.IntN(12) {
		case 0:
			e.hello.SessionID = "s2"
		case 1:
			e.hello.ChannelVersion = "3.0.0"
		case 2:
			e.bad = errMissing
		}
		return e
	case 2, 3:
		return workerInitialized{ch}
	case 4:
		return workerPrepared{}
	case 5, 6:
		return workerListed{ch}
	case 7, 8:
		return workerBeatAnswered{ch, s.m.seq, heartbeatResult{r.IntN(8) > 0, seconds(r.Int64N(2e11)), seconds(r.Int64N(2e12))}}
	case 9:
		return workerCallBegan{}
	case 10:
		return workerCallEnded{}
	case 11:
		return []workerEvent{
			workerReleaseCame{ch, []byte("2"), releaseParams{[]string{"s1", "s2"}[r.IntN(2)], []Reason{ReasonIdle, ReasonDeadline}[r.IntN(2)], seconds(r.Int64N(4e10))}},
			workerSignalled{},
			workerBadFrames{ch},
		}[r.IntN(3)]
	case 12:
		if s.m.flushing {
			return workerFlushed{Report{OutputsFlushed: r.IntN(2) == 0}}
		}
	case 13:
		return workerFired{timerID{[]timerKind{timerHandshake, timerGrace, timerWindow, timerBackoff, timerExec}[r.IntN(5)], ch}}
	}
	return nil
}

// ONE-7, SCO-9, REL-6, RC-6, DL-17: the same for the worker: one connection, a
// deadline on every wait, one exit that is final, no timer without its socket;
// and without any host it ends by itself.
func TestWorkerMachineProperties(t *testing.T) {
	t.Parallel()
	reached := map[workerState]int{}
	for seed := range uint64(propertyRuns) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newWorkerSim(t, r.Float64())
		exits := 0
		for i := range propertySteps {
			if ev := randomWorkerEvent(s, r); ev != nil && s.next > 0 {
				s.step(ev)
			} else {
				switch {
				case s.m.state == workerDialing && r.IntN(3) > 0:
					if r.IntN(4) > 0 {
						s.connect()
					} else {
						s.step(workerDialFailed{dialOutcome{retry: r.IntN(6) > 0, after: time.Duration(r.IntN(30)) * time.Second, exit: ExitConfig}})
					}
				case len(s.open) > 0 && r.IntN(4) == 0:
					s.step(workerClosed{sortedKeys(s.open)[0], []CloseCode{closeAbnormal, CloseDraining, 1001, 1000, CloseSession, CloseReleased, CloseSuperseded}[r.IntN(7)], ""})
				default:
					s.advance(time.Duration(r.IntN(9000)) * time.Millisecond)
				}
			}
			if err := checkWorker(s, exits); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
			exits = countAct[workerExit](s.log)
		}
		reached[s.m.state]++
		if s.advance(time.Hour); s.m.state != workerEnded {
			t.Fatalf("seed %d: an hour later the worker is %s with %v", seed, s.m.state, s.armed)
		}
	}
	if len(reached) < 5 {
		t.Errorf("the walk is too tame: %v", reached)
	}
}
