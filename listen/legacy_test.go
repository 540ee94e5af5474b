package listen_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

const legacyVersion = "2025-11-25"

// legacyClient is an SDK client of an older revision.
type legacyClient struct {
	*mcp.ClientSession
	heard chan string
}

func newLegacyClient(t testing.TB, transport mcp.Transport) *legacyClient {
	t.Helper()
	heard := make(chan string, 100)
	c := mcp.NewClient(&mcp.Implementation{Name: "legacy", Version: "0"}, &mcp.ClientOptions{
		Capabilities:           &mcp.ClientCapabilities{},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { heard <- r.Params.URI },
	})
	cs, err := c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: legacyVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return &legacyClient{cs, heard}
}

func (c *legacyClient) subscribe(t testing.TB, uri string) {
	t.Helper()
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
}

func (c *legacyClient) want(t testing.TB, uri string) {
	t.Helper()
	select {
	case got := <-c.heard:
		if got != uri {
			t.Errorf("heard of %s, want %s", got, uri)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("heard nothing, want %s", uri)
	}
}

// serveMemory connects a client in memory; wrap says whether the transport is the
// hub's, as it is where both eras share a pipe.
func serveMemory(t testing.TB, h *listen.Hub, s *mcp.Server, wrap bool) (mcp.Transport, *mcp.ServerSession) {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	var transport mcp.Transport = far
	if wrap {
		transport = h.Transport(far)
	}
	session, err := s.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return near, session
}

// M-5: legacy subscriptions are served from the same hub, each session for itself.
func TestLegacySubscribe(t *testing.T) {
	t.Parallel()
	for _, wrap := range []bool{false, true} {
		t.Run(fmt.Sprint(wrap), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource("a")
				src.missing["a://none"] = true
				h := newHub(t, mount(t, nil, src), nil)
				s := newServer(h)
				near1, session1 := serveMemory(t, h, s, wrap)
				near2, session2 := serveMemory(t, h, s, wrap)
				one, two := newLegacyClient(t, near1), newLegacyClient(t, near2)
				one.subscribe(t, "a://x")
				one.subscribe(t, "a://x") // once
				two.subscribe(t, "a://y")
				wantCounts(t, src, 2, 0, "after three subscriptions")

				src.change("a://x")
				one.want(t, "a://x")
				src.change("a://y")
				two.want(t, "a://y")
				synctest.Wait()
				if len(one.heard)+len(two.heard) != 0 {
					t.Error("a session heard what it did not ask for, or twice")
				}

				var rpc *jsonrpc.Error
				err := one.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://none"})
				if !errors.As(err, &rpc) || rpc.Code != jsonrpc.CodeInvalidParams || !strings.Contains(rpc.Message, "did you mean") || string(rpc.Data) != `{"uri":"a://none"}` {
					t.Errorf("subscribing to nothing: %v", err)
				}
				// The SDK's client drops some errors of unsubscribing; ours has none.
				for range 2 {
					if err := one.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "a://x"}); err != nil {
						t.Error(err)
					}
				}
				src.change("a://x")
				synctest.Wait()
				if len(one.heard) != 0 {
					t.Error("heard after unsubscribing")
				}

				// Sessions that vanish are released.
				_ = two.Close()
				_ = session2.Wait()
				synctest.Wait()
				if n := h.Stats().Listens; n != 1 {
					t.Errorf("%d sessions have subscriptions", n)
				}
				time.Sleep(listen.DefaultLinger)
				synctest.Wait()
				wantCounts(t, src, 2, 2, "after the linger")
				_ = one.Close()
				_ = session1.Wait()
			})
		})
	}
}

// M-5 over HTTP, with a modern listen on the same server and URL.
func TestLegacyHTTP(t *testing.T) {
	t.Parallel()
	src := newFakeSource("a")
	h := newHub(t, mount(t, &listen.RegistryOptions{Linger: -1}, src), nil)
	server := newServer(h)
	get := func(*http.Request) *mcp.Server { return server }
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true})
	legacy := mcp.NewStreamableHTTPHandler(get, nil)
	s := newSite(t, h.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= listen.ProtocolVersion {
			modern.ServeHTTP(w, r)
			return
		}
		legacy.ServeHTTP(w, r)
	})), nil)
	old := newLegacyClient(t, &mcp.StreamableClientTransport{Endpoint: s.srv.URL})
	old.subscribe(t, "a://x")
	e := s.open(t, listenBody(`1`, "a://x"))
	e.want(ackFrame(`1`, "a://x"))
	wantCounts(t, src, 1, 0, "with a client of each era")
	for range 10 {
		src.change("a://x")
		e.want(updateFrame(`1`, "a://x"))
		old.want(t, "a://x")
	}
	// The SDK's own listen is never reached, whatever a header says.
	for _, edit := range []func(http.Header){
		func(h http.Header) { h.Set("Mcp-Method", "tools/list") },
		func(h http.Header) { h.Del("Mcp-Method") },
		func(h http.Header) { h.Del("Mcp-Method"); h.Del("Mcp-Protocol-Version") },
		func(h http.Header) { h.Del("Mcp-Method"); h.Set("Mcp-Protocol-Version", legacyVersion) },
	} {
		got := s.post(t, listenBody(`1`, "a://x"), edit) // which ends
		if strings.Contains(got.body, "acknowledged") {
			t.Errorf("the SDK listens: %s", got.body)
		}
	}
	// Nor in a legacy session, where the SDK has no objection.
	legacyHeader := func(h http.Header) { h.Del("Mcp-Method"); h.Set("Mcp-Protocol-Version", legacyVersion) }
	begun := s.post(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+legacyVersion+`","capabilities":{},"clientInfo":{"name":"x","version":"0"}}}`, legacyHeader)
	got := s.post(t, `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a://x"]}}}`, func(h http.Header) {
		legacyHeader(h)
		h.Set("Mcp-Session-Id", begun.header.Get("Mcp-Session-Id"))
	})
	if !strings.Contains(got.body, `"code":-32601`) {
		t.Errorf("the SDK listens in a legacy session: %s %s", got.status, got.body)
	}
	_ = old.Close()
	waitFor(t, func() bool { return h.Stats().Listens == 1 })
	_ = e.conn.Close()
	waitFor(t, func() bool { starts, stops := src.counts(); return starts == 1 && stops == 1 })
	for session := range server.Sessions() {
		_ = session.Close()
	}
}

// A session that does not take its notifications delays nobody, and its pending
// set is bounded.
func TestLegacyStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, nil, nil)
		s := newServer(h)
		near, session := serveMemory(t, h, s, false)
		conn, err := near.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := &messages{t, conn}
		m.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacyVersion + `","capabilities":{},"clientInfo":{"name":"x","version":"0"}}}`)
		if _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		m.send(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a://x"}}`)
		m.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		near2, session2 := serveMemory(t, h, s, false)
		healthy := newLegacyClient(t, near2)
		healthy.subscribe(t, "a://x")
		begin := time.Now()
		for range 100 {
			h.Updated("a://x")
			healthy.want(t, "a://x")
			synctest.Wait()
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("the healthy session waited %v", d)
		}
		// What the stuck one missed is one notification, once it reads again: the
		// transport holds one, one is being written, and one is pending.
		var count atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := conn.Read(t.Context()); err != nil {
					return
				}
				count.Add(1)
			}
		})
		synctest.Wait()
		if got := int(count.Load()); got > 3 || got < 2 {
			t.Errorf("the stuck session got %d notifications", got)
		}
		_ = conn.Close()
		_ = session.Wait()
		_ = healthy.Close()
		_ = session2.Wait()
		wg.Wait()
	})
}

func TestLegacyLimits(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{MaxURIs: 2, MaxListens: 1, Authorize: func(_ context.Context, uri string) error {
		if uri == "a://secret" {
			return errors.New("you may not read this")
		}
		return nil
	}})
	s := newServer(h)
	near, session := serveMemory(t, h, s, false)
	c := newLegacyClient(t, near)
	c.subscribe(t, "a://1")
	c.subscribe(t, "a://2")
	c.subscribe(t, "a://2")
	var rpc *jsonrpc.Error
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://3"}); !errors.As(err, &rpc) || rpc.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("one too many: %v", err)
	}
	_ = c.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "a://2"})
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://secret"}); !errors.As(err, &rpc) || rpc.Message != "you may not read this" {
		t.Errorf("a secret: %v", err)
	}
	c.subscribe(t, "a://3")

	near2, session2 := serveMemory(t, h, s, false)
	other := newLegacyClient(t, near2)
	if err := other.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://1"}); !errors.As(err, &rpc) || rpc.Code != -31001 {
		t.Errorf("one session too many: %v", err)
	}
	// After Shutdown: nothing is served, and nothing breaks.
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://4"}); !errors.As(err, &rpc) || rpc.Code != -31002 {
		t.Errorf("after Shutdown: %v", err)
	}
	for _, cs := range []*legacyClient{c, other} {
		_ = cs.Close()
	}
	_ = session.Wait()
	_ = session2.Wait()
}
