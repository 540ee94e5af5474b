package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
)

// attachTime is how long an agent has to attach, after it has opened its session.
// Qwen gives up on a silent server after 5 s.
const attachTime = 7 * time.Second

// refusing is the address of nobody.
func refusing(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL + "/mcp"
}

// hanging accepts and never answers.
func hanging(t *testing.T) string {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(over); s.Close() })
	return s.URL + "/mcp"
}

// listless begins well, and answers tools/list with an error.
func listless(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Version string `json:"protocolVersion"`
			} `json:"params"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if q.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer := `"error":{"code":-32601,"message":"Method not found"}`
		switch q.Method {
		case "initialize":
			answer = fmt.Sprintf(`"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"listless","version":"1"}}`, q.Params.Version)
		case "ping":
			answer = `"result":{}`
		case "tools/list":
			answer = `"error":{"code":-32603,"message":"the tools are at lunch"}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.ID, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/mcp"
}

// reports keeps reports nowhere.
type reports struct{}

func (reports) SaveReport(context.Context, string, []byte) error   { return nil }
func (reports) LoadReport(context.Context, string) ([]byte, error) { return nil, nil }

// hosting are agents of this process, in a directory of its own.
func hosting(t *testing.T) *app.Agents {
	t.Helper()
	c := config.Default()
	c.Home = t.TempDir()
	a, err := app.NewAgents(t.Context(), c, &app.AgentsOptions{Bridge: []string{program, "bridge"}, Shim: []string{program, "shim"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Log(err) // an agent that waits for a server is killed
		}
	})
	return a
}

// sessionOf is a session of a real agent, with servers that it is handed.
func sessionOf(t *testing.T, who reportedAgent, id string, servers ...mcpclient.Spec) app.AgentSpec {
	t.Helper()
	command, env := who.start(t, model(t, nil).URL())
	for i := range servers {
		servers[i].Attach = mcpclient.ByAgent
	}
	spec := app.AgentSpec{ID: id, Servers: servers, Profile: agent.Profile{
		Name: who.name, Command: strings.Fields(command), Env: env, Dir: t.TempDir(), Policy: agent.PolicyAllow,
	}}
	// As sessions make it, but for a machine that is so busy that agents start late.
	spec.Engine = func() (agent.Engine, error) {
		return acp.New(spec.Profile.Command, &acp.Options{Mode: who.mode, InitializeTimeout: 2 * time.Minute}), nil
	}
	return spec
}

// attempts follows the report of a session.
type attempts struct {
	t       *testing.T
	a       *app.Agents
	session string
	changed chan struct{}
}

func reportsOf(t *testing.T, a *app.Agents, session string) *attempts {
	t.Helper()
	f := &attempts{t, a, session, make(chan struct{}, 1)}
	t.Cleanup(a.OnReport(func(c app.ReportChange) {
		if c.SessionID == session {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		}
	}))
	return f
}

// until returns the current attempt once it is as wanted, or as it is at the end
// of that time.
func (f *attempts) until(limit time.Duration, want func(attach.Attempt) bool) (a attach.Attempt, ok bool) {
	f.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		r, err := f.a.Report(f.t.Context(), f.session)
		if err == nil {
			if a = *r.CurrentAttempt(); want(a) {
				return a, true
			}
		}
		select {
		case <-f.changed:
		case <-timer.C:
			return a, false
		}
	}
}

func opened(a attach.Attempt) bool { return !a.SessionAcceptedAt.IsZero() }

func saw(server string, kinds ...attach.Kind) func(attach.Attempt) bool {
	return func(a attach.Attempt) bool {
		for _, k := range kinds {
			if s := a.Server(server); s != nil {
				if _, ok := s.Steps[k]; ok {
					return true
				}
			}
		}
		return false
	}
}

// reportedAgent is an agent whose report is looked at.
type reportedAgent struct {
	name, mode string
	start      func(t *testing.T, model string) (string, []string)
	noSSE      bool
	// waits: it opens its session only once it has given up on a server that hangs.
	waits bool
}

func reportedAgents() []reportedAgent {
	mock := func(modes string) func(t *testing.T, model string) (string, []string) {
		return func(*testing.T, string) (string, []string) { return program + " mock-agent --mode " + modes, nil }
	}
	return []reportedAgent{
		{name: "mock-agent async legacy", start: mock("async,legacy,nosse"), noSSE: true},
		{name: "codex-acp", start: codex, noSSE: true},
		{name: "claude-agent-acp", start: claude, mode: "default"},
		{name: "gemini", start: gemini, waits: true},
		{name: "opencode", start: opencode, waits: true},
		{name: "qwen", start: qwen},
	}
}

// The report of a session is right whatever a server does that its agent is
// handed: nothing is green that was not listed, nothing is red without an error of
// its own, and what the agent cannot take does not cost it its session.
//
//
func TestAttachmentReportsOfAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, who := range reportedAgents() {
		for _, tc := range []struct {
			name   string
			target func(t *testing.T) string
			sse    bool
			right  []attach.Status
			enough []attach.Kind
		}{
			{"healthy", memoHTTP, false, []attach.Status{attach.Active}, []attach.Kind{attach.ToolsListObserved}},
			{"refuses", refusing, false, []attach.Status{attach.Failed}, []attach.Kind{attach.ServerError}},
			// Some agents say themselves that they have given up.
			{"hangs", hanging, false, []attach.Status{attach.Delivered, attach.Failed}, []attach.Kind{attach.AgentFailed}},
			{"errs on tools/list", listless, false, []attach.Status{attach.Connected, attach.Failed}, []attach.Kind{attach.AgentFailed}},
			{"sse only", refusing, true, []attach.Status{attach.Filtered}, []attach.Kind{attach.ServerFiltered}},
		} {
			if tc.sse && !who.noSSE {
				continue
			}
			t.Run(who.name+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				spec := mcpclient.Spec{Name: "m", URL: tc.target(t)}
				if tc.sse {
					spec.Transport = mcpclient.SSE
				}
				session := sessionOf(t, who, "s", spec)
				a := hosting(t) // ends before what the agent writes to
				f := reportsOf(t, a, "s")
				one, err := a.Start(t.Context(), session)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := one.Session.Submit(agent.Input{Text: "hello"}); err != nil {
					t.Fatal(err)
				}
				at, ok := f.until(agentPatience, func(at attach.Attempt) bool {
					return opened(at) || at.SessionError != nil || !at.SessionBlockedAt.IsZero()
				})
				if tc.name == "hangs" && who.waits {
					if !ok || at.SessionBlockedAt.IsZero() {
						t.Errorf("not blocked: %+v", at)
					}
					// It is given the time that it takes.
					at, ok = f.until(agentPatience, func(at attach.Attempt) bool { return opened(at) || at.SessionError != nil })
				}
				if !ok || !opened(at) || at.SessionError != nil {
					t.Fatalf("the session was not opened: %+v", at)
				}
				// What has to come may take its time on a busy machine; what may not come is
				// awaited for a while.
				limit := attachTime
				switch tc.name {
				case "errs on tools/list":
					_, _ = f.until(agentPatience, saw("m", attach.InitializeObserved, attach.DiscoverObserved, attach.AgentFailed))
				case "healthy":
					_, _ = f.until(agentPatience, saw("ossicle", attach.ToolsListObserved))
					limit = agentPatience
				case "refuses":
					limit = agentPatience
				}
				at, _ = f.until(limit, saw("m", tc.enough...))
				at, _ = f.until(attachTime, saw("ossicle", attach.ToolsListObserved))
				s := at.Server("m")
				t.Logf("%s %s %q; opened after %s, blocked %t; ours %s", s.Status, s.Reason, s.Summary, at.SessionAcceptedAt.Sub(at.StartedAt).Round(time.Second),
					!at.SessionBlockedAt.IsZero(), at.Server("ossicle").Status)
				if !slices.Contains(tc.right, s.Status) || s.Status == attach.Failed && tc.name != "refuses" && s.Reason != attach.ReasonAgentReported {
					t.Errorf("%s, for %q", s.Status, s.Reason)
				}
				if tc.name == "refuses" && s.Reason != attach.ReasonConnectRefused && s.Reason != attach.ReasonAgentReported {
					t.Errorf("failed for %q", s.Reason)
				}
				if tc.sse && s.Reason != attach.ReasonUnsupportedAdvertised {
					t.Errorf("filtered for %q", s.Reason)
				}
				if own := at.Server("ossicle"); own.Status != attach.Active && (tc.name == "healthy" || own.Status != attach.Delivered && own.Status != attach.Connected) {
					t.Errorf("our own: %+v", own)
				}
			})
		}
	}
}

// What happens in the life of a session keeps its report right: a call of a tool
// of each server, a reset, after which nothing is green until the agent has listed
// again, and a second session of the same task, in which nothing is seen of the
// first.
//
//
func TestAttachmentReportsOfAgentsOverLives(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, who := range reportedAgents() {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			const task = "20260821_011758_54e1cab9"
			memo := memoHTTP(t)
			first := sessionOf(t, who, "first", mcpclient.Spec{Name: "m", URL: memo}, mcpclient.Spec{Name: "io", Command: program, Args: []string{"memo"}})
			second := sessionOf(t, who, "second")
			first.Signals, second.Signals = task, task
			a := hosting(t)
			f := reportsOf(t, a, "first")
			one, err := a.Start(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			two, err := a.Start(t.Context(), second)
			if err != nil {
				t.Fatal(err)
			}
			turn(t, one, `CALL memo_get {"key":"x"}`)
			at, ok := f.until(agentPatience, func(at attach.Attempt) bool {
				return saw("ossicle", attach.ToolsListObserved)(at) && saw("m", attach.ToolsListObserved)(at) && saw("io", attach.ToolsListObserved)(at)
			})
			if !ok {
				t.Fatalf("not all were listed: %+v", at.Servers)
			}
			before := at
			for _, s := range at.Servers {
				t.Logf("%s %s over %s, %d tools, client %+v, used %t", s.Name, s.Status, s.Transport, *s.ToolCount, *s.Client, !s.LastUsedAt.IsZero())
			}

			turn(t, two, "hello")
			g := reportsOf(t, a, "second")
			at, _ = g.until(attachTime, saw("ossicle", attach.ToolsListObserved))
			if len(at.Servers) != 1 || at.SessionID != "second" || at.TaskID != task || !at.Server("ossicle").LastUsedAt.IsZero() {
				t.Errorf("of the second session: %+v", at)
			}

			if err := one.Session.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			r, err := a.Report(t.Context(), "first")
			if err != nil || r.Current == before.ID || slices.ContainsFunc(r.CurrentAttempt().Servers, func(s attach.Server) bool { return s.Status != attach.Unknown }) {
				t.Errorf("after the reset: %+v, %v", r.CurrentAttempt(), err)
			}
			turn(t, one, "hello again")
			if at, ok := f.until(agentPatience, saw("m", attach.ToolsListObserved)); !ok || at.ID == before.ID {
				t.Errorf("after the next turn: %+v", at)
			}
		})
	}
}

// turn has a session take a turn.
func turn(t *testing.T, one *app.Agent, text string) {
	t.Helper()
	ticket, err := one.Session.Submit(agent.Input{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), agentPatience)
	defer cancel()
	if _, err := ticket.Wait(ctx); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}
