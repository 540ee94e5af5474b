package worker

import (
	"fmt"
	"slices"
	"time"
)

func (m *hostMachine) beat(now time.Time, e hostBeat) {
	if e.ch != m.bound {
		return
	}
	if e.beat.SessionID != m.rec.ID {
		m.do(hostRefuseBeat{e.ch, e.id, sessionError(m.rec.ID, e.beat.SessionID)})
		m.fail(FailureSession, "SESSION_MISMATCH", CloseSession)
		return
	}
	if v, err := ParseVersion(e.beat.ChannelVersion); err != nil || v.String() != m.rec.Versions.Effective {
		m.do(hostRefuseBeat{e.ch, e.id, versionError(m.rec.Versions.Effective, e.beat.ChannelVersion)})
		m.fail(FailureVersion, fmt.Sprintf("host computed %s, worker %s", m.rec.Versions.Effective, e.beat.ChannelVersion), CloseVersion)
		return
	}
	m.rec.Beat, m.rec.LastBeat = e.beat, now
	busy := m.active > 0 || e.beat.ActiveToolCalls > 0
	wind := m.windDown && !busy && m.rec.State == StateRunning
	m.do(hostAnswerBeat{e.ch, e.id, heartbeatResult{!wind, seconds(m.rec.IdleBudget), seconds(m.rec.ExecBudget)}})
	if m.rec.State != StateRunning {
		return // answered, but nothing is armed before running or while releasing
	}
	if wind {
		m.beginRelease(now, ReasonExplicit)
		return
	}
	m.arm(timerHeartbeat, e.ch, now.Add(m.silence()))
	m.retime(now, e.beat, busy)
	if m.draining && (!busy || !now.Before(m.drainEnd.Add(-m.rec.Profile.Budgets.HeartbeatInterval))) {
		m.handOver(now)
	}
}

// retime moves the two clocks of the host by the numbers of the worker, which
// alone measures them.
func (m *hostMachine) retime(now time.Time, b Heartbeat, busy bool) {
	if at := now.Add(m.execLimit() - b.Exec); at.Before(m.rec.Deadline.Exec) {
		m.rec.Deadline.Exec = at
		m.arm(timerExec, 0, at)
	}
	if busy {
		m.disarm(timerIdle, 0)
		return
	}
	m.arm(timerIdle, 0, now.Add(max(0, m.rec.IdleBudget-b.Idle)))
}

// release asks the worker to end, now or when the calls are done.
func (m *hostMachine) release(now time.Time, reason Reason) {
	if m.rec.State == StateReleasing {
		return
	}
	if m.active > 0 && !reason.Forced() {
		m.pending = reason
		return
	}
	never := m.rec.InstanceID == ""
	m.beginRelease(now, reason)
	switch {
	case never:
		m.released() // there is no worker that could report
	case m.bound != 0:
		m.do(hostSendRelease{m.bound, reason, m.rec.Profile.Budgets.ReleaseGrace})
	}
}

// beginRelease leaves one wait armed: for the report.
func (m *hostMachine) beginRelease(now time.Time, reason Reason) {
	m.rec.State, m.rec.Release, m.pending = StateReleasing, reason, ""
	for _, kind := range []timerKind{timerReady, timerHeartbeat, timerDrain} {
		m.disarm(kind, m.bound)
	}
	for _, kind := range []timerKind{timerIdle, timerExec, timerReconnect, timerDial, timerOuter} {
		m.disarm(kind, 0)
	}
	m.rec.Deadline = Deadlines{Release: now.Add(m.rec.Profile.Budgets.ReleaseGrace)}
	m.arm(timerRelease, 0, m.rec.Deadline.Release)
	m.audit("releasing", "%s", reason)
}

func (m *hostMachine) reported(now time.Time, e hostReported) {
	if e.ch != m.bound || m.rec.State != StateReleasing || m.rec.Reported {
		return
	}
	m.rec.Reported = true
	m.rec.OutputsFlushed, m.rec.Outputs = e.report.OutputsFlushed, slices.Clone(e.report.Outputs)
	m.disarm(timerRelease, 0)
	m.arm(timerClosing, e.ch, now.Add(closeTimeout))
}

// released is the good end.
func (m *hostMachine) released() {
	m.end(StateReleased, CloseReleased, "released")
	m.audit("released", "outputs flushed: %t", m.rec.OutputsFlushed)
}

// fail is the bad end. It closes every connection with the code.
func (m *hostMachine) fail(f Failure, detail string, code CloseCode) {
	m.rec.Failure, m.rec.Detail = f, detail
	reason := string(f)
	if detail != "" {
		reason += ": " + detail
	}
	m.end(StateFailed, code, reason)
	m.audit("failed", "%s", reason)
}

func (m *hostMachine) end(s State, code CloseCode, reason string) {
	m.closeAll(code, reason)
	m.disarmAll()
	m.rec.State, m.rec.Deadline, m.rec.Tools = s, Deadlines{}, nil
	m.do(hostTeardown{})
}

func (m *hostMachine) closeAll(code CloseCode, reason string) {
	for _, c := range slices.Clone(m.candidates) {
		m.do(hostClose{c.ch, code, reason})
		m.drop(c.ch)
	}
	if m.bound != 0 {
		m.do(hostClose{m.bound, code, reason})
		m.unbind()
	}
}

func (m *hostMachine) disarmAll() {
	for id := range m.armed {
		m.do(hostDisarm{id})
	}
	clear(m.armed)
}

// forget leaves the session to another host.
func (m *hostMachine) forget() {
	m.disarmAll()
	m.gone = true
	m.do(hostForget{})
}

func (m *hostMachine) badFrames(now time.Time, ch channelID) {
	const why = "too many broken frames"
	switch {
	case ch == m.bound && ch != 0:
		m.fail(FailureFrames, why, CloseBadFrames)
	case m.isCandidate(ch):
		m.refuse(now, ch, CloseBadFrames, why, FailureFrames)
	}
}

// closed takes the end of a connection. Of the codes that a worker sends, only
// "released" and "bad frames" mean more than that the transport is lost.
func (m *hostMachine) closed(now time.Time, ch channelID, code CloseCode) {
	if m.isCandidate(ch) {
		m.drop(ch)
		if code.unreadable() && m.rec.InstanceID == "" {
			m.fail(FailureFrames, "the worker could not read our frames", CloseBadFrames)
			return
		}
		m.candidateGone(now)
		return
	}
	if ch != m.bound || ch == 0 {
		return
	}
	switch {
	case code.unreadable():
		m.unbind()
		m.fail(FailureFrames, "the worker could not read our frames", CloseBadFrames)
	case m.rec.State == StateReleasing && (m.rec.Reported || code == CloseReleased):
		m.unbind()
		m.released()
	case m.rec.State == StateReleasing:
		m.unbind() // its report may yet come on another connection
	case code == CloseReleased:
		m.unbind()
		m.fail(FailureExited, "the worker ended without a release", CloseSession)
	default:
		m.lost(now)
	}
}

// lost is the session without its connection.
func (m *hostMachine) lost(now time.Time) {
	m.unbind()
	m.audit("lost", "no connection")
	m.rec.State = StateHandshaking
	if m.rec.EverRan {
		m.rec.State = StateDetached
		m.rec.Deadline.Reconnect = now.Add(m.reconnectWait())
	}
	if m.draining {
		m.closeAll(CloseDraining, "the host is draining")
	}
	m.candidateGone(now)
	if m.draining {
		m.forget()
	}
}

// candidateGone arms what a session without any connection waits for.
func (m *hostMachine) candidateGone(now time.Time) {
	if m.bound != 0 || len(m.candidates) > 0 || m.rec.State == StateReleasing {
		return
	}
	if !m.rec.EverRan {
		m.rec.State = StateAwaitingDial // only the outer bound is armed
		return
	}
	m.rec.State = StateDetached
	at := m.rec.Deadline.Reconnect
	if at.IsZero() {
		at = now.Add(m.reconnectWait())
		m.rec.Deadline.Reconnect = at
	}
	m.arm(timerReconnect, 0, at)
}

// drain gives the session up to another host: at once if nothing is under way,
// as the answer to a heartbeat if it runs, which spreads the dials that follow. One
// whose calls go on leaves with the last heartbeat before the drain budget ends:
// that spreads these dials too.
func (m *hostMachine) drain(now time.Time) {
	m.draining = true
	switch m.rec.State {
	case StateReleasing: // its end is near and bounded
	case StateRunning:
		m.drainEnd = now.Add(m.patience)
		m.arm(timerDrain, m.bound, m.drainEnd)
	default:
		m.closeAll(CloseDraining, "the host is draining")
		m.candidateGone(now)
		m.forget()
	}
}

func (m *hostMachine) handOver(now time.Time) {
	m.audit("drained", "the worker is sent to another host")
	m.closeAll(CloseDraining, "the host is draining")
	m.rec.State = StateDetached
	m.rec.Deadline.Reconnect = now.Add(m.reconnectWait())
	m.forget()
}

func (m *hostMachine) fired(now time.Time, id timerID) {
	at := m.armed[id]
	if !m.armed.due(id, now) || m.stalled(now, id, now.Sub(at)) {
		return
	}
	switch id.kind {
	case timerDial:
		m.fail(FailureDial, "nobody dialed", CloseStartup)
	case timerOuter:
		m.fail(m.startupFailure(), "never became usable", CloseStartup)
	case timerHandshake:
		m.handshakeExpired(now, id.channel)
	case timerReady:
		m.fail(FailureReady, "", CloseStartup)
	case timerHeartbeat:
		m.fail(FailureHeartbeat, "", CloseHeartbeat)
	case timerReconnect:
		m.fail(FailureLost, "the worker did not come back", CloseHeartbeat)
	case timerRelease:
		m.released() // without a report: outputsFlushed stays false
	case timerClosing:
		m.released()
	case timerIdle:
		if m.active == 0 {
			m.release(now, ReasonIdle)
		}
	case timerExec:
		m.execExpired(now)
	case timerDrain:
		m.handOver(now)
	default: // a wait of workers
	}
}

// stallTime is how late a timer must be for us to know that it was we who did not
// run: the process was stopped, or the machine slept. A busy machine is late by
// less.
const stallTime = 500 * time.Millisecond

// stalled gives a worker another chance when a wait on it passed while this
// process did not run: what it said meanwhile lies unread, and that it said
// nothing is not known. Each time takes a stall of ours, so nothing waits for
// ever.
func (m *hostMachine) stalled(now time.Time, id timerID, late time.Duration) bool {
	if late < stallTime {
		return false
	}
	b := m.rec.Profile.Budgets
	var more time.Duration
	switch id.kind {
	case timerHeartbeat:
		more = m.silence()
	case timerHandshake:
		more = 2 * b.Handshake
	case timerReady:
		more = b.Ready
	case timerDial, timerOuter, timerReconnect:
		more = m.reconnectWait()
	case timerRelease:
		more = closeTimeout
	default:
		return false
	}
	m.audit("stalled", "%s was %s late", id.kind, late.Round(time.Second))
	m.arm(id.kind, id.channel, now.Add(more))
	if id.kind == timerReconnect {
		m.rec.Deadline.Reconnect = now.Add(more)
	}
	return true
}

// startupFailure names the wait that the outer bound cut short.
func (m *hostMachine) startupFailure() Failure {
	switch m.rec.State {
	case StateHandshaking:
		return FailureHandshake
	case StateReadying:
		return FailureReady
	default:
		return FailureDial
	}
}

// handshakeExpired ends the session only if the connection was its hope: the
// newest, and none is bound.
func (m *hostMachine) handshakeExpired(now time.Time, ch channelID) {
	newest := len(m.candidates) > 0 && m.candidates[len(m.candidates)-1].ch == ch
	if newest && m.bound == 0 && m.rec.State != StateReleasing {
		m.fail(FailureHandshake, "", CloseStartup)
		return
	}
	m.audit("refused", "handshake of a further connection timed out")
	m.do(hostClose{ch, CloseStartup, "handshake_timeout"})
	m.drop(ch)
	m.candidateGone(now)
}

func (m *hostMachine) execExpired(now time.Time) {
	if m.bound != 0 {
		m.release(now, ReasonDeadline)
		return
	}
	m.fail(FailureDeadline, "no connection to release it over", CloseStartup)
}
