package listen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// pipe is the server's end of a connection in memory. toClient is buffered, so
// that a server of the test never waits.
type pipe struct {
	toClient, toServer chan jsonrpc.Message
	gone               chan struct{}
	once               sync.Once
}

func newPipe() *pipe {
	return &pipe{toClient: make(chan jsonrpc.Message, 1000), toServer: make(chan jsonrpc.Message, 1000), gone: make(chan struct{})}
}

func (p *pipe) Connect(context.Context) (mcp.Connection, error) { return p, nil }
func (p *pipe) SessionID() string                               { return "" }
func (p *pipe) Close() error                                    { p.once.Do(func() { close(p.gone) }); return nil }

func (p *pipe) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-p.toClient:
		return m, nil
	default:
	}
	select {
	case m := <-p.toClient:
		return m, nil
	case <-p.gone:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Write(_ context.Context, m jsonrpc.Message) error {
	select {
	case <-p.gone:
		return io.ErrClosedPipe
	case p.toServer <- m:
		return nil
	}
}

// frame puts a message in JSON on the wire to the client.
func (p *pipe) frame(t *testing.T, format string, args ...any) {
	t.Helper()
	m, err := jsonrpc.DecodeMessage(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	p.toClient <- m
}

// request returns the next message from the client, in JSON.
func (p *pipe) request(t *testing.T) (id, text string) {
	t.Helper()
	select {
	case m := <-p.toServer:
		b, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
			id, _ = r.ID.Raw().(string)
		}
		return id, string(b)
	case <-time.After(time.Minute):
		t.Fatal("nothing came from the client")
		return "", ""
	}
}

func (p *pipe) ack(t *testing.T, id string, uris ...string) {
	t.Helper()
	list, _ := json.Marshal(uris)
	p.frame(t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%q},"notifications":{"resourceSubscriptions":%s}}}`, id, list)
}

func (p *pipe) updated(t *testing.T, id, uri string) {
	t.Helper()
	p.frame(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%q},"uri":%q}}`, id, uri)
}

// muxed is a Mux on a pipe with a session that reads; what the session gets is
// in passed.
type muxed struct {
	*pipe
	m      *Mux
	conn   mcp.Connection
	passed chan jsonrpc.Message
}

func newMuxed(t *testing.T) *muxed {
	t.Helper()
	p := newPipe()
	m := NewMux(p, &MuxOptions{ClientInfo: ClientInfo{Name: "test", Version: "1"}})
	conn, err := m.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := &muxed{pipe: p, m: m, conn: conn, passed: make(chan jsonrpc.Message, 1000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			msg, err := conn.Read(context.WithoutCancel(t.Context()))
			if err != nil {
				return
			}
			x.passed <- msg
		}
	})
	t.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	return x
}

// open opens a listen that the server acknowledges as asked.
func (x *muxed) open(t *testing.T, uri ...string) (*Stream, string) {
	t.Helper()
	got := make(chan *Stream, 1)
	go func() {
		s, err := x.m.Open(t.Context(), uris(uri...))
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	id, _ := x.request(t)
	x.ack(t, id, uri...)
	return <-got, id
}

// M-13, notes §5: the frames of an opening and of a cancellation.
func TestMuxFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newMuxed(t)
		go func() { _, _ = x.m.Open(t.Context(), uris("a:/1", "a:/2")) }()
		id, text := x.request(t)
		want := `{"jsonrpc":"2.0","id":"ossicle-listen-1","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}},"notifications":{"resourceSubscriptions":["a:/1","a:/2"]}}}`
		if text != want {
			t.Errorf("listen\n got %s\nwant %s", text, want)
		}
		x.ack(t, id)
		synctest.Wait()
		s, _ := x.open(t, "a:/3")
		s.Close()
		_, text = x.request(t)
		if want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ossicle-listen-2"}}`; text != want {
			t.Errorf("cancel\n got %s\nwant %s", text, want)
		}
	})
}

// B-012, M-13: two listens on one pipe, told apart by their ids; the session's
// own frames pass; nothing of ours does.
func TestMuxCorrelates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newMuxed(t)
		s1, id1 := x.open(t, "a:/1")
		s2, id2 := x.open(t, "a:/1", "a:/2")
		x.updated(t, id2, "a:/1")
		x.updated(t, "somebody else's", "a:/1")
		x.updated(t, "ossicle-listen-77", "a:/1")
		x.frame(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		x.frame(t, `{"jsonrpc":"2.0","id":"ossicle-listen-77","result":{}}`)
		x.frame(t, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}`)
		x.frame(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		x.frame(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_META":{},"uri":"a:/1","uri":"a:/2"}}`)
		synctest.Wait()
		if got := drain(t, s1); got != nil {
			t.Errorf("first listen heard %q", got)
		}
		if diff := cmp.Diff([]string{"a:/1"}, drain(t, s2)); diff != "" {
			t.Errorf("second listen (-want +got):\n%s", diff)
		}
		if n := len(x.passed); n != 4 {
			t.Errorf("%d messages passed to the session, want 4", n)
		}
		// Without an id an update is everybody's, and the session's.
		x.frame(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:/2"}}`)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a:/2"}, drain(t, s2)); diff != "" || drain(t, s1) != nil || len(x.passed) != 5 {
			t.Errorf("unsigned update, %d passed (-want +got):\n%s", len(x.passed), diff)
		}
		_ = id1
	})
}

// B-013, B-020: every way to end, in either order.
func TestMuxEnds(t *testing.T) {
	t.Parallel()
	result := `{"jsonrpc":"2.0","id":%q,"result":{"resultType":"complete"}}`
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%q}}`
	failure := `{"jsonrpc":"2.0","id":%q,"error":{"code":-32603,"message":"Subscription limit reached"}}`
	for _, tt := range []struct {
		frames []string
		want   EndReason
	}{
		{[]string{result}, EndGraceful},
		{[]string{cancelled}, EndCancelled},
		{[]string{result, cancelled}, EndGraceful},
		{[]string{cancelled, result}, EndCancelled},
		{[]string{failure}, EndFailed},
		{nil, EndLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := newMuxed(t)
			s, id := x.open(t, "a:/1")
			x.updated(t, id, "a:/1")
			for _, f := range tt.frames {
				x.frame(t, f, id)
			}
			if tt.frames == nil {
				_ = x.Close()
				synctest.Wait() // or the pipe may still pass the next frame on
			}
			x.updated(t, id, "a:/1")
			if b, err := s.Next(t.Context()); err != nil || len(b.URIs) != 1 {
				t.Errorf("Next = %v, %v", b, err)
			}
			_, err := s.Next(t.Context())
			var end *EndError
			if !errors.As(err, &end) || end.Reason != tt.want {
				t.Errorf("%q: end %v, want %s", tt.frames, err, tt.want)
			}
			synctest.Wait()
			if len(x.passed) != 0 || len(x.m.streams) != 0 {
				t.Errorf("%q: %d passed, %d streams kept", tt.frames, len(x.passed), len(x.m.streams))
			}
			s.Close()
			if x.m.isSerial() {
				t.Errorf("%q: a correct server counts as one that answers cancellations", tt.frames)
			}
		})
	}
}

// B-014, B-017: refusals and silence instead of an acknowledgement.
func TestMuxOpenFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newMuxed(t)
		_, err := x.m.Open(t.Context(), uris("a:/1"))
		if !errors.Is(err, ErrNoAck) {
			t.Errorf("silent server: %v", err)
		}
		x.request(t)
		if _, text := x.request(t); !strings.Contains(text, "notifications/cancelled") {
			t.Errorf("after the deadline came %s", text)
		}
		go func() {
			id, _ := x.request(t)
			x.frame(t, `{"jsonrpc":"2.0","id":%q,"error":{"code":-32601,"message":"Method not found"}}`, id)
		}()
		_, err = x.m.Open(t.Context(), uris("a:/1"))
		var none *NoListenError
		if !errors.As(err, &none) {
			t.Errorf("server without listen: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errDown) })
		if _, err = x.m.Open(ctx, uris("a:/1")); !errors.Is(err, errDown) {
			t.Errorf("cancelled opening: %v", err)
		}
		_ = x.Close()
		synctest.Wait()
		if _, err = x.m.Open(t.Context(), uris("a:/1")); !errors.Is(err, io.EOF) {
			t.Errorf("dead connection: %v", err)
		}
	})
}

// M-3, C12: a reader that does nothing holds up neither the session nor another
// listen.
func TestMuxSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newMuxed(t)
		slow, id := x.open(t, "a:/1")
		for range 500 {
			x.updated(t, id, "a:/1")
		}
		x.frame(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		if m := <-x.passed; m.(*jsonrpc.Response).ID.Raw() != int64(1) {
			t.Errorf("passed %v", m)
		}
		if diff := cmp.Diff([]string{"a:/1"}, drain(t, slow)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// M-4: what comes after a cancellation does not count, and what is remembered of
// cancelled listens is bounded.
func TestMuxAfterCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newMuxed(t)
		for range 200 {
			s, id := x.open(t, "a:/1")
			s.Close()
			x.request(t)
			x.updated(t, id, "a:/1")
			synctest.Wait()
			if got := drain(t, s); got != nil {
				t.Fatalf("heard %q after Close", got)
			}
		}
		if n := len(x.m.streams); n > maxClosed {
			t.Errorf("%d cancelled listens are remembered", n)
		}
		if len(x.passed) != 0 {
			t.Errorf("%d messages passed", len(x.passed))
		}
	})
}

// B-012: an answer to a cancelled listen gives the server away. The streams that
// it silenced end, and are cancelled before the next is opened.
func TestMuxSilenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newMuxed(t)
		s1, id1 := x.open(t, "a:/1")
		s2, id2 := x.open(t, "a:/1", "a:/2")
		s1.Close()
		x.request(t)
		x.frame(t, `{"jsonrpc":"2.0","id":%q,"result":{}}`, id1)
		<-s2.Done()
		if end := s2.Err(); end.Reason != EndLost || !end.reopen || !x.m.isSerial() {
			t.Errorf("end %v, serial %v", end, x.m.isSerial())
		}
		s2.Close() // tells the server nothing: the next opening does
		go func() { _, _ = x.m.Open(t.Context(), uris("a:/2")) }()
		if _, text := x.request(t); !strings.Contains(text, "cancelled") || !strings.Contains(text, id2) {
			t.Errorf("before the next listen came %s", text)
		}
		synctest.Wait()
		if len(x.toServer) != 0 {
			t.Error("the answer was not awaited")
		}
		x.frame(t, `{"jsonrpc":"2.0","id":%q,"result":{}}`, id2)
		if _, text := x.request(t); !strings.Contains(text, "subscriptions/listen") {
			t.Errorf("after the answer came %s", text)
		}
	})
}

// sdkServer runs the official SDK's server, which has known faults with listens
// (B-012), and a Client on it. say announces a change.
func sdkServer(t *testing.T) (c *Client, m *Mux, say func(uri string)) {
	t.Helper()
	ok := func() error { return nil }
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return ok() },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return ok() },
		Capabilities:       &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{Subscribe: true}},
	})
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := s.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	m = NewMux(ours, nil)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}).Connect(t.Context(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	c = NewClient(m, nil)
	t.Cleanup(func() { c.Close(); _ = cs.Close(); _ = ss.Wait() })
	return c, m, func(uri string) {
		if err := s.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
			t.Error(err)
		}
	}
}

// B-012: watches on a server of the SDK survive that others come and go.
func TestMuxOnSDKServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m, say := sdkServer(t)
		heard := map[string]*ledger{}
		cancels := map[string]func(){}
		check := func(step string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			for _, l := range heard {
				l.with(func() { l.updates = 0 })
			}
			for i := range 4 {
				say(fmt.Sprintf("a:/%d", i))
			}
			synctest.Wait()
			for uri, l := range heard {
				if l.updates != 1 || l.down || l.failed {
					t.Errorf("%s: %s heard %d updates, down %v, failed %v", step, uri, l.updates, l.down, l.failed)
				}
			}
		}
		for i := range 4 {
			uri := fmt.Sprintf("a:/%d", i)
			heard[uri] = &ledger{}
			cancels[uri] = mustAdd(t, c, uri, heard[uri])
			check("added " + uri)
		}
		for i := range 3 {
			uri := fmt.Sprintf("a:/%d", i)
			cancels[uri]()
			delete(heard, uri)
			check("cancelled " + uri)
		}
		if !m.isSerial() {
			t.Error("the server was not recognised")
		}
	})
}
