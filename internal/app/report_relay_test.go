package app

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

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/mcpclient"
)

// handed is a session of the mock agent that is handed one server.
func handed(t *testing.T, a *Agents, modes string, server mcpclient.Spec) *Agent {
	t.Helper()
	spec := mockSpec(t, "a", modes)
	server.Attach = mcpclient.ByAgent
	spec.Servers = []mcpclient.Spec{server}
	return start(t, a, spec)
}

// What agents do with servers of others is seen through the relay, whatever the
// transport: that they connect, list and call. The server gets its headers, and
// its URL with the query, which the agent does not.
//
// M-19.
func TestThirdPartyServers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		modes string
		sse   bool
		stdio bool
		era   evidence.Era
	}{
		"http modern":  {modes: "eager", era: evidence.EraLegacy}, // the server is one of before
		"http legacy":  {modes: "async,legacy", era: evidence.EraLegacy},
		"sse":          {modes: "eager", sse: true, era: evidence.EraLegacy},
		"stdio":        {modes: "eager", stdio: true, era: evidence.EraModern},
		"stdio legacy": {modes: "async,legacy", stdio: true, era: evidence.EraLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := reporting(t, t.TempDir(), nil)
			spec := mcpclient.Spec{Name: "m", Command: self(t), Env: map[string]string{envPlayServer: "healthy"}}
			third := (*thirdServer)(nil)
			if !tc.stdio {
				third = serveThird(t, tc.sse)
				spec = mcpclient.Spec{Name: "m", URL: third.URL + "/mcp?key=hunter2", Headers: map[string]string{"X-Key": "hunter2"}}
			}
			want := evidence.HTTP
			switch {
			case tc.sse:
				spec.Transport, want = mcpclient.SSE, evidence.SSE
			case tc.stdio:
				want = evidence.Stdio
			}
			one := handed(t, a, tc.modes, spec)
			if got := mustSay(t, one, `CALL say_third {"text":"hi"}`); !strings.Contains(got, "said hi") {
				t.Errorf("the agent said %q", got)
			}
			at := awaitReport(t, a, "a", "call", func(at evidence.Attempt) bool { return !at.Server("m").LastUsedAt.IsZero() })
			s := at.Server("m")
			if s.Status != evidence.Active || s.Source != evidence.SourceProfile || s.Transport != want || *s.ToolCount != 2 || s.LastTool != "say_third" || s.Catalogue != nil {
				t.Errorf("row %+v", s)
			}
			if s.Client == nil || s.Client.Name != "mock-agent" || s.Client.Era != tc.era {
				t.Errorf("client %+v", s.Client)
			}
			if third != nil {
				third.mu.Lock()
				defer third.mu.Unlock()
				if third.paths[0] != "/mcp?key=hunter2" || slices.ContainsFunc(third.headers, func(h http.Header) bool { return h.Get("X-Key") != "hunter2" }) {
					t.Errorf("the server was asked for %q with %v", third.paths, third.headers)
				}
			}
			if err := one.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if at := report(t, a, "a").CurrentAttempt(); at.AgentEndedAt.IsZero() || at.Server("m").Status != evidence.Active {
				t.Errorf("after its end: %+v", at)
			}
		})
	}
}

// Nothing is green that was not listed, nothing red without an error of its own.
//
//
func TestBadThirdPartyServers(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	listless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if q.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer := `"error":{"code":-32603,"message":"the tools are at lunch"}`
		if q.Method == "initialize" {
			answer = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.ID, answer)
	}))
	t.Cleanup(listless.Close)
	play := func(how string) mcpclient.Spec {
		return mcpclient.Spec{Command: self(t), Env: map[string]string{envPlayServer: how}}
	}
	for name, tc := range map[string]struct {
		modes  string
		spec   mcpclient.Spec
		status evidence.Status
		reason evidence.Reason
	}{
		"refuses":         {"eager", mcpclient.Spec{URL: closed.URL}, evidence.Failed, evidence.ReasonConnectRefused},
		"errs on list":    {"eager,legacy", mcpclient.Spec{URL: listless.URL}, evidence.Connected, ""},
		"not taken":       {"nosse", mcpclient.Spec{URL: closed.URL, Transport: mcpclient.SSE}, evidence.Filtered, evidence.ReasonUnsupportedAdvertised},
		"exits":           {"eager", play("exits"), evidence.Failed, evidence.ReasonExited},
		"is no server":    {"eager,legacy", mcpclient.Spec{URL: serveText(t)}, evidence.Delivered, ""},
		"is not there":    {"eager", mcpclient.Spec{Command: "no-such-server"}, evidence.Unavailable, evidence.ReasonCommandNotFound},
		"is never called": {"lazy", mcpclient.Spec{URL: closed.URL}, evidence.Delivered, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := reporting(t, t.TempDir(), nil)
			tc.spec.Name = "m"
			one := handed(t, a, tc.modes, tc.spec)
			if tc.modes == "lazy" {
				_, err := one.Session.Submit(agent.Input{Text: "hello"})
				if err != nil {
					t.Fatal(err)
				}
			} else {
				mustSay(t, one, "hello")
			}
			at := awaitReport(t, a, "a", string(tc.status), func(at evidence.Attempt) bool { return is("m", tc.status)(at) && !at.SessionAcceptedAt.IsZero() })
			if s := at.Server("m"); s.Reason != tc.reason || strings.Contains(fmt.Sprintf("%+v", s), "hunter2") {
				t.Errorf("row %+v", s)
			}
		})
	}
}

// serveText serves what is no MCP.
func serveText(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello</html>") }))
	t.Cleanup(s.Close)
	return s.URL
}

// A relay takes nobody but who knows its path, for as long as the attempt lasts,
// and what comes by it later is told. A path to the session's own tools is none to
// another server, nor the other way round.
//
//
func TestWaysInOfRelays(t *testing.T) {
	t.Parallel()
	third := serveThird(t, false)
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New, Servers: []mcpclient.Spec{
		{Name: "m", URL: third.URL + "/mcp", Attach: mcpclient.ByAgent}, {Name: "io", Command: self(t), Attach: mcpclient.ByAgent},
	}})
	mustSay(t, one, "hello")
	servers := fake.Starts()[0].MCPServers
	own, relay := servers[0].HTTP, servers[1].HTTP
	if servers[1].Name != "m" || servers[1].SSE != "" || servers[1].Headers != nil || strings.Contains(relay, third.URL) {
		t.Errorf("handed over as %+v", servers[1])
	}
	base := own[:strings.Index(own, "/mcp/")]
	token := func(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
	if got := status(t, relay, nil); got == http.StatusNotFound {
		t.Errorf("the relay answers %d", got)
	}
	for _, url := range []string{base + "/mcp/" + token(relay), base + "/sse/" + token(relay), base + "/via/" + token(own), base + "/via/x", base + "/via"} {
		if got := status(t, url, nil); got != http.StatusNotFound {
			t.Errorf("%s answers %d", url, got)
		}
	}
	s := dialLegacy(t, relay)
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	awaitReport(t, a, "a", "list", is("m", evidence.Active))
	if err := one.Session.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := status(t, relay, nil); got != http.StatusNotFound {
		t.Errorf("the relay of before answers %d", got)
	}
	if r := report(t, a, "a"); r.Attempts[1].LateTrafficAt.IsZero() || r.CurrentAttempt().Server("m").Status != evidence.Unknown {
		t.Errorf("after that: %+v", r)
	}
}

// A relay that is a process of the agent can say what it sees of its own server,
// and nothing else: not of another, not what was delivered or tested, nor when.
//
//
func TestIntakeOfRelays(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	fake := agenttest.New()
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New, Servers: []mcpclient.Spec{{Name: "io", Command: self(t), Attach: mcpclient.ByAgent}}})
	mustSay(t, one, "hello")
	entry := fake.Starts()[0].MCPServers[1]
	url, ok := strings.CutPrefix(entry.Env[len(entry.Env)-1], EnvShim+"=")
	if !ok || !slices.Equal(entry.Command, []string{self(t), "shim", "--name", "io", "--", self(t)}) {
		t.Fatalf("handed over as %+v", entry)
	}
	send := func(body string) int {
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := apiClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := send(`{"kind":"endpoint_tested","server_name":"io","succeeded":true}
{"kind":"server_filtered","server_name":"io","reason_code":"policy_denied"}
{"kind":"session_error"}
{"kind":"initialize_observed","server_name":"` + builtin + `","attachment_attempt_id":"x","occurred_at":"2099-01-01T00:00:00Z","client_name":"c"}
`); got != http.StatusNoContent {
		t.Errorf("answered %d", got)
	}
	at := *report(t, a, "a").CurrentAttempt()
	if s := at.Server("io"); s.Status != evidence.Connected || s.EndpointTest != nil || s.ConnectedAt.Year() > 2090 || s.Client.Name != "c" {
		t.Errorf("row %+v", s)
	}
	if s := at.Server(builtin); !s.ConnectedAt.IsZero() || at.SessionError != nil {
		t.Errorf("row %+v, error %+v", s, at.SessionError)
	}
	for body, want := range map[string]int{"no json\n": http.StatusBadRequest, strings.Repeat("x", maxEvidenceLine+1): http.StatusNoContent} {
		if got := send(body); got != want {
			t.Errorf("%.10q: answered %d, want %d", body, got, want)
		}
	}
	if got := status(t, url, nil); got == http.StatusNotFound {
		t.Errorf("answered %d", got)
	}
}

// Who connects to a server is said in the file, in a request, and in the session.
func TestWhoConnects(t *testing.T) {
	t.Parallel()
	specs, err := mcpclient.ParseServers([]byte(`{"mcpServers":{"a":{"url":"http://x/mcp","attach":"agent"},"b":{"command":"y","attach":"both"},"c":{"command":"z"}}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []mcpclient.Attach{mcpclient.ByAgent, mcpclient.ByBoth, ""}
	req := StartRequest{Servers: []StartServer{{Name: "a", URL: "http://x/mcp", Attach: "agent"}, {Name: "b", Command: "y", Attach: "both"}, {Name: "c", Command: "z"}}}
	asked := AgentSpec{Profile: agent.Profile{Command: []string{"x"}}}
	req.lay(&asked)
	for i, spec := range [][]mcpclient.Spec{specs, asked.Servers} {
		var got []mcpclient.Attach
		for _, s := range spec {
			got = append(got, s.Attach)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %q", i, got)
		}
	}
	var names []string
	for _, s := range ofOssicle(&asked) {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"b", "c"}) {
		t.Errorf("ossicle connects to %q", names)
	}
}
