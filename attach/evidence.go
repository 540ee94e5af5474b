package attach

import (
	"cmp"
	"strings"
	"time"
)

// Kind says what a piece of evidence is about.
type Kind string

// Kinds of evidence. Those of a server carry its name; the others speak of the
// whole attempt.
const (
	// ServerResolved: the server is configured for this session.
	ServerResolved Kind = "server_resolved"
	// ServerFiltered: it is not handed to the agent; the reason says why.
	ServerFiltered Kind = "server_filtered"
	// ServerDelivered: it was handed to the agent, by Transport.
	ServerDelivered Kind = "server_delivered"
	// SessionAccepted: the agent opened the session. With a server's name: the
	// agent took that server's configuration, which is all that a CLI agent in a
	// terminal says.
	SessionAccepted Kind = "session_accepted"
	// SessionBlocked: the agent has not answered while it talks, or tries to talk,
	// to its servers.
	SessionBlocked Kind = "session_blocked"
	// SessionError: opening the session failed, and the error names no server.
	SessionError Kind = "session_error"
	// DiscoverObserved: server/discover was answered well. Era is EraModern if the
	// answer has revision 2026-07-28 or a later one: the client then goes on
	// without initialize. Otherwise it was a probe, and initialize follows.
	DiscoverObserved Kind = "discover_observed"
	// InitializeObserved: initialize was answered well, or, of a client of revision
	// 2026-07-28, its first other request.
	InitializeObserved Kind = "initialize_observed"
	// ToolsListObserved: tools/list was answered well, with ToolCount tools.
	ToolsListObserved Kind = "tools_list_observed"
	// ToolCallObserved: a call of Tool was answered, also with a result that says
	// that the tool failed.
	ToolCallObserved Kind = "tool_call_observed"
	// RequestError: a request was answered with an error, as when a method is not
	// there. It is no failure of the server.
	RequestError Kind = "request_error"
	// ServerError: something that concerns this server alone failed, as its start.
	ServerError Kind = "server_error"
	// AgentConnected and AgentFailed: the agent itself says so about its server.
	AgentConnected Kind = "agent_reported_connected"
	AgentFailed    Kind = "agent_reported_failed"
	// ConnectionClosed: the connection ConnectionID ended.
	ConnectionClosed Kind = "connection_closed"
	// AgentEnded: the agent of this attempt is no more. What was seen stays seen.
	AgentEnded Kind = "agent_ended"
	// AttemptSuperseded: another attempt has begun.
	AttemptSuperseded Kind = "attempt_superseded"
	// EndpointTested: somebody asked whether the server can be reached from here.
	// It never changes a status.
	EndpointTested Kind = "endpoint_tested"
	// LateTraffic: the agent used the way in of an attempt that was superseded. It
	// is the one kind that such an attempt takes.
	LateTraffic Kind = "late_traffic"
)

// ofSession are the kinds that carry no server's name.
var ofSession = map[Kind]bool{
	SessionAccepted: true, SessionBlocked: true, SessionError: true, AttemptSuperseded: true, LateTraffic: true,
}

// Transport is how the agent reaches a server.
type Transport string

// Transports of MCP.
const (
	HTTP  Transport = "http" // Streamable HTTP
	SSE   Transport = "sse"  // HTTP with server-sent events, of 2024
	Stdio Transport = "stdio"
	// InProcess is no transport of MCP: a model loop of our own calls the tools
	// itself.
	InProcess Transport = "in_process"
)

// Capability says what a decision about a transport rests on.
type Capability string

// Capabilities. What every agent has to take, and what one says nothing about, is
// assumed.
const (
	Advertised Capability = "advertised"
	Assumed    Capability = "assumed"
)

// Source says who configured a server.
type Source string

// Sources. A server that only the agent speaks of has SourceAgent: it stands in
// the agent's own configuration.
const (
	SourceBuiltin Source = "builtin"
	SourceProfile Source = "profile"
	SourceAgent   Source = "agent"
)

// Era is the family of protocol revisions that a client speaks.
type Era string

// Eras.
const (
	EraModern Era = "modern" // 2026-07-28 and later: no initialize, no connection
	EraLegacy Era = "legacy" // before: begins with initialize
)

// Evidence is one thing that somebody saw. Which fields matter depends on Kind;
// see [Detail]. OccurredAt is the host's clock.
type Evidence struct {
	AttemptID   string    `json:"attachment_attempt_id"`
	ExecutionID string    `json:"execution_id,omitempty"`
	Server      string    `json:"server_name,omitempty"`
	Kind        Kind      `json:"kind"`
	OccurredAt  time.Time `json:"occurred_at"`
	Detail
}

// Detail is what evidence tells besides its kind.
type Detail struct {
	Source    Source    `json:"source,omitempty"`
	Transport Transport `json:"transport,omitempty"`
	// Capability says whether the agent itself says that it takes the transport, or
	// does not.
	Capability Capability `json:"capability,omitempty"`
	// Target is reduced to scheme://host[:port], or to the base name of a command.
	Target string `json:"target,omitempty"`
	Reason Reason `json:"reason_code,omitempty"`
	// Summary explains in at most MaxSummary bytes, without secrets.
	Summary string `json:"summary,omitempty"`
	// ConnectionID is opaque, see [ConnectionID]. A client of revision 2026-07-28
	// has none.
	ConnectionID string `json:"connection_id,omitempty"`
	ACPSessionID string `json:"acp_session_id,omitempty"`
	ToolCount    *int   `json:"tool_count,omitempty"`
	Tool         string `json:"tool,omitempty"`
	Method       string `json:"method,omitempty"` // of a request that failed
	Era          Era    `json:"era,omitempty"`
	// The client of the agent, as it calls itself, and the revision it speaks.
	ClientName      string `json:"client_name,omitempty"`
	ClientVersion   string `json:"client_version,omitempty"`
	ProtocolVersion string `json:"mcp_protocol_version,omitempty"`
	// Succeeded is the result of an endpoint test.
	Succeeded *bool `json:"succeeded,omitempty"`
	// Catalogue are the tools of a server of ours. Only the row of the current
	// attempt keeps it.
	Catalogue *Catalogue `json:"tool_catalogue,omitempty"`
}

// compare orders evidence by time, and by everything else where times are equal,
// so that any two pieces have one order. Equal means the same evidence.
func compare(a, b Evidence) int {
	return cmp.Or(
		a.OccurredAt.Compare(b.OccurredAt), cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Server, b.Server),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Capability, b.Capability), strings.Compare(a.Target, b.Target),
		cmp.Compare(a.Reason, b.Reason), strings.Compare(a.Summary, b.Summary), strings.Compare(a.ConnectionID, b.ConnectionID),
		strings.Compare(a.ACPSessionID, b.ACPSessionID), comparePtr(a.ToolCount, b.ToolCount), strings.Compare(a.Tool, b.Tool),
		strings.Compare(a.Method, b.Method), cmp.Compare(a.Era, b.Era), strings.Compare(a.ClientName, b.ClientName),
		strings.Compare(a.ClientVersion, b.ClientVersion), strings.Compare(a.ProtocolVersion, b.ProtocolVersion),
		comparePtr(number(a.Succeeded), number(b.Succeeded)), strings.Compare(a.Catalogue.digest(), b.Catalogue.digest()),
	)
}

func number(b *bool) *int {
	if b == nil {
		return nil
	}
	n := 0
	if *b {
		n = 1
	}
	return &n
}

func comparePtr(a, b *int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}
