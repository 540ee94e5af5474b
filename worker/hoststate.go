package worker

import (
	"slices"
	"time"
)

// State is where a session of the host stands.
type State string

// States of a session. Released and Failed are final.
const (
	StateAwaitingDial State = "awaiting_dial" // created, no connection
	StateHandshaking  State = "handshaking"   // connected, not yet bound
	StateReadying     State = "readying"      // bound, its tools not yet registered
	StateRunning      State = "running"       // tools can be called
	StateDetached     State = "detached"      // ran, lost its connection, may come back
	StateReleasing    State = "releasing"     // asked to end
	StateReleased     State = "released"
	StateFailed       State = "failed"
)

// Final reports whether nothing follows.
func (s State) Final() bool { return s == StateReleased || s == StateFailed }

// Record is a session as a host keeps it: enough for another host to go on. All
// times are absolute. encoding/json writes and reads it without loss, but for
// fractions of a second in the last heartbeat.
type Record struct {
	ID      string
	Profile Profile
	State   State
	// Owner is the host that holds the connection, and Epoch counts changes of who
	// is bound. A host whose epoch is old has lost the session.
	Owner string
	Epoch int64
	// InstanceID and Attempt are those of the bound process; empty before any.
	InstanceID string
	Attempt    int64
	Created    time.Time
	// EverRan is whether the session was running once: from then on the outer bound
	// is spent and the reconnect window governs.
	EverRan  bool
	Deadline Deadlines
	Failure  Failure // why State is StateFailed
	Detail   string  // the values behind Failure, for people
	Versions Versions
	// Release is why the session was asked to end; empty before.
	Release        Reason
	Reported       bool // the worker answered the release
	OutputsFlushed bool
	Outputs        []Output
	Tools          []string // registered tools
	LastBeat       time.Time
	Beat           Heartbeat
	// IdleBudget and ExecBudget are what the host grants now, never above the
	// profile.
	IdleBudget, ExecBudget time.Duration
}

// Deadlines are the absolute times of a session that outlive a host process.
// Zero is not armed.
type Deadlines struct {
	Dial, Outer, Reconnect, Release, Exec time.Time
}

// Versions are both sides' versions, for the diagnosis of a refusal.
type Versions struct {
	Host, Worker           string // channel versions, or subprotocols when the upgrade was refused
	Effective              string
	HostImage, WorkerImage string
	MCP                    string // what the worker answered
}

// LastDeadline is when a session that nobody holds must be over, whatever state it
// was in: each state has one wait that ends it.
func (r Record) LastDeadline() time.Time {
	d := r.Deadline
	switch {
	case !d.Release.IsZero():
		return d.Release
	case !d.Reconnect.IsZero():
		return d.Reconnect
	case !d.Exec.IsZero():
		return d.Exec.Add(r.Profile.Budgets.ReleaseGrace)
	}
	return d.Outer
}

// NeverCalled reports whether no worker of the session was ever heard of.
func (r Record) NeverCalled() bool { return r.InstanceID == "" && r.Versions.Worker == "" }

// clone copies what a holder could change.
func (r Record) clone() Record {
	r.Outputs = slices.Clone(r.Outputs)
	r.Tools = slices.Clone(r.Tools)
	r.Profile.Tools = slices.Clone(r.Profile.Tools)
	return r
}

// newRecord is a session at the creation of its sandbox.
func newRecord(id string, p Profile, now time.Time) Record {
	return Record{
		ID: id, Profile: p, State: StateAwaitingDial, Created: now,
		Deadline:   Deadlines{Dial: now.Add(p.Dial), Outer: now.Add(p.Outer())},
		IdleBudget: p.Budgets.Idle, ExecBudget: p.Budgets.MaxExec,
	}
}

// Events of the host machine.
type (
	hostEvent interface{ hostEvent() }

	hostOpened struct { // an authenticated upgrade succeeded
		ch    channelID
		major int // of the subprotocol
	}
	hostAnswered struct { // initialize was answered
		ch         channelID
		mcpVersion string
		server     implementation
		welcome    welcome
	}
	hostRefused struct { // initialize was answered with an error or a wrong shape
		ch  channelID
		why string
	}
	hostReady struct {
		ch        channelID
		sessionID string
		tools     []string
	}
	hostListed struct {
		ch    channelID
		tools []string
	}
	hostBeat struct {
		ch   channelID
		id   []byte
		beat Heartbeat
	}
	hostBadFrames struct{ ch channelID }
	hostClosed    struct { // the connection is gone
		ch   channelID
		code CloseCode
	}
	hostCallBegan    struct{}
	hostCallEnded    struct{}
	hostReleaseAsked struct{ reason Reason }
	hostWindDown     struct{} // answer the next heartbeat with continue false
	hostBudgets      struct{ idle, exec time.Duration }
	hostReported     struct {
		ch     channelID
		report Report
	}
	hostDrain      struct{}
	hostSuperseded struct{} // another host bound the session
	hostExited     struct{ why string }
	hostKilled     struct{ why string }
	hostVersion    struct{ host, worker string } // an upgrade was refused for its major
	hostFired      struct{ timer timerID }
)

func (hostOpened) hostEvent()       {}
func (hostAnswered) hostEvent()     {}
func (hostRefused) hostEvent()      {}
func (hostReady) hostEvent()        {}
func (hostListed) hostEvent()       {}
func (hostBeat) hostEvent()         {}
func (hostBadFrames) hostEvent()    {}
func (hostClosed) hostEvent()       {}
func (hostCallBegan) hostEvent()    {}
func (hostCallEnded) hostEvent()    {}
func (hostReleaseAsked) hostEvent() {}
func (hostWindDown) hostEvent()     {}
func (hostBudgets) hostEvent()      {}
func (hostReported) hostEvent()     {}
func (hostDrain) hostEvent()        {}
func (hostSuperseded) hostEvent()   {}
func (hostExited) hostEvent()       {}
func (hostKilled) hostEvent()       {}
func (hostVersion) hostEvent()      {}
func (hostFired) hostEvent()        {}

// Actions of the host machine, executed in order.
type (
	hostAction interface{ hostAction() }

	hostSendInitialize  struct{ ch channelID }
	hostSendInitialized struct{ ch channelID }
	hostSendList        struct{ ch channelID }
	hostSendRelease     struct {
		ch     channelID
		reason Reason
		grace  time.Duration
	}
	hostAnswerBeat struct {
		ch     channelID
		id     []byte
		result heartbeatResult
	}
	hostRefuseBeat struct { // with an error, before the close
		ch  channelID
		id  []byte
		err *wireError
	}
	hostSendError struct { // an error that answers nothing: its id is null
		ch  channelID
		err *wireError
	}
	hostClose struct {
		ch     channelID
		code   CloseCode
		reason string
	}
	hostRegister struct { // replace the tool set; the session is running
		ch    channelID
		tools []string
	}
	hostUnbound struct{} // no connection serves calls any more
	hostArm     struct {
		timer timerID
		at    time.Time
	}
	hostDisarm   struct{ timer timerID }
	hostAudit    struct{ event, detail string }
	hostTeardown struct{} // delete the sandbox; the session is final
	hostForget   struct{} // another host has the session now, or will
)

func (hostSendInitialize) hostAction()  {}
func (hostSendInitialized) hostAction() {}
func (hostSendList) hostAction()        {}
func (hostSendRelease) hostAction()     {}
func (hostAnswerBeat) hostAction()      {}
func (hostRefuseBeat) hostAction()      {}
func (hostSendError) hostAction()       {}
func (hostClose) hostAction()           {}
func (hostRegister) hostAction()        {}
func (hostUnbound) hostAction()         {}
func (hostArm) hostAction()             {}
func (hostDisarm) hostAction()          {}
func (hostAudit) hostAction()           {}
func (hostTeardown) hostAction()        {}
func (hostForget) hostAction()          {}
