package attach

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reasons of a [RefusedError].
var (
	ErrStale   = errors.New("the attempt is not the current one")
	ErrForeign = errors.New("it belongs to another session or execution")
	ErrInvalid = errors.New("it is not well formed")
)

// RefusedError says that a report did not take something. It wraps ErrStale,
// ErrForeign or ErrInvalid.
type RefusedError struct {
	What string // "evidence" or "attempt"
	Kind Kind   // of evidence; empty if that is not well formed
	Err  error
}

func (e *RefusedError) Error() string {
	if e.Kind == "" {
		return fmt.Sprintf("take %s: %v", e.What, e.Err)
	}
	return fmt.Sprintf("take %s %q: %v", e.What, string(e.Kind), e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Start describes a new attempt. SessionID, ExecutionID, AttemptID and StartedAt
// are required.
type Start struct {
	TaskID, SessionID, ExecutionID, AttemptID string
	AgentID, AgentProfileID                   string
	StartedAt                                 time.Time
}

// Begin returns the report with a new attempt, which supersedes those that began
// before it. Beginning an attempt again changes nothing. Errors: *RefusedError.
func (r Report) Begin(s Start) (Report, error) {
	refuse := func(err error) (Report, error) { return r, &RefusedError{What: "attempt", Err: err} }
	if s.SessionID == "" || s.ExecutionID == "" || s.AttemptID == "" {
		return refuse(ErrInvalid)
	}
	for _, id := range []string{s.TaskID, s.SessionID, s.ExecutionID, s.AttemptID, s.AgentID, s.AgentProfileID} {
		if len(id) > maxID {
			return refuse(ErrInvalid)
		}
	}
	at, ok := moment(s.StartedAt)
	if !ok {
		return refuse(ErrInvalid)
	}
	for _, a := range r.Attempts {
		if a.SessionID != s.SessionID {
			return refuse(ErrForeign)
		}
	}
	out := r
	out.SchemaVersion = SchemaVersion
	if r.find(s.AttemptID) < 0 {
		out.Attempts = append(slices.Clone(r.Attempts), Attempt{
			TaskID: s.TaskID, SessionID: s.SessionID, ExecutionID: s.ExecutionID, ID: s.AttemptID,
			AgentID: s.AgentID, AgentProfileID: s.AgentProfileID, StartedAt: at, UpdatedAt: at,
			Evidence: []Evidence{}, Servers: []Server{},
		})
		out.settle()
	}
	return out, nil
}

// settle orders the attempts, drops the oldest and marks those that were
// superseded.
func (r *Report) settle() {
	slices.SortFunc(r.Attempts, func(a, b Attempt) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(b.ID, a.ID))
	})
	r.Attempts = r.Attempts[:min(len(r.Attempts), MaxAttempts)]
	r.Current = r.Attempts[0].ID
	for i := 1; i < len(r.Attempts); i++ {
		r.Attempts[i].supersede(r.Attempts[i-1].StartedAt)
	}
}

func (a *Attempt) supersede(at time.Time) {
	if a.SupersededAt.Equal(at) {
		return
	}
	// An attempt between the two became known later.
	kept := slices.DeleteFunc(slices.Clone(a.Evidence), func(e Evidence) bool { return e.Kind == AttemptSuperseded })
	a.SupersededAt = at
	a.SessionBlockedAt = time.Time{}
	ended := Evidence{AttemptID: a.ID, ExecutionID: a.ExecutionID, Kind: AttemptSuperseded, OccurredAt: at}
	i, _ := slices.BinarySearchFunc(kept, ended, compare)
	a.Evidence = a.retain(slices.Insert(kept, i, ended))
	a.Servers = slices.Clone(a.Servers)
	for i := range a.Servers {
		a.Servers[i].Catalogue = nil
	}
}

// Reduce returns the report with one more piece of evidence. It is pure, and
// within an attempt any order of the same evidence, with any repetitions, gives
// the same report. Errors: *RefusedError, with the report as it was.
func Reduce(r Report, e Evidence) (Report, error) {
	refuse := func(err error) (Report, error) {
		return r, &RefusedError{What: "evidence", Kind: Kind(code(string(e.Kind))), Err: err}
	}
	e, ok := e.safe()
	if !ok {
		return refuse(ErrInvalid)
	}
	i := r.find(e.AttemptID)
	switch {
	case i < 0, e.AttemptID != r.Current && e.Kind != LateTraffic:
		return refuse(ErrStale)
	case e.Kind == LateTraffic && e.AttemptID == r.Current, e.Kind == AttemptSuperseded:
		return refuse(ErrInvalid) // Begin says so itself
	case e.ExecutionID != r.Attempts[i].ExecutionID:
		return refuse(ErrForeign)
	}
	out := r
	out.Attempts = slices.Clone(r.Attempts)
	a := &out.Attempts[i]
	if e.Server == "" {
		a.takeSession(e)
	} else {
		a.takeServer(e)
	}
	e.Catalogue = nil // the row has it
	a.UpdatedAt = latest(a.UpdatedAt, e.OccurredAt)
	if i, found := slices.BinarySearchFunc(a.Evidence, e, compare); !found {
		a.Evidence = a.retain(slices.Insert(slices.Clone(a.Evidence), i, e))
	}
	return out, nil
}

// takeSession notes what concerns no single server.
func (a *Attempt) takeSession(e Evidence) {
	at := e.OccurredAt
	switch e.Kind {
	case SessionAccepted:
		// Of two at one time the greater id counts, in any order.
		if at.After(a.SessionAcceptedAt) || at.Equal(a.SessionAcceptedAt) && e.ACPSessionID > a.ACPSessionID {
			a.SessionAcceptedAt, a.ACPSessionID = at, e.ACPSessionID
		}
	case SessionBlocked:
		a.SessionBlockedAt = latest(a.SessionBlockedAt, at)
	case SessionError:
		f := &Fault{At: at, Reason: e.Reason, Summary: e.Summary}
		if a.SessionError == nil || a.SessionError.before(f) {
			a.SessionError = f
		}
	case LateTraffic:
		a.LateTrafficAt = latest(a.LateTrafficAt, at)
	case AgentEnded:
		a.AgentEndedAt = latest(a.AgentEndedAt, at)
	default: // of a newer version
	}
	if !a.SessionBlockedAt.After(a.SessionAcceptedAt) {
		a.SessionBlockedAt = time.Time{}
	}
}

func (f *Fault) before(g *Fault) bool {
	return cmp.Or(f.At.Compare(g.At), cmp.Compare(f.Reason, g.Reason), strings.Compare(f.Summary, g.Summary)) < 0
}

// takeServer folds the evidence into the row of its server.
func (a *Attempt) takeServer(e Evidence) {
	a.Servers = slices.Clone(a.Servers)
	i, found := a.index(e.Server)
	if !found {
		a.Servers = slices.Insert(a.Servers, i, Server{Name: e.Server})
	}
	a.Servers[i].take(e)
	if len(a.Servers) > MaxServers {
		a.ServersTruncated = true
		i := a.surplus()
		a.Servers = slices.Delete(a.Servers, i, i+1)
	}
}

// surplus is the row that has to go: the last one, but first those of which only
// the agent speaks, so that it cannot crowd out ours.
func (a *Attempt) surplus() int {
	for i := len(a.Servers) - 1; i >= 0; i-- {
		if a.Servers[i].agentOnly() {
			return i
		}
	}
	return len(a.Servers) - 1
}

func (s *Server) take(e Evidence) {
	s.Steps = maps.Clone(s.Steps)
	if s.Steps == nil {
		s.Steps = map[Kind]Step{}
	}
	if old, ok := s.Steps[e.Kind]; !ok || better(old.evidence(s.Name, e.Kind), e.bare()) < 0 {
		if e.Kind == ToolsListObserved {
			s.Catalogue = e.Catalogue
		}
		detail := e.Detail
		detail.Catalogue = nil
		s.Steps[e.Kind] = Step{At: e.OccurredAt, Detail: detail}
	}
	if e.ConnectionID != "" {
		s.connect(Connection{ID: e.ConnectionID, At: e.OccurredAt, Closed: e.Kind == ConnectionClosed})
	}
	s.derive()
}

// evidence is what a step was made of, and bare the same of new evidence.
func (p Step) evidence(server string, kind Kind) Evidence {
	return Evidence{Server: server, Kind: kind, OccurredAt: p.At, Detail: p.Detail}
}

func (e Evidence) bare() Evidence {
	e.Catalogue = nil
	return e
}

// connect notes the latest that is known of a connection. Keeping the newest few
// of such notes gives the same in any order.
func (s *Server) connect(c Connection) {
	s.Connections = slices.Clone(s.Connections)
	i := slices.IndexFunc(s.Connections, func(o Connection) bool { return o.ID == c.ID })
	switch {
	case i < 0:
		s.Connections = append(s.Connections, c)
	case c.At.After(s.Connections[i].At), c.At.Equal(s.Connections[i].At) && c.Closed:
		s.Connections[i] = c
	}
	slices.SortFunc(s.Connections, func(a, b Connection) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(a.ID, b.ID)) })
	s.Connections = s.Connections[:min(len(s.Connections), MaxConnections)]
}

// moment brings a time to one form, which survives JSON.
func moment(t time.Time) (time.Time, bool) {
	t = t.UTC().Round(0)
	return t, !t.IsZero() && t.Year() > 0 && t.Year() < 10000
}
