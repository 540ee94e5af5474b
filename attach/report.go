package attach

import (
	"slices"
	"strings"
	"time"
)

// SchemaVersion is the version of the JSON contract.
const SchemaVersion = 1

// Bounds of a report. Two pieces of evidence for each server, on which its status
// may rest, and four of the session are kept in any case; the rest of MaxEvidence
// is for the newest.
const (
	MaxAttempts    = 3
	MaxEvidence    = 64 // of an attempt
	MaxServers     = 30 // of an attempt
	MaxConnections = 8  // of a server
	MaxSummary     = 256
	maxName        = 128
	maxID          = 128
)

// Report is what is known of the MCP servers of one session: the contract calls
// it MCPAttachmentHistory. Its zero value is a report before the first attempt.
// Reports are values: no function here changes one that it was given.
type Report struct {
	SchemaVersion int    `json:"schema_version"`
	Current       string `json:"current_attachment_attempt_id,omitempty"`
	// Attempts are the current one and at most two before it, newest first.
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one delivery of the servers of a session to its agent. The ids are
// the host's, but for ACPSessionID.
type Attempt struct {
	TaskID            string    `json:"task_id,omitempty"`
	SessionID         string    `json:"session_id"`
	ExecutionID       string    `json:"execution_id"`
	ID                string    `json:"attachment_attempt_id"`
	AgentID           string    `json:"agent_id,omitempty"`
	AgentProfileID    string    `json:"agent_profile_id,omitempty"`
	ACPSessionID      string    `json:"acp_session_id,omitempty"`
	StartedAt         time.Time `json:"started_at"`
	UpdatedAt         time.Time `json:"updated_at"`
	SupersededAt      time.Time `json:"superseded_at,omitzero"`
	SessionAcceptedAt time.Time `json:"session_accepted_at,omitzero"`
	// SessionBlockedAt is set while the agent does not answer because it waits for
	// a server.
	SessionBlockedAt time.Time `json:"session_blocked_at,omitzero"`
	LateTrafficAt    time.Time `json:"late_traffic_at,omitzero"`
	// AgentEndedAt is when the agent ended: the rows tell how it was until then.
	AgentEndedAt time.Time `json:"agent_ended_at,omitzero"`
	// Evidence is the timeline, oldest first.
	Evidence []Evidence `json:"evidence"`
	// Servers are by name.
	Servers []Server `json:"servers"`
	// ServersTruncated: there were more than MaxServers.
	ServersTruncated bool `json:"servers_truncated,omitempty"`
	// SessionError is the latest error that names no server.
	SessionError *Fault `json:"session_error,omitempty"`
}

// Server is the row of one server. Everything but Steps and Connections follows
// from these.
type Server struct {
	Name      string    `json:"name"`
	Source    Source    `json:"source,omitempty"`
	Transport Transport `json:"transport,omitempty"`
	Target    string    `json:"target,omitempty"`
	Status    Status    `json:"status"`
	// Reason and Summary explain a status that is no success.
	Reason         Reason        `json:"reason_code,omitempty"`
	Summary        string        `json:"summary,omitempty"`
	ConnectionID   string        `json:"connection_id,omitempty"`
	Client         *Client       `json:"client,omitempty"`
	ToolCount      *int          `json:"tool_count,omitempty"`
	ConnectedAt    time.Time     `json:"connected_at,omitzero"`
	ToolsListedAt  time.Time     `json:"tools_listed_at,omitzero"`
	LastUsedAt     time.Time     `json:"last_used_at,omitzero"`
	LastTool       string        `json:"last_tool,omitempty"`
	FailedAt       time.Time     `json:"failed_at,omitzero"` // stays after a later success
	DisconnectedAt time.Time     `json:"disconnected_at,omitzero"`
	EndpointTest   *EndpointTest `json:"endpoint_test,omitempty"`
	// Catalogue are the tools, for servers of ours and in the current attempt only.
	Catalogue *Catalogue `json:"tool_catalogue,omitempty"`
	// Steps is the checklist: the latest of each kind of evidence.
	Steps map[Kind]Step `json:"steps,omitempty"`
	// Connections are the newest, each with its latest sign of life or its end.
	Connections []Connection `json:"connections,omitempty"`
}

// Step is the latest evidence of a kind for a server.
type Step struct {
	At time.Time `json:"at"`
	Detail
}

// Connection is one connection of a legacy client.
type Connection struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Closed bool      `json:"closed,omitempty"`
}

// Client is the MCP client of the agent, by its own word.
type Client struct {
	Name            string `json:"name,omitempty"`
	Version         string `json:"version,omitempty"`
	ProtocolVersion string `json:"mcp_protocol_version,omitempty"`
	Era             Era    `json:"era,omitempty"`
}

// EndpointTest tells whether the server could be reached from here. It says
// nothing about the agent.
type EndpointTest struct {
	TestedAt  time.Time `json:"tested_at"`
	Succeeded bool      `json:"succeeded"`
	Reason    Reason    `json:"reason_code,omitempty"`
	Summary   string    `json:"summary,omitempty"`
	ToolCount *int      `json:"tool_count,omitempty"`
}

// Fault is an error with its time.
type Fault struct {
	At      time.Time `json:"occurred_at"`
	Reason  Reason    `json:"reason_code,omitempty"`
	Summary string    `json:"summary,omitempty"`
}

// CurrentAttempt returns the attempt under way, nil before the first.
func (r Report) CurrentAttempt() *Attempt {
	if i := r.find(r.Current); i >= 0 {
		a := r.Attempts[i]
		return &a
	}
	return nil
}

func (r Report) find(attempt string) int {
	return slices.IndexFunc(r.Attempts, func(a Attempt) bool { return a.ID == attempt })
}

// Server returns the row of a server, nil if there is none.
func (a *Attempt) Server(name string) *Server {
	i, found := a.index(name)
	if !found {
		return nil
	}
	s := a.Servers[i]
	return &s
}

func (a *Attempt) index(server string) (int, bool) {
	return slices.BinarySearchFunc(a.Servers, server, func(s Server, n string) int { return strings.Compare(s.Name, n) })
}

// UpdatedAt is the time of the newest evidence of the current attempt.
func (r Report) UpdatedAt() time.Time {
	if a := r.CurrentAttempt(); a != nil {
		return a.UpdatedAt
	}
	return time.Time{}
}

// Fresher returns the newer of a report that came live and one that was read
// from a store: the stored one only if it is strictly newer.
func Fresher(live, stored Report) Report {
	if stored.UpdatedAt().After(live.UpdatedAt()) {
		return stored
	}
	return live
}

func (s *Server) has(k Kind) bool { _, ok := s.Steps[k]; return ok }

func (s *Server) at(k Kind) time.Time { return s.Steps[k].At }

// newest returns the later of two steps; the first if they are of one time.
func (s *Server) newest(a, b Kind) Step {
	if s.at(b).After(s.at(a)) {
		return s.Steps[b]
	}
	return s.Steps[a]
}

// agentOnly reports whether nobody but the agent spoke of the server.
func (s *Server) agentOnly() bool {
	for k := range s.Steps {
		if k != AgentConnected && k != AgentFailed {
			return false
		}
	}
	return true
}

func latest(times ...time.Time) time.Time {
	var l time.Time
	for _, t := range times {
		if t.After(l) {
			l = t
		}
	}
	return l
}
