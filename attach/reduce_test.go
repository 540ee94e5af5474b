package attach_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/attach"
)

func reason(r attach.Reason) func(*attach.Evidence) { return func(e *attach.Evidence) { e.Reason = r } }

func over(tr attach.Transport) func(*attach.Evidence) {
	return func(e *attach.Evidence) { e.Transport = tr }
}

func era(v attach.Era) func(*attach.Evidence) { return func(e *attach.Evidence) { e.Era = v } }

func tools(n int) func(*attach.Evidence) { return func(e *attach.Evidence) { e.ToolCount = new(n) } }

func connection(id string) func(*attach.Evidence) {
	return func(e *attach.Evidence) { e.ConnectionID = attach.ConnectionID(id) }
}

// The status is the strongest evidence, with its reason and its colour.
//
//
func TestStatuses(t *testing.T) {
	t.Parallel()
	resolved, delivered := saw(attach.ServerResolved, 0), saw(attach.ServerDelivered, 1)
	connected := saw(attach.InitializeObserved, 3, era(attach.EraLegacy))
	listed, used := saw(attach.ToolsListObserved, 4, tools(2)), saw(attach.ToolCallObserved, 5)
	refused := saw(attach.ServerError, 6, reason(attach.ReasonConnectRefused))
	for name, tc := range map[string]struct {
		all    []attach.Evidence
		status attach.Status
		reason attach.Reason
		tone   attach.Tone
	}{
		"configured":               {[]attach.Evidence{resolved}, attach.Unknown, "", attach.Grey},
		"delivered":                {[]attach.Evidence{resolved, delivered}, attach.Delivered, "", attach.Amber},
		"accepted by a CLI agent":  {[]attach.Evidence{resolved, saw(attach.SessionAccepted, 2)}, attach.Delivered, "", attach.Amber},
		"a probe":                  {[]attach.Evidence{delivered, saw(attach.DiscoverObserved, 2, era(attach.EraLegacy))}, attach.Delivered, "", attach.Amber},
		"discovered":               {[]attach.Evidence{delivered, saw(attach.DiscoverObserved, 2, era(attach.EraModern))}, attach.Connected, "", attach.Amber},
		"discovered, then a probe": {[]attach.Evidence{saw(attach.DiscoverObserved, 2, era(attach.EraModern)), saw(attach.DiscoverObserved, 3, era(attach.EraLegacy))}, attach.Connected, "", attach.Amber},
		"connected":                {[]attach.Evidence{delivered, connected}, attach.Connected, "", attach.Amber},
		"listed":                   {[]attach.Evidence{delivered, connected, listed}, attach.Active, "", attach.Green},
		"used":                     {[]attach.Evidence{delivered, connected, listed, used}, attach.Active, "", attach.Green},
		"used, list not seen":      {[]attach.Evidence{delivered, used}, attach.Connected, "", attach.Amber},
		"failed":                   {[]attach.Evidence{delivered, refused}, attach.Failed, attach.ReasonConnectRefused, attach.Red},
		"failed later":             {[]attach.Evidence{delivered, connected, listed, refused}, attach.Failed, attach.ReasonConnectRefused, attach.Red},
		"failed, then connected":   {[]attach.Evidence{delivered, refused, saw(attach.InitializeObserved, 7)}, attach.Connected, "", attach.Amber},
		"failed, then listed":      {[]attach.Evidence{delivered, refused, saw(attach.ToolsListObserved, 7)}, attach.Active, "", attach.Green},
		"method not found":         {[]attach.Evidence{delivered, connected, listed, saw(attach.RequestError, 8, reason(attach.ReasonMethodNotFound))}, attach.Active, "", attach.Green},
		"an error and nothing":     {[]attach.Evidence{delivered, saw(attach.RequestError, 8)}, attach.Delivered, "", attach.Amber},
		"agent says it failed":     {[]attach.Evidence{delivered, saw(attach.AgentFailed, 3)}, attach.Failed, attach.ReasonAgentReported, attach.Red},
		"agent was wrong":          {[]attach.Evidence{delivered, saw(attach.AgentFailed, 3), listed}, attach.Active, "", attach.Green},
		"agent says it connected":  {[]attach.Evidence{delivered, saw(attach.AgentConnected, 3)}, attach.Connected, attach.ReasonAgentReported, attach.Amber},
		"advertised no transport":  {[]attach.Evidence{resolved, saw(attach.ServerFiltered, 1, reason(attach.ReasonUnsupportedAdvertised))}, attach.Filtered, attach.ReasonUnsupportedAdvertised, attach.Grey},
		"no strategy":              {[]attach.Evidence{resolved, saw(attach.ServerFiltered, 1, reason(attach.ReasonNoStrategy))}, attach.Unavailable, attach.ReasonNoStrategy, attach.Grey},
		"a reason of tomorrow":     {[]attach.Evidence{resolved, saw(attach.ServerFiltered, 1, reason("moon_phase"))}, attach.Filtered, "moon_phase", attach.Grey},
		"the other transport":      {[]attach.Evidence{delivered, saw(attach.ServerFiltered, 2, over(attach.SSE), reason(attach.ReasonDuplicateName))}, attach.Delivered, "", attach.Amber},
		"a kind of tomorrow":       {[]attach.Evidence{delivered, saw("tools_loved", 2)}, attach.Delivered, "", attach.Amber},
		"a tested endpoint":        {[]attach.Evidence{delivered, saw(attach.EndpointTested, 9, func(e *attach.Evidence) { e.Succeeded = new(true) })}, attach.Delivered, "", attach.Amber},
		"closed, and that is said": {[]attach.Evidence{delivered, connected, listed, saw(attach.ConnectionClosed, 9)}, attach.Active, "", attach.Green},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := row(t, tc.all...)
			if s.Status != tc.status || s.Reason != tc.reason || s.Status.Tone() != tc.tone {
				t.Errorf("got %s %q %s, want %s %q %s", s.Status, s.Reason, s.Status.Tone(), tc.status, tc.reason, tc.tone)
			}
		})
	}
}

// A failure that a success cleared leaves its time.
//
//
func TestFailedAtStays(t *testing.T) {
	t.Parallel()
	s := row(t, saw(attach.ServerError, 2, reason(attach.ReasonTimeout)), saw(attach.ToolsListObserved, 3))
	if s.Status != attach.Active || !s.FailedAt.Equal(at(2)) || s.Steps[attach.ServerError].Reason != attach.ReasonTimeout {
		t.Errorf("got %s", text(t, s))
	}
}

// Connections are told apart, an end is shown, and a later connection restores.
//
//
func TestConnections(t *testing.T) {
	t.Parallel()
	open1, open2 := saw(attach.InitializeObserved, 1, connection("1")), saw(attach.InitializeObserved, 2, connection("2"))
	close1, close2 := saw(attach.ConnectionClosed, 5, connection("1")), saw(attach.ConnectionClosed, 6, connection("2"))
	s := row(t, open1, open2)
	if len(s.Connections) != 2 || s.ConnectionID != attach.ConnectionID("2") || !s.DisconnectedAt.IsZero() {
		t.Errorf("two: %s", text(t, s))
	}
	if s = row(t, open1, open2, close2); s.ConnectionID != attach.ConnectionID("1") || !s.DisconnectedAt.IsZero() {
		t.Errorf("one left: %s", text(t, s))
	}
	if s = row(t, open1, open2, close2, close1); !s.DisconnectedAt.Equal(at(6)) || s.Status != attach.Connected {
		t.Errorf("none left: %s", text(t, s))
	}
	if s = row(t, open1, close1, saw(attach.InitializeObserved, 7, connection("3"))); !s.DisconnectedAt.IsZero() || s.ConnectionID != attach.ConnectionID("3") {
		t.Errorf("another: %s", text(t, s))
	}
	// A client of 2026-07-28 has no connection, and none is made up.
	if s = row(t, saw(attach.DiscoverObserved, 1, era(attach.EraModern)), saw(attach.ToolsListObserved, 2)); s.ConnectionID != "" || s.Connections != nil || !s.DisconnectedAt.IsZero() {
		t.Errorf("modern: %s", text(t, s))
	}
	// A probe and its fallback are one attachment, of the era that was agreed on.
	s = row(t, saw(attach.DiscoverObserved, 1, era(attach.EraLegacy)), saw(attach.InitializeObserved, 2, era(attach.EraLegacy), connection("1"), func(e *attach.Evidence) {
		e.ClientName, e.ClientVersion, e.ProtocolVersion = "claude-code", "2", "2025-11-25"
	}))
	want := &attach.Client{Name: "claude-code", Version: "2", ProtocolVersion: "2025-11-25", Era: attach.EraLegacy}
	if d := cmp.Diff(want, s.Client); d != "" || len(s.Connections) != 1 {
		t.Errorf("fallback: %s %s", d, text(t, s))
	}
}

// An error that names no server colours no row.
//
//
func TestErrorsOfTheSession(t *testing.T) {
	t.Parallel()
	for _, kind := range []attach.Kind{attach.SessionError, attach.ServerError} {
		r := reduce(t, begin(t, attach.Report{}, "a", 0), saw(attach.ServerDelivered, 1), saw(kind, 2, func(e *attach.Evidence) {
			e.Server, e.Summary, e.Reason = "", "model overloaded", attach.ReasonSessionFailed
		}))
		a := r.CurrentAttempt()
		if a.SessionError == nil || a.SessionError.Summary != "model overloaded" || a.Server("m").Status != attach.Delivered || len(a.Servers) != 1 {
			t.Errorf("%s: %s", kind, text(t, a))
		}
	}
}

// An agent that does not answer because it waits for a server is said to be
// blocked until it answers.
//
//
func TestBlockedSession(t *testing.T) {
	t.Parallel()
	ofSession := func(kind attach.Kind, second int) attach.Evidence {
		return saw(kind, second, func(e *attach.Evidence) { e.Server, e.ACPSessionID = "", "acp" })
	}
	r := reduce(t, begin(t, attach.Report{}, "a", 0), ofSession(attach.SessionBlocked, 5))
	if a := r.CurrentAttempt(); !a.SessionBlockedAt.Equal(at(5)) {
		t.Errorf("got %s", text(t, a))
	}
	r = reduce(t, r, ofSession(attach.SessionAccepted, 9))
	if a := r.CurrentAttempt(); !a.SessionBlockedAt.IsZero() || !a.SessionAcceptedAt.Equal(at(9)) || a.ACPSessionID != "acp" {
		t.Errorf("got %s", text(t, a))
	}
}

// A new attempt takes over at once: nothing of the old one colours it, and
// evidence for the old one is refused, but for what says that it is late.
//
//
func TestStaleAttempts(t *testing.T) {
	t.Parallel()
	r := reduce(t, begin(t, attach.Report{}, "a", 0), saw(attach.ServerDelivered, 1), saw(attach.ToolsListObserved, 2))
	r = begin(t, r, "b", 10)
	if a := r.CurrentAttempt(); a.ID != "b" || len(a.Servers) != 0 || !r.Attempts[1].SupersededAt.Equal(at(10)) {
		t.Fatalf("got %s", text(t, r))
	}
	if e := r.Attempts[1].Evidence; e[len(e)-1].Kind != attach.AttemptSuperseded {
		t.Errorf("the end of the old attempt: %s", text(t, e))
	}
	before := text(t, r)
	refused := func(e attach.Evidence, why error) {
		t.Helper()
		after, err := attach.Reduce(r, e)
		var refusal *attach.RefusedError
		if !errors.Is(err, why) || !errors.As(err, &refusal) || text(t, after) != before {
			t.Errorf("%s: %v, %s", e.Kind, err, text(t, after))
		}
	}
	refused(saw(attach.ToolsListObserved, 11), attach.ErrStale)
	refused(saw(attach.ToolsListObserved, 11, func(e *attach.Evidence) { e.AttemptID = "z" }), attach.ErrStale)
	refused(saw(attach.ToolsListObserved, 11, func(e *attach.Evidence) { e.AttemptID, e.ExecutionID = "b", "y" }), attach.ErrForeign)
	refused(saw(attach.LateTraffic, 11, func(e *attach.Evidence) { e.AttemptID = "b" }), attach.ErrInvalid)
	refused(saw(attach.ToolsListObserved, 11, func(e *attach.Evidence) { e.AttemptID, e.Server = "b", "" }), attach.ErrInvalid)
	refused(saw(attach.ToolsListObserved, 11, func(e *attach.Evidence) { e.AttemptID, e.OccurredAt = "b", time.Time{} }), attach.ErrInvalid)
	refused(saw("<b>", 11, func(e *attach.Evidence) { e.AttemptID = "b" }), attach.ErrInvalid)

	r = reduce(t, r, saw(attach.LateTraffic, 12, func(e *attach.Evidence) { e.Server = "" }))
	if old := r.Attempts[1]; !old.LateTrafficAt.Equal(at(12)) || old.Server("m").Status != attach.Active {
		t.Errorf("got %s", text(t, old))
	}
	if len(r.CurrentAttempt().Evidence) != 0 {
		t.Errorf("late traffic was credited to the new attempt: %s", text(t, r.CurrentAttempt()))
	}
}

// A report belongs to one session.
func TestBeginRefuses(t *testing.T) {
	t.Parallel()
	r := begin(t, attach.Report{}, "a", 0)
	good := attach.Start{SessionID: "s", ExecutionID: "x", AttemptID: "b", StartedAt: at(1)}
	for name, tc := range map[string]struct {
		change func(*attach.Start)
		why    error
	}{
		"another session": {func(s *attach.Start) { s.SessionID = "other" }, attach.ErrForeign},
		"no session":      {func(s *attach.Start) { s.SessionID = "" }, attach.ErrInvalid},
		"no execution":    {func(s *attach.Start) { s.ExecutionID = "" }, attach.ErrInvalid},
		"no id":           {func(s *attach.Start) { s.AttemptID = "" }, attach.ErrInvalid},
		"no time":         {func(s *attach.Start) { s.StartedAt = time.Time{} }, attach.ErrInvalid},
		"a long id":       {func(s *attach.Start) { s.TaskID = strings.Repeat("x", 1000) }, attach.ErrInvalid},
	} {
		start := good
		tc.change(&start)
		if got, err := r.Begin(start); !errors.Is(err, tc.why) || text(t, got) != text(t, r) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What an agent says about servers of its own cannot crowd out ours.
func TestAgentsCannotCrowdOut(t *testing.T) {
	t.Parallel()
	r := begin(t, attach.Report{}, "a", 0)
	for i := range 2 * attach.MaxServers {
		r = reduce(t, r, saw(attach.AgentFailed, i, func(e *attach.Evidence) { e.Server = fmt.Sprintf("!%03d", i) }))
	}
	for i := range attach.MaxServers {
		r = reduce(t, r, saw(attach.ServerDelivered, i, func(e *attach.Evidence) { e.Server = fmt.Sprintf("z%03d", i) }))
	}
	a := r.CurrentAttempt()
	for _, s := range a.Servers {
		if s.Source == attach.SourceAgent || s.Status != attach.Delivered {
			t.Fatalf("row %s: %s", s.Name, s.Status)
		}
	}
	if !a.ServersTruncated {
		t.Error("nobody is told")
	}
}

// A reader takes what a newer version writes.
//
//
func TestReadersAreTolerant(t *testing.T) {
	t.Parallel()
	var r attach.Report
	err := json.Unmarshal([]byte(`{"schema_version":7,"current_attachment_attempt_id":"a","mood":"good","attempts":[{"attachment_attempt_id":"a","session_id":"s",
"execution_id":"x","started_at":"2026-11-29T12:00:00Z","updated_at":"2026-11-29T12:00:00Z","evidence":[{"kind":"hummed","server_name":"m"}],
"servers":[{"name":"m","status":"singing","reason_code":"moon","tune":[1]}]}]}`), &r)
	if err != nil {
		t.Fatal(err)
	}
	s := r.CurrentAttempt().Server("m")
	if s.Status.Tone() != attach.Grey || !strings.Contains(s.Status.Label(), "singing") || !strings.Contains(s.Reason.Text(), "moon") {
		t.Errorf("%s, %q, %q", s.Status.Tone(), s.Status.Label(), s.Reason.Text())
	}
	reduce(t, r, saw(attach.ToolsListObserved, 3))
}

// Of what came live and what was stored the newer is shown, and of equals the
// live one.
func TestFresher(t *testing.T) {
	t.Parallel()
	old := begin(t, attach.Report{}, "a", 0)
	newer := reduce(t, old, saw(attach.ServerDelivered, 5))
	same := reduce(t, old, saw(attach.ServerDelivered, 5), saw(attach.RequestError, 4))
	for _, tc := range []struct{ live, stored, want attach.Report }{
		{old, newer, newer},
		{newer, old, newer},
		{same, newer, same},
		{attach.Report{}, newer, newer},
		{newer, attach.Report{}, newer},
	} {
		if d := cmp.Diff(tc.want, attach.Fresher(tc.live, tc.stored)); d != "" {
			t.Error(d)
		}
	}
}

// The members of the contract have these names.
//
//
func TestContract(t *testing.T) {
	t.Parallel()
	r := reduce(
		t, begin(t, attach.Report{}, "a", 0),
		saw(attach.ServerResolved, 1, func(e *attach.Evidence) { e.Source, e.Target = attach.SourceProfile, "https://h.example:8443/x?k=v" }),
		saw(attach.ServerDelivered, 2, over(attach.HTTP)),
		saw(attach.InitializeObserved, 3, connection("1")), saw(attach.ToolsListObserved, 4, tools(3)), saw(attach.ToolCallObserved, 5),
		saw(attach.ConnectionClosed, 6, connection("1")), saw(attach.EndpointTested, 7),
		saw(attach.SessionAccepted, 8, func(e *attach.Evidence) { e.Server, e.ACPSessionID = "", "acp" }),
	)
	var doc map[string]any
	if err := json.Unmarshal([]byte(text(t, r)), &doc); err != nil {
		t.Fatal(err)
	}
	has := func(m map[string]any, names ...string) {
		t.Helper()
		for _, n := range names {
			if _, ok := m[n]; !ok {
				t.Errorf("no %s in %v", n, m)
			}
		}
	}
	has(doc, "schema_version", "current_attachment_attempt_id", "attempts")
	a := doc["attempts"].([]any)[0].(map[string]any)
	has(a, "task_id", "session_id", "execution_id", "attachment_attempt_id", "agent_id", "acp_session_id", "started_at", "updated_at", "session_accepted_at", "evidence", "servers")
	s := a["servers"].([]any)[0].(map[string]any)
	has(s, "name", "source", "transport", "target", "status", "connection_id", "tool_count", "tools_listed_at", "last_used_at", "disconnected_at", "endpoint_test")
	if s["target"] != "https://h.example:8443" || doc["schema_version"] != 1.0 {
		t.Errorf("got %v", s["target"])
	}
}

// The end of the agent is told, and takes nothing back that was seen.
func TestEndOfAgent(t *testing.T) {
	t.Parallel()
	r := reduce(t, begin(t, attach.Report{}, "a", 0), saw(attach.ToolsListObserved, 2), saw(attach.AgentEnded, 9, func(e *attach.Evidence) { e.Server = "" }))
	a := r.CurrentAttempt()
	if !a.AgentEndedAt.Equal(at(9)) || a.Server("m").Status != attach.Active {
		t.Errorf("got %s", text(t, a))
	}
}

// What a decision rests on is kept with it.
//
//
func TestCapabilityOfADecision(t *testing.T) {
	t.Parallel()
	s := row(t, saw(attach.ServerDelivered, 1, func(e *attach.Evidence) { e.Transport, e.Capability = attach.Stdio, attach.Assumed }))
	if got := s.Steps[attach.ServerDelivered]; got.Capability != attach.Assumed || s.Transport != attach.Stdio {
		t.Errorf("got %s", text(t, s))
	}
}
