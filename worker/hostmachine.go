package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// hostMachine decides for one session of the host. It has no clock, no socket
// and no lock: step takes the time and an event and returns what to do. Whoever
// drives it calls it from one goroutine at a time.
//
// A connection begins as a candidate, which has no rights until the answer to
// its initialize was judged: then it is bound, or refused without harm to the
// one that is. Before the session first runs, exactly one of the three start-up
// waits is armed (dial, handshake of the newest candidate, ready), or none while
// a worker that was lost may dial again; the outer bound covers them all.
type hostMachine struct {
	rec        Record
	image      string
	mcp        []string // acceptable versions of MCP
	channels   []string // ours, one of each major; nil is ChannelVersion
	bound      channelID
	ready      bool // the bound worker said ready
	candidates []candidate
	majors     map[channelID]int
	armed      timers
	active     int    // calls under way
	pending    Reason // a release that waits for them
	windDown   bool
	draining   bool
	patience   time.Duration // with calls, while draining
	drainEnd   time.Time     // when a session that is busy all the time must go
	gone       bool          // the session is another host's
	out        []hostAction
}

type candidate struct{ ch channelID }

// newHostMachine resumes a record, as new or as another process left it, and
// returns the waits to arm.
func newHostMachine(rec Record, image string, mcp []string, now time.Time) (*hostMachine, []hostAction) {
	m := &hostMachine{rec: rec.clone(), image: image, mcp: mcp, armed: timers{}, majors: map[channelID]int{}, patience: DefaultDrainBudget}
	m.rec.Versions.Host, m.rec.Versions.HostImage = ChannelVersion, image
	switch rec.State {
	case StateReleased, StateFailed:
		return m, nil
	case StateReleasing:
		m.arm(timerRelease, 0, rec.Deadline.Release)
	default:
		m.resume(now)
	}
	return m, m.take()
}

// resume arms what a session without a connection waits for.
func (m *hostMachine) resume(now time.Time) {
	d := m.rec.Deadline
	if m.rec.EverRan {
		m.rec.State = StateDetached
		if d.Reconnect.IsZero() {
			m.rec.Deadline.Reconnect = now.Add(m.reconnectWait())
		}
		m.arm(timerReconnect, 0, m.rec.Deadline.Reconnect)
		m.arm(timerExec, 0, d.Exec)
		return
	}
	m.rec.State = StateAwaitingDial
	m.arm(timerOuter, 0, d.Outer)
	m.arm(timerDial, 0, d.Dial)
}

// reconnectWait is how long a lost session waits: the worker's window, and the
// longest pause that the worker may be in when the window ends.
func (m *hostMachine) reconnectWait() time.Duration {
	return m.rec.Profile.Budgets.ReconnectWindow + backoffMost
}

func (m *hostMachine) take() []hostAction {
	out := m.out
	m.out = nil
	return out
}

func (m *hostMachine) do(a hostAction) { m.out = append(m.out, a) }

func (m *hostMachine) audit(event, format string, args ...any) {
	m.do(hostAudit{event, fmt.Sprintf(format, args...)})
}

// arm starts a wait, or moves it. A zero time arms nothing.
func (m *hostMachine) arm(kind timerKind, ch channelID, at time.Time) {
	if at.IsZero() {
		return
	}
	id := timerID{kind, ch}
	m.armed[id] = at
	m.do(hostArm{id, at})
}

func (m *hostMachine) disarm(kind timerKind, ch channelID) {
	id := timerID{kind, ch}
	if _, ok := m.armed[id]; ok {
		delete(m.armed, id)
		m.do(hostDisarm{id})
	}
}

// step takes one event. Events of connections that are no longer bound nor
// candidates do nothing, and in a final state nothing does.
func (m *hostMachine) step(now time.Time, ev hostEvent) []hostAction {
	if m.gone || m.rec.State.Final() {
		if e, ok := ev.(hostOpened); ok && m.gone {
			m.do(hostClose{e.ch, closeTryLater, "another host has the session"})
		} else if ok {
			m.do(hostClose{e.ch, CloseSession, "the session is over"})
		}
		return m.take()
	}
	switch e := ev.(type) {
	case hostOpened:
		m.opened(now, e)
	case hostAnswered:
		m.answered(now, e)
	case hostRefused:
		if m.isCandidate(e.ch) {
			m.refuse(now, e.ch, CloseVersion, e.why, FailureVersion)
		}
	case hostReady:
		m.readied(e)
	case hostListed:
		m.listed(now, e)
	case hostBeat:
		m.beat(now, e)
	case hostReported:
		m.reported(now, e)
	case hostBadFrames:
		m.badFrames(now, e.ch)
	case hostClosed:
		m.closed(now, e.ch, e.code)
	case hostFired:
		m.fired(now, e.timer)
	default:
		m.ordered(now, ev)
	}
	return m.take()
}

// ordered takes events that come from this side of the wire.
func (m *hostMachine) ordered(now time.Time, ev hostEvent) {
	switch e := ev.(type) {
	case hostCallBegan:
		m.active++
		m.disarm(timerIdle, 0)
	case hostCallEnded:
		m.active = max(0, m.active-1)
		if m.active == 0 && m.pending != "" {
			m.release(now, m.pending)
		}
	case hostReleaseAsked:
		m.release(now, e.reason)
	case hostWindDown:
		m.windDown = true
	case hostBudgets:
		if e.exec > 0 {
			m.rec.ExecBudget = min(m.rec.ExecBudget, e.exec)
		}
		if e.idle > 0 {
			m.rec.IdleBudget = min(m.rec.Profile.Budgets.Idle, e.idle)
		}
	case hostDrain:
		m.drain(now)
	case hostSuperseded:
		for _, c := range slices.Clone(m.candidates) { // the next dial may be the one
			m.do(hostClose{c.ch, closeTryLater, "another host has the session"})
			m.drop(c.ch)
		}
		m.closeAll(CloseSuperseded, "another host serves the session")
		m.forget()
	case hostExited:
		if m.rec.State == StateReleasing { // as it should; its report came or never will
			m.released()
			return
		}
		m.fail(FailureExited, e.why, CloseSession)
	case hostKilled:
		if m.rec.State == StateReleasing && m.rec.Reported { // it has handed over what it had
			m.released()
			return
		}
		m.fail(FailureKilled, e.why, CloseSession)
	case hostVersion:
		if m.rec.InstanceID == "" {
			m.rec.Versions.Host, m.rec.Versions.Worker = e.host, e.worker
			m.fail(FailureVersion, "host "+e.host+", worker "+e.worker, CloseVersion)
		}
	}
}

func (m *hostMachine) isCandidate(ch channelID) bool {
	return slices.Contains(m.candidates, candidate{ch})
}

// opened makes a connection a candidate with a handshake wait of its own.
func (m *hostMachine) opened(now time.Time, e hostOpened) {
	if len(m.candidates) >= maxCandidates {
		m.do(hostClose{e.ch, closeTryLater, "too many connections of one session in the handshake"})
		m.audit("refused", "more than %d connections in the handshake", maxCandidates)
		return
	}
	m.candidates = append(m.candidates, candidate{e.ch})
	m.majors[e.ch] = e.major
	if m.bound == 0 && m.rec.State != StateReleasing {
		m.disarm(timerDial, 0)
		m.rec.Deadline.Dial = time.Time{} // it was spent, also for a host that takes over
		m.disarm(timerReconnect, 0)
		if !m.rec.EverRan {
			m.rec.State = StateHandshaking
		}
	}
	m.arm(timerHandshake, e.ch, now.Add(2*m.rec.Profile.Budgets.Handshake))
	m.do(hostSendInitialize{e.ch})
}

// drop forgets a candidate.
func (m *hostMachine) drop(ch channelID) {
	m.candidates = slices.DeleteFunc(m.candidates, func(c candidate) bool { return c.ch == ch })
	delete(m.majors, ch)
	m.disarm(timerHandshake, ch)
}

// judge is the rule of one connection: whether a candidate may take the session
// over. It is asked before the store is, and again by step.
func (m *hostMachine) judge(w welcome) (ok bool, why string) {
	switch {
	case w.SessionID != m.rec.ID:
		return false, "SESSION_MISMATCH"
	case m.rec.InstanceID == "":
		return true, ""
	case w.InstanceID != m.rec.InstanceID:
		return false, "another process serves this session"
	case w.Attempt <= m.rec.Attempt:
		return false, fmt.Sprintf("attempt %d is not newer than %d", w.Attempt, m.rec.Attempt)
	}
	return true, ""
}

func (m *hostMachine) answered(now time.Time, e hostAnswered) {
	if !m.isCandidate(e.ch) {
		return
	}
	if ok, why := m.judge(e.welcome); !ok {
		if e.welcome.SessionID != m.rec.ID {
			m.do(hostSendError{e.ch, sessionError(m.rec.ID, e.welcome.SessionID)})
		}
		m.refuse(now, e.ch, CloseSession, why, FailureSession)
		return
	}
	ours := channelOf(m.channels, m.majors[e.ch])
	v, err := effective(m.majors[e.ch], ours, e.welcome.ChannelVersion)
	if err == nil && !slices.Contains(m.mcp, e.mcpVersion) {
		err = fmt.Errorf("MCP version of the host is %s, of the worker %s", strings.Join(m.mcp, ","), e.mcpVersion)
	}
	if m.rec.InstanceID == "" || err == nil {
		m.rec.Versions = Versions{
			Host: ours, Worker: e.welcome.ChannelVersion, MCP: e.mcpVersion,
			HostImage: m.image, WorkerImage: e.server.Version,
		}
	}
	if err != nil {
		m.do(hostSendError{e.ch, versionError(ours+" with MCP "+strings.Join(m.mcp, ","), e.welcome.ChannelVersion+" with MCP "+e.mcpVersion)})
		m.refuse(now, e.ch, CloseVersion, err.Error(), FailureVersion)
		return
	}
	m.rec.Versions.Effective = v.String()
	m.bind(now, e)
}

// refuse closes a candidate. Only a session that nobody ever served fails by it:
// a stray process must not end a healthy one.
func (m *hostMachine) refuse(now time.Time, ch channelID, code CloseCode, why string, f Failure) {
	if m.rec.InstanceID == "" {
		m.fail(f, why, code)
		return
	}
	m.audit("refused", "%d %s", code, why)
	m.do(hostClose{ch, code, why})
	m.drop(ch)
	m.candidateGone(now)
}

// bind makes a candidate the one connection.
func (m *hostMachine) bind(now time.Time, e hostAnswered) {
	if m.rec.Reported { // all is said; the worker need not come back for it
		m.released()
		return
	}
	if m.bound != 0 {
		m.do(hostClose{m.bound, CloseSuperseded, "a newer connection of the same process serves"})
		m.unbind()
	}
	m.drop(e.ch)
	m.disarm(timerReconnect, 0)
	m.rec.Deadline.Reconnect = time.Time{}
	m.bound, m.ready = e.ch, false
	m.rec.InstanceID, m.rec.Attempt = e.welcome.InstanceID, e.welcome.Attempt
	m.audit("bound", "instance %s attempt %d version %s", e.welcome.InstanceID, e.welcome.Attempt, m.rec.Versions.Effective)
	m.do(hostSendInitialized{e.ch})
	if m.rec.State == StateReleasing {
		m.do(hostSendRelease{e.ch, m.rec.Release, max(0, m.rec.Deadline.Release.Sub(now))})
		return
	}
	m.rec.State = StateReadying
	m.arm(timerReady, e.ch, now.Add(m.rec.Profile.Budgets.Ready))
}

// adopt takes over what another host has written meanwhile. A connection that
// was bound here is not any more; candidates stay and are judged anew.
func (m *hostMachine) adopt(now time.Time, rec Record) []hostAction {
	if m.bound != 0 {
		m.do(hostClose{m.bound, CloseSuperseded, "another host serves the session"})
		m.unbind()
	}
	for _, kind := range []timerKind{timerDial, timerOuter, timerReconnect, timerExec, timerRelease} {
		m.disarm(kind, 0)
	}
	m.rec = rec.clone()
	m.audit("adopted", "as the host %.100q left it", rec.Owner)
	switch {
	case rec.State == StateReleasing:
		m.arm(timerRelease, 0, rec.Deadline.Release)
	case rec.EverRan:
		m.rec.State = StateDetached
		m.arm(timerExec, 0, rec.Deadline.Exec)
	default:
		m.rec.State = StateHandshaking
		m.arm(timerOuter, 0, rec.Deadline.Outer)
	}
	m.candidateGone(now)
	return m.take()
}

// unbind ends the rights of the bound connection, and every wait on it.
func (m *hostMachine) unbind() {
	for _, kind := range []timerKind{timerReady, timerHeartbeat, timerClosing, timerDrain} {
		m.disarm(kind, m.bound)
	}
	m.disarm(timerIdle, 0)
	m.bound, m.ready = 0, false
	m.do(hostUnbound{})
}

func (m *hostMachine) readied(e hostReady) {
	if e.ch != m.bound || m.rec.State == StateReleasing {
		return
	}
	if e.sessionID != m.rec.ID {
		m.mismatch(e.sessionID)
		return
	}
	if m.ready {
		m.audit("repeated", "ready was said twice")
		return
	}
	if missing := m.missing(e.tools); missing != "" {
		m.fail(FailureTools, "ready without "+missing, CloseStartup)
		return
	}
	m.ready = true
	m.do(hostSendList{e.ch})
}

// mismatch ends a bound connection that names another session.
func (m *hostMachine) mismatch(got string) {
	m.do(hostSendError{m.bound, sessionError(m.rec.ID, got)})
	m.fail(FailureSession, "SESSION_MISMATCH", CloseSession)
}

// missing names a required tool that is not offered.
func (m *hostMachine) missing(offered []string) string {
	for _, name := range m.rec.Profile.Tools {
		if !slices.Contains(offered, name) {
			return name
		}
	}
	return ""
}

func (m *hostMachine) listed(now time.Time, e hostListed) {
	if e.ch != m.bound || (m.rec.State != StateReadying && m.rec.State != StateRunning) {
		return
	}
	if missing := m.missing(e.tools); missing != "" {
		m.fail(FailureTools, "tools/list without "+missing, CloseStartup)
		return
	}
	m.rec.Tools = slices.Clone(e.tools)
	if len(m.rec.Profile.Tools) > 0 {
		m.rec.Tools = slices.DeleteFunc(m.rec.Tools, func(name string) bool {
			extra := !slices.Contains(m.rec.Profile.Tools, name)
			if extra {
				m.audit("unexpected_tool", "%s is not of the profile", name)
			}
			return extra
		})
	}
	first := m.rec.State == StateReadying
	m.rec.State = StateRunning
	m.do(hostRegister{e.ch, m.rec.Tools})
	if !first {
		return
	}
	m.disarm(timerReady, e.ch)
	m.disarm(timerOuter, 0)
	m.arm(timerHeartbeat, e.ch, now.Add(m.silence()))
	if !m.rec.EverRan {
		m.rec.EverRan = true
		m.rec.Deadline.Exec = now.Add(m.execLimit())
		m.arm(timerExec, 0, m.rec.Deadline.Exec)
	}
	if m.draining {
		m.drain(now)
	}
}

// silence is how long a host bears no heartbeat: an interval more than the
// worker, so that the side that can act notices first.
func (m *hostMachine) silence() time.Duration {
	return m.rec.Profile.Budgets.HeartbeatGrace + m.rec.Profile.Budgets.HeartbeatInterval
}

// execLimit is when the host releases for the deadline: early enough for the
// flush that the reason promises.
func (m *hostMachine) execLimit() time.Duration {
	return m.rec.ExecBudget - m.rec.Profile.Budgets.ReleaseGrace
}
