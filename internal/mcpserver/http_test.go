//nolint:bodyclose // frame and events read bodies to their end and close them.
package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// site is a fixture behind a real HTTP server.
type site struct {
	*fixture
	t   testing.TB
	url string
	c   *http.Client
}

func newSite(t testing.TB, opts *Options, tools ...Tool) *site {
	t.Helper()
	f := newFixture(t, opts, tools...)
	ts := httptest.NewServer(f.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		_ = f.Shutdown(ctx) // first, or open streams hold the server
		ts.Client().CloseIdleConnections()
		ts.Close()
	})
	return &site{fixture: f, t: t, url: ts.URL, c: ts.Client()}
}

// post sends a body with headers given as "Name: value".
func (s *site) post(body string, headers ...string) *http.Response {
	s.t.Helper()
	return s.do(http.MethodPost, body, headers...)
}

func (s *site) do(method, body string, headers ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	res, err := s.c.Do(req)
	if err != nil {
		s.t.Fatalf("%s %.80s: %v", method, body, err)
	}
	return res
}

// modern sends a request of revision 2026-07-28.
func (s *site) modern(id, method, params string, headers ...string) *http.Response {
	s.t.Helper()
	h := []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	var p struct{ Name, URI string }
	_ = json.Unmarshal([]byte("{"+params+"}"), &p)
	if name := p.Name + p.URI; name != "" {
		h = append(h, "Mcp-Name: "+name)
	}
	return s.post(modernCall(id, method, params), append(h, headers...)...)
}

// frame reads the first frame of a response, which is one event or JSON.
func (s *site) frame(res *http.Response) message {
	s.t.Helper()
	defer func() { _ = res.Body.Close() }()
	if res.Header.Get("Content-Type") == "application/json" {
		b, err := io.ReadAll(res.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		return parseMessage(s.t, string(b))
	}
	return s.events(res).next()
}

// fails checks status, code and text of an error.
func (s *site) fails(res *http.Response, status int, code int64, text string) {
	s.t.Helper()
	m := s.frame(res)
	if res.StatusCode != status || m.Error == nil || m.Error.Code != code || !strings.Contains(m.Error.Message, text) {
		s.t.Errorf("%d %s\nwant status %d, code %d and %q", res.StatusCode, m, status, code, text)
	}
}

// events reads an event stream.
type events struct {
	t        testing.TB
	r        *bufio.Reader
	body     io.Closer
	comments int
}

func (s *site) events(res *http.Response) *events {
	s.t.Helper()
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		s.t.Fatalf("no event stream: %s %q %s", res.Status, ct, b)
	}
	return &events{t: s.t, r: bufio.NewReader(res.Body), body: res.Body}
}

// next returns the next frame; one without text is the end.
func (e *events) next() message {
	e.t.Helper()
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return message{}
		}
		if line[0] == ':' {
			e.comments++
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return parseMessage(e.t, strings.TrimSuffix(data, "\n"))
		}
	}
}

// begin begins a legacy session and returns the headers of its requests.
func (s *site) begin(version string) []string {
	s.t.Helper()
	res := s.post(initializeCall("1", version))
	m := s.frame(res)
	id := res.Header.Get("Mcp-Session-Id")
	if m.Error != nil || id == "" {
		s.t.Fatalf("initialize: %s %s", res.Status, m)
	}
	h := []string{"Mcp-Session-Id: " + id, "Mcp-Protocol-Version: " + members(s.t, m.Result)["protocolVersion"].(string)}
	res = s.post(notification("notifications/initialized", ""), h...)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		s.t.Fatalf("initialized: %s", res.Status)
	}
	return h
}

// M-1, M-6: requests of both eras at one URL, each answered in its own.
func TestBothErasAtOneURL(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	if m := s.frame(s.modern("1", "server/discover", "")); m.Error != nil || !strings.Contains(m.raw, `"2026-07-28"`) {
		t.Errorf("discover: %s", m)
	}
	for asked, want := range map[string]string{"2025-11-25": "2025-11-25", "2025-03-26": "2025-03-26", "2026-07-28": "2025-11-25"} {
		h := s.begin(asked)
		if h[1] != "Mcp-Protocol-Version: "+want {
			t.Errorf("asked for %s, got %s", asked, h[1])
		}
		m := s.frame(s.post(legacyCall("2", "resources/read", `"uri":"memo://notes"`), h...))
		if m.Error != nil || strings.Contains(m.raw, "ttlMs") || strings.Contains(m.raw, "cacheScope") {
			t.Errorf("legacy read: %s", m)
		}
	}
	m := s.frame(s.modern("3", "resources/read", `"uri":"memo://notes"`))
	if res := members(t, m.Result); res["ttlMs"] != 0.0 || res["cacheScope"] != "private" {
		t.Errorf("modern read: %s", m)
	}
	// Left-overs of another era do no harm.
	if m := s.frame(s.modern("4", "tools/list", "", "Mcp-Session-Id: nonsense", "Last-Event-Id: 7")); m.Error != nil {
		t.Errorf("with left-overs: %s", m)
	}
}

// The official SDK's client, in each revision that it speaks, hears of changes.
func TestSDKClientsOfAllRevisions(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for _, version := range append([]string{modernVersion}, legacyVersions[:3]...) {
		heard := make(chan string, 10)
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			Capabilities:           &mcp.ClientCapabilities{},
			ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { heard <- r.Params.URI },
		})
		cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: s.c}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if got := cs.InitializeResult().ProtocolVersion; got != version {
			t.Errorf("asked for %s, negotiated %s", version, got)
		}
		if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "memo://notes"}); err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		awaitListens(t, s.fixture, 1)
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "memo_set", Arguments: map[string]any{"key": "v", "value": version}}); err != nil {
			t.Fatal(err)
		}
		select {
		case uri := <-heard:
			if uri != "memo://notes" {
				t.Errorf("%s heard of %s", version, uri)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s heard nothing", version)
		}
		if err := cs.Close(); err != nil {
			t.Errorf("%s: close: %v", version, err)
		}
		awaitListens(t, s.fixture, 0) // M-5: sessions that vanish are released
	}
}

// awaitListens waits for the hub: a subscription that was acknowledged may be a
// moment away from being counted.
func awaitListens(t testing.TB, f *fixture, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for f.hub.Stats().Listens != n {
		if time.Now().After(deadline) {
			t.Fatalf("%d listens, want %d", f.hub.Stats().Listens, n)
		}
		time.Sleep(time.Millisecond)
	}
}

// M-7, M-8: each mistake has its status, its code, and a word of advice.
func TestHTTPMistakes(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{MaxBody: 64 << 10})
	h := s.begin("2025-11-25")
	version := "Mcp-Protocol-Version: 2026-07-28"

	s.fails(s.modern("1", "no/such", ""), 404, codeMethodNotFound, "")
	s.fails(s.modern("1", "initialize", ""), 404, codeMethodNotFound, "")
	s.fails(s.modern("1", "resources/read", `"uri":"memo://x"`), 400, codeInvalidParams, "memo://notes")
	s.fails(s.modern("1", "tools/list", "", "Mcp-Method: tools/call"), 400, -32020, "")
	s.fails(s.modern("1", "tools/list", "", "Mcp-Method: "), 400, -32020, "")
	s.fails(s.modern("1", "tools/list", "", "Mcp-Protocol-Version: "), 400, -32020, "")                      // S20
	s.fails(s.modern("1", "tools/list", "", "Mcp-Protocol-Version: 2025-11-25"), 400, -32020, "")            // two versions
	s.fails(s.post(legacyCall("1", "tools/list", ""), version, "Mcp-Method: tools/list"), 400, -32602, "")   // no _meta
	s.fails(s.post(legacyCall("1", "server/discover", "")), 400, codeInvalidParams, "_meta")                 // neither
	s.fails(s.post(modernCall("1", "subscriptions/listen", `"notifications":{}`), version), 400, -32020, "") // a listen in disguise
	later := strings.ReplaceAll(modernCall("1", "tools/list", ""), "2026-07-28", "2027-01-01")
	s.fails(s.post(later, "Mcp-Protocol-Version: 2027-01-01", "Mcp-Method: tools/list"), 400, codeVersion, "")

	s.fails(s.post(legacyCall("1", "tools/list", "")), 400, codeInvalidRequest, "send initialize first")
	s.fails(s.post(legacyCall("1", "tools/list", ""), "Mcp-Session-Id: nonsense"), 404, codeInvalidRequest, "initialize again")
	s.fails(s.post(legacyCall("1", "tools/list", ""), h[0], "Mcp-Protocol-Version: 1999-01-01"), 400, codeVersion, "1999-01-01")
	s.fails(s.post(initializeCall("1", "2025-11-25"), h...), 400, codeInvalidRequest, "initialized already")
	s.fails(s.post(legacyCall("1", "initialize", "")), 400, codeInvalidParams, "protocolVersion")
	s.fails(s.post(legacyCall("1", "initialize", `"protocolVersion":"2025-11-25","capabilities":7`)), 200, codeInvalidParams, "")
	s.fails(s.post(legacyCall("1", "no/such", ""), h...), 200, codeMethodNotFound, "")
	s.fails(s.post(legacyCall("1", "tools/call", `"name":"nothing"`), h...), 200, codeInvalidParams, "nothing")

	s.fails(s.post(""), 400, codeInvalidRequest, "empty")
	s.fails(s.post("{"), 400, codeParseError, "")
	s.fails(s.post(`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`), 400, codeParseError, "duplicate")
	s.fails(s.post(`{"jsonrpc":"2.0","id":2.5,"method":"ping"}`), 400, codeInvalidRequest, "use a string")
	s.fails(s.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, h...), 400, codeInvalidRequest, "batches")
	s.fails(s.post(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("x", 64<<10)+`"}}`), 413, codeInvalidRequest, "larger than the limit")
	s.fails(s.modern("1", "tools/list", "", "Content-Type: text/plain"), 415, codeInvalidRequest, "")
	s.fails(s.modern("1", "tools/list", "", "Accept: application/json"), 400, codeInvalidRequest, "")

	for _, headers := range [][]string{nil, {version}, append([]string{version}, h[0])} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			res := s.do(method, "", headers...)
			if allow := res.Header.Get("Allow"); allow != "POST" {
				t.Errorf("%s: Allow is %q", method, allow)
			}
			s.fails(res, 405, codeInvalidRequest, "only POST")
		}
	}
	put := s.do(http.MethodPut, "{}")
	if allow := put.Header.Get("Allow"); allow != "POST" {
		t.Errorf("PUT: Allow is %q", allow)
	}
	s.fails(put, 405, codeInvalidRequest, "only POST")
	// After all of that the session is as it was.
	if m := s.frame(s.post(legacyCall("2", "tools/list", ""), h...)); m.Error != nil {
		t.Errorf("tools/list: %s", m)
	}
}

// Batches are of one old revision.
func TestHTTPBatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	h := s.begin("2025-03-26")[:1] // that revision has no version header
	res := s.post("["+legacyCall("5", "ping", "")+","+legacyCall("6", "ping", "")+"]", h...)
	defer func() { _ = res.Body.Close() }()
	e := s.events(res)
	if a, b := e.next(), e.next(); string(a.Result) != "{}" || string(b.Result) != "{}" {
		t.Errorf("answers %s and %s", a, b)
	}
}

// M-5, S10: a session that only listens lives; one that nobody uses ends, and
// with it what it had subscribed to.
func TestSessionsEndWhenUnused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	h := s.begin("2025-11-25")
	res := s.do(http.MethodGet, "", h...)
	e := s.events(res)
	if m := s.frame(s.post(legacyCall("1", "resources/subscribe", `"uri":"odd://log"`), h...)); m.Error != nil {
		t.Fatalf("subscribe: %s", m)
	}
	other := s.begin("2025-11-25")
	left := func() (n int) {
		for range s.SDK().Sessions() {
			n++
		}
		return n
	}
	// The time is over for both. A client may have its answer before the request
	// counts as over.
	for deadline := time.Now().Add(10 * time.Second); left() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions, want 1", left())
		}
		for _, headers := range [][]string{h, other} {
			s.http.sessions.expire(strings.TrimPrefix(headers[0], headerSession+": "))
		}
	}
	s.fails(s.post(legacyCall("2", "ping", ""), other...), 404, codeInvalidRequest, "initialize again")
	s.odd.announce("odd://log")
	if m := e.next(); m.Method != "notifications/resources/updated" || m.Params.URI != "odd://log" {
		t.Errorf("on the stream: %s", m)
	}
	_ = res.Body.Close()
	for deadline := time.Now().Add(10 * time.Second); left() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions, want none", left())
		}
		s.http.sessions.expire(strings.TrimPrefix(h[0], headerSession+": "))
	}
	awaitListens(t, s.fixture, 0)
	if n := s.odd.watching(); n != 0 {
		t.Errorf("%d are still observed", n)
	}
}

// The time of a session begins anew with the end of what used it last.
func TestSessionIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan string, 2)
		s := newSessions(2, time.Minute, func(id string) { ended <- id })
		ends := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(ended) > 0 {
				got = append(got, <-ended)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s %q ended, want %q", when, got, want)
			}
		}
		for _, id := range []string{"a", "b"} {
			r := s.reserve()
			r.begin(id)
			r.release()
		}
		time.Sleep(30 * time.Second)
		first, second := s.use("a"), s.use("a")
		time.Sleep(30 * time.Second)
		ends("after a minute", "b")
		first()
		time.Sleep(time.Hour)
		second()
		time.Sleep(time.Minute - 1)
		ends("within a minute of its last use")
		time.Sleep(time.Nanosecond)
		ends("a minute after its last use", "a")
	})
}

func (s *oddSource) announce(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, changed := range s.watched[uri] {
		changed()
	}
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{MaxSessions: 2})
	first := s.begin("2025-11-25")
	s.begin("2025-11-25")
	res := s.post(initializeCall("1", "2025-11-25"))
	if res.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.fails(res, 503, CodeTooManyRequests, "too many sessions")
	res = s.do(http.MethodDelete, "", first...)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %s", res.Status)
	}
	s.fails(s.post(legacyCall("1", "initialize", `"protocolVersion":7`)), 400, codeInvalidParams, "protocolVersion") // takes no place
	s.begin("2025-11-25")
}

// S17: a client that goes away cancels its call.
func TestClosingTheResponseCancelsTheCall(t *testing.T) {
	t.Parallel()
	started, cancelled := make(chan struct{}), make(chan struct{})
	s := newSite(t, nil, Tool{Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (ToolResult, error) {
		close(started)
		<-ctx.Done()
		close(cancelled)
		return ToolResult{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(modernCall("1", "tools/call", `"name":"wait"`)))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": modernVersion, "Mcp-Method": "tools/call", "Mcp-Name": "wait",
	} {
		req.Header.Set(k, v)
	}
	go func() {
		<-started
		cancel()
	}()
	if res, err := s.c.Do(req); err == nil {
		_ = res.Body.Close()
		t.Error("there was an answer")
	}
	select {
	case <-cancelled:
	case <-time.After(10 * time.Second):
		t.Error("the call goes on")
	}
}

// M-4: a shutdown ends listens with a result and legacy streams, lets requests
// finish, and refuses new ones.
func TestHTTPShutdown(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	s := newSite(t, nil, Tool{Name: "work", Call: func(context.Context, json.RawMessage) (ToolResult, error) {
		close(started)
		<-release
		return ToolResult{Text: "done"}, nil
	}})
	h := s.begin("2025-11-25")
	stream := s.events(s.do(http.MethodGet, "", h...))
	listening := s.events(s.modern(`"L"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["memo://notes"]}`))
	if m := listening.next(); m.subscription() != `"L"` {
		t.Fatalf("acknowledgement: %s", m)
	}
	awaitListens(t, s.fixture, 1)
	var work atomic.Value
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		work.Store(s.frame(s.post(legacyCall("5", "tools/call", `"name":"work"`), h...)).raw)
	}()
	<-started
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(t.Context()) }()
	if m := listening.next(); string(m.ID) != `"L"` || !strings.Contains(string(m.Result), "complete") {
		t.Errorf("listen: %s", m)
	}
	if m := listening.next(); m.raw != "" {
		t.Errorf("behind the result: %s", m)
	}
	if m := stream.next(); m.raw != "" {
		t.Errorf("legacy stream: %s", m)
	}
	s.fails(s.modern("6", "tools/list", ""), 503, CodeShuttingDown, "try again")
	close(release)
	<-worked
	if got := fmt.Sprint(work.Load()); !strings.Contains(got, "done") {
		t.Errorf("the request under way: %s", got)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for ss := range s.SDK().Sessions() {
		t.Errorf("session %s is left", ss.ID())
	}
}

// B-051 over HTTP: ids come back as they went.
func TestIDsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for _, id := range []string{"0", "-7", "9007199254740992", `"a\"b é"`, `""`} {
		if m := s.frame(s.modern(id, "tools/list", "")); string(m.ID) != id {
			t.Errorf("id %s came back as %s", id, m.ID)
		}
	}
	// The hub echoes any integer.
	e := s.events(s.modern("18446744073709551617", "subscriptions/listen", `"notifications":{"resourceSubscriptions":["memo://notes"]}`))
	if m := e.next(); !strings.Contains(m.raw, `"io.modelcontextprotocol/subscriptionId":18446744073709551617`) {
		t.Errorf("listen: %s", m)
	}
	_ = e.body.Close()
}
