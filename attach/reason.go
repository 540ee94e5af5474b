package attach

// Reason is a stable code that says why.
type Reason string

// Reasons. Newer versions add some.
const (
	ReasonUnsupportedAdvertised Reason = "transport_unsupported_advertised"
	ReasonUnsupportedAssumed    Reason = "transport_unsupported_assumed"
	ReasonPolicyDenied          Reason = "policy_denied"
	ReasonDuplicateName         Reason = "duplicate_name"
	ReasonViaOssicle            Reason = "via_ossicle"
	ReasonNoStrategy            Reason = "no_passthrough_strategy"
	ReasonNoTransport           Reason = "no_transport"
	ReasonCommandNotFound       Reason = "command_not_found"
	ReasonMaterializeFailed     Reason = "materialize_failed"
	ReasonSpawnFailed           Reason = "spawn_failed"
	ReasonExited                Reason = "exited"
	ReasonConnectRefused        Reason = "connect_refused"
	ReasonUnreachable           Reason = "unreachable"
	ReasonTimeout               Reason = "timeout"
	ReasonTLS                   Reason = "tls"
	ReasonAuthRequired          Reason = "auth_required"
	ReasonHTTPStatus            Reason = "http_status"
	ReasonProtocolError         Reason = "protocol_error"
	ReasonMethodNotFound        Reason = "method_not_found"
	ReasonAgentReported         Reason = "agent_reported"
	ReasonSessionFailed         Reason = "session_failed"
)

// ReasonInfo is a row of the table of reasons.
type ReasonInfo struct {
	Reason Reason
	Text   string // for people
	// Status is what the reason makes of a server that was left out: filtered, or
	// unavailable where there is no way at all. Empty for reasons of failures.
	Status Status
}

var reasons = []ReasonInfo{
	{ReasonUnsupportedAdvertised, "the agent says that it does not take this transport", Filtered},
	{ReasonUnsupportedAssumed, "the agent is not known to take this transport", Filtered},
	{ReasonPolicyDenied, "a policy leaves the server out", Filtered},
	{ReasonDuplicateName, "another server has the same name", Filtered},
	{ReasonViaOssicle, "ossicle connects to it itself; the agent reaches it through the tools of ossicle", Filtered},
	{ReasonNoStrategy, "ossicle does not know how this agent is given MCP servers", Unavailable},
	{ReasonNoTransport, "the configuration names no way to reach the server", Unavailable},
	{ReasonCommandNotFound, "the command is not installed", Unavailable},
	{ReasonMaterializeFailed, "the agent's configuration could not be written", ""},
	{ReasonSpawnFailed, "the server's command could not be started", ""},
	{ReasonExited, "the server's process ended", ""},
	{ReasonConnectRefused, "the server refused the connection", ""},
	{ReasonUnreachable, "the server could not be reached", ""},
	{ReasonTimeout, "the server did not answer in time", ""},
	{ReasonTLS, "the secure connection failed", ""},
	{ReasonAuthRequired, "the server wants a login", ""},
	{ReasonHTTPStatus, "the server answered with an HTTP error", ""},
	{ReasonProtocolError, "the server answered against the protocol, or with an error", ""},
	{ReasonMethodNotFound, "the server does not have the method", ""},
	{ReasonAgentReported, "the agent says so", ""},
	{ReasonSessionFailed, "the agent did not open the session", ""},
}

// Reasons lists the reasons of this version.
func Reasons() []ReasonInfo { return append([]ReasonInfo{}, reasons...) }

func (r Reason) info() (ReasonInfo, bool) {
	for _, i := range reasons {
		if i.Reason == r {
			return i, true
		}
	}
	return ReasonInfo{}, false
}

// Text explains the reason to a person. A reason of a newer version is shown as
// its code.
func (r Reason) Text() string {
	if i, ok := r.info(); ok {
		return i.Text
	}
	if r == "" {
		return ""
	}
	return "for a reason that this version does not know: " + string(r)
}

// omission is the status of a server that was left out for the reason.
func (r Reason) omission() Status {
	if i, ok := r.info(); ok && i.Status != "" {
		return i.Status
	}
	return Filtered
}
