package listen_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, d)
	}
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// listenBody is a listen for URIs. The id is a literal.
func listenBody(id string, uris ...string) string {
	return listenFor(id, `"resourceSubscriptions":["`+strings.Join(uris, `","`)+`"]`)
}

// listenFor is a listen with these members of its filter.
func listenFor(id, members string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{` + meta + `,"notifications":{` + members + `}}}`
}

func ackFrame(id string, uris ...string) string {
	filter := "{}"
	if len(uris) > 0 {
		filter = `{"resourceSubscriptions":["` + strings.Join(uris, `","`) + `"]}`
	}
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":` + filter + `}}`
}

func updateFrame(id, uri string) string {
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"uri":"` + uri + `"}}`
}

func resultFrame(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

func cancelledFrame(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"the server ended the subscription"}}`
}

// newHub returns a hub that is shut down at the end of the test, which fails if
// something of it stays.
func newHub(t testing.TB, reg *listen.Registry, opts *listen.HubOptions) *listen.Hub {
	h := listen.NewHub(reg, opts)
	t.Cleanup(func() {
		if err := h.Shutdown(context.Background()); err != nil { //nolint:usetesting // t.Context has ended when cleanups run
			t.Errorf("shut down at the end of the test: %v", err)
		}
		if n := h.Stats().Listens; n != 0 {
			t.Errorf("%d listens stay after Shutdown", n)
		}
	})
	return h
}

// teapot is what the hub passes other requests to.
var teapot = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusTeapot)
	_, _ = fmt.Fprintf(w, "%s %s", r.Method, body)
})

// site is an HTTP server in front of a hub, over TCP or in memory.
type site struct {
	srv  *httptest.Server
	dial func() (net.Conn, error)
}

// newSite serves over TCP. It is to be made before the hub's cleanup: the hub
// ends its streams first.
func newSite(t testing.TB, handler http.Handler, tweak func(*httptest.Server)) *site {
	srv := httptest.NewUnstartedServer(handler)
	if tweak != nil {
		tweak(srv)
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return &site{srv: srv, dial: func() (net.Conn, error) { return net.Dial("tcp", srv.Listener.Addr().String()) }}
}

// newMemorySite serves over in-memory connections, for tests in virtual time.
func newMemorySite(t testing.TB, handler http.Handler, tweak func(*http.Server)) *site {
	ln := &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: handler}
	if tweak != nil {
		tweak(srv)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() { _ = srv.Close(); wg.Wait() })
	return &site{dial: ln.dial}
}

type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

// answer is a response that has an end.
type answer struct {
	status string
	header http.Header
	body   string
}

// post sends a request as a client of the specification does, and reads the
// answer; edit, where not nil, may spoil it.
func (s *site) post(t testing.TB, body string, edit func(http.Header)) answer {
	t.Helper()
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	e := exchange(t, conn, body, edit)
	b, _ := io.ReadAll(e.r)
	return answer{e.status, e.header, string(b)}
}

// exchange sends a request and reads the head of the response.
func exchange(t testing.TB, conn net.Conn, body string, edit func(http.Header)) *events {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method":           {"subscriptions/listen"},
	}
	if edit != nil {
		edit(req.Header)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	// In this order: closing a body waits for its end.
	t.Cleanup(func() { _ = conn.Close(); _ = resp.Body.Close() })
	return newEvents(t, conn, resp)
}

// events reads an event stream.
type events struct {
	t      testing.TB
	conn   io.Closer // the body over HTTP/2
	status string
	header http.Header
	r      *bufio.Reader
}

// open opens a listen and expects it to be served.
func (s *site) open(t testing.TB, body string) *events {
	t.Helper()
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	return exchange(t, conn, body, nil).served()
}

func newEvents(t testing.TB, conn io.Closer, resp *http.Response) *events {
	return &events{t: t, conn: conn, status: resp.Status, header: resp.Header, r: bufio.NewReader(resp.Body)}
}

// served expects the head of an event stream.
func (e *events) served() *events {
	t := e.t
	t.Helper()
	if e.status != "200 OK" {
		b, _ := io.ReadAll(e.r)
		t.Fatalf("status %s: %s", e.status, b)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Cache-Control": "no-cache, no-transform"} {
		if got := e.header.Get(name); got != want { // M-3
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	return e
}

// next returns the data of the next event, a comment with its colon, or the error
// that ended the stream in brackets.
func (e *events) next() string {
	var data []string
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return "[" + err.Error() + "]"
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && len(data) > 0:
			return strings.Join(data, "\n")
		case strings.HasPrefix(line, ":"):
			return line
		case strings.HasPrefix(line, "data: "):
			data = append(data, line[6:])
		case line != "" && line != "event: message":
			return "[odd line " + line + "]"
		}
	}
}

// want expects the next things on the stream.
func (e *events) want(frames ...string) {
	e.t.Helper()
	for _, want := range frames {
		if got := e.next(); got != want {
			e.t.Fatalf("stream has\n\t%.1000s, want\n\t%.1000s", got, want)
		}
	}
}

// ended is what next returns after a complete body.
const ended = "[EOF]"

// readAvailable reads raw bytes until the text has come, or the end.
func readAvailable(conn net.Conn, until string) (string, error) {
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), until) {
		n, err := conn.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			if errors.Is(err, io.EOF) {
				return got.String(), nil
			}
			return got.String(), err
		}
	}
	return got.String(), nil
}
