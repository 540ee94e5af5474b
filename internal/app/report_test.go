package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/scripted"
)

// What an agent does at our endpoint is seen, over every transport and in both
// eras: that it connected, listed so many tools, and called one, with the name of
// its client; and the end of its connections, with its own.
//
//
func TestReportOfASession(t *testing.T) {
	t.Parallel()
	for modes, want := range map[string]struct {
		transport  evidence.Transport
		capability evidence.Capability
		era        evidence.Era
		connected  bool
	}{
		"eager":              {evidence.HTTP, evidence.Advertised, evidence.EraModern, false},
		"async,legacy":       {evidence.HTTP, evidence.Advertised, evidence.EraLegacy, true},
		"nohttp":             {evidence.SSE, evidence.Advertised, evidence.EraLegacy, true},
		"nohttp,nosse":       {evidence.Stdio, evidence.Assumed, evidence.EraLegacy, true},
		"eager,resume,quiet": {evidence.HTTP, evidence.Advertised, evidence.EraModern, false},
	} {
		t.Run(modes, func(t *testing.T) {
			t.Parallel()
			a := reporting(t, t.TempDir(), nil)
			one := start(t, a, mockSpec(t, "a", modes))
			if _, err := a.Report(t.Context(), "a"); !errors.Is(err, ErrNoReport) {
				t.Errorf("before the agent was started: %v", err)
			}
			mustSay(t, one, `CALL inbox_list {}`)
			at := awaitReport(t, a, "a", "call", func(at evidence.Attempt) bool { return !at.Server(builtin).LastUsedAt.IsZero() })
			s := at.Server(builtin)
			tools := len(one.tools(t.Context()))
			if s.Status != evidence.Active || s.Source != evidence.SourceBuiltin || s.Transport != want.transport || *s.ToolCount != tools ||
				s.LastTool != "inbox_list" || !strings.HasPrefix(s.Target, "http://127.0.0.1:") {
				t.Errorf("row %+v", s)
			}
			if got := s.Steps[evidence.ServerDelivered].Capability; got != want.capability {
				t.Errorf("delivered, as is %s, want %s", got, want.capability)
			}
			if s.Client == nil || s.Client.Era != want.era || s.Client.Name == "" || (s.ConnectionID != "") != want.connected {
				t.Errorf("client %+v, connection %q", s.Client, s.ConnectionID)
			}
			if s.Catalogue == nil || s.Catalogue.Total != tools || s.Catalogue.Tools[0].InputSchema == nil {
				t.Errorf("catalogue %+v", s.Catalogue)
			}
			if at.SessionID != "a" || at.AgentProfileID != "mock" || at.ExecutionID == "" || at.ACPSessionID == "" || at.SessionAcceptedAt.IsZero() || !at.AgentEndedAt.IsZero() {
				t.Errorf("attempt %+v", at)
			}
			if err := one.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			at = *report(t, a, "a").CurrentAttempt() // as it was written down
			if s := at.Server(builtin); at.AgentEndedAt.IsZero() || s.Status != evidence.Active || s.DisconnectedAt.IsZero() == want.connected {
				t.Errorf("after its end: %+v, %+v", at, s)
			}
		})
	}
}

// Two connections are two ids, and only a response that succeeded counts.
//
//
func TestConnectionsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	mustSay(t, one, "hello")
	server := fake.Starts()[0].MCPServers[0]
	resp, err := http.Post(server.HTTP, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}}`)) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	at := awaitReport(t, a, "a", "refusal", func(at evidence.Attempt) bool {
		s := at.Server(builtin)
		_, refused := s.Steps[evidence.RequestError]
		return refused
	})
	if s := at.Server(builtin); !s.ToolsListedAt.IsZero() || s.Status == evidence.Active {
		t.Errorf("after %s: %+v", body, s)
	}
	first, second := dialLegacy(t, server.HTTP), dialLegacy(t, server.HTTP)
	at = awaitReport(t, a, "a", "two connections", func(at evidence.Attempt) bool { return len(at.Server(builtin).Connections) == 2 })
	if c := at.Server(builtin).Connections; c[0].ID == c[1].ID || c[0].Closed || c[1].Closed {
		t.Errorf("connections %+v", c)
	}
	_, _ = first.Close(), second.Close()
	awaitReport(t, a, "a", "two ends", func(at evidence.Attempt) bool {
		return !slices.ContainsFunc(at.Server(builtin).Connections, func(c evidence.Connection) bool { return !c.Closed })
	})
}

// The connections of an agent that is killed end with it, though nobody says so.
//
//
func TestConnectionsEndWithTheAgent(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	mustSay(t, one, "hello")
	s := dialLegacy(t, fake.Starts()[0].MCPServers[0].HTTP)
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	awaitReport(t, a, "a", "list", is(builtin, evidence.Active))
	fake.Die("killed")
	at := awaitReport(t, a, "a", "end", func(at evidence.Attempt) bool { return !at.AgentEndedAt.IsZero() })
	if s := at.Server(builtin); len(s.Connections) != 1 || !s.Connections[0].Closed || s.DisconnectedAt.IsZero() {
		t.Errorf("after its end: %+v", s)
	}
	_ = s.Close()
}

// The beginning of an attempt is on disk, and told, before the agent gets
// anything; its own words about the session select no report.
//
//
func TestAttemptPrecedesDelivery(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	var mu sync.Mutex
	told := map[string]bool{}
	defer a.OnReport(func(c ReportChange) {
		mu.Lock()
		defer mu.Unlock()
		told[c.Report.Current] = true
	})()
	fake := agenttest.New()
	fake.OnStart = func(ctx context.Context, _ int, so agent.StartOptions, _ agent.Sink) error {
		servers, err := so.Attachment.Servers(ctx)
		if err != nil || servers[0].HTTP != so.MCPServers[0].HTTP {
			t.Errorf("servers %+v, %v", servers, err)
		}
		text, err := a.reports.store.LoadReport(ctx, "a")
		var kept evidence.Report
		if err != nil || json.Unmarshal(text, &kept) != nil {
			t.Errorf("on disk: %s, %v", text, err)
		}
		now := report(t, a, "a")
		mu.Lock()
		defer mu.Unlock()
		if kept.Current == "" || kept.Current != now.Current || !told[now.Current] {
			t.Errorf("on disk %q, now %q, told %v", kept.Current, now.Current, told)
		}
		if s := now.CurrentAttempt().Server(builtin); s == nil || s.Status != evidence.Unknown {
			t.Errorf("before the delivery: %+v", s)
		}
		so.Attachment.Saw(evidence.Evidence{AttemptID: "other", ExecutionID: "other", Server: "theirs", Kind: evidence.AgentFailed})
		return nil
	}
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	mustSay(t, one, "hello")
	if s := report(t, a, "a").CurrentAttempt().Server("theirs"); s == nil || s.Source != evidence.SourceAgent {
		t.Errorf("what the agent said went elsewhere: %+v", s)
	}
}

// A delivery that the agent refuses is an attempt of its own, and the next one has
// other ways in.
//
//
func TestRefusedDelivery(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	fake.OnStart = func(ctx context.Context, _ int, so agent.StartOptions, _ agent.Sink) error {
		first, err := so.Attachment.Servers(ctx)
		if err != nil {
			return err
		}
		so.Attachment.Decided([]agent.Injected{{Server: builtin, Transport: "http"}})
		so.Attachment.Answered("", errors.New("open session: call session/load: there is none"))
		second, err := so.Attachment.Servers(ctx)
		if err != nil {
			return err
		}
		if first[0].HTTP == second[0].HTTP || status(t, first[0].HTTP, nil) != http.StatusNotFound || status(t, second[0].HTTP, nil) == http.StatusNotFound {
			t.Errorf("ways in %s and %s", first[0].HTTP, second[0].HTTP)
		}
		so.Attachment.Decided([]agent.Injected{{Server: builtin, Transport: "http"}})
		so.Attachment.Answered("c", nil)
		return nil
	}
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	mustSay(t, one, "hello")
	r := report(t, a, "a")
	if len(r.Attempts) != 2 || r.Attempts[0].SessionAcceptedAt.IsZero() || r.Attempts[0].SessionError != nil || r.Attempts[1].SessionError == nil ||
		r.Attempts[1].SessionError.Summary != "call session/load: there is none" || r.Attempts[1].LateTrafficAt.IsZero() || r.Attempts[0].ExecutionID != r.Attempts[1].ExecutionID {
		t.Errorf("attempts %+v", r.Attempts)
	}
}

// A reset keeps nothing green, from when it is asked for; the next turn attaches
// anew. Who uses the way in of before is told of, and finds nothing.
//
//
func TestReportOfAReset(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	mustSay(t, one, "hello")
	old := fake.Starts()[0].MCPServers[0]
	s := dialLegacy(t, old.HTTP)
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	before := awaitReport(t, a, "a", "list", is(builtin, evidence.Active))

	if err := one.Session.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := report(t, a, "a")
	if r.Current == before.ID || r.CurrentAttempt().Server(builtin).Status != evidence.Unknown || r.Attempts[1].SupersededAt.IsZero() || r.Attempts[1].ID != before.ID {
		t.Errorf("after the reset: %+v", r)
	}
	for _, url := range []string{old.HTTP, old.SSE} {
		if got := status(t, url, nil); got != http.StatusNotFound {
			t.Errorf("the old way in answers %d", got)
		}
	}
	if r := report(t, a, "a"); r.Attempts[1].LateTrafficAt.IsZero() || r.CurrentAttempt().Server(builtin).Status != evidence.Unknown {
		t.Errorf("after late traffic: %+v", r)
	}

	mustSay(t, one, "again")
	r = report(t, a, "a")
	if len(r.Attempts) != 2 || r.CurrentAttempt().Server(builtin).Status == evidence.Active || r.CurrentAttempt().SessionAcceptedAt.IsZero() {
		t.Errorf("after the next turn: %+v", r)
	}
	if late := fake.Starts()[1].MCPServers[0]; late.HTTP == old.HTTP {
		t.Error("the next life has the way in of the last")
	}
	_ = s.Close()
}

// A restart is an attempt of its own: what the last life listed is not green any
// more before the new one has listed it.
//
//
func TestReportOfARestart(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	one := start(t, a, mockSpec(t, "a", "eager,legacy"))
	mustSay(t, one, "hello")
	first := awaitReport(t, a, "a", "list", is(builtin, evidence.Active))
	if c := first.Server(builtin).Connections; len(c) != 1 || c[0].Closed {
		t.Errorf("connections %+v", c)
	}
	if _, err := say(t, one, "DIE"); err == nil {
		t.Fatal("it did not die")
	}
	dead := awaitReport(t, a, "a", "end", func(at evidence.Attempt) bool { return at.ID == first.ID && !at.AgentEndedAt.IsZero() })
	if s := dead.Server(builtin); !s.Connections[0].Closed || s.DisconnectedAt.IsZero() { // which it did not say itself
		t.Errorf("after its death: %+v", s)
	}
	mustSay(t, one, "hello again")
	r := report(t, a, "a")
	if len(r.Attempts) != 2 || r.Attempts[1].ID != first.ID || r.Attempts[0].ExecutionID == first.ExecutionID || !r.Attempts[0].AgentEndedAt.IsZero() {
		t.Errorf("after the restart: %+v", r.Attempts)
	}
	awaitReport(t, a, "a", "list of the second life", is(builtin, evidence.Active))
}

// An agent that does not start says so in the report, in words without what it
// wrote to standard error, and no row takes the blame.
//
//
func TestReportOfAFailedStart(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	one := start(t, a, AgentSpec{ID: "a", Profile: agent.Profile{Command: []string{"sh", "-c", "echo my password is hunter2 >&2; exit 7"}, Dir: t.TempDir()}})
	if _, err := say(t, one, "hello"); err == nil {
		t.Fatal("it started")
	}
	at := *report(t, a, "a").CurrentAttempt()
	if e := at.SessionError; e == nil || e.Reason != evidence.ReasonSessionFailed || e.Summary != "the agent ended: exit status 7" {
		t.Errorf("error %+v", at.SessionError)
	}
	if s := at.Server(builtin); s.Status != evidence.Unknown || at.AgentID != "sh" {
		t.Errorf("row %+v of %q", s, at.AgentID)
	}
}

// Two sessions of one task have a report each, also where one is removed; what
// happens in one leaves no trace in the other.
//
//
func TestSessionsShareNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := reporting(t, dir, nil)
	d := serve(t, a, dir, "")
	var mu sync.Mutex
	told := map[string][]ReportChange{}
	defer a.OnReport(func(c ReportChange) {
		mu.Lock()
		defer mu.Unlock()
		told[c.SessionID] = append(told[c.SessionID], c)
	})()
	const task = "20260821_011758_54e1cab9"
	spec := func(id, modes string) AgentSpec {
		s := mockSpec(t, id, modes)
		s.Signals = task
		return s
	}
	busy, quiet := start(t, a, spec("busy", "eager")), start(t, a, spec("quiet", "nomcp"))
	mustSay(t, busy, "hello")
	if _, err := quiet.Session.Submit(agent.Input{Text: "hello"}); err != nil { // it waits for tools that nobody lists
		t.Fatal(err)
	}
	awaitReport(t, a, "busy", "list", is(builtin, evidence.Active))
	awaitReport(t, a, "quiet", "delivery", func(at evidence.Attempt) bool {
		return is(builtin, evidence.Delivered)(at) && !at.SessionAcceptedAt.IsZero()
	})
	for id, want := range map[string]evidence.Status{"busy": evidence.Active, "quiet": evidence.Delivered} {
		code, text := d.ask(http.MethodGet, "/v1/sessions/"+id+"/attachments", "")
		var r evidence.Report
		if err := json.Unmarshal([]byte(text), &r); code != http.StatusOK || err != nil || r.SchemaVersion != 1 {
			t.Fatalf("%d %s: %v", code, text, err)
		}
		for _, at := range r.Attempts {
			if at.SessionID != id || at.TaskID != task || at.Server(builtin).Status != want {
				t.Errorf("%s: %+v", id, at)
			}
		}
	}
	mu.Lock()
	for id, all := range told {
		for _, c := range all {
			if c.TaskID != task || c.At.IsZero() || slices.ContainsFunc(c.Report.Attempts, func(at evidence.Attempt) bool { return at.SessionID != id }) {
				t.Errorf("told of %s: %+v", id, c)
			}
		}
	}
	mu.Unlock()
	before := report(t, a, "quiet")
	if code, text := d.ask(http.MethodDelete, "/v1/sessions/busy", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	if code, _ := d.ask(http.MethodGet, "/v1/sessions/busy/attachments", ""); code != http.StatusNotFound {
		t.Errorf("the report of a removed session: %d", code)
	}
	if _, err := a.Report(t.Context(), "busy"); !errors.Is(err, ErrNoReport) {
		t.Errorf("the report of a removed session: %v", err)
	}
	if diff := cmp.Diff(before, report(t, a, "quiet")); diff != "" {
		t.Errorf("the other's has changed: %s", diff)
	}
	again := start(t, a, spec("busy", "eager")) // of the same name: nothing of before
	if _, err := a.Report(t.Context(), "busy"); !errors.Is(err, ErrNoReport) {
		t.Errorf("a new session begins with a report: %v", err)
	}
	_ = again
}

// A process that starts again shows what was written down, before anything
// happens, and without the session running.
func TestReportSurvives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := reporting(t, dir, nil)
	one := start(t, a, mockSpec(t, "a", "eager"))
	mustSay(t, one, "hello")
	awaitReport(t, a, "a", "list", is(builtin, evidence.Active))
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := report(t, a, "a")
	closeAgents(t, a)

	b := reporting(t, dir, nil)
	if diff := cmp.Diff(want, report(t, b, "a")); diff != "" {
		t.Errorf("not running: %s", diff)
	}
	two := start(t, b, mockSpec(t, "a", "eager"))
	if diff := cmp.Diff(want, report(t, b, "a")); diff != "" {
		t.Errorf("before the agent is started: %s", diff)
	}
	mustSay(t, two, "hello")
	r := report(t, b, "a")
	if len(r.Attempts) != 2 || r.Attempts[1].ID != want.Current || r.Attempts[1].SupersededAt.IsZero() {
		t.Errorf("after its start: %+v", r.Attempts)
	}
}

// An agent that waits for a server before it opens its session is said to be
// blocked, and is not any more once it has.
//
//
func TestBlockedSession(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	var at evidence.Attempt
	fake.OnStart = func(ctx context.Context, _ int, so agent.StartOptions, _ agent.Sink) error {
		if _, err := so.Attachment.Servers(ctx); err != nil {
			return err
		}
		now := a.reports.find("a").current()
		now.stall() // of a server that is not delivered yet: nobody waits for it
		if so.Attachment.Decided([]agent.Injected{{Server: builtin, Transport: "http"}}); !report(t, a, "a").CurrentAttempt().SessionBlockedAt.IsZero() {
			t.Error("blocked before it had anything")
		}
		now.stall()
		if at = *report(t, a, "a").CurrentAttempt(); at.SessionBlockedAt.IsZero() || !so.Attachment.Busy() {
			t.Errorf("not blocked: %+v", at)
		}
		so.Attachment.Answered("c", nil)
		now.stall() // in its turn: no session waits
		return nil
	}
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	mustSay(t, one, "hello")
	if at = *report(t, a, "a").CurrentAttempt(); !at.SessionBlockedAt.IsZero() || at.Server(builtin).Status != evidence.Delivered {
		t.Errorf("after its answer: %+v", at)
	}
}

// The loop of our own has its tools in this process: the report says that, and
// claims no connection. Servers that ossicle connects to itself are said to be.
func TestReportOfAModelLoop(t *testing.T) {
	t.Parallel()
	model, err := scripted.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	b := newBoard(t)
	a := reporting(t, t.TempDir(), nil)
	one := start(t, a, AgentSpec{ID: "a", Model: Model{URL: model.URL(), Name: "scripted"}, Servers: append(b.specs, mcpclient.Spec{Name: "handed", Command: "no-such-server", Attach: mcpclient.ByAgent})})
	mustSay(t, one, "CALL inbox_list {}")
	at := awaitReport(t, a, "a", "call", func(at evidence.Attempt) bool { return !at.Server(builtin).LastUsedAt.IsZero() })
	s := at.Server(builtin)
	if s.Status != evidence.Active || s.Transport != evidence.InProcess || s.LastTool != "inbox_list" || s.Client != nil || !s.ConnectedAt.IsZero() || *s.ToolCount != s.Catalogue.Total {
		t.Errorf("row %+v", s)
	}
	if len(one.Client.Servers.Servers()) != 2 {
		t.Error("a server that nobody connects to")
	}
	if m := at.Server("memo"); m.Status != evidence.Filtered || m.Reason != evidence.ReasonViaOssicle || m.Source != evidence.SourceProfile {
		t.Errorf("row %+v", m)
	}
}

// Every configured server has a row: nothing is dropped in silence, and a name that
// is taken costs nobody a row.
//
//
func TestEveryServerHasARow(t *testing.T) {
	t.Parallel()
	spec := mockSpec(t, "a", "nosse")
	spec.Servers = []mcpclient.Spec{
		{Name: "pool", URL: "https://me:hunter2@pool.example/mcp?key=k"},
		{Name: builtin, Command: "no-such-server"},
		{Name: "handed", URL: "http://127.0.0.1:1/mcp", Attach: mcpclient.ByAgent},
		{Name: "both", URL: "http://127.0.0.1:1/mcp", Attach: mcpclient.ByBoth},
		{Name: "older", URL: "http://127.0.0.1:1/sse", Transport: mcpclient.SSE, Attach: mcpclient.ByAgent},
		{Name: "missing", Command: "no-such-server", Attach: mcpclient.ByAgent},
	}
	a := reporting(t, t.TempDir(), nil)
	one := start(t, a, spec)
	mustSay(t, one, "hello")
	at := awaitReport(t, a, "a", "refusals", func(at evidence.Attempt) bool {
		return is("handed", evidence.Failed)(at) && is("both", evidence.Failed)(at) && is(builtin, evidence.Active)(at)
	})
	for name, want := range map[string]struct {
		status evidence.Status
		reason evidence.Reason
		target string
	}{
		"pool":         {evidence.Filtered, evidence.ReasonViaOssicle, "https://pool.example"},
		builtin:        {evidence.Active, "", ""},
		builtin + "-2": {evidence.Filtered, evidence.ReasonViaOssicle, "no-such-server"},
		"handed":       {evidence.Failed, evidence.ReasonConnectRefused, "http://127.0.0.1:1"},
		"both":         {evidence.Failed, evidence.ReasonConnectRefused, "http://127.0.0.1:1"},
		"older":        {evidence.Filtered, evidence.ReasonUnsupportedAdvertised, "http://127.0.0.1:1"},
		"missing":      {evidence.Unavailable, evidence.ReasonCommandNotFound, "no-such-server"},
	} {
		s := at.Server(name)
		if s == nil || s.Status != want.status || s.Reason != want.reason || want.target != "" && s.Target != want.target {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if n := len(at.Servers); n != 7 {
		t.Errorf("%d rows", n)
	}
	pool := one.Client.Servers.Servers()
	if len(pool) != 3 {
		t.Errorf("ossicle connects to %d servers", len(pool))
	}
	for _, bad := range [][]mcpclient.Spec{{{Name: "x", Attach: mcpclient.ByAgent}}, {{Name: "x", URL: "http://x", Attach: "nobody"}}} {
		if _, err := a.Start(t.Context(), AgentSpec{ID: "b", Engine: agenttest.New().New, Servers: bad}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// Whoever hears of reports hears of the newest state, in order, and of none when
// it has stopped.
func TestChangesAreToldInOrder(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	one := start(t, a, AgentSpec{ID: "a", Engine: agenttest.New().New})
	var last time.Time
	n := 0
	stop := a.OnReport(func(c ReportChange) {
		n++
		if at := c.Report.UpdatedAt(); at.Before(last) {
			t.Errorf("%v after %v", at, last)
		} else {
			last = at
		}
	})
	mustSay(t, one, "hello")
	var takers sync.WaitGroup
	for i := range 4 {
		takers.Go(func() {
			for range 50 {
				a.reports.find("a").current().take(evidence.Evidence{Server: string(rune('a' + i)), Kind: evidence.AgentConnected})
			}
		})
	}
	takers.Wait()
	stop()
	was := n
	a.reports.find("a").current().take(evidence.Evidence{Server: "late", Kind: evidence.AgentConnected})
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n != was || n == 0 {
		t.Errorf("told %d times, %d of them after the stop", n, n-was)
	}
}

// A decision says what it rests on: what the agent says, or nothing that it says.
//
//
func TestDecisionsAsEvidence(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for d, want := range map[agent.Injected]evidence.Detail{
		{Server: "m", Transport: "http"}:                                        {Transport: evidence.HTTP, Capability: evidence.Advertised},
		{Server: "m", Transport: "stdio", Assumed: true}:                        {Transport: evidence.Stdio, Capability: evidence.Assumed},
		{Server: "m", Reason: "sse_unsupported"}:                                {Reason: evidence.ReasonUnsupportedAdvertised, Capability: evidence.Advertised},
		{Server: "m", Reason: "http_unsupported", Assumed: true}:                {Reason: evidence.ReasonUnsupportedAssumed, Capability: evidence.Assumed},
		{Server: "m", Reason: "duplicate_name"}:                                 {Reason: evidence.ReasonDuplicateName},
		{Server: "m", Reason: string(evidence.ReasonNoStrategy), Assumed: true}: {Reason: evidence.ReasonNoStrategy},
	} {
		kind := evidence.ServerDelivered
		if d.Transport == "" {
			kind = evidence.ServerFiltered
		}
		if diff := cmp.Diff(evidence.Evidence{Server: "m", Kind: kind, OccurredAt: now, Detail: want}, Decided(d, now)); diff != "" {
			t.Errorf("%+v: %s", d, diff)
		}
	}
}

// A profile whose servers cannot be read starts nothing, and no report is made up
// from what might be in it.
func TestProfileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := reporting(t, dir, nil)
	for name, text := range map[string]string{"no json": `{"mcpServers":`, "a variable": `{"mcpServers":{"m":{"command":"x","env":{"K":"${OSSICLE_NOT_SET_ANYWHERE}"}}}}`, "who connects": `{"mcpServers":{"m":{"command":"x","attach":"nobody"}}}`} {
		a.config.Profiles = map[string]config.Profile{"p": {Profile: agent.Profile{Name: "p", Command: []string{self(t)}, Dir: dir, Servers: []byte(text)}}}
		d := serve(t, a, filepath.Join(dir, name), "")
		if code, body := d.ask(http.MethodPost, "/v1/sessions", `{"id":"a","profile":"p"}`); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, code, body)
		}
		if code, _ := d.ask(http.MethodGet, "/v1/sessions/a/attachments", ""); code != http.StatusNotFound {
			t.Errorf("%s: the report of nothing: %d", name, code)
		}
	}
}
