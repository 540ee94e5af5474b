//nolint:bodyclose // do and get read bodies to their end and close them.
package httpserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/memo"
	"github.com/ossicle/ossicle/listen"
)

// site is a running server over a memo store.
type site struct {
	t     testing.TB
	url   string // of the MCP endpoint
	base  string
	token string
	c     *http.Client
	notes *memo.Store
	hub   *listen.Hub
	stop  context.CancelFunc
	ended chan error
}

const testToken = "0123456789abcdef-secret"

func staticToken(t testing.TB, name, token string, r access.Rights) StaticToken {
	t.Helper()
	sum, err := HashToken(token)
	if err != nil {
		t.Fatal(err)
	}
	return StaticToken{Principal: access.Principal{Name: name, Rights: r}, SHA256: sum}
}

// newSite runs a server; without another Auth it takes testToken.
func newSite(t testing.TB, opts *Options, tools ...mcpserver.Tool) *site {
	t.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Auth == nil && !o.NoAuth {
		o.Auth = StaticTokens{staticToken(t, "all", testToken, access.AllRights())}
	}
	notes, err := memo.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	reg := listen.NewRegistry(&listen.RegistryOptions{Linger: -1})
	if err := reg.Mount(notes); err != nil {
		t.Fatal(err)
	}
	hub := listen.NewHub(reg, &listen.HubOptions{Authorize: AuthorizeListen})
	m, err := mcpserver.New(reg, hub, append(mcpserver.MemoTools(notes), tools...), &mcpserver.Options{Authorize: Authorize})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(m, &o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // a cleanup ends it
	st := &site{t: t, url: s.URL(), token: testToken, notes: notes, hub: hub, stop: cancel, ended: make(chan error, 1)}
	st.base = strings.TrimSuffix(st.url, MCPPath)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // our own certificate
	st.c = &http.Client{Transport: transport}
	go func() {
		err := s.Run(ctx)
		reg.Close()
		st.ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		transport.CloseIdleConnections()
		if err, ok := <-st.ended; ok && err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return st
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// request makes a request of revision 2026-07-28.
func (s *site) request(method, params string) *http.Request {
	s.t.Helper()
	if params != "" {
		params = "," + params
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + meta + params + `}}`
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	var p struct{ Name, URI string }
	_ = json.Unmarshal([]byte("{"+strings.TrimPrefix(params, ",")+"}"), &p)
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + s.token,
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": p.Name + p.URI,
	} {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	return req
}

func (s *site) do(req *http.Request) (*http.Response, string) {
	s.t.Helper()
	res, err := s.c.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(b)
}

func (s *site) get(path string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.base+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(req)
}

// listen opens a listen for memo://notes and reads its acknowledgement.
func (s *site) listen() (next func() string, closeBody func()) {
	s.t.Helper()
	res, err := s.c.Do(s.request("subscriptions/listen", `"notifications":{"resourceSubscriptions":["memo://notes"]}`))
	if err != nil {
		s.t.Fatal(err)
	}
	r := bufio.NewReader(res.Body)
	next = func() string {
		s.t.Helper()
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return err.Error()
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				return data
			}
		}
	}
	if m := next(); !strings.Contains(m, `"resourceSubscriptions":["memo://notes"]`) {
		s.t.Fatalf("acknowledgement: %d %s", res.StatusCode, m)
	}
	return next, func() { _ = res.Body.Close() }
}

func TestServesMCPHealthAndProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{Routes: []Route{{Pattern: "GET /extra", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := PrincipalOf(r.Context())
		_, _ = fmt.Fprint(w, p.Name, ok)
	})}}})
	if res, body := s.do(s.request("tools/list", "")); res.StatusCode != http.StatusOK || !strings.Contains(body, "memo_set") {
		t.Errorf("tools/list: %s %s", res.Status, body)
	}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} { // no token
		if res, body := s.get(path); res.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %s %q", path, res.Status, body)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/extra", nil)
	req.Header.Set("Authorization", "bearer "+testToken) // the scheme has no case
	if _, body := s.do(req); body != "alltrue" {
		t.Errorf("route: %q", body)
	}
	req.URL.Path = "/nothing"
	res, body := s.do(req)
	var p Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%v %s", res.Header, body)
	}
	if diff := cmp.Diff(Problem{Type: "about:blank", Title: "Not Found", Status: 404, Detail: "there is nothing here; MCP is served at /mcp"}, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A path that is known says which methods it takes, also to whoever has no token
// where none is asked for; and what is known to nobody stays 404.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") })
	s := newSite(t, &Options{Routes: []Route{
		{Pattern: "GET /v1/things", Handler: ok},
		{Pattern: "POST /v1/things", Handler: ok},
		{Pattern: "DELETE /v1/things/{id}", Handler: ok},
		{Pattern: "GET /{$}", Handler: ok, Open: true},
		{Pattern: "PUT /v1/both", Handler: ok, Open: true},
		{Pattern: "GET /v1/both", Handler: ok},
	}})
	for _, tc := range []struct {
		method, path string
		token        bool
		status       int
		allow        string
	}{
		{"PUT", "/v1/things", true, 405, "GET, HEAD, POST"},
		{"PUT", "/v1/things", false, 401, ""},
		{"GET", "/v1/things/7", true, 405, "DELETE"},
		{"GET", "/v1/things/7/8", true, 404, ""},
		{"POST", "/v1/nothing", true, 404, ""},
		{"POST", "/", false, 405, "GET, HEAD"},
		{"POST", "/healthz", false, 405, "GET, HEAD"},
		{"POST", "/readyz", true, 405, "GET, HEAD"},
		{"PUT", "/v1/both", false, 200, ""},
		{"GET", "/v1/both", false, 401, ""},
		{"GET", "/v1/both", true, 200, ""},
		{"DELETE", "/v1/both", false, 405, "GET, HEAD, PUT"},
		{"PUT", "/mcp", true, 405, "POST"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, s.base+tc.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if tc.token {
			req.Header.Set("Authorization", "Bearer "+testToken)
		}
		res, body := s.do(req)
		if allow := res.Header.Get("Allow"); res.StatusCode != tc.status || allow != tc.allow {
			t.Errorf("%s %s (token %t): %d, Allow %q, want %d and %q: %s", tc.method, tc.path, tc.token, res.StatusCode, allow, tc.status, tc.allow, body)
		}
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{Ready: func(context.Context) error { return errors.New("the store is away") }})
	if res, body := s.get("/readyz"); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "the store is away") {
		t.Errorf("%s %s", res.Status, body)
	}
}

// M-8: DNS rebinding and cross-origin requests are refused.
func TestHostAndOriginAreChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{Hosts: []string{"ears.example"}, Origins: []string{"https://page.example"}})
	port := s.base[strings.LastIndex(s.base, ":"):]
	for _, tc := range []struct {
		host, origin string
		status       int
	}{
		{"", "", 200},
		{"localhost" + port, "", 200},
		{"LOCALHOST", "", 200},
		{"[::1]" + port, "", 200},
		{"127.0.0.2", "", 200},
		{"ears.example", "", 200},
		{"Ears.Example:443", "", 200},
		{"evil.example", "", 403},
		{"evil.example" + port, "", 403},
		{"localhost.evil.example", "", 403},
		{"", "https://page.example", 200},
		{"", "http://page.example", 403},
		{"", "https://page.example.evil.example", 403},
		{"", "https://evil.example", 403},
		{"", "null", 403},
		{"", "http://localhost" + port, 403}, // another origin than 127.0.0.1
		{"localhost" + port, "http://localhost" + port, 200},
		{"localhost" + port, "http://localhost:1", 403},
		{"evil.example", "http://evil.example", 403},
	} {
		req := s.request("tools/list", "")
		if tc.host != "" {
			req.Host = tc.host
		}
		if tc.origin != "" {
			req.Header.Set("Origin", tc.origin)
		}
		res, body := s.do(req)
		if res.StatusCode != tc.status {
			t.Errorf("Host %q, Origin %q: %s %s, want %d", tc.host, tc.origin, res.Status, body, tc.status)
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); (got != "") != (tc.origin != "" && tc.status == 200) {
			t.Errorf("Host %q, Origin %q: Access-Control-Allow-Origin %q", tc.host, tc.origin, got)
		}
		// A listen, which the hub takes, is checked as everything else is.
		req = s.request("subscriptions/listen", `"notifications":{}`)
		req.Host = tc.host
		if tc.status == 403 && tc.origin == "" {
			if res, _ := s.do(req); res.StatusCode != http.StatusForbidden {
				t.Errorf("Host %q: a listen gets %s", tc.host, res.Status)
			}
		}
	}
	// A page's preflight bears no token.
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodOptions, s.url, nil)
	req.Header.Set("Origin", "https://page.example")
	req.Header.Set("Access-Control-Request-Method", "POST")
	if res, _ := s.do(req); res.StatusCode != http.StatusNoContent || !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Mcp-Method") {
		t.Errorf("preflight: %s %v", res.Status, res.Header)
	}
}

// Where others come in, names are checked only if they are configured.
func TestHostIsCheckedByAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		local net.Addr
		hosts []string
		host  string
		want  bool
	}{
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, nil, "any.example", true},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, nil, "", false},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, []string{"ours.example"}, "any.example", false},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, []string{"ours.example"}, "ours.example:8443", true},
		{&net.TCPAddr{IP: net.IPv6loopback}, nil, "any.example", false},
		{&net.UnixAddr{Name: "/s"}, nil, "localhost", true},
	} {
		s := &Server{hosts: tc.hosts}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = tc.host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tc.local))
		if got := s.hostAllowed(r); got != tc.want {
			t.Errorf("at %v, known as %v, Host %q: %v", tc.local, tc.hosts, tc.host, got)
		}
	}
}

// M-9: nothing is served to everybody by accident.
func TestNewRefusesToLetEverybodyIn(t *testing.T) {
	t.Parallel()
	tokens := StaticTokens{}
	m := fakeMCP{}
	for name, o := range map[string]*Options{
		"nothing":               nil,
		"no auth elsewhere":     {Addr: "0.0.0.0:0", NoAuth: true},
		"no auth anywhere":      {Addr: ":7718", NoAuth: true},
		"no auth by name":       {Addr: "ears.example:1", NoAuth: true},
		"both":                  {Auth: tokens, NoAuth: true},
		"no port":               {Addr: "127.0.0.1", Auth: tokens},
		"no such port":          {Addr: "127.0.0.1:65536", Auth: tokens},
		"origin with a path":    {Auth: tokens, Origins: []string{"https://a.example/x"}},
		"origin without a name": {Auth: tokens, Origins: []string{"*"}},
		"oauth without server":  {Auth: tokens, OAuth: &OAuth{Resource: "https://a.example/mcp"}},
		"oauth without url":     {Auth: tokens, OAuth: &OAuth{AuthorizationServers: []string{"https://as.example"}}},
	} {
		if _, err := New(m, o); err == nil {
			t.Errorf("%s: New takes it", name)
		}
	}
	if _, err := New(m, &Options{NoAuth: true}); err != nil { // the default address is loopback
		t.Error(err)
	}
}

type fakeMCP struct{ h http.Handler }

func (m fakeMCP) Handler() http.Handler {
	if m.h == nil {
		return http.NotFoundHandler()
	}
	return m.h
}
func (fakeMCP) Shutdown(context.Context) error { return nil }

func TestWithoutAuthNobodyIsAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{NoAuth: true})
	req := s.request("tools/call", `"name":"memo_set","arguments":{"key":"a","value":1}`)
	req.Header.Del("Authorization")
	if res, body := s.do(req); res.StatusCode != http.StatusOK || strings.Contains(body, "error") {
		t.Errorf("%s %s", res.Status, body)
	}
}

// M-4, house: readiness off, listens end with their result, requests finish.
func TestRunShutsDownInOrder(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	s := newSite(t, nil, mcpserver.Tool{Name: "work", Call: func(context.Context, json.RawMessage) (mcpserver.ToolResult, error) {
		close(started)
		<-release
		return mcpserver.ToolResult{Text: "finished"}, nil
	}})
	next, closeBody := s.listen()
	defer closeBody()
	for s.hub.Stats().Listens != 1 {
		time.Sleep(time.Millisecond)
	}
	worked := make(chan string)
	go func() {
		_, body := s.do(s.request("tools/call", `"name":"work"`))
		worked <- body
	}()
	<-started
	s.stop()
	if m := next(); !strings.Contains(m, `"resultType":"complete"`) {
		t.Errorf("listen: %s", m)
	}
	if res, _ := s.get("/readyz"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz while shutting down: %s", res.Status)
	}
	if res, _ := s.get("/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("/healthz while shutting down: %s", res.Status)
	}
	close(release)
	if body := <-worked; !strings.Contains(body, "finished") {
		t.Errorf("the request under way: %s", body)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	close(s.ended)
}

// A request that does not end is cut off when the budget is over.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	release := make(chan struct{})
	s := newSite(t, &Options{Budget: Budget{Requests: 100 * time.Millisecond, Close: 100 * time.Millisecond}},
		mcpserver.Tool{Name: "stuck", Call: func(context.Context, json.RawMessage) (mcpserver.ToolResult, error) {
			close(started)
			<-release
			return mcpserver.ToolResult{}, nil
		}})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := s.c.Do(s.request("tools/call", `"name":"stuck"`)); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}()
	<-started
	at := time.Now()
	s.stop()
	err := <-s.ended
	if d := time.Since(at); !errors.Is(err, context.DeadlineExceeded) || d > 5*time.Second {
		t.Errorf("Run = %v after %v", err, d)
	}
	close(s.ended)
	<-gone
	close(release)
}

// M-8: HTTP/2, with and without TLS, for requests and for listens.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	for name, config := range map[string]*tls.Config{"h2c": nil, "h2": {Certificates: cert.TLS.Certificates}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, &Options{TLS: config})
			tr := s.c.Transport.(*http.Transport)
			tr.Protocols = new(http.Protocols)
			tr.Protocols.SetHTTP2(config != nil)
			tr.Protocols.SetUnencryptedHTTP2(config == nil)
			res, body := s.do(s.request("tools/list", ""))
			if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK || !strings.Contains(body, "memo_set") {
				t.Errorf("%s %s %s", res.Proto, res.Status, body)
			}
			next, closeBody := s.listen()
			defer closeBody()
			for i := range 3 {
				if err := s.notes.Set("k", json.RawMessage(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
				if m := next(); !strings.Contains(m, "notifications/resources/updated") {
					t.Errorf("update: %s", m)
				}
			}
			s.stop()
			if m := next(); !strings.Contains(m, `"resultType":"complete"`) {
				t.Errorf("end: %s", m)
			}
		})
	}
}

// B-006: deadlines are those of writes, and none stays behind on a connection.
func TestWritesAreBounded(t *testing.T) {
	t.Parallel()
	w := &recordingWriter{ResponseRecorder: httptest.NewRecorder()}
	b := newBoundWriter(w, time.Minute)
	_, _ = b.Write([]byte("x"))
	_ = b.FlushError()
	b.finish()
	if diff := cmp.Diff([]string{"none", "soon", "write", "none", "soon", "flush", "none", "soon"}, w.log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// One that manages its deadlines is left alone.
	w = &recordingWriter{ResponseRecorder: httptest.NewRecorder()}
	b = newBoundWriter(w, time.Minute)
	_ = http.NewResponseController(b).SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = b.Write([]byte("x"))
	b.finish()
	if diff := cmp.Diff([]string{"none", "soon", "write"}, w.log); diff != "" {
		t.Errorf("managed (-want +got):\n%s", diff)
	}
}

type recordingWriter struct {
	*httptest.ResponseRecorder
	log []string
}

func (w *recordingWriter) SetWriteDeadline(d time.Time) error {
	if d.IsZero() {
		w.log = append(w.log, "none")
	} else {
		w.log = append(w.log, "soon")
	}
	return nil
}

func (w *recordingWriter) Write(p []byte) (int, error) {
	w.log = append(w.log, "write")
	return len(p), nil
}
func (w *recordingWriter) Flush() { w.log = append(w.log, "flush") }

// A peer that stands still within a request is cut off, and harms nobody.
func TestPanicsEndOneRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{Routes: []Route{{Pattern: "/panic", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") })}}})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/panic", strings.NewReader("x"))
	req.Header.Set("Authorization", "Bearer "+testToken)
	if res, err := s.c.Do(req); err == nil {
		_ = res.Body.Close()
		t.Errorf("a panic answers %s", res.Status)
	}
	if res, _ := s.get("/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("after a panic: %s", res.Status)
	}
}

func TestListenFailsEarly(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	other, err := New(fakeMCP{}, &Options{Addr: strings.TrimPrefix(s.base, "http://"), NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	err = other.Listen(t.Context())
	if want := "listen on " + other.opts.Addr + ": bind: address already in use; end what"; err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen on an address in use: %v", err)
	}
	if err := other.Run(t.Context()); err == nil {
		t.Error("Run on an address in use succeeds")
	}
}
