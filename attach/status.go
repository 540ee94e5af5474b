package attach

import "time"

// Status is the strongest thing that is known about a server.
type Status string

// Statuses, from most to least.
const (
	Active      Status = "active"      // the agent listed the tools
	Connected   Status = "connected"   // the agent connected
	Delivered   Status = "delivered"   // the agent was given the server; whether it connected was not seen
	Failed      Status = "failed"      // an explicit error of this server, and no success after it
	Filtered    Status = "filtered"    // left out by policy or for what the agent cannot take
	Unavailable Status = "unavailable" // there is no way to hand it over
	Unknown     Status = "unknown"     // configured, and nothing else is known
)

// Tone is the colour in which a status is shown.
type Tone string

// Tones.
const (
	Green Tone = "green"
	Amber Tone = "amber"
	Red   Tone = "red"
	Grey  Tone = "grey"
)

// Label is the status in words. One of a newer version is shown as it is.
func (s Status) Label() string {
	switch s {
	case Active:
		return "Active"
	case Connected:
		return "Connected"
	case Delivered:
		return "Delivered · connection unverified"
	case Failed:
		return "Failed"
	case Filtered:
		return "Filtered"
	case Unavailable:
		return "Unavailable"
	case Unknown, "":
		return "Configured"
	}
	return "Unknown (" + string(s) + ")"
}

// Tone is the status as a colour; what is not known is grey.
func (s Status) Tone() Tone {
	switch s {
	case Active:
		return Green
	case Connected, Delivered:
		return Amber
	case Failed:
		return Red
	case Filtered, Unavailable, Unknown:
		return Grey
	}
	return Grey
}

// derive fills in what follows from the steps of a row.
func (s *Server) derive() {
	s.describe()
	listed, used, failure := s.at(ToolsListObserved), s.at(ToolCallObserved), s.failure()
	s.FailedAt = failure.At
	s.Status, s.Reason, s.Summary = s.placement()
	switch lively := latest(s.connectedAt(), listed, used); {
	case !failure.At.IsZero() && failure.At.After(lively):
		s.Status, s.Reason, s.Summary = Failed, failure.Reason, failure.Summary
	case lively.IsZero():
	// A success clears a failure: the strongest evidence counts again.
	case !listed.IsZero():
		s.Status, s.Reason, s.Summary = Active, "", ""
	default:
		s.Status, s.Reason, s.Summary = Connected, "", ""
		if s.ConnectedAt.IsZero() && used.IsZero() {
			s.Reason = ReasonAgentReported // nobody but the agent says so
		}
	}
	s.connection(listed, used)
}

// placement is the status as far as it follows from the configuration. What was
// delivered by one transport is not made grey by another that was left out.
func (s *Server) placement() (Status, Reason, string) {
	filtered, left := s.Steps[ServerFiltered]
	switch {
	case s.has(ServerDelivered), s.has(SessionAccepted):
		return Delivered, "", ""
	case left:
		return filtered.Reason.omission(), filtered.Reason, filtered.Summary
	}
	return Unknown, "", ""
}

func (s *Server) describe() {
	resolved, delivered, filtered := s.Steps[ServerResolved], s.Steps[ServerDelivered], s.Steps[ServerFiltered]
	s.Source = orElse(resolved.Source, orElse(delivered.Source, filtered.Source))
	if s.Source == "" && s.agentOnly() {
		s.Source = SourceAgent
	}
	s.Transport = orElse(delivered.Transport, orElse(resolved.Transport, filtered.Transport))
	s.Target = orElse(delivered.Target, orElse(resolved.Target, filtered.Target))
	list := s.Steps[ToolsListObserved]
	s.ToolCount, s.ToolsListedAt = list.ToolCount, list.At
	call := s.Steps[ToolCallObserved]
	s.LastUsedAt, s.LastTool = call.At, call.Tool
	s.Client = nil
	who := s.newest(InitializeObserved, DiscoverObserved)
	if who.ClientName != "" || who.ProtocolVersion != "" || who.Era != "" {
		s.Client = &Client{Name: who.ClientName, Version: who.ClientVersion, ProtocolVersion: who.ProtocolVersion, Era: who.Era}
	}
	s.EndpointTest = nil
	if t, ok := s.Steps[EndpointTested]; ok {
		s.EndpointTest = &EndpointTest{TestedAt: t.At, Succeeded: t.Succeeded != nil && *t.Succeeded, Reason: t.Reason, Summary: t.Summary, ToolCount: t.ToolCount}
	}
}

// failure is the latest explicit error.
func (s *Server) failure() Step {
	f := s.newest(ServerError, AgentFailed)
	if !f.At.IsZero() && f.Reason == "" {
		f.Reason = ReasonProtocolError
		if f.At.Equal(s.at(AgentFailed)) {
			f.Reason = ReasonAgentReported
		}
	}
	return f
}

// connectedAt is the latest proof of a connection, and sets the row's: what only
// the agent says is not shown as seen. A discovery of old revisions is a probe.
func (s *Server) connectedAt() time.Time {
	s.ConnectedAt = s.at(InitializeObserved)
	if d := s.Steps[DiscoverObserved]; d.Era == EraModern {
		s.ConnectedAt = latest(s.ConnectedAt, d.At)
	}
	return latest(s.ConnectedAt, s.at(AgentConnected))
}

// connection names the newest open connection, and tells of the end of the last:
// one that is open, or that leaves no trace, keeps the row connected.
func (s *Server) connection(listed, used time.Time) {
	s.ConnectionID, s.DisconnectedAt = "", time.Time{}
	var open, closed Connection
	for _, c := range s.Connections {
		if c.Closed && !c.At.Before(closed.At) {
			closed = c
		}
		if !c.Closed && !c.At.Before(open.At) {
			open = c
		}
	}
	s.ConnectionID = orElse(open.ID, closed.ID)
	if open.ID == "" && !latest(s.ConnectedAt, listed, used).After(closed.At) {
		s.DisconnectedAt = closed.At
	}
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
