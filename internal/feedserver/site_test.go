package feedserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/sse"
)

// limit ends whatever should have happened by then.
const limit = time.Minute

// noMCP is the MCP endpoint of a server that has none.
type noMCP struct{}

func (noMCP) Handler() http.Handler              { return http.NotFoundHandler() }
func (noMCP) Shutdown(ctx context.Context) error { return ctx.Err() }

// site is a feed behind a real HTTP server.
type site struct {
	t     testing.TB
	store *feedtest.Memory
	hub   *feed.Hub
	feed  *feedserver.Server
	http  *httpserver.Server
	url   string
	addr  string
	c     *http.Client
	end   func() // ends the server and waits; once
	set   setup
	// direct: streams come by connections that are taken over.
	direct bool
}

type setup struct {
	hub   feed.Options
	feed  feedserver.Options
	http  httpserver.Options
	store feed.Store // default: in memory
	other *feed.Hub  // whose life is the test's
}

func newSite(t testing.TB, set setup) *site {
	t.Helper()
	s := &site{t: t, store: feedtest.NewMemory()}
	if set.store == nil {
		set.store = s.store
	}
	s.set = set
	if set.hub.Encode == nil {
		set.hub.Encode = feedserver.Encode
	}
	var err error
	if s.hub = set.other; s.hub == nil {
		s.hub, err = feed.NewHub(t.Context(), set.store, nil, &set.hub)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	hubEnded := make(chan error, 1)
	go func() {
		if set.other != nil {
			hubEnded <- nil
			return
		}
		hubEnded <- s.hub.Run(ctx)
	}()
	if s.feed, err = feedserver.New(s.hub, s.hub, set.store, &set.feed); err != nil {
		t.Fatal(err)
	}
	set.http.Addr = "127.0.0.1:0"
	set.http.NoAuth = set.http.Auth == nil
	set.http.Routes = s.feed.Routes()
	set.http.Shutdown = s.feed.Shutdown
	if s.http, err = httpserver.New(noMCP{}, &set.http); err != nil {
		t.Fatal(err)
	}
	if err := s.http.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.url = strings.TrimSuffix(s.http.URL(), httpserver.MCPPath)
	_, s.addr, _ = strings.Cut(s.url, "://")
	serving, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.http.Run(serving) }()
	ended := false
	s.end = func() {
		if ended {
			return
		}
		ended = true
		stop()
		if err := <-served; err != nil {
			t.Errorf("HTTP: %v", err)
		}
		cancel()
		if err := <-hubEnded; err != nil {
			t.Errorf("hub: %v", err)
		}
	}
	t.Cleanup(s.end)
	s.c = s.client(ways[0])
	return s
}

// publish appends n events to a topic.
func (s *site) publish(topic string, n int) []feed.Receipt {
	s.t.Helper()
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		drafts[i] = feed.Draft{Topic: topic, Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
	}
	r, err := s.hub.Publish(s.t.Context(), drafts)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// reply is the head of a response.
type reply struct {
	Status     string
	StatusCode int
	Header     http.Header
}

// call sends a request, and returns the head and the body of the response.
func (s *site) call(method, path string, header map[string]string, body string) (reply, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := s.c.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{res.Status, res.StatusCode, res.Header}, string(b)
}

// stream is an open event stream.
type stream struct {
	t      testing.TB
	res    *http.Response
	events *sse.Reader
	cancel context.CancelFunc
}

// open opens a stream, and returns when it has begun.
func (s *site) open(query, last string) *stream {
	s.t.Helper()
	return s.openBy(s.c, query, map[string]string{"Last-Event-ID": last})
}

func (s *site) openBy(c *http.Client, query string, header map[string]string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	timer := time.AfterFunc(limit, cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	res, err := c.Do(req) //nolint:bodyclose // cancel closes it
	if err != nil {
		s.t.Fatal(err)
	}
	st := &stream{t: s.t, res: res, events: sse.NewReader(res.Body, 0), cancel: func() { timer.Stop(); cancel(); _ = res.Body.Close() }}
	st.events.All = true
	s.t.Cleanup(st.cancel)
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		s.t.Fatalf("%s: %s", res.Status, b)
	}
	if e := st.next(); e.Retry == "" {
		s.t.Fatalf("the stream begins with %+v", e)
	}
	return st
}

// next returns the next event, also one without data.
func (st *stream) next() sse.Event {
	st.t.Helper()
	e, err := st.events.Next()
	if err != nil {
		st.t.Fatalf("next event: %v", err)
	}
	return e
}

// event returns the next event with data.
func (st *stream) event() (sse.Event, feed.Event) {
	st.t.Helper()
	for {
		e := st.next()
		if e.Data == nil {
			continue
		}
		var f feed.Event
		if err := json.Unmarshal(e.Data, &f); err != nil {
			st.t.Fatalf("%s: %v", e.Data, err)
		}
		return e, f
	}
}

// dial opens a connection and sends the head of a request.
func (s *site) dial(head string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n"); err != nil {
		s.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// eventually waits for what only the real clock can bring.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// raw opens a connection, below HTTP.
func (s *site) raw(w way) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.addr)
	if err == nil && w.tls {
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // our own server
		return secure, secure.HandshakeContext(s.t.Context())
	}
	return conn, err
}
