package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/ledger"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/shim"
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

// words takes what the agent says about its servers from its frames.
type words struct {
	mu   sync.Mutex
	take func(attach.Evidence)
}

func (w *words) Write(b []byte) (int, error) {
	var r struct {
		Dir string `json:"dir"`
		Raw struct {
			Method string `json:"method"`
			Params struct {
				Update json.RawMessage `json:"update"`
			} `json:"params"`
		} `json:"raw"`
	}
	if json.Unmarshal(bytes.TrimSpace(b), &r) == nil && r.Dir == "received" && r.Raw.Method == "session/update" {
		if e, ok := acp.Reported(r.Raw.Params.Update); ok {
			e.OccurredAt = time.Now()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.take(e)
		}
	}
	return len(b), nil
}

// attached starts an agent with one third-party server behind a relay, gives it
// time, and returns the report.
func attached(t *testing.T, command string, env []string, mode, target string, sse bool, patient time.Duration, enough func(attach.Server) bool) attach.Attempt {
	t.Helper()
	changed := make(chan struct{}, 1)
	l := ledger.Open(t.Context(), reports{}, "s", &ledger.Options{Changed: func(attach.Report) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	attempt, err := l.Begin(t.Context(), ledger.Execution{ID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	attempt.Take(attach.Evidence{Server: "m", Kind: attach.ServerResolved, OccurredAt: time.Now(), Detail: attach.Detail{Source: attach.SourceProfile, Target: target}})
	o := observe.New(attempt.Take, &observe.Options{Server: "m"})
	defer o.Close()
	p, err := shim.NewProxy(target, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	relay := httptest.NewServer(p)
	defer relay.Close()
	defer relay.CloseClientConnections()
	entry := agent.MCPServer{Name: "m", HTTP: relay.URL + p.Path()}
	if sse {
		entry = agent.MCPServer{Name: "m", SSE: relay.URL + p.Path()}
	}
	engine := acp.New(strings.Fields(command), &acp.Options{
		Env: append(os.Environ(), env...), Mode: mode, Frames: &words{take: attempt.Take}, InitializeTimeout: 3 * time.Minute, SessionTimeout: patient,
	})
	defer func() { _ = engine.Close() }()
	began := time.Now()
	info, err := engine.Start(t.Context(), agent.StartOptions{Dir: t.TempDir(), MCPServers: []agent.MCPServer{entry}}, func(agent.Event) {})
	switch {
	case err == nil:
	case !strings.Contains(err.Error(), "open session"):
		t.Fatal(err)
	default: // it waits for its servers
		attempt.Take(app.Decided(agent.Injected{Server: "m", Transport: "http"}, began))
		attempt.Take(attach.Evidence{Kind: attach.SessionBlocked, OccurredAt: time.Now()})
		t.Logf("start: %v", err)
		return *l.Report().CurrentAttempt()
	}
	for _, i := range info.Injected {
		attempt.Take(app.Decided(i, began))
	}
	attempt.Take(attach.Evidence{Kind: attach.SessionAccepted, OccurredAt: time.Now()})
	timer := time.NewTimer(attachTime)
	defer timer.Stop()
	for {
		a := *l.Report().CurrentAttempt()
		if enough(*a.Server("m")) {
			return a
		}
		select {
		case <-changed:
		case <-timer.C:
			return *l.Report().CurrentAttempt()
		}
	}
}

// The report is right whatever the server does: nothing is green that was not
// listed, nothing is red without an error of its own, and what the agent cannot
// take does not cost it its session.
//
// M-19.
func TestAttachmentReportsOfAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	mock := func(modes string) func(t *testing.T, model string) (string, []string) {
		return func(*testing.T, string) (string, []string) { return program + " mock-agent --mode " + modes, nil }
	}
	for _, who := range []struct {
		name, mode string
		start      func(t *testing.T, model string) (string, []string)
		noSSE      bool
	}{
		{"mock-agent", "", mock("eager,nosse"), true},
		{"mock-agent async legacy", "", mock("async,legacy,nosse"), true},
		{"codex-acp", "", codex, true},
		{"claude-agent-acp", "default", claude, false},
		{"gemini", "", gemini, false},
		{"opencode", "", opencode, false},
		{"qwen", "", qwen, false},
	} {
		for _, tc := range []struct {
			name   string
			target func(t *testing.T) string
			sse    bool
			right  []attach.Status
			enough attach.Kind
		}{
			{"healthy", memoHTTP, false, []attach.Status{attach.Active}, attach.ToolsListObserved},
			{"refuses", refusing, false, []attach.Status{attach.Failed}, attach.ServerError},
			// Some agents say themselves that they have given up.
			{"hangs", hanging, false, []attach.Status{attach.Delivered, attach.Failed}, attach.AgentFailed},
			{"errs on tools/list", listless, false, []attach.Status{attach.Connected, attach.Failed}, attach.AgentFailed},
			{"sse only", refusing, true, []attach.Status{attach.Filtered}, attach.ServerFiltered},
		} {
			if tc.sse && !who.noSSE {
				continue
			}
			t.Run(who.name+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				command, env := who.start(t, model(t, nil).URL())
				patient := 90 * time.Second
				if strings.HasPrefix(who.name, "mock") {
					patient = 10 * time.Second
				}
				a := attached(t, command, env, who.mode, tc.target(t), tc.sse, patient, func(s attach.Server) bool {
					_, ok := s.Steps[tc.enough]
					return ok
				})
				s := a.Server("m")
				t.Logf("%s %s %q, blocked %t", s.Status, s.Reason, s.Summary, !a.SessionBlockedAt.IsZero())
				right := false
				for _, r := range tc.right {
					right = right || s.Status == r
				}
				if !right || s.Status == attach.Failed && tc.name != "refuses" && s.Reason != attach.ReasonAgentReported {
					t.Errorf("%s, for %q", s.Status, s.Reason)
				}
				if tc.name == "refuses" && s.Reason != attach.ReasonConnectRefused && s.Reason != attach.ReasonAgentReported {
					t.Errorf("failed for %q", s.Reason)
				}
				if tc.sse && (s.Reason != attach.ReasonUnsupportedAdvertised || a.SessionAcceptedAt.IsZero()) {
					t.Errorf("%q, session accepted %s", s.Reason, a.SessionAcceptedAt)
				}
			})
		}
	}
}
