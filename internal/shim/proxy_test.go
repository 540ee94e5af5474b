package shim_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/shim"
)

// relayed serves a proxy in front of target and returns its base URL, and what
// was seen once done is called.
func relayed(t testing.TB, target string) (base string, done func() []string) {
	t.Helper()
	s := &seen{}
	o := observe.New(s.sink, &observe.Options{Server: "m"})
	p, err := shim.NewProxy(target, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, ln) }()
	done = func() []string {
		if cancel != nil {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			o.Close()
			cancel = nil
		}
		return s.kinds()
	}
	t.Cleanup(func() { done() })
	return "http://" + ln.Addr().String(), done
}

// closing is the body of a server's request: once an answer has begun, whoever
// reads on is told that it is closed.
type closing struct {
	io.Reader
	answered chan struct{}
}

func (b *closing) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == nil {
		return n, nil
	}
	<-b.answered
	return 0, http.ErrBodyReadAfterClose
}

func (b *closing) Close() error { return nil }

// begun says that the head of an answer has been written.
type begun struct {
	*httptest.ResponseRecorder
	answered chan struct{}
}

func (w *begun) WriteHeader(status int) {
	w.ResponseRecorder.WriteHeader(status)
	close(w.answered)
}

// An answer that begins before the transport has looked for the end of the
// request is not cut off.
//
// M-19.
func TestAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done(): // it was cut off
		case <-time.After(100 * time.Millisecond): // longer than a relay takes to cut it
		}
		_, _ = io.WriteString(w, "last")
	}))
	t.Cleanup(upstream.Close)
	o := observe.New((&seen{}).sink, nil)
	t.Cleanup(o.Close)
	p, err := shim.NewProxy(upstream.URL, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	answered := make(chan struct{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", &closing{strings.NewReader("{}"), answered})
	r.ContentLength = 2
	w := &begun{httptest.NewRecorder(), answered}
	p.ServeHTTP(w, r)
	if got := w.Body.String(); got != "first last" {
		t.Errorf("the client got %q", got)
	}
}

// client is one of the tests' own: connections do not outlive it.
func client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Requests and responses pass as they are, but for what belongs to a connection.
//
// M-19.
func TestProxyIsTransparent(t *testing.T) {
	t.Parallel()
	random := make([]byte, 3<<20+5)
	_, _ = rand.Read(random)
	var got *http.Request
	var body []byte
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(t.Context())
		body, _ = io.ReadAll(r.Body)
		w.Header()["X-Two"] = []string{"a", "b"}
		w.Header().Set("Mcp-Session-Id", "s1")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "weird")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(random)
	}))
	defer upstream.Close()
	base, _ := relayed(t, upstream.URL+"/v1/mcp?key=1")
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		sent := random[:1<<20]
		req, err := http.NewRequestWithContext(t.Context(), method, base+"/v1/mcp?key=1&a;b=%zz", bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["X-Many"] = []string{"1", "2"}
		req.Header.Set("Authorization", "Bearer x")
		req.Header.Set("Accept-Encoding", "gzip")
		req.Header.Set("User-Agent", "")
		res, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch {
		case err != nil, !bytes.Equal(back, random), !bytes.Equal(body, sent):
			t.Errorf("%s: %d bytes there, %d back, %v", method, len(body), len(back), err)
		case got.Method != method, got.RequestURI != "/v1/mcp?key=1&a;b=%zz", "http://"+got.Host != upstream.URL:
			t.Errorf("%s %s at %s", got.Method, got.RequestURI, got.Host)
		case !cmp.Equal(got.Header["X-Many"], []string{"1", "2"}), got.Header.Get("Authorization") != "Bearer x", len(got.Header) != 3:
			t.Errorf("header there: %v", got.Header) // Content-Length is one
		case res.StatusCode != http.StatusTeapot, !cmp.Equal(res.Header["X-Two"], []string{"a", "b"}), res.Header.Get("Content-Encoding") != "weird", res.Header.Get("Mcp-Session-Id") != "s1":
			t.Errorf("%d, header back: %v", res.StatusCode, res.Header)
		}
	}
}

// What is streamed passes at once, and a client that goes is gone for the server.
//
// M-19.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	next, gone := make(chan string), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-next:
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	}))
	defer upstream.Close()
	base, _ := relayed(t, upstream.URL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	for _, text := range []string{"data: 1\n\n", ": comment\n", "half"} {
		next <- text
		got := make([]byte, len(text))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != text {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	cancel()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the server was not told")
	}
}

// A server that cannot be reached is evidence, with the reason; what it answers
// is not.
//
// M-19, A-9.
func TestProxyFailures(t *testing.T) {
	t.Parallel()
	tlsServer := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tlsServer.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	noise := peer(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n\r\n") })
	silent := peer(t, func(net.Conn) {})
	for name, tc := range map[string]struct {
		target string
		status int
		want   []string
	}{
		"refused":   {"http://127.0.0.1:1", http.StatusBadGateway, []string{"server_error connect_refused"}},
		"tls":       {tlsServer.URL, http.StatusBadGateway, []string{"server_error tls"}},
		"no tls":    {strings.Replace(plain.URL, "http:", "https:", 1), http.StatusBadGateway, []string{"server_error tls"}},
		"no http":   {"http://" + noise, http.StatusBadGateway, []string{"server_error protocol_error"}},
		"hangs up":  {"http://" + silent, http.StatusBadGateway, []string{"server_error protocol_error"}},
		"no name":   {"http://" + strings.Repeat("x", 64) + ".invalid", http.StatusBadGateway, []string{"server_error unreachable"}},
		"not found": {plain.URL, http.StatusNotFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, done := relayed(t, tc.target)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/mcp", strings.NewReader(`{"id":1,"method":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			res, err := client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			var failures []string
			for _, k := range done() {
				if strings.HasPrefix(k, "server_error") {
					failures = append(failures, k)
				}
			}
			if d := cmp.Diff(tc.want, failures); d != "" || res.StatusCode != tc.status {
				t.Errorf("%d %s", res.StatusCode, d)
			}
		})
	}
	for _, bad := range []string{"", "ftp://h/", "http://", "/mcp", "http://h:x/"} {
		if _, err := shim.NewProxy(bad, nil, nil); !errors.Is(err, shim.ErrTarget) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// peer accepts, reads a little, says something and hangs up.
func peer(t *testing.T, say func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			say(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

// Pages of elsewhere stay out.
func TestProxyGuards(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	base, _ := relayed(t, upstream.URL)
	for _, tc := range []struct {
		host, origin string
		want         int
	}{
		{"", "", http.StatusOK},
		{"localhost:1", "http://localhost:99", http.StatusOK},
		{"[::1]:1", "http://127.0.0.1", http.StatusOK},
		{"evil.example", "", http.StatusForbidden},
		{"127.0.0.1.evil.example", "", http.StatusForbidden},
		{"", "https://evil.example", http.StatusForbidden},
		{"", "null", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tc.host
		if tc.origin != "" {
			req.Header.Set("Origin", tc.origin)
		}
		res, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tc.want {
			t.Errorf("%+v: %d", tc, res.StatusCode)
		}
	}
}

// Clients of both eras, and of the older transport, work through the relay, and
// what they did is seen.
//
// M-19, A-5.
func TestProxyClients(t *testing.T) {
	t.Parallel()
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "say"}, func(_ context.Context, _ *mcp.CallToolRequest, a map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(a)}}}, nil, nil
	})
	get := func(*http.Request) *mcp.Server { return server }
	legacy := []string{"initialize_observed", "tools_list_observed", "tool_call_observed", "connection_closed"}
	for name, tc := range map[string]struct {
		handler http.Handler
		version string
		dial    func(url string) mcp.Transport
		want    []string
	}{
		"modern": {
			mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}), "",
			func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} },
			[]string{"discover_observed", "initialize_observed", "tools_list_observed", "tool_call_observed"},
		},
		"legacy": {mcp.NewStreamableHTTPHandler(get, nil), "2025-11-25", func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} }, legacy},
		"sse":    {mcp.NewSSEHandler(get, nil), "2025-06-18", func(url string) mcp.Transport { return &mcp.SSEClientTransport{Endpoint: url} }, legacy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := httptest.NewServer(tc.handler)
			defer upstream.Close()
			base, done := relayed(t, upstream.URL+"/deep/mcp")
			c := mcp.NewClient(&mcp.Implementation{Name: "host"}, nil)
			session, err := c.Connect(t.Context(), tc.dial(base+"/deep/mcp"), &mcp.ClientSessionOptions{ProtocolVersion: tc.version})
			if err != nil {
				t.Fatal(err)
			}
			if l, err := session.ListTools(t.Context(), nil); err != nil || len(l.Tools) != 1 {
				t.Error(err)
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "say", Arguments: map[string]any{"a": 1}}); err != nil {
				t.Error(err)
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(tc.want, done()); d != "" {
				t.Error(d)
			}
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		})
	}
}
