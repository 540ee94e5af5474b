package worker

// CloseCode is the status with which a WebSocket is closed.
type CloseCode int

// Close codes of the contract. 4007 is reserved.
const (
	CloseVersion    CloseCode = 4001 // channel or MCP version not supported; the reason has both
	CloseSession    CloseCode = 4002 // session mismatch, refused token, second process, stale dial
	CloseStartup    CloseCode = 4003 // the handshake or ready deadline passed; the session failed
	CloseHeartbeat  CloseCode = 4004 // the host heard no heartbeat
	CloseReleased   CloseCode = 4005 // released normally
	CloseBadFrames  CloseCode = 4006 // too many broken frames
	CloseDraining   CloseCode = 4008 // the host goes away; another takes over
	CloseSuperseded CloseCode = 4009 // a newer dial of the same process took over
)

// Close codes of WebSocket that the channel uses or understands.
const (
	closeNormal      CloseCode = 1000
	closeGoingAway   CloseCode = 1001
	closeProtocol    CloseCode = 1002
	closeUnsupported CloseCode = 1003
	closeAbnormal    CloseCode = 1006 // no close frame: the transport broke
	closeInvalid     CloseCode = 1007
	closeTooBig      CloseCode = 1009
	closeInternal    CloseCode = 1011
	closeTryLater    CloseCode = 1013
)

// ExitCode is the exit status of a worker process. It says whether anybody
// should try again: silence is temporary, disagreement is not.
type ExitCode int

// Exit codes, named as in sysexits.h.
const (
	ExitReleased   ExitCode = 0
	ExitTempFail   ExitCode = 75 // the control plane fell silent and did not come back
	ExitNoPerm     ExitCode = 77 // token or session refused
	ExitConfig     ExitCode = 78 // version, frame format or configuration: a retry changes nothing
	exitNone       ExitCode = -1 // the process goes on
	exitSuperseded          = exitNone
)

// Policy is what a worker does about the end of a connection.
type Policy struct {
	// Retry allows another dial within the reconnect window.
	Retry bool
	// Exit is the exit code when Retry is false, or negative if nothing ends: a
	// newer connection serves.
	Exit ExitCode
	// Meaning is one line for people.
	Meaning string
}

// Every close code with its policy, in the order of the contract.
var closePolicies = []struct {
	code   CloseCode
	policy Policy
}{
	{CloseVersion, Policy{Exit: ExitConfig, Meaning: "channel or MCP version not supported"}},
	{CloseSession, Policy{Exit: ExitNoPerm, Meaning: "session or token refused, or another connection serves"}},
	{CloseStartup, Policy{Exit: ExitConfig, Meaning: "the sandbox was not ready in time"}},
	{CloseHeartbeat, Policy{Exit: ExitTempFail, Meaning: "the host heard no heartbeat"}},
	{CloseReleased, Policy{Exit: ExitReleased, Meaning: "released"}},
	{CloseBadFrames, Policy{Exit: ExitConfig, Meaning: "too many broken frames"}},
	{CloseDraining, Policy{Retry: true, Meaning: "the host is draining"}},
	{CloseSuperseded, Policy{Exit: exitSuperseded, Meaning: "a newer connection of this process serves"}},
}

// Policy returns what a worker does when a connection ends with this code. An
// unknown code of the range of the contract is a refusal that we do not
// understand, so it is final; what the library of the peer could not parse
// would fail again; everything else is the transport's.
func (c CloseCode) Policy() Policy {
	for _, row := range closePolicies {
		if row.code == c {
			return row.policy
		}
	}
	switch {
	case c.unreadable():
		return Policy{Exit: ExitConfig, Meaning: "the peer cannot read our messages"}
	case c >= 4000 && c <= 4999:
		return Policy{Exit: ExitConfig, Meaning: "refused with an unknown code"}
	}
	return Policy{Retry: true, Meaning: "the connection broke"}
}

// unreadable reports whether the peer says that it cannot read our messages: the
// next connection would go the same way.
func (c CloseCode) unreadable() bool {
	switch c {
	case CloseBadFrames, closeProtocol, closeUnsupported, closeInvalid, closeTooBig:
		return true
	default:
		return false
	}
}

// trimReason cuts a close reason to what a close frame holds, between runes. A
// longer one would not be sent at all by some libraries, and a close without
// its code means "come back".
func trimReason(s string) string {
	if len(s) <= MaxCloseReason {
		return s
	}
	s = s[:MaxCloseReason]
	for len(s) > 0 && s[len(s)-1]&0xC0 == 0x80 {
		s = s[:len(s)-1]
	}
	if len(s) > 0 && s[len(s)-1] >= 0xC0 {
		s = s[:len(s)-1]
	}
	return s
}
