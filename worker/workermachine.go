package worker

import (
	"fmt"
	"strings"
	"time"
)

// workerMachine decides for a worker process. Like hostMachine it has no clock,
// no socket and no lock. Chance enters by one function, so that a test knows it.
//
// There is at most one connection at a time: the old one is closed before the
// next dial, and frames of any other are ignored. The process outlives its
// connections: calls, executors and the clocks of idling and of the ceiling
// belong to it and not to them.
type workerMachine struct {
	sessionID   string
	instanceID  string
	mcp         []string // versions of MCP that we speak, newest first
	started     time.Time
	termination time.Duration // between SIGTERM and SIGKILL; zero is unknown
	chance      func() float64

	state    workerState
	budgets  Budgets
	idle     time.Duration // what the host grants now, at most budgets.Idle
	ch       channelID
	attempt  int64
	failures int // dials since the channel was lost
	welcomed bool
	version  Version
	prepared bool
	ran      bool // was serving once
	armed    timers

	seq      int64
	sent     map[int64]time.Time // heartbeats without an answer
	answered time.Time           // when the last answered heartbeat was sent

	active    int
	idleSince time.Time // last completed call, or the first serving

	wind     *winding
	released bool
	releases [][]byte // ids of release requests that wait for the report
	flushing bool
	flushed  bool
	report   Report
	out      []workerAction
}

// workerSetup is what a worker machine knows from its start.
type workerSetup struct {
	sessionID, instanceID string
	mcp                   []string
	budgets               Budgets
	termination           time.Duration
	chance                func() float64
}

// newWorkerMachine returns a worker at its process start, and its first actions.
func newWorkerMachine(s workerSetup, now time.Time) (*workerMachine, []workerAction) {
	m := &workerMachine{
		sessionID: s.sessionID, instanceID: s.instanceID, mcp: s.mcp, termination: s.termination,
		chance: s.chance, started: now, budgets: s.budgets.orDefaults(), state: workerDialing,
		armed: timers{}, sent: map[int64]time.Time{}, failures: 0,
	}
	m.idle = m.budgets.Idle
	// Until the first channel stands, the start counts as the loss of one.
	m.arm(timerWindow, 0, now.Add(m.budgets.ReconnectWindow))
	m.arm(timerExec, 0, now.Add(m.budgets.MaxExec))
	m.do(workerDial{m.attempt})
	return m, m.take()
}

func (m *workerMachine) take() []workerAction {
	out := m.out
	m.out = nil
	return out
}

func (m *workerMachine) do(a workerAction) { m.out = append(m.out, a) }

func (m *workerMachine) log(event, detail string) { m.do(workerLog{event, detail}) }

func (m *workerMachine) arm(kind timerKind, ch channelID, at time.Time) {
	id := timerID{kind, ch}
	m.armed[id] = at
	m.do(workerArm{id, at})
}

func (m *workerMachine) disarm(kind timerKind, ch channelID) {
	id := timerID{kind, ch}
	if _, ok := m.armed[id]; ok {
		delete(m.armed, id)
		m.do(workerDisarm{id})
	}
}

func (m *workerMachine) step(now time.Time, ev workerEvent) []workerAction {
	if m.state == workerEnded {
		if e, ok := ev.(workerDialed); ok {
			m.do(workerClose{e.ch, closeGoingAway, "the worker has ended"})
		}
		return m.take()
	}
	switch e := ev.(type) {
	case workerDialed:
		m.dialed(now, e.ch)
	case workerDialFailed:
		m.dialFailed(now, e.outcome)
	case workerHello:
		m.hello(now, e)
	case workerInitialized:
		m.initialized(now, e.ch)
	case workerPrepared:
		m.preparedNow(now, e.failed)
	case workerListed:
		m.listed(now, e.ch)
	case workerBeatSent:
		m.beatSent(now, e)
	case workerBeatAnswered:
		m.beatAnswered(now, e)
	case workerBadFrames:
		if e.ch == m.ch {
			m.do(workerClose{e.ch, CloseBadFrames, "too many broken frames"})
			m.end(ExitConfig, "too many broken frames from the host")
		}
	case workerClosed:
		m.closed(now, e)
	case workerFired:
		m.fired(now, e.timer)
	default:
		m.process(now, ev)
	}
	return m.take()
}

// process takes events that belong to the process and to its end.
func (m *workerMachine) process(now time.Time, ev workerEvent) {
	switch e := ev.(type) {
	case workerCallBegan:
		m.active++
		m.disarm(timerIdle, 0)
	case workerCallEnded:
		m.active = max(0, m.active-1)
		m.idleSince = now
		m.armIdle()
		if m.active == 0 && m.wind != nil {
			m.flush()
		}
	case workerReleaseCame:
		m.release(now, e)
	case workerSignalled:
		grace := m.budgets.ReleaseGrace
		if m.termination > 0 {
			grace = min(grace, max(0, m.termination-2*time.Second))
		}
		m.begin(now, winding{"sigterm", ExitTempFail, closeGoingAway, true, grace})
	case workerFlushed:
		m.finish(e.report)
	}
}

func (m *workerMachine) dialed(now time.Time, ch channelID) {
	if m.state != workerDialing || m.wind != nil {
		m.do(workerClose{ch, closeGoingAway, "another connection serves"})
		return
	}
	m.ch, m.state, m.welcomed = ch, workerWaiting, false
	m.arm(timerHandshake, ch, now.Add(m.budgets.Handshake))
}

func (m *workerMachine) dialFailed(now time.Time, o dialOutcome) {
	if m.state != workerDialing {
		return
	}
	if !o.retry {
		m.end(o.exit, o.why)
		return
	}
	m.log("dial failed", o.why)
	m.again(now, o.after)
}

// again waits for the next dial. The listed delays are upper bounds and the
// first is anything up to a second: workers that one host dropped must not come
// back in step.
func (m *workerMachine) again(now time.Time, after time.Duration) {
	m.state = workerLost
	delay := time.Duration(m.chance() * float64(backoffLeast))
	if m.failures > 0 {
		upper := min(backoffLeast<<min(m.failures-1, 8), backoffMost)
		delay = upper/2 + time.Duration(m.chance()*float64(upper/2))
	}
	m.failures++
	at := now.Add(delay)
	if wanted := now.Add(after); wanted.After(at) && wanted.Before(m.armed[timerID{timerWindow, 0}]) {
		at = wanted.Add(delay / 2)
	}
	m.arm(timerBackoff, 0, at)
}

// hello answers initialize, once per connection.
func (m *workerMachine) hello(now time.Time, e workerHello) {
	if e.ch != m.ch {
		return
	}
	if m.welcomed || m.state != workerWaiting {
		m.do(workerRefuse{e.ch, e.id, &wireError{Code: codeInvalidRequest, Message: "initialize was already answered on this connection"}})
		return
	}
	v, err := effective(majorOf(Subprotocol), e.hello.ChannelVersion, ChannelVersion)
	if e.bad != nil {
		err = e.bad
	}
	if err != nil {
		m.do(workerRefuse{e.ch, e.id, versionError(ChannelVersion, e.hello.ChannelVersion)})
		m.do(workerClose{e.ch, CloseVersion, err.Error()})
		m.end(ExitConfig, fmt.Sprintf("worker speaks channel version %s, host %q: %v", ChannelVersion, e.hello.ChannelVersion, err))
		return
	}
	if e.hello.SessionID != m.sessionID {
		m.do(workerRefuse{e.ch, e.id, sessionError(m.sessionID, e.hello.SessionID)})
		m.do(workerClose{e.ch, CloseSession, "SESSION_MISMATCH"})
		m.end(ExitNoPerm, "the host named another session")
		return
	}
	m.obey(now, e.hello.Budgets)
	m.version, m.welcomed = v, true
	m.do(workerWelcome{e.ch, e.id, nearest(m.mcp, e.mcpVersion), welcome{m.sessionID, ChannelVersion, m.instanceID, m.attempt}})
}

// obey takes the smaller of each budget, for good: a ceiling that a frame could
// raise would be none.
func (m *workerMachine) obey(now time.Time, theirs Budgets) {
	b, differ := m.budgets.Min(theirs)
	if len(differ) > 0 {
		m.log("budgets differ", strings.Join(differ, ", "))
	}
	m.budgets = b
	m.idle = min(m.idle, b.Idle)
	if at := m.started.Add(b.MaxExec); at.Before(m.armed[timerID{timerExec, 0}]) {
		m.arm(timerExec, 0, at)
	}
	m.arm(timerHandshake, m.ch, minTime(m.armed[timerID{timerHandshake, m.ch}], now.Add(b.Handshake)))
}

func minTime(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// initialized is the end of the handshake: the channel is back.
func (m *workerMachine) initialized(now time.Time, ch channelID) {
	if ch != m.ch || m.state != workerWaiting || !m.welcomed {
		return
	}
	m.disarm(timerHandshake, ch)
	m.disarm(timerWindow, 0)
	m.failures = 0
	m.state = workerPreparing
	if m.prepared {
		m.announce(now)
		return
	}
	m.arm(timerReady, ch, now.Add(m.budgets.Ready))
}

func (m *workerMachine) preparedNow(now time.Time, failed error) {
	if failed != nil && m.wind != nil {
		return // it ends already, and for another reason
	}
	if failed != nil {
		if m.ch != 0 {
			m.do(workerClose{m.ch, closeGoingAway, "the executors could not be built"})
		}
		m.end(ExitConfig, "build executors: "+failed.Error())
		return
	}
	m.prepared = true
	if m.state == workerPreparing {
		m.announce(now)
	}
}

func (m *workerMachine) announce(now time.Time) {
	m.disarm(timerReady, m.ch)
	m.state = workerAnnounced
	m.do(workerSendReady{m.ch})
	m.arm(timerReadyAck, m.ch, now.Add(m.budgets.ReadyAck))
}

// listed is the host's acknowledgement of ready.
func (m *workerMachine) listed(now time.Time, ch channelID) {
	if ch != m.ch || m.state != workerAnnounced {
		return
	}
	m.disarm(timerReadyAck, ch)
	m.state = workerServing
	if !m.ran {
		m.ran, m.idleSince = true, now
	}
	m.answered = time.Time{}
	clear(m.sent)
	m.armIdle()
	m.beat(now)
}

func (m *workerMachine) beat(now time.Time) {
	m.seq++
	m.do(workerSendBeat{m.ch, m.seq})
	m.arm(timerBeat, m.ch, now.Add(m.budgets.HeartbeatInterval))
}

// beatSent starts the wait for answers. It counts from the last heartbeat that
// was answered, so a link that dies after an answer is noticed here an interval
// before the host notices; a heartbeat that the executors did not let out starts
// nothing, and the host ends what they wedge.
func (m *workerMachine) beatSent(now time.Time, e workerBeatSent) {
	if e.ch != m.ch || m.ch == 0 {
		return
	}
	m.sent[e.seq] = now
	if m.answered.IsZero() {
		m.answered = now
	}
	if _, armed := m.armed[timerID{timerGrace, m.ch}]; !armed {
		m.arm(timerGrace, m.ch, m.answered.Add(m.budgets.HeartbeatGrace))
	}
}

func (m *workerMachine) beatAnswered(now time.Time, e workerBeatAnswered) {
	at, ok := m.sent[e.seq]
	if e.ch != m.ch || !ok {
		return
	}
	for seq := range m.sent {
		if seq <= e.seq {
			delete(m.sent, seq)
		}
	}
	if at.After(m.answered) {
		m.answered = at
	}
	m.disarm(timerGrace, m.ch)
	if len(m.sent) > 0 {
		m.arm(timerGrace, m.ch, m.answered.Add(m.budgets.HeartbeatGrace))
	}
	m.grant(now, e.result)
}

// grant applies what the host allows. The ceiling only falls; the idle budget
// is the latest, up to our own.
func (m *workerMachine) grant(now time.Time, r heartbeatResult) {
	if r.ExecBudget > 0 && time.Duration(r.ExecBudget) < m.budgets.MaxExec {
		m.budgets.MaxExec = time.Duration(r.ExecBudget)
		if m.wind == nil {
			m.arm(timerExec, 0, m.started.Add(m.budgets.MaxExec))
		}
	}
	if r.IdleBudget > 0 {
		m.idle = min(m.budgets.Idle, time.Duration(r.IdleBudget))
		m.armIdle()
	}
	if !r.Continue {
		m.begin(now, winding{"told to wind down", ExitReleased, CloseReleased, false, flushTime(m.budgets.ReleaseGrace)})
	}
}

// armIdle arms our own stop, long after the host should have released us: it is
// for a host that is gone.
func (m *workerMachine) armIdle() {
	if m.wind != nil || m.active > 0 || m.idleSince.IsZero() {
		return
	}
	b := m.budgets
	m.arm(timerIdle, 0, m.idleSince.Add(m.idle+b.HeartbeatGrace+b.HeartbeatInterval+b.ReleaseGrace))
}

// idleFor is what a heartbeat says.
func (m *workerMachine) idleFor(now time.Time) time.Duration {
	if m.active > 0 || m.idleSince.IsZero() {
		return 0
	}
	return now.Sub(m.idleSince)
}
