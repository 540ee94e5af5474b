package worker

import "time"

// Names and versions of the contract, newest first where there are several.
const (
	// Subprotocol names the major version of the channel on the upgrade. A worker
	// speaks exactly one.
	Subprotocol = "agentfy.worker.v1"
	// ChannelVersion is our minor version within the major, a semver. 1.1.0 added
	// call ids: a call that is repeated after a reconnect joins the first. 1.2.0 added
	// receipts of results, and an error for those that are gone.
	ChannelVersion = "1.2.0"
	// MCPVersion is the version of MCP that the channel carries. Later versions
	// have no initialize, or forbid requests from server to client, and are never
	// negotiated on this major.
	MCPVersion = "2025-06-18"

	// HostName and WorkerName are the implementation names in initialize.
	HostName   = "agentfy-worker-gateway"
	WorkerName = "agentfy-worker"

	// DialPath is what a worker asks for on a Unix socket: in such a control URL the
	// path is the socket's.
	DialPath = "/v1/worker"
)

// Methods of the life cycle. Everything else on the wire is work.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodReady       = "notifications/agentfy/ready"
	methodHeartbeat   = "agentfy/heartbeat"
	methodRelease     = "agentfy/release"
	methodReceived    = "notifications/agentfy/received"

	methodPing         = "ping"
	methodToolsList    = "tools/list"
	methodToolsCall    = "tools/call"
	methodSetLevel     = "logging/setLevel"
	methodProgress     = "notifications/progress"
	methodCancelled    = "notifications/cancelled"
	methodMessage      = "notifications/message"
	methodToolsChanged = "notifications/tools/list_changed"

	ownPrefix       = "agentfy/"
	ownNoticePrefix = "notifications/agentfy/"
	metaKey         = "agentfy"
)

// Error codes of the contract. The Go SDK for MCP gives some of these numbers
// meanings of its own, so they never pass through it.
const (
	CodeVersionMismatch         = -32001 // a frame or field that was not negotiated; either side
	CodeSessionMismatch         = -32002 // the worker's session is not the token's; host
	CodeSamplingDisabled        = -32003 // any sampling request; host
	CodeCapabilityNotNegotiated = -32004 // elicitation, roots, anything undeclared; host
	CodeSessionNotRunning       = -32005 // a call before ready or after a release; worker
	CodeResultGone              = -32006 // a repeated call whose result is not kept any more; worker

	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeBusy           = -32000 // more calls in flight than the worker takes
)

// Bounds that are part of the contract or protect an end of it. Seconds stand in
// [Budgets]; these are not negotiated.
const (
	// MaxMessage is the size of the largest message, in bytes. Senders keep to it:
	// a library that answers a larger one closes with 1009, which is final.
	MaxMessage = 4 << 20
	// MaxBroken is how many broken frames a connection survives, less one: the
	// MaxBroken-th is answered and the connection closed with [CloseBadFrames].
	MaxBroken = 10
	// MaxCloseReason is the room for a reason in a close frame, in bytes.
	MaxCloseReason = 123

	// pingInterval keeps middleboxes from closing an idle connection. It proves
	// nothing about the other process and decides nothing.
	pingInterval = 30 * time.Second
	pingTimeout  = 20 * time.Second
	// writeTimeout bounds the write of one message; after it the peer is gone.
	writeTimeout = 10 * time.Second
	// closeTimeout bounds the closing handshake, and the host's wait for the
	// worker to close after its report.
	closeTimeout = 2 * time.Second
	// maxQueued bounds what waits to be written to one connection, in bytes. A
	// peer that lets it fill is gone.
	maxQueued = 2 * MaxMessage

	// backoffLeast and backoffMost are the worker's delays between dials. They are
	// upper bounds: the delay is drawn from the upper half of the interval.
	backoffLeast = time.Second
	backoffMost  = 10 * time.Second
	// maxCandidates bounds how many unproven connections a session has.
	maxCandidates = 4
)

// Reason says why a host releases a sandbox.
type Reason string

// Reasons of a release.
const (
	ReasonIdle     Reason = "idle"     // nobody called a tool for idleSeconds
	ReasonExplicit Reason = "explicit" // whoever asked for the sandbox is done
	ReasonDeadline Reason = "deadline" // maxExecSeconds are nearly over
	ReasonFailed   Reason = "failed"   // the session failed
)

// Valid reports whether the reason is one of the contract.
func (r Reason) Valid() bool {
	switch r {
	case ReasonIdle, ReasonExplicit, ReasonDeadline, ReasonFailed:
		return true
	}
	return false
}

// Forced reports whether a release for this reason stops calls that still run.
func (r Reason) Forced() bool { return r == ReasonDeadline || r == ReasonFailed }

// Failure says why a session failed.
type Failure string

// Failures of a session. All are final: nobody retries a failed session.
const (
	FailureDial      Failure = "dial_timeout"
	FailureHandshake Failure = "handshake_timeout"
	FailureReady     Failure = "ready_timeout"
	FailureVersion   Failure = "channel_version"
	FailureHeartbeat Failure = "heartbeat_lost"
	FailureSession   Failure = "session_mismatch"
	FailureFrames    Failure = "bad_frames"
	FailureLost      Failure = "channel_lost"
	FailureTools     Failure = "tools_mismatch"
	FailureDeadline  Failure = "exec_deadline"
	FailureExited    Failure = "sandbox_exited"
	// FailureKilled: whoever asked for the sandbox wanted its end at once. It is no fault.
	FailureKilled Failure = "killed"
)
