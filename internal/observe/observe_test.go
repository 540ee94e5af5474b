package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "kanarie-hunter2"

// seen keeps evidence.
type seen struct {
	mu  sync.Mutex
	all []attach.Evidence
}

func (s *seen) sink(e attach.Evidence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

func (s *seen) now() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func (s *seen) evidence() []attach.Evidence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]attach.Evidence{}, s.all...)
}

// lines is what matters of evidence, a line each.
func (s *seen) lines() []string {
	var out []string
	for _, e := range s.evidence() {
		l := string(e.Kind)
		add := func(name, v string) {
			if v != "" {
				l += " " + name + "=" + v
			}
		}
		add("era", string(e.Era))
		add("client", e.ClientName)
		add("version", e.ProtocolVersion)
		if e.ToolCount != nil {
			l += fmt.Sprintf(" tools=%d", *e.ToolCount)
		}
		add("tool", e.Tool)
		add("method", e.Method)
		add("reason", string(e.Reason))
		add("summary", e.Summary)
		if e.ConnectionID != "" {
			l += " connected"
		}
		out = append(out, l)
	}
	return out
}

func observer(t *testing.T) (*observe.Observer, *seen) {
	t.Helper()
	s := &seen{}
	o := observe.New(s.sink, &observe.Options{Server: "m"})
	t.Cleanup(o.Close)
	return o, s
}

// sentinel has two tools, one of which fails.
func sentinel() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sentinel"}, nil)
	type args struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said " + a.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("cannot, " + canary)
	})
	return s
}

// What clients of both eras and of the older transport do is seen, with their
// names and revisions: a client of 2026-07-28 has no connection, and none ends.
//
//
func TestHTTP(t *testing.T) {
	t.Parallel()
	server := sentinel()
	get := func(*http.Request) *mcp.Server { return server }
	for name, tc := range map[string]struct {
		handler http.Handler
		dial    func(url string) mcp.Transport
		version string
		want    []string
	}{
		"modern": {
			mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}),
			func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} }, "",
			[]string{
				"discover_observed era=modern client=agent version=2026-07-28",
				"initialize_observed era=modern client=agent version=2026-07-28",
				"tools_list_observed era=modern tools=2",
				"tool_call_observed era=modern tool=say",
				"tool_call_observed era=modern tool=fail",
				"request_error era=modern tool=none method=tools/call reason=protocol_error summary=error -32602",
			},
		},
		"legacy": {
			mcp.NewStreamableHTTPHandler(get, nil),
			func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} }, "2025-11-25",
			[]string{
				"initialize_observed era=legacy client=agent version=2025-11-25 connected",
				"tools_list_observed era=legacy tools=2 connected",
				"tool_call_observed era=legacy tool=say connected",
				"tool_call_observed era=legacy tool=fail connected",
				"request_error era=legacy tool=none method=tools/call reason=protocol_error summary=error -32602 connected",
				"connection_closed connected",
			},
		},
		"json": {
			mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true}),
			func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} }, "2025-06-18",
			[]string{
				"initialize_observed era=legacy client=agent version=2025-06-18 connected",
				"tools_list_observed era=legacy tools=2 connected",
				"tool_call_observed era=legacy tool=say connected",
				"tool_call_observed era=legacy tool=fail connected",
				"request_error era=legacy tool=none method=tools/call reason=protocol_error summary=error -32602 connected",
				"connection_closed connected",
			},
		},
		"sse": {
			mcp.NewSSEHandler(get, nil),
			func(url string) mcp.Transport { return &mcp.SSEClientTransport{Endpoint: url} }, "2025-06-18",
			[]string{
				"initialize_observed era=legacy client=agent version=2025-06-18 connected",
				"tools_list_observed era=legacy tools=2 connected",
				"tool_call_observed era=legacy tool=say connected",
				"tool_call_observed era=legacy tool=fail connected",
				"request_error era=legacy tool=none method=tools/call reason=protocol_error summary=error -32602 connected",
				"connection_closed connected",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s := observer(t)
			web := httptest.NewServer(o.Handler(tc.handler))
			defer web.Close()
			c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
			session, err := c.Connect(t.Context(), tc.dial(web.URL+"/mcp"), &mcp.ClientSessionOptions{ProtocolVersion: tc.version})
			if err != nil {
				t.Fatal(err)
			}
			if l, err := session.ListTools(t.Context(), nil); err != nil || len(l.Tools) != 2 {
				t.Fatal(err)
			}
			for _, tool := range []string{"say", "fail", "none"} {
				_, _ = session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": canary}})
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			web.CloseClientConnections()
			web.Close()
			o.Close()
			if d := cmp.Diff(tc.want, s.lines()); d != "" {
				t.Error(d)
			}
			b, err := json.Marshal(s.evidence())
			if err != nil || strings.Contains(string(b), canary) {
				t.Errorf("%v %s", err, b)
			}
			if o.Dropped() != 0 {
				t.Errorf("%d dropped", o.Dropped())
			}
		})
	}
}

// Two connections are two, and each ends on its own.
func TestTwoConnections(t *testing.T) {
	t.Parallel()
	o, s := observer(t)
	server := sentinel()
	web := httptest.NewServer(o.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)))
	defer web.Close()
	for range 2 {
		c := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
		session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: web.URL}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		_ = session.Close()
	}
	web.Close()
	o.Close()
	opened, closed := map[string]bool{}, map[string]bool{}
	for _, e := range s.evidence() {
		switch e.Kind {
		case attach.InitializeObserved:
			opened[e.ConnectionID] = true
		case attach.ConnectionClosed:
			closed[e.ConnectionID] = true
		default:
		}
	}
	if len(opened) != 2 || !cmp.Equal(opened, closed) {
		t.Errorf("opened %v, closed %v", opened, closed)
	}
}

// What was not answered well proves nothing; it is no failure of the server.
//
//
func TestFailuresProveNothing(t *testing.T) {
	t.Parallel()
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"a","version":"1"}}}`
	const list = `{"jsonrpc":"2.0","id":"x","method":"tools/list"}`
	for name, tc := range map[string]struct {
		method, body string
		status       int
		kind, reply  string
		want         []string
	}{
		"sse url": {"POST", initialize, 405, "text/plain", "no", []string{"request_error era=legacy method=initialize reason=http_status summary=HTTP status 405"}},
		"login":   {"POST", initialize, 401, "", "", []string{"request_error era=legacy method=initialize reason=auth_required summary=HTTP status 401"}},
		"no such method": {
			"POST", list, 200, "application/json", `{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no tools at https://h/` + canary + `"}}`,
			[]string{"request_error era=legacy method=tools/list reason=method_not_found summary=error -32601: no tools at https://h"},
		},
		"error in 400": {
			"POST", list, 400, "application/json", `{"id":"x","error":{"code":-32000,"message":"` + strings.Repeat("bad ", 100) + `"}}`,
			[]string{"request_error era=legacy method=tools/list reason=protocol_error summary=" + attach.NewSanitizer().Summary("error -32000: "+strings.Repeat("bad ", 100))},
		},
		"a result in 400": {
			"POST", list, 400, "application/json", `{"id":"x","result":{"tools":[]}}`,
			[]string{"request_error era=legacy method=tools/list reason=http_status summary=HTTP status 400"},
		},
		"initialize with the newest revision": {
			"POST", strings.Replace(initialize, "2025-06-18", "2026-07-28", 1), 200, "application/json", `{"id":1,"result":{"protocolVersion":"2025-11-25"}}`,
			[]string{"initialize_observed era=legacy client=a version=2025-11-25"},
		},
		"another id":     {"POST", list, 200, "application/json", `{"id":"y","result":{"tools":[]}}`, nil},
		"a number":       {"POST", list, 200, "application/json", `{"id":1,"result":{"tools":[]}}`, nil},
		"twice":          {"POST", list, 200, "application/json", `{"id":"x","error":{"code":1},"id":"x","result":{"tools":[]}}`, nil},
		"error null":     {"POST", list, 200, "application/json", `{"id":"x","error":null,"result":{"tools":[{}]}}`, []string{"tools_list_observed era=legacy tools=1"}},
		"other case":     {"POST", `{"ID":"x","Method":"tools/list"}`, 200, "application/json", `{"id":"x","result":{}}`, nil},
		"no json":        {"POST", list, 200, "text/html", `<p>`, nil},
		"notification":   {"POST", `{"method":"notifications/initialized"}`, 202, "", "", nil},
		"a get":          {"GET", "", 405, "text/plain", "no", nil},
		"a failed close": {"DELETE", "", 404, "text/plain", "no", nil},
		"batch": {
			"POST", `[` + initialize + `,` + list + `]`, 200, "application/json",
			`[{"id":"x","result":{"tools":[{},{}]}},{"id":1,"result":{"protocolVersion":"2025-03-26"}}]`,
			[]string{"tools_list_observed era=legacy tools=2", "initialize_observed era=legacy client=a version=2025-03-26"},
		},
		"a discovery of old revisions": {
			"POST", `{"id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, 200, "application/json",
			`{"id":1,"result":{"supportedVersions":["2025-11-25"]}}`,
			[]string{"discover_observed era=legacy version=2026-07-28"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s := observer(t)
			h := o.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.reply)
			}))
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), tc.method, "/mcp", strings.NewReader(tc.body))
			if tc.method == http.MethodDelete {
				r.Header.Set("Mcp-Session-Id", "s")
			}
			h.ServeHTTP(w, r)
			o.Close()
			if w.Code != tc.status || w.Body.String() != tc.reply {
				t.Errorf("changed: %d %q", w.Code, w.Body)
			}
			if d := cmp.Diff(tc.want, s.lines()); d != "" {
				t.Error(d)
			}
		})
	}
}

// A response that comes on the stream of the older transport before its request
// was accepted belongs to it all the same.
func TestEarlyResponse(t *testing.T) {
	t.Parallel()
	o, s := observer(t)
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	opened, taken, answered, over := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := o.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.ReadFull(r.Body, make([]byte, r.ContentLength)) // and not to its end
			close(taken)
			<-answered
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: endpoint\ndata: /post?s=1\n\n")
		close(opened)
		<-taken
		_, _ = io.WriteString(w, `data: {"id":1,"result":{"tools":[{}]}}`+"\n\n")
		close(answered)
		<-over
	}))
	var stream sync.WaitGroup
	stream.Go(func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/sse", nil))
	})
	<-opened
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/post?s=1", strings.NewReader(list)))
	close(over)
	stream.Wait()
	o.Close()
	if d := cmp.Diff([]string{"tools_list_observed era=legacy tools=1 connected"}, s.lines()); d != "" {
		t.Error(d)
	}
}

// Exchanges are traced with their methods.
func TestTrace(t *testing.T) {
	t.Parallel()
	var got []observe.Exchange
	o := observe.New(func(attach.Evidence) {}, &observe.Options{Trace: func(x observe.Exchange) { got = append(got, x) }})
	h := o.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusTeapot)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/mcp", strings.NewReader(`[{"id":1,"method":"a"},{"id":2,"method":"b"}]`)))
	o.Close()
	if len(got) != 1 || got[0].HTTPMethod != "POST" || !cmp.Equal(got[0].Methods, []string{"a", "b"}) || got[0].Status != http.StatusTeapot || got[0].Took <= 0 {
		t.Errorf("got %+v", got)
	}
}
