package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/notice"
)

// testInbox is an inbox on disk that knows the agent "a".
func testInbox(t *testing.T) *notice.Inbox {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), DataFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	in := notice.New(db.Notices(), nil)
	if err := in.Register(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	return in
}

func post(t *testing.T, in *notice.Inbox, text string) string {
	t.Helper()
	r, err := in.Post(t.Context(), notice.Notice{Agent: "a", Source: notice.SourceWatch, Title: "w", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func state(t *testing.T, in *notice.Inbox, id string) notice.State {
	t.Helper()
	r, err := in.Get(t.Context(), "", id)
	if err != nil {
		t.Fatal(err)
	}
	return r.State
}

func testEndpoint(t *testing.T, in *notice.Inbox) *Endpoint {
	t.Helper()
	e, err := NewEndpoint(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e
}

// echo says what it is given.
func echo() agent.Tool {
	return agent.Tool{
		Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`),
		Call: func(_ context.Context, args json.RawMessage) (agent.ToolResult, error) {
			return agent.ToolResult{Text: "echo " + string(args)}, nil
		},
	}
}

func attach(t *testing.T, e *Endpoint, tools ...agent.Tool) agent.MCPServer {
	t.Helper()
	server, err := e.Attach("a", tools)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// dial connects as an agent does: with the SDK, in the given revision, over
// either transport.
func dial(t *testing.T, transport mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	s, err := c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func call(t *testing.T, s *mcp.ClientSession, tool, args string) string {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Every attempt has a path of its own, which serves both eras at once, and the
// older transport; the path of the attempt before is gone.
//
// N-4, N-23.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	e := testEndpoint(t, nil)
	first := attach(t, e, echo())
	transports := func(s agent.MCPServer) map[string]*mcp.ClientSession {
		return map[string]*mcp.ClientSession{
			"modern": dial(t, &mcp.StreamableClientTransport{Endpoint: s.HTTP}, ""),
			"legacy": dial(t, &mcp.StreamableClientTransport{Endpoint: s.HTTP}, "2025-11-25"),
			"sse":    dial(t, &mcp.SSEClientTransport{Endpoint: s.SSE}, "2025-06-18"),
		}
	}
	for name, s := range transports(first) {
		if got := call(t, s, "echo", `{"n":1}`); got != `echo {"n":1}` {
			t.Errorf("%s: %q", name, got)
		}
		_ = s.Close()
	}
	second := attach(t, e, echo())
	if first.HTTP == second.HTTP || first.SSE == second.SSE {
		t.Error("a second attempt has the path of the first")
	}
	for url, want := range map[string]int{
		first.HTTP: http.StatusNotFound, first.SSE: http.StatusNotFound, second.HTTP: http.StatusBadRequest,
		second.HTTP + "x": http.StatusNotFound,
		second.HTTP[:strings.LastIndexByte(second.HTTP, '/')]: http.StatusNotFound,
	} {
		if got := status(t, url, nil); got != want {
			t.Errorf("POST %s: %d, want %d", url, got, want)
		}
	}
	for name, s := range transports(second) {
		if got := call(t, s, "echo", `{}`); got != `echo {}` {
			t.Errorf("%s: %q", name, got)
		}
		_ = s.Close()
	}
	e.Detach("a")
	if got := status(t, second.HTTP, nil); got != http.StatusNotFound {
		t.Errorf("after Detach: %d", got)
	}
}

// Who waits for the agent to know its tools waits until it was told them, in both
// eras and over the older transport, by its current way in.
//
// N-23.
func TestEndpointAwaitsListed(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(s agent.MCPServer) *mcp.ClientSession{
		"modern": func(s agent.MCPServer) *mcp.ClientSession {
			return dial(t, &mcp.StreamableClientTransport{Endpoint: s.HTTP}, "")
		},
		"legacy": func(s agent.MCPServer) *mcp.ClientSession {
			return dial(t, &mcp.StreamableClientTransport{Endpoint: s.HTTP}, "2025-11-25")
		},
		"sse": func(s agent.MCPServer) *mcp.ClientSession {
			return dial(t, &mcp.SSEClientTransport{Endpoint: s.SSE}, "2025-06-18")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := testEndpoint(t, nil)
			if err := e.AwaitListed(t.Context(), "a"); err != nil {
				t.Errorf("an agent without a way in: %v", err)
			}
			attach(t, e, echo())
			s := connect(attach(t, e, echo()))
			listed := func() error {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return e.AwaitListed(ctx, "a")
			}
			if listed() == nil {
				t.Fatal("it is told to have listed before it did")
			}
			if _, err := s.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := e.AwaitListed(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A web page that a browser has open cannot use the endpoint, even if it knew
// the path.
func TestEndpointGuards(t *testing.T) {
	t.Parallel()
	e := testEndpoint(t, nil)
	server := attach(t, e, echo())
	for name, change := range map[string]func(*http.Request){
		"host":   func(r *http.Request) { r.Host = "evil.example" },
		"origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		if got := status(t, server.HTTP, change); got != http.StatusForbidden {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func status(t *testing.T, url string, change func(*http.Request)) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// The pool, which is the client of our own watches, takes the endpoint too.
func TestEndpointWithPool(t *testing.T) {
	t.Parallel()
	server := attach(t, testEndpoint(t, nil), echo())
	pool, err := mcpclient.NewPool([]mcpclient.Spec{{Name: "o", URL: server.HTTP}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	info, err := pool.Server("o").Info(t.Context())
	if err != nil || info.ProtocolVersion != "2026-07-28" {
		t.Errorf("%+v, %v", info, err)
	}
}

// What is pending rides on the next result, once, and counts as seen then; what
// an adapter has in hand does not.
//
// D-2, D-11.
func TestPiggyback(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"modern": "", "legacy": "2025-11-25"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := testInbox(t)
			server := attach(t, testEndpoint(t, in), append(inboxTools(in, "a"), echo())...)
			s := dial(t, &mcp.StreamableClientTransport{Endpoint: server.HTTP}, version)
			if got := call(t, s, "echo", `{}`); got != "echo {}" {
				t.Errorf("an empty inbox: %q", got)
			}
			post(t, in, "todo is tea")
			if got := call(t, s, "echo", `{}`); !strings.HasPrefix(got, "echo {}\n<watch-event") || !strings.Contains(got, "\ntodo is tea\n") {
				t.Errorf("got %q", got)
			}
			if got := call(t, s, "echo", `{}`); got != "echo {}" {
				t.Errorf("a second result: %q", got)
			}
			settled(t, in, "a", notice.Seen, 1) // the client may be quicker than the note
		})
	}
}

// brokenWriter is a client that has gone.
type brokenWriter struct {
	*httptest.ResponseRecorder

	err error
}

func (w brokenWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.ResponseRecorder.Write(p)
}

// A result that could not be written has shown nothing.
//
// D-4.
func TestPiggybackIsReleased(t *testing.T) {
	t.Parallel()
	in := testInbox(t)
	e := testEndpoint(t, in)
	server := attach(t, e, echo())
	a := e.byToken[server.HTTP[strings.LastIndexByte(server.HTTP, '/')+1:]]
	id := post(t, in, "x")
	ask := func(w http.ResponseWriter) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewBufferString(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "echo")
		a.serveHTTP(w, r)
	}
	ask(brokenWriter{httptest.NewRecorder(), errors.New("gone")})
	if got := state(t, in, id); got != notice.Persisted {
		t.Errorf("state %s after a write that failed", got)
	}
	good := brokenWriter{httptest.NewRecorder(), nil}
	ask(good)
	if body := good.Body.String(); !strings.Contains(body, "watch-event") || state(t, in, id) != notice.Seen {
		t.Errorf("the notice was not free again: %s", body)
	}
	if len(a.pulls) != 0 {
		t.Errorf("%d exchanges are still open", len(a.pulls))
	}
}
