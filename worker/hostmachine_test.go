package worker

import (
	"testing"
	"time"
)

const tick = time.Millisecond

// DL-1, DL-12, VER-7: nobody dials.
func TestHostDialDeadline(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.advance(120*time.Second - tick)
	s.want(StateAwaitingDial, "")
	s.advance(tick)
	s.want(StateFailed, FailureDial)
	if countOf[hostTeardown](s.log) != 1 {
		t.Error("a failed session was not torn down once")
	}
}

// DL-3, DL-14, FRM-1: the handshake has twice the worker's budget on the host.
func TestHostHandshakeDeadline(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.advance(7 * time.Second)
	s.dial()
	s.advance(20*time.Second - tick)
	s.want(StateHandshaking, "")
	s.advance(tick)
	s.want(StateFailed, FailureHandshake, "1:4003")
}

// DL-4, RDY-7, RDY-8, INI-14, FRM-2: ready never comes, or tools/list is never
// answered; the wait begins where the handshake ended.
func TestHostReadyDeadline(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		s := newHostSim(t, nil)
		ch := s.dial()
		s.advance(19 * time.Second)
		s.answer(ch, "i", 0)
		if ready {
			s.advance(10 * time.Second)
			s.ready(ch)
			s.advance(20*time.Second - tick)
		} else {
			s.advance(30*time.Second - tick)
		}
		s.want(StateReadying, "")
		s.advance(tick)
		s.want(StateFailed, FailureReady, "1:4003")
	}
}

// RDY-5, RDY-4: ready is not running; running begins with the answer to
// tools/list, which acknowledges ready.
func TestHostReadyIsNotRunning(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.dial()
	if acts := s.answer(ch, "i", 0); countOf[hostSendList](acts) != 0 || countOf[hostSendInitialized](acts) != 1 {
		t.Errorf("after the answer to initialize: %v", acts)
	}
	acts := s.step(hostReady{ch, "s1", []string{"file", "exec", "more"}})
	if countOf[hostSendList](acts) != 1 {
		t.Errorf("ready was not acknowledged: %v", acts)
	}
	s.want(StateReadying, "")
	s.list(ch)
	s.want(StateRunning, "")
}

// RDY-3: what the worker resolved is compared before the first call.
func TestHostComparesTools(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.dial()
	s.answer(ch, "i", 0)
	s.step(hostReady{ch, "s1", []string{"exec"}})
	s.want(StateFailed, FailureTools, "1:4003")

	s = newHostSim(t, nil)
	ch = s.dial()
	s.answer(ch, "i", 0)
	s.ready(ch)
	acts := s.step(hostListed{ch, []string{"exec", "file", "steal"}})
	if got := lastOf[hostRegister](t, acts); len(got.tools) != 2 || countOf[hostAudit](acts) == 0 {
		t.Errorf("registered %v, audit of the extra tool: %d", got.tools, countOf[hostAudit](acts))
	}
}

// DL-16, DL-17: dials without end do not extend the outer bound.
func TestHostOuterBound(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	for s.now.Before(s.begun.Add(168 * time.Second)) {
		ch := s.dial()
		s.advance(time.Second)
		s.step(hostClosed{ch, closeAbnormal})
	}
	s.advance(170*time.Second - s.now.Sub(s.begun) - tick)
	s.want(StateAwaitingDial, "")
	s.advance(tick)
	s.want(StateFailed, FailureDial)
}

// DL-15, ONE-1: a repeat dial starts its waits anew, and the timer of a dead
// socket does nothing.
func TestHostRepeatDial(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	first := s.dial()
	s.advance(15 * time.Second)
	s.step(hostClosed{first, closeAbnormal})
	second := s.dial()
	s.advance(10 * time.Second) // 25 s after the first socket opened
	s.want(StateHandshaking, "")
	s.answer(second, "i", 1)
	s.advance(29 * time.Second)
	s.want(StateReadying, "")
	s.ready(second)
	s.list(second)
	s.want(StateRunning, "")
}

// HB-10, DL-7, FRM-3, CC-4: the host bears one interval more than the worker.
func TestHostHeartbeatDeadline(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	s.beat(ch, 0)
	s.advance(10 * time.Second)
	s.beat(ch, 0)
	s.advance(40*time.Second - tick)
	s.want(StateRunning, "")
	s.advance(tick)
	s.want(StateFailed, FailureHeartbeat, "1:4004")
}

// A heartbeat before running is answered and arms nothing (AMB-4).
func TestHostEarlyHeartbeat(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.dial()
	s.answer(ch, "i", 0)
	if acts := s.beat(ch, 0); countOf[hostAnswerBeat](acts) != 1 || countOf[hostArm](acts) != 0 {
		t.Errorf("early heartbeat: %v", acts)
	}
}

// HB-3, HB-7, HB-8: budgets in the answer fall and never rise above the ceiling.
func TestHostHeartbeatAnswer(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	got := lastOf[hostAnswerBeat](t, s.beat(ch, 0)).result
	if want := (heartbeatResult{true, seconds(90 * time.Second), seconds(900 * time.Second)}); got != want {
		t.Errorf("answer %+v, want %+v", got, want)
	}
	s.step(hostBudgets{idle: time.Hour, exec: time.Hour})
	s.step(hostBudgets{exec: 100 * time.Second})
	s.step(hostBudgets{exec: 500 * time.Second})
	got = lastOf[hostAnswerBeat](t, s.beat(ch, 0)).result
	if want := (heartbeatResult{true, seconds(90 * time.Second), seconds(100 * time.Second)}); got != want {
		t.Errorf("answer %+v, want %+v", got, want)
	}
	s.step(hostWindDown{})
	if got := lastOf[hostAnswerBeat](t, s.beat(ch, 0)).result; got.Continue {
		t.Error("continue was true after a wind-down")
	}
	s.step(hostClosed{ch, CloseReleased})
	s.want(StateReleased, "")
}

// HB-5, DL-10, HB-6: an hour of heartbeats is no activity.
func TestHostReapsIdle(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, func(p *Profile) { p.Budgets.MaxExec = 2 * time.Hour })
	ch := s.run("i", 0)
	for s.m.rec.State == StateRunning && s.now.Before(s.begun.Add(time.Hour)) {
		s.beat(ch, s.now.Sub(s.begun))
		s.advance(10 * time.Second)
	}
	if got := lastOf[hostSendRelease](t, s.log); got.reason != ReasonIdle || s.m.rec.State != StateReleasing {
		t.Errorf("release for %s, state %s", got.reason, s.m.rec.State)
	}
	if at := s.m.rec.Deadline.Release.Sub(s.begun) - 30*time.Second; at != 90*time.Second {
		t.Errorf("released after %v of idling, want 90s", at)
	}
}

// HB-6: the clock of idling is the worker's number and nobody else's.
func TestHostBelievesIdleOfWorker(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	for range 20 {
		s.beat(ch, 5*time.Second)
		s.advance(10 * time.Second)
	}
	s.want(StateRunning, "")
}

// REL-1, REL-2, REL-3, CC-5: a release, its report, the worker's close.
func TestHostRelease(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	rel := lastOf[hostSendRelease](t, s.step(hostReleaseAsked{ReasonExplicit}))
	if rel.grace != 30*time.Second || rel.reason != ReasonExplicit {
		t.Errorf("release %+v", rel)
	}
	s.advance(5 * time.Second)
	s.step(hostReported{ch, Report{OutputsFlushed: true, Outputs: []Output{{URI: "store://art_1"}}}})
	s.step(hostClosed{ch, CloseReleased})
	s.want(StateReleased, "")
	if !s.m.rec.OutputsFlushed || len(s.m.rec.Outputs) != 1 {
		t.Errorf("record %+v", s.m.rec)
	}
}

// REL-4, DL-8, FRM-4, REL-6: no report; the sandbox goes anyway, and what was
// lost is on record. Heartbeats do not lengthen the wait, and nothing else is
// armed.
func TestHostReleaseDeadline(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	s.step(hostReleaseAsked{ReasonExplicit})
	s.advance(20 * time.Second)
	s.beat(ch, 0)
	if len(s.armed) != 1 {
		t.Errorf("armed while releasing: %v", s.armed)
	}
	s.advance(10*time.Second - tick)
	s.want(StateReleasing, "")
	s.advance(tick)
	s.want(StateReleased, "", "1:4005")
	if s.m.rec.OutputsFlushed || s.m.rec.Reported {
		t.Error("a flush was invented")
	}
}

// REL-7: a release waits for calls, unless it is forced.
func TestHostReleaseWaitsForCalls(t *testing.T) {
	t.Parallel()
	for reason, waits := range map[Reason]bool{ReasonIdle: true, ReasonExplicit: true, ReasonDeadline: false, ReasonFailed: false} {
		s := newHostSim(t, nil)
		s.run("i", 0)
		s.step(hostCallBegan{})
		acts := s.step(hostReleaseAsked{reason})
		if got := countOf[hostSendRelease](acts) == 0; got != waits {
			t.Errorf("%s: waits %t, want %t", reason, got, waits)
		}
		if acts := s.step(hostCallEnded{}); waits && countOf[hostSendRelease](acts) != 1 {
			t.Errorf("%s: no release after the call: %v", reason, acts)
		}
	}
}

// DL-11: the deadline is announced early enough for the flush.
func TestHostExecDeadline(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, func(p *Profile) { p.Budgets.Idle = 800 * time.Second })
	ch := s.run("i", 0)
	for s.m.rec.State == StateRunning && s.now.Before(s.begun.Add(2000*time.Second)) {
		exec := s.now.Sub(s.begun) + 50*time.Second // the process is 50 s older than running
		s.step(hostBeat{ch, []byte("1"), Heartbeat{SessionID: "s1", ChannelVersion: ChannelVersion, Exec: exec, ActiveToolCalls: 1}})
		s.advance(10 * time.Second)
	}
	if got := lastOf[hostSendRelease](t, s.log); got.reason != ReasonDeadline {
		t.Errorf("reason %s", got.reason)
	}
	if at := s.m.rec.Deadline.Release.Sub(s.begun); at != 850*time.Second {
		t.Errorf("the grace ends at %v, want 850s: when the process is 900 s old", at)
	}
}

// ONE-4, CC-8, RC-4, RC-7, ONE-8: the same process, a later attempt, while the
// old connection looks alive: it takes over and the tools are listed again.
func TestHostTakeover(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.run("i", 0)
	s.advance(35 * time.Second) // half-open: the worker gave up, the host not yet
	second := s.dial()
	s.want(StateRunning, "")
	s.answer(second, "i", 1)
	s.want(StateReadying, "", "1:4009")
	s.ready(second)
	acts := s.step(hostListed{second, []string{"file", "exec"}})
	if got := lastOf[hostRegister](t, acts).tools; len(got) != 2 || got[0] != "file" {
		t.Errorf("tool set %v was not replaced", got)
	}
	s.want(StateRunning, "", "1:4009")
}

// ONE-5, ONE-6, CC-2: a stale attempt and another process are refused, and the
// live session is unharmed.
func TestHostRefusesCandidates(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]welcome{
		"equal attempt":   {"s1", ChannelVersion, "i", 3},
		"lower attempt":   {"s1", ChannelVersion, "i", 2},
		"another process": {"s1", ChannelVersion, "j", 9},
		"another session": {"s2", ChannelVersion, "i", 9},
	} {
		s := newHostSim(t, nil)
		live := s.run("i", 3)
		ch := s.dial()
		acts := s.step(hostAnswered{ch, MCPVersion, implementation{}, w})
		s.want(StateRunning, "", "2:4002")
		if (name == "another session") != (countOf[hostSendError](acts) == 1) {
			t.Errorf("%s: %v", name, acts)
		}
		if s.m.bound != live {
			t.Errorf("%s: bound to %d", name, s.m.bound)
		}
	}
}

// ONE-9, ONE-6: a candidate that says nothing harms nobody.
func TestHostSilentCandidate(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	live := s.run("i", 0)
	s.dial()
	for range 3 {
		s.advance(10 * time.Second)
		s.beat(live, 0)
	}
	s.want(StateRunning, "", "2:4003")
}

// IDN-3, ERR-1: the first worker contradicts its token.
func TestHostSessionMismatch(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.dial()
	acts := s.step(hostAnswered{ch, MCPVersion, implementation{}, welcome{"s2", ChannelVersion, "i", 0}})
	if e := lastOf[hostSendError](t, acts); e.err.Code != CodeSessionMismatch {
		t.Errorf("error %v", e.err)
	}
	s.want(StateFailed, FailureSession, "1:4002")
}

// IDN-5: ready and heartbeat name the session too.
func TestHostLaterMismatch(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.dial()
	s.answer(ch, "i", 0)
	s.step(hostReady{ch, "s2", []string{"exec", "file"}})
	s.want(StateFailed, FailureSession, "1:4002")

	s = newHostSim(t, nil)
	ch = s.run("i", 0)
	s.step(hostBeat{ch, []byte("1"), Heartbeat{SessionID: "s2", ChannelVersion: ChannelVersion}})
	s.want(StateFailed, FailureSession, "1:4002")
}

// VER-2, VER-6, VER-8, CC-1: a version that the host does not speak; both are
// recorded.
func TestHostVersionRefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mcp, channel string }{
		{"2024-11-05", ChannelVersion},
		{"2025-03-26", ChannelVersion},
		{"2025-11-25", ChannelVersion},
		{"2026-07-28", ChannelVersion},
		{MCPVersion, "2.0.0"},
		{MCPVersion, "1.x"},
		{MCPVersion, ""},
	} {
		s := newHostSim(t, nil)
		ch := s.dial()
		s.step(hostAnswered{ch, c.mcp, implementation{WorkerName, "img:9"}, welcome{"s1", c.channel, "i", 0}})
		s.want(StateFailed, FailureVersion, "1:4001")
		v := s.m.rec.Versions
		if v.Host != ChannelVersion || v.Worker != c.channel || v.MCP != c.mcp || v.HostImage != "api:1" || v.WorkerImage != "img:9" {
			t.Errorf("versions on record: %+v", v)
		}
		if s.m.rec.Detail == "" {
			t.Error("the refusal has no values")
		}
	}
}

// VER-3, VER-4, HB-12: both sides compute the smaller minor; a heartbeat with
// another number is refused.
func TestHostChecksEffectiveVersion(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.dial()
	s.step(hostAnswered{ch, MCPVersion, implementation{}, welcome{"s1", "1.0.7+build", "i", 0}})
	s.ready(ch)
	s.list(ch)
	if got := s.m.rec.Versions.Effective; got != "1.0.7" {
		t.Fatalf("effective %s", got)
	}
	s.beat(ch, 0)
	s.want(StateRunning, "")
	acts := s.step(hostBeat{ch, []byte("7"), Heartbeat{SessionID: "s1", ChannelVersion: ChannelVersion}})
	if e := lastOf[hostRefuseBeat](t, acts); e.err.Code != CodeVersionMismatch || string(e.id) != "7" {
		t.Errorf("refused with %+v", e)
	}
	s.want(StateFailed, FailureVersion, "1:4001")
}

// CON-10, CC-6: broken frames end the session, or only the stranger.
func TestHostBadFrames(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.step(hostBadFrames{s.run("i", 0)})
	s.want(StateFailed, FailureFrames, "1:4006")

	s = newHostSim(t, nil)
	s.run("i", 0)
	s.step(hostBadFrames{s.dial()})
	s.want(StateRunning, "", "2:4006")

	s = newHostSim(t, nil)
	s.step(hostClosed{s.run("i", 0), CloseBadFrames})
	s.want(StateFailed, FailureFrames)
}

// RC-1, CON-3: after a loss the host waits for the worker's whole window and its
// longest pause (AMB-2), and only for that.
func TestHostDetached(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	s.step(hostClosed{ch, closeAbnormal})
	s.advance(70*time.Second - tick)
	s.want(StateDetached, "")
	s.advance(tick)
	s.want(StateFailed, FailureLost)

	s = newHostSim(t, nil)
	s.step(hostClosed{s.run("i", 0), closeAbnormal})
	s.advance(65 * time.Second)
	second := s.dial()
	s.advance(15 * time.Second) // past the window: the handshake's own wait governs
	s.want(StateDetached, "")
	s.answer(second, "i", 1)
	s.ready(second)
	s.list(second)
	s.want(StateRunning, "")
}

// Every close of a worker but 4005 and 4006 is a loss of the transport (AMB-29).
func TestHostReadsWorkerCloses(t *testing.T) {
	t.Parallel()
	for _, code := range []CloseCode{closeNormal, closeGoingAway, closeAbnormal, closeInternal, CloseVersion, CloseSession, CloseHeartbeat, CloseDraining, 4007, 4999} {
		s := newHostSim(t, nil)
		s.step(hostClosed{s.run("i", 0), code})
		s.want(StateDetached, "")
	}
	s := newHostSim(t, nil)
	s.step(hostClosed{s.run("i", 0), CloseReleased})
	s.want(StateFailed, FailureExited)
}

// CC-7, RC-6: a draining host sends the worker away as the answer to a
// heartbeat, when no call runs, or when its patience ends.
func TestHostDrain(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	ch := s.run("i", 0)
	s.step(hostDrain{})
	s.want(StateRunning, "")
	s.advance(3 * time.Second)
	acts := s.beat(ch, 0)
	if countOf[hostAnswerBeat](acts) != 1 {
		t.Error("the heartbeat was not answered")
	}
	s.want(StateDetached, "", "1:4008")
	if countOf[hostForget](acts) != 1 || len(s.armed) != 0 {
		t.Errorf("still holds the session: %v", s.armed)
	}

	s = newHostSim(t, nil)
	ch = s.run("i", 0)
	s.step(hostCallBegan{})
	s.step(hostDrain{})
	s.beat(ch, 0)
	s.want(StateRunning, "")
	s.advance(20 * time.Second)
	s.want(StateDetached, "", "1:4008")

	// AMB-16, AMB-40: sessions that are busy all the time leave with their
	// heartbeats as well, not all at the end of the budget.
	s = newHostSim(t, nil)
	ch = s.run("i", 0)
	s.step(hostCallBegan{})
	s.step(hostDrain{})
	s.advance(9 * time.Second)
	s.beat(ch, 0)
	s.want(StateRunning, "")
	s.advance(2 * time.Second)
	s.beat(ch, 0)
	s.want(StateDetached, "", "1:4008")
}

// A release that was asked for while the worker was away reaches it when it is
// back (AMB-19).
func TestHostReleaseWhileDetached(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.step(hostClosed{s.run("i", 0), closeAbnormal})
	s.step(hostReleaseAsked{ReasonExplicit})
	s.advance(10 * time.Second)
	second := s.dial()
	acts := s.answer(second, "i", 1)
	if got := lastOf[hostSendRelease](t, acts); got.grace != 20*time.Second {
		t.Errorf("grace %v, want what is left", got.grace)
	}
	s.step(hostReported{second, Report{OutputsFlushed: true}})
	s.advance(2 * time.Second) // the worker does not close
	s.want(StateReleased, "", "2:4005")
}

// A host that did not run itself, stopped or asleep, holds no silence against a
// worker: it hears first what lies unread. A worker that is silent then is ended
// all the same.
func TestHostThaws(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reach   func(s *hostSim) channelID
		timer   func(ch channelID) timerID
		failure Failure
		more    time.Duration
	}{
		"heartbeat": {func(s *hostSim) channelID { return s.run("i", 0) }, func(ch channelID) timerID { return timerID{timerHeartbeat, ch} }, FailureHeartbeat, 40 * time.Second},
		"handshake": {func(s *hostSim) channelID { return s.dial() }, func(ch channelID) timerID { return timerID{timerHandshake, ch} }, FailureHandshake, 20 * time.Second},
		"dial":      {func(*hostSim) channelID { return 0 }, func(channelID) timerID { return timerID{timerDial, 0} }, FailureDial, 70 * time.Second},
		"reconnect": {func(s *hostSim) channelID {
			s.step(hostClosed{s.run("i", 0), closeAbnormal})
			return 0
		}, func(channelID) timerID { return timerID{timerReconnect, 0} }, FailureLost, 70 * time.Second},
	} {
		s := newHostSim(t, nil)
		ch := c.reach(s)
		id := c.timer(ch)
		s.now = s.armed[id].Add(5 * time.Minute) // stopped, with everything
		delete(s.armed, id)
		s.step(hostFired{id})
		if s.m.rec.State.Final() {
			t.Errorf("%s: failed for a silence that was ours", name)
			continue
		}
		if at := s.armed[id].Sub(s.now); at != c.more {
			t.Errorf("%s: waits %v more, want %v", name, at, c.more)
		}
		for other := range s.armed { // those that are late too are not the point here
			if other != id {
				delete(s.armed, other)
				delete(s.m.armed, other)
			}
		}
		s.advance(c.more)
		if s.m.rec.Failure != c.failure {
			t.Errorf("%s: %s after the chance", name, s.m.rec.Failure)
		}
	}
}

// A sandbox that ends by itself fails its session at once and with the reason,
// and one that was asked to end has done so.
func TestHostSandboxExited(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.step(hostExited{"exit code 1"})
	s.want(StateFailed, FailureExited)
	if s.m.rec.Detail != "exit code 1" {
		t.Errorf("detail %q", s.m.rec.Detail)
	}
	s = newHostSim(t, nil)
	s.run("i", 0)
	s.step(hostReleaseAsked{ReasonExplicit})
	s.step(hostExited{"exit code 0"})
	s.want(StateReleased, "", "1:4005")
}

// A sandbox that somebody wants to end at once is killed, which is no fault, in every
// state, unless it has handed over all that it had.
func TestHostSandboxKilled(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*hostSim){
		"before any dial":    func(*hostSim) {},
		"running":            func(s *hostSim) { s.run("i", 0) },
		"while it is ending": func(s *hostSim) { s.run("i", 0); s.step(hostReleaseAsked{ReasonExplicit}) },
	} {
		s := newHostSim(t, nil)
		before(s)
		s.step(hostKilled{"it misbehaves"})
		if r := s.m.rec; r.State != StateFailed || r.Failure != FailureKilled || r.Detail != "it misbehaves" {
			t.Errorf("%s: %s %s %q", name, r.State, r.Failure, r.Detail)
		}
		s.step(hostExited{"signal: killed"})
		if r := s.m.rec; r.Failure != FailureKilled {
			t.Errorf("%s, then: %s", name, r.Failure)
		}
	}
}

// A session of which nobody came is released at once.
func TestHostReleaseBeforeAnything(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.step(hostReleaseAsked{ReasonExplicit})
	s.want(StateReleased, "")
}

// A host that takes a record over goes on with its absolute deadlines (AMB-21).
func TestHostResumes(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.step(hostClosed{s.run("i", 4), closeAbnormal})
	s.advance(30 * time.Second)
	m, acts := newHostMachine(s.m.rec, "api:2", []string{MCPVersion}, s.now)
	if at := m.armed[timerID{timerReconnect, 0}]; at.Sub(s.now) != 40*time.Second || countOf[hostArm](acts) != 2 {
		t.Errorf("resumed with %v", m.armed)
	}
	if ok, _ := m.judge(welcome{"s1", ChannelVersion, "i", 4}); ok {
		t.Error("the rule of attempts was forgotten")
	}
}

// VER-1, VER-8: an upgrade of another major fails a session that nobody served.
func TestHostMajorRefusal(t *testing.T) {
	t.Parallel()
	s := newHostSim(t, nil)
	s.step(hostVersion{"agentfy.worker.v1", "agentfy.worker.v3"})
	s.want(StateFailed, FailureVersion)
	s = newHostSim(t, nil)
	s.run("i", 0)
	s.step(hostVersion{"agentfy.worker.v1", "agentfy.worker.v3"})
	s.want(StateRunning, "")
}
