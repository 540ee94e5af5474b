package listen_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

// newServer returns an SDK server with a hub attached, and one tool.
func newServer(h *listen.Hub) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "0"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{Subscribe: true}},
	})
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "says what it hears"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Text string `json:"text"`
	},
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	h.Attach(s)
	return s
}

// lines is a client of an SDK server over a stream of lines, which it writes and
// reads as they are.
type lines struct {
	t       testing.TB
	w       *io.PipeWriter
	r       *bufio.Reader
	session *mcp.ServerSession
	out     *io.PipeReader
}

func newLines(t testing.TB, h *listen.Hub, limit int) *lines {
	t.Helper()
	in, w := io.Pipe()
	out, serverOut := io.Pipe()
	session, err := newServer(h).Connect(t.Context(), h.Transport(&mcp.IOTransport{Reader: in, Writer: serverOut, MaxLineLength: limit}), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &lines{t: t, w: w, r: bufio.NewReader(out), session: session, out: out}
	t.Cleanup(func() {
		_ = w.Close()
		_ = out.Close()
		_ = session.Wait()
	})
	return l
}

func (l *lines) send(line string) {
	l.t.Helper()
	if _, err := io.WriteString(l.w, line+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lines) next() string {
	line, err := l.r.ReadString('\n')
	if err != nil {
		return "[" + err.Error() + "]"
	}
	return strings.TrimSuffix(line, "\n")
}

func (l *lines) want(frames ...string) {
	l.t.Helper()
	for _, want := range frames {
		if got := l.next(); got != want {
			l.t.Fatalf("peer says\n\t%.1000s, want\n\t%.1000s", got, want)
		}
	}
}

// inStep asks something of the SDK and expects nothing but its answer.
func (l *lines) inStep(id string) {
	l.t.Helper()
	l.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
	l.want(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
}

func cancelLine(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// M-3, M-4: ids of every kind, several listens, one of them for the same URI
// (known fault B-012), and everything else of the SDK between them.
func TestLinesListens(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	l := newLines(t, h, 0)
	ids := []string{`1`, `"1"`, `9007199254740993`, `9007199254740992`, `"a\u00e9\/"`}
	for _, id := range ids {
		l.send(listenBody(id, "a://x", "a://"+strings.Trim(id, `"`)))
		l.next()
	}
	l.inStep(`2`)
	heard := func() map[string]int {
		t.Helper()
		h.Updated("a://x")
		got := map[string]int{}
		for range ids {
			got[l.next()]++
		}
		return got
	}
	got := heard()
	for _, id := range ids {
		if got[updateFrame(id, "a://x")] != 1 {
			t.Errorf("listen %s heard %v", id, got)
		}
	}
	l.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{` + meta + `,"name":"echo","arguments":{"text":"hi"}}}`)
	if got := l.next(); !strings.Contains(got, `"text":"hi"`) {
		t.Errorf("a tool answers %s", got)
	}
	// The string and the number, and two numbers that a float64 confuses.
	l.send(cancelLine(`"1"`))
	l.send(cancelLine(`9007199254740992`))
	l.inStep(`4`)
	ids = []string{`1`, `9007199254740993`, `"a\u00e9\/"`}
	got = heard()
	for _, id := range ids {
		if got[updateFrame(id, "a://x")] != 1 {
			t.Errorf("after two cancellations listen %s heard %v", id, got)
		}
	}
	l.send(cancelLine(`"aé/"`)) // the same string, escaped otherwise
	l.send(cancelLine(`77`))    // nobody's: goes to the SDK
	l.inStep(`5`)
	h.Updated("a://1")
	l.want(updateFrame(`1`, "a://1"))
	if n := h.Stats().Listens; n != 2 {
		t.Errorf("%d listens are open, want 2", n)
	}
}

// M-4, known fault B-020: a polite end is a result and a cancellation.
func TestLinesPoliteEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*listen.Hub, *lines){
		"end":      func(h *listen.Hub, _ *lines) { h.End("a://x") },
		"shutdown": func(h *listen.Hub, l *lines) { _ = h.Shutdown(l.t.Context()) },
		"close":    func(_ *listen.Hub, l *lines) { _ = l.session.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := newFakeSource("a")
			h := newHub(t, mount(t, &listen.RegistryOptions{Linger: -1}, src), nil)
			l := newLines(t, h, 0)
			l.send(listenBody(`7`, "a://x"))
			l.want(ackFrame(`7`, "a://x"))
			var wg sync.WaitGroup
			wg.Go(func() { end(h, l) })
			l.want(resultFrame(`7`), cancelledFrame(`7`))
			switch name {
			case "close":
				l.want("[EOF]")
			case "shutdown":
				l.send(listenBody(`8`, "a://x"))
				l.want(`{"jsonrpc":"2.0","id":8,"error":{"code":-31002,"message":"this server is shutting down: try again later"}}`)
			default:
				l.send(listenBody(`7`, "a://x")) // the id is free again
				l.want(ackFrame(`7`, "a://x"))
				l.send(cancelLine(`7`))
				l.inStep(`1`)
			}
			wg.Wait()
			// What is ended is released after its last message was read.
			waitFor(t, func() bool { starts, stops := src.counts(); return starts == stops })
		})
	}
}

// M-3: the ack comes before any update, on a pipe too.
func TestLinesAckFirst(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	l := newLines(t, h, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for ctx.Err() == nil {
			h.Updated("a://x")
			time.Sleep(time.Microsecond)
		}
	})
	for i := range 300 {
		id := fmt.Sprint(i)
		l.send(listenBody(id, "a://x"))
		l.want(ackFrame(id, "a://x"), updateFrame(id, "a://x"))
		// M-4: after the cancellation was read, nothing more: what the SDK
		// answers to a later request is not followed by an update.
		var drained sync.WaitGroup
		drained.Go(func() {
			for l.next() != `{"jsonrpc":"2.0","id":"p`+id+`","result":{}}` {
			}
		})
		l.send(cancelLine(id))
		l.send(`{"jsonrpc":"2.0","id":"p` + id + `","method":"ping"}`)
		drained.Wait()
	}
	l.inStep(`9999`)
}

// The same without races. While the SDK writes to a peer that does not read, an
// update and then a cancellation come: the update is not written when the peer
// reads again.
func TestLinesNothingAfterCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, nil, nil)
		l := newLines(t, h, 0)
		l.send(listenBody(`1`, "a://x"))
		l.want(ackFrame(`1`, "a://x"))
		synctest.Wait()
		l.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		synctest.Wait() // is being written
		h.Updated("a://x")
		synctest.Wait() // waits for its turn
		l.send(cancelLine(`1`))
		synctest.Wait() // was read
		l.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		l.inStep(`3`)
	})
}

func TestLinesNewsWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, mount(t, nil, hastySource{newFakeSource("hasty")}, slowSource()), nil)
		l := newLines(t, h, 0)
		l.send(listenBody(`1`, "hasty://x", "slow://x"))
		l.want(ackFrame(`1`, "hasty://x", "slow://x"), updateFrame(`1`, "hasty://x"))
		l.send(cancelLine(`1`))
		l.inStep(`2`)
	})
}

// A listen that is cancelled while it opens gets neither ack nor answer.
func TestLinesCancelWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource("a")
		src.onWatch = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h := newHub(t, mount(t, nil, src), nil)
		l := newLines(t, h, 0)
		l.send(listenBody(`1`, "a://x"))
		synctest.Wait()
		l.inStep(`2`) // the opening holds up nobody
		l.send(listenBody(`1`, "a://x"))
		l.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"id belongs to a listen that is still open: choose another"}}`)
		l.send(cancelLine(`1`))
		synctest.Wait()
		l.inStep(`3`)
		if n := h.Stats().Listens; n != 0 {
			t.Errorf("%d listens are open", n)
		}
	})
}

// A listen that opens while the hub shuts down is answered.
func TestLinesShutdownWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource("a")
		src.onWatch = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h := newHub(t, mount(t, nil, src), nil)
		l := newLines(t, h, 0)
		l.send(listenBody(`1`, "a://x"))
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Shutdown(t.Context()) })
		l.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-31002,"message":"this server is shutting down: try again later"}}`)
		wg.Wait()
	})
}

// M-8, known fault B-097: the end of the input ends the session at once, with
// listens open, and releases them.
func TestLinesEOF(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource("a")
		h := newHub(t, mount(t, &listen.RegistryOptions{Linger: -1}, src), nil)
		l := newLines(t, h, 0)
		l.send(listenBody(`1`, "a://x"))
		l.want(ackFrame(`1`, "a://x"))
		begin := time.Now()
		_ = l.w.Close()
		if err := l.session.Wait(); err != nil {
			t.Errorf("session ended with %v", err)
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v", d)
		}
		synctest.Wait()
		wantCounts(t, src, 1, 1, "after the end")
		if n := h.Stats().Listens; n != 0 {
			t.Errorf("%d listens are open", n)
		}
	})
}

// M-3: a peer that does not read its pipe is cut off after the write timeout, and
// delays no other.
func TestLinesStuckPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, nil, nil)
		stuck, healthy := newLines(t, h, 0), newLines(t, h, 0)
		for _, l := range []*lines{stuck, healthy} {
			l.send(listenBody(`1`, "a://x"))
			l.want(ackFrame(`1`, "a://x"))
		}
		begin := time.Now()
		h.Updated("a://x")
		healthy.want(updateFrame(`1`, "a://x"))
		if d := time.Since(begin); d != 0 {
			t.Errorf("the healthy peer waited %v", d)
		}
		_ = stuck.session.Wait()
		if d := time.Since(begin); d != listen.DefaultWriteTimeout {
			t.Errorf("the stuck peer was cut after %v", d)
		}
		synctest.Wait()
		if got := h.Stats(); got.CutOff != 1 || got.Listens != 1 {
			t.Errorf("in the end: %+v", got)
		}
	})
}

// A peer that is slow to take a large answer of the SDK is not stuck, however long
// its listens wait.
func TestLinesSlowPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, nil, nil)
		l := newLines(t, h, 0)
		l.send(listenBody(`1`, "a://x"))
		l.want(ackFrame(`1`, "a://x"))
		l.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{` + meta + `,"name":"echo","arguments":{"text":"` + strings.Repeat("x", 300<<10) + `"}}}`)
		synctest.Wait()
		begin := time.Now()
		h.Updated("a://x")
		var answer []byte
		for buf := make([]byte, 16<<10); !bytes.HasSuffix(answer, []byte("\n")); {
			time.Sleep(listen.DefaultWriteTimeout / 3)
			n, err := l.r.Read(buf)
			if err != nil {
				t.Fatalf("cut off after %v: %v", time.Since(begin), err)
			}
			answer = append(answer, buf[:n]...)
		}
		if time.Since(begin) < 2*listen.DefaultWriteTimeout {
			t.Error("the answer was read too fast to show anything")
		}
		l.want(updateFrame(`1`, "a://x"))
		l.inStep(`3`)
	})
}

// M-8, M-16: what is no message is answered and skipped, and the stream stays in
// step.
func TestLinesFaults(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{MaxURIs: 2, MaxListens: 1})
	l := newLines(t, h, 1000)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	fits := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 1000-58) + `"}}`
	if len(fits) != 1000 {
		t.Fatalf("the line that just fits has %d bytes", len(fits))
	}
	var b strings.Builder
	for _, tt := range []struct {
		name, line string
		silent     bool
	}{
		{name: "fits", line: fits},
		{name: "too long by one", line: fits + " "},
		{name: "far too long", line: strings.Repeat("x", 100_000)},
		{name: "no json", line: `this is a log line`},
		{name: "half", line: `{"jsonrpc":"2.0"`},
		{name: "two in a line", line: `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`},
		{name: "blank", line: " \t\r", silent: true},
		{name: "carriage return and spaces", line: ` {"jsonrpc":"2.0","id":1,"method":"ping"} ` + "\r"},
		{name: "scalar", line: `7`},
		{name: "empty object", line: `{}`},
		{name: "duplicate member", line: `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`},
		{name: "bad utf-8", line: "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xffing\"}"},
		{name: "version 1", line: `{"jsonrpc":"1.0","id":1,"method":"ping"}`},
		{name: "null id", line: `{"jsonrpc":"2.0","id":null,"method":"ping"}`},
		{name: "true id", line: `{"jsonrpc":"2.0","id":true,"method":"ping"}`},
		{name: "fraction id", line: `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`},
		{name: "number as method", line: `{"jsonrpc":"2.0","id":1,"method":7}`},
		{name: "other case", line: `{"jsonrpc":"2.0","ID":1,"METHOD":"ping"}`},
		{name: "answer to nothing", line: `{"jsonrpc":"2.0","id":null,"result":{}}`, silent: true},
		{name: "answer to a number", line: `{"jsonrpc":"2.0","id":17,"result":{}}`, silent: true},
		{name: "odd error", line: `{"jsonrpc":"2.0","id":17,"error":"no"}`},
		{name: "unknown notification", line: `{"jsonrpc":"2.0","method":"notifications/x"}`, silent: true},
		{name: "odd cancellation", line: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}`, silent: true},
		{name: "deep", line: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":` + deep + `}}`},
		{name: "empty batch", line: `[]`},
		{name: "batch of no message", line: `[7]`},
		{name: "batch", line: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`},
		{name: "listen of an older revision", line: `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a://x"]}}}`},
		{name: "listen of a later revision", line: strings.Replace(listenBody(`1`, "a://x"), "2026-07-28", "2099-01-01", 1)},
		{name: "listen without capabilities", line: strings.Replace(listenBody(`1`, "a://x"), `,"io.modelcontextprotocol/clientCapabilities":{}`, ``, 1)},
		{name: "listen for too many", line: listenBody(`"n"`, "a://1", "a://2", "a://3")},
		{name: "listen as a notification", line: strings.Replace(listenBody(`1`, "a://x"), `"id":1,`, ``, 1), silent: true},
		{name: "listen", line: listenBody(`"first"`, "a://x")},
		{name: "one listen too many", line: listenBody(`"second"`, "a://x")},
	} {
		l.send(tt.line)
		got := "(nothing)"
		if !tt.silent {
			got = l.next()
		}
		fmt.Fprintf(&b, "%s\n\t%s\n", tt.name, got)
		l.inStep(`"step"`)
	}
	golden(t, "lines.golden", b.String())
}

// The nesting that the SDK's decoder does not take must not reach it.
func TestLinesDeep(t *testing.T) {
	t.Parallel()
	l := newLines(t, newHub(t, nil, nil), 0)
	for _, depth := range []int{998, 999, 5000, 100_000} {
		l.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}}`)
		want := `{"jsonrpc":"2.0","id":1,"result":{}}`
		if depth > 998 {
			want = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"message is nested over 1000 deep: flatten it"}}`
		}
		l.want(want)
	}
	l.inStep(`2`)
}

// Whatever comes, the session goes on and stays in step.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	f.Add([]byte(listenBody(`1`, "a://x") + "\n" + cancelLine(`1`)))
	f.Add([]byte(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1.5}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHub(t, nil, nil)
		l := newLines(t, h, 1<<16)
		hung := time.AfterFunc(10*time.Second, func() { panic(fmt.Sprintf("the session hangs after %q", data)) })
		defer hung.Stop()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = l.w.Write(append(data, '\n'))
			_, _ = io.WriteString(l.w, `{"jsonrpc":"2.0","id":"end of the fuzz","method":"ping"}`+"\n")
		})
		for {
			got := l.next()
			if got == `{"jsonrpc":"2.0","id":"end of the fuzz","result":{}}` {
				break
			}
			if strings.HasPrefix(got, "[") && !json.Valid([]byte(got)) {
				t.Fatalf("the session ended: %s", got)
			}
			if !json.Valid([]byte(got)) {
				t.Fatalf("no JSON: %s", got)
			}
		}
		wg.Wait()
	})
}

// messages is a client over a transport that is wrapped message by message.
type messages struct {
	t    testing.TB
	conn mcp.Connection
}

func newMessages(t testing.TB, h *listen.Hub) (*messages, *mcp.ServerSession) {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	session, err := newServer(h).Connect(t.Context(), h.Transport(far), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := near.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = session.Wait() })
	return &messages{t, conn}, session
}

func (m *messages) send(line string) {
	m.t.Helper()
	msg, err := jsonrpc.DecodeMessage([]byte(line))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.conn.Write(m.t.Context(), msg); err != nil {
		m.t.Fatal(err)
	}
}

func (m *messages) want(frames ...string) {
	m.t.Helper()
	for _, want := range frames {
		msg, err := m.conn.Read(m.t.Context())
		if err != nil {
			m.t.Fatal(err)
		}
		got, err := jsonrpc.EncodeMessage(msg)
		if err != nil {
			m.t.Fatal(err)
		}
		if string(got) != want {
			m.t.Fatalf("peer says\n\t%s, want\n\t%s", got, want)
		}
	}
}

// The same over any transport of the SDK: two listens for one URI, a
// cancellation, a fault, polite ends.
func TestMessagesListens(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	m, session := newMessages(t, h)
	m.send(listenBody(`1`, "a://x"))
	m.want(ackFrame(`1`, "a://x"))
	m.send(listenBody(`"1"`, "a://y"))
	m.want(ackFrame(`"1"`, "a://y"))
	m.send(listenBody(`9007199254740993`, "a://z")) // the SDK's decoder rounds it, both times alike
	m.want(ackFrame(`9007199254740992`, "a://z"))
	h.Updated("a://x")
	m.want(updateFrame(`1`, "a://x"))
	h.Updated("a://y")
	m.want(updateFrame(`"1"`, "a://y"))
	m.send(cancelLine(`9007199254740993`))
	m.send(cancelLine(`1`))
	m.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	m.want(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	if n := h.Stats().Listens; n != 1 {
		t.Errorf("%d listens are open", n)
	}
	m.send(listenFor(`6`, `"toolsListChanged":7`))
	m.want(`{"jsonrpc":"2.0","id":6,"error":{"code":-32602,"message":"params of subscriptions/listen: wrong type at \"/notifications/toolsListChanged\""}}`)
	var wg sync.WaitGroup
	wg.Go(func() { _ = session.Close() })
	m.want(resultFrame(`"1"`), cancelledFrame(`"1"`))
	wg.Wait()
}

func TestMessagesStuckPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, nil, nil)
		m, session := newMessages(t, h)
		m.send(listenBody(`1`, "a://x"))
		m.want(ackFrame(`1`, "a://x"))
		begin := time.Now()
		h.Updated("a://x")
		h.Updated("a://x")
		// net.Pipe hands one message to the reader that always waits; the peer
		// is stuck with the next one.
		synctest.Wait()
		h.Updated("a://x")
		_ = session.Wait()
		if d := time.Since(begin); d != listen.DefaultWriteTimeout {
			t.Errorf("the stuck peer was cut after %v", d)
		}
		synctest.Wait()
		if got := h.Stats(); got.CutOff != 1 || got.Listens != 0 {
			t.Errorf("in the end: %+v", got)
		}
	})
}

// An SDK client on a wrapped transport: its subscriptions are listens.
func TestMessagesSDKClient(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	near, far := mcp.NewInMemoryTransports()
	session, err := newServer(h).Connect(t.Context(), h.Transport(far), nil)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 10)
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "0"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { heard <- r.Params.URI },
	})
	cs, err := c.Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"a://x", "a://y"} {
		if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { h.Updated("a://y"); return len(heard) > 0 })
	if got := <-heard; got != "a://y" {
		t.Errorf("heard %s", got)
	}
	_ = cs.Close()
	_ = session.Wait()
	waitFor(t, func() bool { return h.Stats().Listens == 0 })
}

// waitFor tries until something holds that no channel tells of.
func waitFor(t testing.TB, f func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline.C:
			t.Fatal("it does not come true")
		case <-tick.C:
		}
	}
}
