package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/worker"
)

// boxedAgents are Agents with a gateway whose sandboxes are fake.
func boxedAgents(t *testing.T, dir string) (*Agents, *fleet.Fleet, *fleettest.Boxes) {
	t.Helper()
	g, fake := testSandboxes(t, dir, nil)
	c := config.Default()
	c.Home, c.Watch.Quiet, c.Sandboxes = dir, time.Millisecond, fleettest.Kinds()
	a, err := NewAgents(t.Context(), c, &AgentsOptions{Sandboxes: g})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return a, g, fake
}

func submit(t *testing.T, one *Agent, text string) agent.Result {
	t.Helper()
	ticket, err := one.Session.Submit(agent.Input{Text: text, From: "user"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := ticket.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The sandbox of a session is there when it begins, as an MCP server of its own
// beside ossicle, and in run_code. One that idles out is made anew at the next
// turn, which is told that what was in it is gone, once. The session's end releases
// it.
func TestAgentHasSandbox(t *testing.T) {
	t.Parallel()
	a, g, fake := boxedAgents(t, t.TempDir())
	engine := agenttest.New()
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "slow", Engine: engine.New})
	if err != nil {
		t.Fatal(err)
	}
	first := one.box.cur
	if info, err := g.Show(t.Context(), first.ID()); err != nil || info.Agent != "a" || info.State != worker.StateRunning {
		t.Errorf("%+v, %v", info, err)
	}
	submit(t, one, "hello")
	servers := engine.Starts()[0].MCPServers
	if len(servers) != 2 || servers[1].Name != "sandbox" || servers[1].HTTP == "" || servers[1].SSE == "" {
		t.Fatalf("servers %+v", servers)
	}
	if _, err := first.Release(t.Context(), worker.ReasonIdle); err != nil { // as if nobody had called a tool for so long
		t.Fatal(err)
	}
	<-first.Left()
	if rec := first.Record(); rec.Release != worker.ReasonIdle {
		t.Fatalf("%+v", rec)
	}
	if fake.Made.Load() != 1 {
		t.Error("a sandbox was made anew that nobody needs")
	}
	submit(t, one, "again")
	said := engine.Prompts()[1].Text()
	if !strings.Contains(said, "was released, because no tool of it was called for 1m30s") || !strings.Contains(said, "A new, empty one is being made") {
		t.Errorf("the next turn was told %q", said)
	}
	second, err := one.box.use(t.Context())
	if err != nil || second.ID() == first.ID() {
		t.Fatalf("%v, %v", second, err)
	}
	if got := callAt(t, servers[1].HTTP, "exec", `{"command":"ls"}`); !strings.Contains(got, second.ID()) {
		t.Errorf("the server that the agent has called the sandbox %s: %s", second.ID(), got)
	}
	v, err := boxServer{one.box}.CallTool(t.Context(), "exec", json.RawMessage(`{"command":"ls"}`))
	if err != nil || !strings.Contains(string(v), second.ID()) {
		t.Errorf("run_code: %s, %v", v, err)
	}
	submit(t, one, "once more")
	if said := engine.Prompts()[2].Text(); strings.Contains(said, "sandbox") {
		t.Errorf("told twice: %q", said)
	}
	if err := one.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rec := second.Record(); rec.Release != worker.ReasonExplicit || !rec.State.Final() {
		t.Errorf("after the session: %+v", rec)
	}
}

// callAt calls a tool at a server, as an agent does.
func callAt(t *testing.T, url, tool, args string) string {
	t.Helper()
	pool, err := mcpclient.NewPool([]mcpclient.Spec{{Name: "s", URL: url}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	v, err := pool.Server("s").CallTool(t.Context(), tool, json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// A call that finds the sandbox gone says so and what to do, and the next one is in
// a new sandbox; the turn after is not told again.
func TestCallFindsSandboxGone(t *testing.T) {
	t.Parallel()
	a, g, fake := boxedAgents(t, t.TempDir())
	engine := agenttest.New()
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "slow", Engine: engine.New})
	if err != nil {
		t.Fatal(err)
	}
	first := one.box.cur
	if err := g.Kill(t.Context(), first, "a test"); err != nil {
		t.Fatal(err)
	}
	fake.Fails.Store(1)
	for i, want := range []string{
		`was killed ("a test"). Its files, variables and jobs are gone. A new, empty one is being made: call again`,
		"no more of them",
		"could not be made",
	} {
		res, err := one.box.CallTool(t.Context(), "exec", jsontext.Value(`{"command":"x"}`), nil)
		if err != nil || !res.IsError || !strings.Contains(textsOf(res), want) {
			t.Fatalf("call %d: %+v, %v, want %q", i, res, err, want)
		}
	}
	res, err := one.box.CallTool(t.Context(), "exec", jsontext.Value(`{"command":"x"}`), nil)
	if err != nil || res.IsError || strings.Contains(textsOf(res), first.ID()) {
		t.Errorf("%+v, %v", res, err)
	}
	submit(t, one, "hello")
	if said := engine.Prompts()[0].Text(); strings.Contains(said, "sandbox") {
		t.Errorf("told twice: %q", said)
	}
}

// A session whose sandbox cannot be had does not begin.
func TestNoSandboxNoSession(t *testing.T) {
	t.Parallel()
	a, _, fake := boxedAgents(t, t.TempDir())
	fake.Fails.Store(1)
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "slow", Engine: agenttest.New().New}); err == nil || !strings.Contains(err.Error(), "no more of them") {
		t.Errorf("%v", err)
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "none", Engine: agenttest.New().New}); err == nil || !errors.As(err, new(*fleet.ProfileError)) {
		t.Errorf("%v", err)
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "slow", Engine: agenttest.New().New}); err != nil {
		t.Errorf("the id is not free: %v", err)
	}
}

// A model loop of our own is offered the tools of its sandbox beside the others.
func TestModelHasSandbox(t *testing.T) {
	t.Parallel()
	a, _, _ := boxedAgents(t, t.TempDir())
	asked := make(chan string, 4)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Tools []struct {
				Function struct {
					Name string `json:"name"`
				} `json:"function"`
			} `json:"tools"`
		}
		if json.NewDecoder(r.Body).Decode(&q) == nil && len(q.Tools) > 0 {
			var names strings.Builder
			for _, tool := range q.Tools {
				names.WriteString(" " + tool.Function.Name)
			}
			select {
			case asked <- names.String():
			default:
			}
		}
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
	}))
	t.Cleanup(model.Close)
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "slow", Model: Model{URL: model.URL, Name: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Session.Submit(agent.Input{Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	select {
	case names := <-asked:
		if !strings.Contains(names, " exec") || !strings.Contains(names, " file") {
			t.Errorf("offered:%s", names)
		}
	case <-time.After(patience):
		t.Fatal("the model was not asked")
	}
}
