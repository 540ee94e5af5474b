package worker

import (
	"fmt"
	"time"
)

func (m *workerMachine) closed(now time.Time, e workerClosed) {
	if e.ch != m.ch || e.ch == 0 {
		return
	}
	p := e.code.Policy()
	why := fmt.Sprintf("closed with %d %s (%s)", e.code, e.reason, p.Meaning)
	if m.wind != nil {
		m.leave()
		return // the upload goes on; there is no other dial
	}
	switch {
	case p.Retry:
		m.lost(now, why)
	case p.Exit == exitSuperseded:
		// No newer connection of ours exists, so whoever the host serves is not us.
		m.leave()
		m.end(ExitTempFail, why)
	default:
		m.leave()
		m.end(p.Exit, why)
	}
}

// leave ends every wait on the connection.
func (m *workerMachine) leave() {
	for _, kind := range []timerKind{timerHandshake, timerReady, timerReadyAck, timerBeat, timerGrace} {
		m.disarm(kind, m.ch)
	}
	m.ch = 0
	m.releases = nil
	clear(m.sent)
}

// lost begins the reconnect window, unless it has begun.
func (m *workerMachine) lost(now time.Time, why string) {
	m.log("channel lost", why)
	m.leave()
	if _, armed := m.armed[timerID{timerWindow, 0}]; !armed {
		m.arm(timerWindow, 0, now.Add(m.budgets.ReconnectWindow))
	}
	m.again(now, 0)
}

// giveUp closes a connection whose host fell silent. The host takes it for a
// loss of the transport.
func (m *workerMachine) giveUp(now time.Time, budget string) {
	m.do(workerClose{m.ch, closeGoingAway, budget + "_expired"})
	if m.wind != nil {
		m.leave()
		return
	}
	m.lost(now, budget+" expired")
}

func (m *workerMachine) fired(now time.Time, id timerID) {
	if !m.armed.due(id, now) {
		return
	}
	switch id.kind {
	case timerHandshake:
		m.giveUp(now, "handshakeSeconds")
	case timerReadyAck:
		m.giveUp(now, "readyAckSeconds")
	case timerGrace:
		m.giveUp(now, "heartbeatGraceSeconds")
	case timerReady:
		m.do(workerClose{m.ch, closeGoingAway, "readySeconds_expired"})
		m.end(ExitConfig, "the executors did not stand in time")
	case timerBeat:
		m.beat(now)
	case timerBackoff:
		m.attempt++
		m.state = workerDialing
		m.do(workerDial{m.attempt})
	case timerWindow:
		m.begin(now, winding{"the reconnect window is over", ExitTempFail, closeGoingAway, true, m.budgets.ReleaseGrace})
	case timerIdle:
		m.begin(now, winding{"idle and not released", ExitTempFail, closeGoingAway, false, m.budgets.ReleaseGrace})
	case timerExec:
		m.begin(now, winding{"maxExecSeconds are over", ExitTempFail, closeGoingAway, true, m.budgets.ReleaseGrace})
	case timerFlush:
		m.do(workerCancelCalls{})
		m.finish(Report{})
	default: // a wait of hosts
	}
}

// flushTime is the part of a grace time that an upload may use: the host
// deletes the sandbox at the end of it.
func flushTime(grace time.Duration) time.Duration {
	return max(0, grace-max(time.Second, grace/10))
}

// release winds down as asked. A second one is answered by the same report.
func (m *workerMachine) release(now time.Time, e workerReleaseCame) {
	if e.ch != m.ch {
		return
	}
	switch {
	case e.release.SessionID != m.sessionID:
		m.do(workerRefuse{e.ch, e.id, sessionError(m.sessionID, e.release.SessionID)})
		return
	case !m.welcomed || m.state == workerWaiting:
		m.do(workerRefuse{e.ch, e.id, &wireError{Code: CodeSessionNotRunning, Message: "SESSION_NOT_RUNNING"}})
		return
	}
	m.released = true
	if m.flushed { // the upload is done and only the close is to come
		m.do(workerSendReport{e.ch, e.id, m.report})
		return
	}
	m.releases = append(m.releases, e.id)
	grace := m.budgets.ReleaseGrace
	if g := time.Duration(e.release.Grace); g > 0 {
		grace = min(grace, g)
	}
	m.begin(now, winding{"released: " + string(e.release.Reason), ExitReleased, CloseReleased, e.release.Reason.Forced(), flushTime(grace)})
}

// begin winds the process down: no more calls, no more dials. Heartbeats go on
// while there is a connection. A second cause can shorten the time, not give
// more.
func (m *workerMachine) begin(now time.Time, w winding) {
	at := now.Add(w.grace)
	if m.wind != nil {
		if w.force && !m.wind.force {
			m.wind.force = true
			m.do(workerCancelCalls{})
			m.flush()
		}
		if flush := (timerID{timerFlush, 0}); !m.armed[flush].IsZero() {
			m.arm(timerFlush, 0, minTime(m.armed[flush], at))
		}
		return
	}
	m.wind = &w
	m.state = workerWinding
	for _, kind := range []timerKind{timerWindow, timerBackoff, timerIdle, timerExec} {
		m.disarm(kind, 0)
	}
	for _, kind := range []timerKind{timerHandshake, timerReady, timerReadyAck} {
		m.disarm(kind, m.ch)
	}
	m.log("winding down", w.reason)
	m.arm(timerFlush, 0, at)
	if w.force {
		m.do(workerCancelCalls{})
	}
	if w.force || m.active == 0 {
		m.flush()
	}
}

func (m *workerMachine) flush() {
	if !m.flushing {
		m.flushing = true
		m.do(workerFlush{})
	}
}

// finish reports and ends.
func (m *workerMachine) finish(r Report) {
	if m.wind == nil || m.flushed {
		return
	}
	m.flushed, m.report = true, r
	m.disarm(timerFlush, 0)
	reported := false
	for _, id := range m.releases {
		m.do(workerSendReport{m.ch, id, r})
		reported = true
	}
	if m.ch != 0 {
		code, reason := m.wind.close, m.wind.reason
		if m.released {
			code, reason = CloseReleased, "released"
		}
		m.do(workerClose{m.ch, code, reason})
	}
	m.end(m.exitCode(reported), m.wind.reason)
}

// exitCode is decided here and nowhere else: a released worker ends well if its
// report was sent or its upload succeeded.
func (m *workerMachine) exitCode(reported bool) ExitCode {
	if m.released {
		if reported || m.report.OutputsFlushed {
			return ExitReleased
		}
		return ExitTempFail
	}
	return m.wind.exit
}

// end is final. Whatever is still open is closed by the driver.
func (m *workerMachine) end(code ExitCode, reason string) {
	for id := range m.armed {
		m.do(workerDisarm{id})
	}
	clear(m.armed)
	m.ch = 0
	m.state = workerEnded
	m.do(workerCancelCalls{})
	m.do(workerExit{code, reason})
}
