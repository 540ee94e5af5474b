package worker

import (
	"errors"
	"testing"
	"time"
)

// DL-2, CC-9, EX-5, CON-3: a host that accepts and says nothing; the worker
// comes back within the window and then ends with "temporary".
func TestWorkerHandshakeDeadline(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0.5)
	ch := s.connect()
	s.hello(ch, nil) // answered, but initialized never comes
	s.advance(10*time.Second - tick)
	s.want(workerWaiting, exitNone)
	s.advance(tick)
	s.want(workerLost, exitNone, "1:1001")
	for s.m.state != workerEnded {
		s.advance(time.Second)
		switch {
		case s.m.state == workerDialing:
			s.connect()
		case s.m.flushing && !s.m.flushed:
			s.step(workerFlushed{})
		}
	}
	if code, _ := s.exit(); code != ExitTempFail {
		t.Errorf("exit %d", code)
	}
	if took := s.now.Sub(simStart); took != 60*time.Second {
		t.Errorf("ended after %v, want the window of 60s from the start", took)
	}
}

// DL-5, RDY-6: nobody acknowledges ready.
func TestWorkerReadyAckDeadline(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.connect()
	s.hello(ch, nil)
	s.step(workerInitialized{ch})
	s.advance(4 * time.Second)
	s.step(workerPrepared{})
	s.advance(15*time.Second - tick)
	s.want(workerAnnounced, exitNone)
	s.advance(tick)
	if s.m.state == workerAnnounced {
		t.Error("the worker still waits for tools/list")
	}
	s.advance(tick)
	s.want(workerDialing, exitNone, "1:1001")
}

// RDY-2: ready is said only when the executors stand, whenever that is; and if
// they do not stand in time, trying again changes nothing.
func TestWorkerReadyWaitsForExecutors(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	s.step(workerPrepared{})
	ch := s.connect()
	if acts := s.hello(ch, nil); countAct[workerSendReady](acts) != 0 {
		t.Error("ready before initialized")
	}
	if acts := s.step(workerInitialized{ch}); countAct[workerSendReady](acts) != 1 {
		t.Error("no ready although the executors stand")
	}

	s = newWorkerSim(t, 0)
	ch = s.connect()
	s.hello(ch, nil)
	if acts := s.step(workerInitialized{ch}); countAct[workerSendReady](acts) != 0 {
		t.Error("ready without executors")
	}
	s.advance(30 * time.Second)
	s.want(workerEnded, ExitConfig, "1:1001")

	s = newWorkerSim(t, 0)
	s.connect()
	s.step(workerPrepared{errors.New("no workspace")})
	s.want(workerEnded, ExitConfig, "1:1001")

	s = newWorkerSim(t, 0)
	s.connect()
	s.step(workerSignalled{})
	s.step(workerPrepared{errors.New("canceled")})
	s.step(workerFlushed{})
	s.want(workerEnded, ExitTempFail, "1:1001")
}

// HB-1: heartbeats come at the interval, the first with the acknowledgement of
// ready.
func TestWorkerHeartbeats(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	if n := countAct[workerSendBeat](s.log); n != 1 {
		t.Fatalf("%d heartbeats at running", n)
	}
	s.step(workerCallBegan{}) // or it would end as idle
	for range 30 {
		s.answer(ch)
		s.advance(10 * time.Second)
	}
	if n := countAct[workerSendBeat](s.log); n != 31 {
		t.Errorf("%d heartbeats in 300 s, want 31", n)
	}
}

// HB-9, DL-6, HB-11: the worker counts from the last answered heartbeat, so it
// gives up at least an interval before the host does, wherever the link dies.
func TestWorkerGrace(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		s := newWorkerSim(t, 1)
		ch := s.serve()
		s.answer(ch)
		s.advance(10 * time.Second)
		hostGivesUp := s.now.Add(40 * time.Second) // the heartbeat at 10 s is the last it hears
		want := 20 * time.Second
		if answered {
			s.answer(ch)
			want = 30 * time.Second
		}
		s.advance(want - tick)
		s.want(workerServing, exitNone)
		s.advance(tick)
		s.want(workerLost, exitNone, "1:1001")
		if margin := hostGivesUp.Sub(s.now); margin < 10*time.Second {
			t.Errorf("answered %t: the host gives up %v later, want an interval", answered, margin)
		}
	}
}

// HB-4: executors that are wedged let no heartbeat out, and the worker does not
// cover for them by dialing again: the host ends it.
func TestWorkerWedgedExecutors(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	s.answer(ch)
	s.mute = true
	s.advance(40 * time.Second)
	s.want(workerServing, exitNone)
	s.step(workerClosed{ch, CloseHeartbeat, "heartbeat_lost"})
	s.want(workerEnded, ExitTempFail)
}

// RC-2, RC-4, ONE-3: the delays double up to the cap, jittered downwards, and
// each dial has a larger attempt.
func TestWorkerBackoff(t *testing.T) {
	t.Parallel()
	for chance, want := range map[float64][]time.Duration{
		1: {time.Second, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second},
		0: {0, time.Second / 2, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second},
	} {
		s := newWorkerSim(t, chance)
		for i, d := range want {
			s.step(workerDialFailed{dialOutcome{retry: true}})
			if got := s.armed[timerID{timerBackoff, 0}].Sub(s.now); got != d {
				t.Errorf("chance %v: delay %d is %v, want %v", chance, i, got, d)
			}
			s.advance(d)
			if got := lastAct[workerDial](t, s.log).attempt; got != int64(i+1) {
				t.Errorf("attempt %d, want %d", got, i+1)
			}
		}
	}
}

// A host that says when to come back is obeyed within the window (AMB-9).
func TestWorkerRetryAfter(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	s.step(workerDialFailed{dialOutcome{retry: true, after: 7 * time.Second}})
	if got := s.armed[timerID{timerBackoff, 0}].Sub(s.now); got != 7*time.Second {
		t.Errorf("delay %v, want 7s", got)
	}
	s = newWorkerSim(t, 1)
	s.step(workerDialFailed{dialOutcome{retry: true, after: time.Hour}})
	if got := s.armed[timerID{timerBackoff, 0}].Sub(s.now); got > time.Second {
		t.Errorf("delay %v goes beyond the window", got)
	}
}

// DL-9, RC-5, EX-2, REL-5: the window ends once, from the loss, and the worker
// uploads what it can.
func TestWorkerWindow(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0.5)
	ch := s.serve()
	s.step(workerClosed{ch, closeAbnormal, ""})
	lost := s.now
	for !s.m.flushing {
		s.advance(100 * time.Millisecond)
		if s.m.state == workerDialing {
			s.step(workerDialFailed{dialOutcome{retry: true, why: "connection refused"}})
		}
	}
	if took := s.now.Sub(lost); took != 60*time.Second {
		t.Errorf("gave up after %v", took)
	}
	s.advance(2 * time.Second)
	s.want(workerWinding, exitNone)
	s.step(workerFlushed{Report{OutputsFlushed: true}})
	s.want(workerEnded, ExitTempFail)
}

// RC-3: losing the channel stops no call and nothing of the process.
func TestWorkerCallsOutliveChannels(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0.5)
	ch := s.serve()
	s.step(workerCallBegan{})
	s.step(workerClosed{ch, closeAbnormal, ""})
	s.advance(time.Second)
	ch = s.connect()
	s.hello(ch, nil)
	acts := s.step(workerInitialized{ch})
	if countAct[workerSendReady](acts) != 1 {
		t.Error("no ready after a reconnect")
	}
	s.step(workerListed{ch})
	if countAct[workerCancelCalls](s.log) != 0 || s.m.active != 1 {
		t.Error("a call was stopped")
	}
	s.want(workerServing, exitNone)
}

// EX-1, EX-2, EX-3, EX-4, CC-1, CC-2, CC-3, CC-4, CC-5, CC-6, CC-7, CC-8, CC-9,
// CC-11, CC-12: every close code, and whether the worker comes back.
func TestWorkerCloseCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[CloseCode]ExitCode{
		CloseVersion: 78, CloseSession: 77, CloseStartup: 78, CloseHeartbeat: 75, CloseReleased: 0, CloseBadFrames: 78, CloseDraining: -1,
		4007: 78, 4010: 78, 4999: 78, 1000: -1, 1001: -1, 1006: -1, 1011: -1, 1012: -1, 1013: -1, -1: -1, 1005: -1,
		1002: 78, 1003: 78, 1007: 78, 1009: 78,
	} {
		s := newWorkerSim(t, 1)
		s.step(workerClosed{s.serve(), code, "why"})
		got, ended := s.exit()
		if got != want || ended != (want >= 0) {
			t.Errorf("close %d: exit %d, want %d", code, got, want)
		}
		if want < 0 && s.m.state != workerLost {
			t.Errorf("close %d: state %s, want lost", code, s.m.state)
		}
	}
}

// CC-8, ONE-7: what happens on an older socket of ours is nothing to the newer
// one, which serves.
func TestWorkerIgnoresOldSockets(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	old := s.serve()
	s.advance(30 * time.Second) // no answer: given up and closed
	s.advance(tick)
	fresh := s.connect()
	s.hello(fresh, nil)
	s.step(workerInitialized{fresh})
	s.step(workerListed{fresh})
	s.step(workerClosed{old, CloseSuperseded, ""})
	s.step(workerReleaseCame{old, []byte("9"), releaseParams{"s1", ReasonExplicit, 0}})
	s.want(workerServing, exitNone, "1:1001")
}

// INI-11: of two ceilings the smaller, logged, and for good (AMB-24).
func TestWorkerObeysSmallerBudget(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.connect()
	acts := s.hello(ch, func(e *workerHello) { e.hello.Budgets.MaxExec = 300 * time.Second; e.hello.Budgets.Idle = time.Hour })
	if countAct[workerLog](acts) != 1 || s.m.budgets.MaxExec != 300*time.Second || s.m.budgets.Idle != 90*time.Second {
		t.Errorf("budgets %+v, logged %d", s.m.budgets, countAct[workerLog](acts))
	}
	s.step(workerClosed{ch, closeAbnormal, ""})
	s.advance(0)
	ch = s.connect()
	s.hello(ch, nil)
	if s.m.budgets.MaxExec != 300*time.Second {
		t.Error("a second initialize raised a ceiling")
	}
}

// HB-8, DL-11, REL-5: whatever it is told, the worker stops at its own ceiling.
func TestWorkerOwnCeiling(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	s.step(workerCallBegan{})
	for s.m.state == workerServing {
		s.step(workerBeatAnswered{ch, s.m.seq, heartbeatResult{true, seconds(maxSeconds * 1e9), seconds(maxSeconds * 1e9)}})
		s.advance(time.Second)
	}
	if took := s.now.Sub(simStart); took != 900*time.Second || s.m.idle != 90*time.Second {
		t.Errorf("stopped at %v, idle budget %v", took, s.m.idle)
	}
	if countAct[workerCancelCalls](s.log) != 1 || !s.m.flushing {
		t.Error("a hard stop that does not stop calls")
	}
	s.advance(30 * time.Second)
	s.want(workerEnded, ExitTempFail, "1:1001")
}

// HB-7: a cut is obeyed; the ceiling only falls (AMB-25).
func TestWorkerBudgetCut(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	s.step(workerBeatAnswered{ch, 1, heartbeatResult{true, seconds(10 * time.Second), seconds(100 * time.Second)}})
	s.advance(10 * time.Second)
	s.step(workerBeatAnswered{ch, 2, heartbeatResult{true, seconds(40 * time.Second), seconds(500 * time.Second)}})
	if s.m.idle != 40*time.Second || s.m.budgets.MaxExec != 100*time.Second {
		t.Errorf("idle %v exec %v", s.m.idle, s.m.budgets.MaxExec)
	}
}

// HB-7: continue false winds down as a release does, and a release that follows
// is answered (AMB-14).
func TestWorkerWindsDown(t *testing.T) {
	t.Parallel()
	for _, release := range []bool{false, true} {
		s := newWorkerSim(t, 0)
		ch := s.serve()
		s.step(workerBeatAnswered{ch, 1, heartbeatResult{Continue: false}})
		s.want(workerWinding, exitNone)
		if release {
			s.step(workerReleaseCame{ch, []byte("5"), releaseParams{"s1", ReasonExplicit, seconds(30 * time.Second)}})
		}
		acts := s.step(workerFlushed{Report{OutputsFlushed: true}})
		if got := countAct[workerSendReport](acts) == 1; got != release {
			t.Errorf("report %t, want %t", got, release)
		}
		s.want(workerEnded, ExitReleased, "1:4005")
	}
}

// DL-10, REL-5, REL-6: idle and never released, the worker ends itself, after
// everything the host had time for (AMB-13).
func TestWorkerIdleStop(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	for s.m.state == workerServing {
		s.answer(ch)
		s.advance(time.Second)
	}
	if took := s.now.Sub(simStart); took != (90+30+10+30)*time.Second {
		t.Errorf("ended itself after %v", took)
	}
	s.step(workerFlushed{})
	s.want(workerEnded, ExitTempFail, "1:1001")
}

// HB-2, HB-5: the clock of idling starts at running and again with each
// completed call; heartbeats do not move it.
func TestWorkerIdleClock(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	s.advance(7 * time.Second)
	s.answer(ch)
	if got := s.m.idleFor(s.now); got != 7*time.Second {
		t.Errorf("idle %v after a heartbeat, want 7s", got)
	}
	s.step(workerCallBegan{})
	s.advance(2 * time.Second)
	if got := s.m.idleFor(s.now); got != 0 {
		t.Errorf("idle %v during a call", got)
	}
	s.step(workerCallEnded{})
	s.advance(time.Second)
	if got := s.m.idleFor(s.now); got != time.Second {
		t.Errorf("idle %v, want 1s", got)
	}
}

// REL-2, REL-3, EX-1, CC-5: report, then close, then exit.
func TestWorkerRelease(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	acts := s.step(workerReleaseCame{ch, []byte("77"), releaseParams{"s1", ReasonIdle, seconds(30 * time.Second)}})
	if countAct[workerSendReport](acts) != 0 || countAct[workerFlush](acts) != 1 {
		t.Errorf("after release: %v", acts)
	}
	s.step(workerReleaseCame{ch, []byte("78"), releaseParams{"s1", ReasonIdle, seconds(30 * time.Second)}}) // idempotent
	acts = s.step(workerFlushed{Report{OutputsFlushed: true}})
	if countAct[workerSendReport](acts) != 2 {
		t.Errorf("after the flush: %v", acts)
	}
	s.want(workerEnded, ExitReleased, "1:4005")
}

// REL-7: a forced release stops calls and still uploads; another waits for them.
func TestWorkerReleaseAndCalls(t *testing.T) {
	t.Parallel()
	for _, reason := range []Reason{ReasonDeadline, ReasonFailed, ReasonIdle, ReasonExplicit} {
		s := newWorkerSim(t, 0)
		ch := s.serve()
		s.step(workerCallBegan{})
		acts := s.step(workerReleaseCame{ch, []byte("1"), releaseParams{"s1", reason, 0}})
		forced := countAct[workerCancelCalls](acts) == 1 && countAct[workerFlush](acts) == 1
		if forced != reason.Forced() {
			t.Errorf("%s: forced %t", reason, forced)
		}
		if !forced && countAct[workerFlush](s.step(workerCallEnded{})) != 1 {
			t.Errorf("%s: no flush after the call", reason)
		}
	}
}

// REL-4, DL-8: the upload ends before the host's patience does (AMB-20), with
// the truth in the report.
func TestWorkerFlushDeadline(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	s.answer(ch)
	s.step(workerReleaseCame{ch, []byte("1"), releaseParams{"s1", ReasonDeadline, seconds(20 * time.Second)}})
	s.advance(18*time.Second - tick)
	s.want(workerWinding, exitNone)
	s.advance(tick)
	if r := lastAct[workerSendReport](t, s.log); r.report.OutputsFlushed {
		t.Error("a flush was invented")
	}
	s.want(workerEnded, ExitReleased, "1:4005")
}

// REL-3, AMB-19: after an accepted release there is no other dial; the exit code
// says whether anything was lost.
func TestWorkerReleaseThenLoss(t *testing.T) {
	t.Parallel()
	for flushed, want := range map[bool]ExitCode{true: ExitReleased, false: ExitTempFail} {
		s := newWorkerSim(t, 0)
		ch := s.serve()
		s.step(workerReleaseCame{ch, []byte("1"), releaseParams{"s1", ReasonIdle, 0}})
		s.step(workerClosed{ch, closeAbnormal, ""})
		s.advance(10 * time.Second)
		if n := countAct[workerDial](s.log); n != 1 {
			t.Errorf("%d dials", n)
		}
		s.step(workerFlushed{Report{OutputsFlushed: flushed}})
		s.want(workerEnded, want)
	}
}

// Heartbeats go on while the worker uploads (AMB-36).
func TestWorkerBeatsWhileWinding(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	ch := s.serve()
	s.answer(ch)
	s.step(workerReleaseCame{ch, []byte("1"), releaseParams{"s1", ReasonIdle, 0}})
	before := countAct[workerSendBeat](s.log)
	s.advance(20 * time.Second)
	if n := countAct[workerSendBeat](s.log) - before; n != 2 {
		t.Errorf("%d heartbeats in 20 s of uploading, want 2", n)
	}
}

// SIGTERM is a local release with the time that is left (AMB-31).
func TestWorkerSignalled(t *testing.T) {
	t.Parallel()
	s := newWorkerSim(t, 0)
	s.m.termination = 12 * time.Second
	s.serve()
	s.step(workerSignalled{})
	if at := s.armed[timerID{timerFlush, 0}].Sub(s.now); at != 10*time.Second {
		t.Errorf("flush within %v, want 10s", at)
	}
	s.step(workerFlushed{Report{OutputsFlushed: true}})
	s.want(workerEnded, ExitTempFail, "1:1001")
}

// VER-9, INI-12, CON-10, IDN-5: what the worker refuses for good.
func TestWorkerRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*workerHello)
		code   int64
		exit   ExitCode
		close  string
	}{
		"major":     {func(e *workerHello) { e.hello.ChannelVersion = "2.0.0" }, CodeVersionMismatch, ExitConfig, "1:4001"},
		"malformed": {func(e *workerHello) { e.hello.ChannelVersion = "one" }, CodeVersionMismatch, ExitConfig, "1:4001"},
		"shape":     {func(e *workerHello) { e.bad = errMissing }, CodeVersionMismatch, ExitConfig, "1:4001"},
		"session":   {func(e *workerHello) { e.hello.SessionID = "s2" }, CodeSessionMismatch, ExitNoPerm, "1:4002"},
	} {
		s := newWorkerSim(t, 0)
		acts := s.hello(s.connect(), c.change)
		if got := lastAct[workerRefuse](t, acts).err.Code; got != c.code {
			t.Errorf("%s: code %d, want %d", name, got, c.code)
		}
		s.want(workerEnded, c.exit, c.close)
	}
	s := newWorkerSim(t, 0)
	s.step(workerBadFrames{s.serve()})
	s.want(workerEnded, ExitConfig, "1:4006")
}

// VER-2: the nearest version of MCP, never a silent other one; the host decides.
func TestNearest(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"2025-06-18": "2025-06-18", "2025-11-25": "2025-06-18", "2026-07-28": "2025-06-18", "2025-03-26": "2025-03-26", "2024-11-05": "2025-03-26", "": "2025-03-26",
	} {
		if got := nearest([]string{"2025-06-18", "2025-03-26"}, asked); got != want {
			t.Errorf("nearest to %q is %s, want %s", asked, got, want)
		}
	}
}
