package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/process"
)

var updateGolden = flag.Bool("update", false, "rewrite golden files")

// peer is an agent in memory that says exactly what a test makes it say.
type peer struct {
	in   *bufio.Reader // what the engine sends
	out  *io.PipeWriter
	once sync.Once
	done chan struct{}
	ends []io.Closer
}

func (p *peer) Done() <-chan struct{} { return p.done }
func (p *peer) Wait() error           { <-p.done; return nil }
func (p *peer) Stop()                 { p.Kill() }
func (p *peer) Stderr() string        { return "" }
func (p *peer) Pid() int              { return 1 }

func (p *peer) Kill() {
	p.once.Do(func() {
		for _, c := range p.ends {
			_ = c.Close()
		}
		close(p.done)
	})
}

// next returns the next frame of the engine, or "" at the end.
func (p *peer) next() string {
	s, err := p.in.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(s, "\n")
}

func (p *peer) say(lines ...string) {
	for _, l := range lines {
		_, _ = io.WriteString(p.out, l+"\n")
	}
}

// with is an engine whose agent is the function play.
func with(t *testing.T, o *Options, play func(p *peer)) *Engine {
	t.Helper()
	e := New([]string{"peer"}, o)
	e.spawn = func(process.Options) (child, io.Writer, io.ReadCloser, error) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p := &peer{in: bufio.NewReader(inR), out: outW, done: make(chan struct{}), ends: []io.Closer{inR, inW, outW}}
		played := make(chan struct{})
		go func() {
			defer close(played)
			play(p)
		}()
		t.Cleanup(func() { <-played })
		return p, inW, outR, nil
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

const (
	helloAnswer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"peer","version":"9"},"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true}}}}`
	newAnswer   = `{"jsonrpc":"2.0","id":"2","result":{"sessionId":"s"}}` // the id as a string, as some do
	endTurn     = `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`
)

// open answers the two requests of a start.
func (p *peer) open() {
	p.next()
	p.say(helloAnswer)
	p.next()
	p.say(newAnswer)
}

// N-21: 60 s for initialize, with progress meanwhile.
func TestInitializeTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := with(t, nil, func(p *peer) { p.next() })
		ev := newEvents()
		began := time.Now()
		_, err := e.Start(t.Context(), agent.StartOptions{Dir: dir}, ev.sink)
		if !errors.Is(err, ErrTimeout) || time.Since(began) != DefaultInitializeTimeout {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
		progress := 0
		for _, x := range ev.all() {
			if _, ok := x.(agent.Progress); ok {
				progress++
			}
		}
		if progress < 12 {
			t.Errorf("%d reports of progress: %+v", progress, ev.all())
		}
	})
}

// N-21: 60 s for the opening of a session.
func TestSessionTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := with(t, nil, func(p *peer) {
			p.next()
			p.say(helloAnswer)
			p.next()
		})
		began := time.Now()
		_, err := e.Start(t.Context(), agent.StartOptions{Dir: dir}, newEvents().sink)
		if !errors.Is(err, ErrTimeout) || time.Since(began) != DefaultSessionTimeout {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
	})
}

// N-2: a replay that goes on behind the answer, as Gemini's does, is not shown
// either; it is over when nothing has come for a while.
func TestLateReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		says := func(text string) string {
			return `{"method":"session/update","params":{"sessionId":"old","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}`
		}
		e := with(t, nil, func(p *peer) {
			p.next()
			p.say(helloAnswer)
			p.next()
			p.say(`{"id":2,"result":{}}`)
			for range 5 {
				time.Sleep(replayQuiet - time.Millisecond)
				p.say(says("replayed"))
			}
			p.next()
			p.say(says("hello"), endTurn)
		})
		info, ev := begin(t, e, agent.StartOptions{Dir: dir, Resume: "old"})
		if !info.Resumed || info.Conversation != "old" {
			t.Errorf("got %+v", info)
		}
		turnOf(t, e, "hi")
		if got := ev.text(); got != "hello" {
			t.Errorf("reply %q", got)
		}
	})
}

func TestStartRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, hello, open string
		want              error
		text              string
	}{
		{"version", `{"id":1,"result":{"protocolVersion":2}}`, "", ErrVersion, "2"},
		{"login", `{"id":1,"result":{"protocolVersion":1,"authMethods":[{"id":"api-key"},{"id":"oauth"}]}}`, `{"id":2,"error":{"code":-32000,"message":"Authentication required"}}`, ErrAuthentication, "methods: api-key, oauth"},
		{"no session", helloAnswer, `{"id":2,"result":{}}`, nil, "named no session"},
		{"null", helloAnswer, `{"id":2,"result":null}`, nil, "named no session"},
		{"damaged answer", helloAnswer, `{"id":2,"result":{"sessionId":"a","sessionId":"b"}}`, nil, "duplicate"},
		{"damaged error", helloAnswer, `{"id":2,"error":"no"}`, nil, "unreadable error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := with(t, nil, func(p *peer) {
				p.next()
				p.say(tc.hello)
				if p.next() != "" {
					p.say(tc.open)
				}
			})
			_, err := e.Start(t.Context(), agent.StartOptions{Dir: t.TempDir()}, newEvents().sink)
			if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// N-22: an agent that reports a wanted cancel as an error has cancelled; one
// that fails by itself has not.
func TestErrorAfterCancel(t *testing.T) {
	t.Parallel()
	prompted := make(chan struct{})
	e := with(t, nil, func(p *peer) {
		p.open()
		p.next() // the prompt
		close(prompted)
		p.next() // the cancel
		p.say(`{"id":3,"error":{"code":-32603,"message":"Request was aborted."}}`)
		p.next()
		p.say(`{"id":4,"error":{"code":-32603,"message":"Request was aborted."}}`)
		p.next()
		p.say(`{"id":5,"result":{"stopReason":"a_new_reason"}}`)
		p.next()
		p.say(`{"id":6,"result":{}}`)
	})
	begin(t, e, agent.StartOptions{})
	go func() {
		<-prompted
		_ = e.Cancel(t.Context())
	}()
	if out, err := e.Turn(t.Context(), user("a")); err != nil || out.Stop != agent.StopCancelled {
		t.Errorf("got %+v %v", out, err)
	}
	var refused *RPCError
	if _, err := e.Turn(t.Context(), user("b")); !errors.As(err, &refused) || refused.Code != codeInternal {
		t.Errorf("got %v", err)
	}
	if out, err := e.Turn(t.Context(), user("c")); err != nil || out.Stop != "a_new_reason" {
		t.Errorf("got %+v %v", out, err)
	}
	if _, err := e.Turn(t.Context(), user("d")); err == nil || !strings.Contains(err.Error(), "no stop reason") {
		t.Errorf("got %v", err)
	}
}

// A cancel answers the questions that are open, as the protocol wants it: the
// agent waits for them.
func TestCancelAnswersQuestions(t *testing.T) {
	t.Parallel()
	got := make(chan string, 2)
	e := with(t, nil, func(p *peer) {
		p.open()
		p.next() // the prompt
		p.say(`{"id":"q","method":"session/request_permission","params":{"toolCall":{"toolCallId":"1"},"options":[{"optionId":"a","kind":"allow_once"}]}}`)
		got <- p.next()
		got <- p.next()
		p.say(`{"id":3,"result":{"stopReason":"cancelled"}}`)
	})
	_, ev := begin(t, e, agent.StartOptions{})
	go func() {
		await(t, ev, anyEvent[agent.Permission])
		_ = e.Cancel(t.Context())
	}()
	if out, err := e.Turn(t.Context(), user("a")); err != nil || out.Stop != agent.StopCancelled {
		t.Errorf("got %+v %v", out, err)
	}
	both := <-got + <-got
	if !strings.Contains(both, `"id":"q","result":{"outcome":{"outcome":"cancelled"}}`) || !strings.Contains(both, methodCancel) {
		t.Errorf("got %s", both)
	}
}

// Everything that came before the answer is told before Turn returns.
func TestEventsPrecedeTheOutcome(t *testing.T) {
	t.Parallel()
	const n = 2000
	e := with(t, nil, func(p *peer) {
		p.open()
		p.next()
		for range n {
			p.say(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}`)
		}
		p.say(`{"method":"session/update","params":{"sessionId":"another","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"not ours"}}}}`)
		p.say(endTurn)
	})
	_, ev := begin(t, e, agent.StartOptions{})
	turnOf(t, e, "go")
	if got := ev.text(); got != strings.Repeat("x", n) {
		t.Errorf("%d bytes", len(got))
	}
}

// A line of almost 64 MiB passes, one above it is skipped and told, and the
// conversation goes on.
func TestHugeLines(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 63<<20)
	e := with(t, nil, func(p *peer) {
		p.open()
		p.next()
		p.say(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + huge + `"}}}}`)
		p.say(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + huge + huge + `"}}}}`)
		p.say(endTurn)
	})
	_, ev := begin(t, e, agent.StartOptions{})
	turnOf(t, e, "go")
	if got := len(ev.text()); got != len(huge) {
		t.Errorf("%d bytes", got)
	}
	await(t, ev, func(r agent.Raw) bool {
		return r.Kind == "stdout" && strings.HasPrefix(string(r.JSON), `{"bytes":1321`) && json.Valid(r.JSON)
	})
}

// An agent that writes anything but frames is given up, and the reason says so.
func TestNoiseOnly(t *testing.T) {
	t.Parallel()
	e := with(t, nil, func(p *peer) {
		p.next()
		for range maxNoise {
			p.say("Loading model…")
		}
	})
	_, err := e.Start(t.Context(), agent.StartOptions{Dir: t.TempDir()}, newEvents().sink)
	if !errors.Is(err, ErrNoise) {
		t.Fatalf("got %v", err)
	}
}

// An agent that asks and never reads the answers is given up, not waited for.
func TestAgentThatDoesNotRead(t *testing.T) {
	t.Parallel()
	e := with(t, nil, func(p *peer) {
		p.open()
		for i := range 2 * outgoing {
			p.say(fmt.Sprintf(`{"id":%d,"method":"vendor/ask"}`, i))
		}
	})
	_, ev := begin(t, e, agent.StartOptions{})
	gone := await(t, ev, anyEvent[agent.Exited])
	if !errors.Is(gone.Err, ErrStalled) {
		t.Fatalf("got %v", gone.Err)
	}
}

// More requests than we work on at once are refused, the others are answered.
func TestFloodOfRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	const n = 200
	answered := make(chan map[string]int, 1)
	e := with(t, nil, func(p *peer) {
		p.open()
		go func() {
			for i := range n {
				p.say(fmt.Sprintf(`{"id":"q%d","method":"fs/read_text_file","params":{"sessionId":"s","path":%q}}`, i, filepath.Join(dir, "f")))
			}
		}()
		got := map[string]int{}
		for range n {
			switch s := p.next(); {
			case strings.Contains(s, `"result":{"content":"text"}`):
				got["text"]++
			case strings.Contains(s, "too many"):
				got["refused"]++
			default:
				got[s]++
			}
		}
		answered <- got
	})
	begin(t, e, agent.StartOptions{Dir: dir})
	got := <-answered
	if got["text"] < maxRequests || got["text"]+got["refused"] != n {
		t.Errorf("got %v", got)
	}
}

// Requests that make no sense are refused one by one.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var got []string
	played := make(chan struct{})
	requests := []string{
		`{"id":1,"method":"session/request_permission","params":{"options":7}}`,
		`{"id":2,"method":"session/request_permission","params":{"toolCall":{"title":1}}}`,
		`{"id":3,"method":"fs/read_text_file","params":{"path":["x"]}}`,
		`{"id":4,"method":"fs/write_text_file","params":{"path":"relative","content":""}}`,
		`{"id":5,"method":"fs/read_text_file","params":{"path":"` + dir + `/missing"}}`,
		`{"id":6,"method":"terminal/output","params":{"terminalId":"none"}}`,
		`{"id":7,"method":"terminal/create","params":{"command":"true","cwd":"/"}}`,
		`{"id":8,"method":"terminal/create","params":{"command":"no-such-program","args":["x"]}}`,
		`{"id":9,"method":"fs/read_text_file","params":{"path":"/x","path":"/y"}}`,
		`{"id":12345678901234567890,"method":"elicitation/create"}`,
		`{"id":null,"method":"vendor/x"}`,
	}
	e := with(t, nil, func(p *peer) {
		defer close(played)
		p.open()
		for _, r := range requests {
			p.say(r)
			got = append(got, p.next())
		}
	})
	begin(t, e, agent.StartOptions{Dir: dir})
	<-played
	want := []int{-32602, -32602, -32602, -32602, -32002, -32002, -32602, -32603, -32602, -32601, -32601}
	for i, s := range got {
		var r struct {
			ID    json.RawMessage
			Error struct{ Code int }
		}
		if err := json.Unmarshal([]byte(s), &r); err != nil {
			t.Fatal(err)
		}
		if r.Error.Code != want[i] || !strings.Contains(requests[i], `"id":`+string(r.ID)+",") {
			t.Errorf("%s\n  answered %s, want %d", requests[i], s, want[i])
		}
	}
}

// The agent may take its requests back.
func TestWithdrawnRequests(t *testing.T) {
	t.Parallel()
	got := make(chan string, 2)
	e := with(t, nil, func(p *peer) {
		p.open()
		p.say(`{"id":"p","method":"session/request_permission","params":{"toolCall":{"toolCallId":"1"},"options":[]}}`)
		p.say(`{"method":"$/cancel_request","params":{"requestId":"p"}}`)
		got <- p.next()
		p.say(`{"id":8,"method":"terminal/create","params":{"command":"sleep 600"}}`)
		p.next()
		p.say(`{"id":9,"method":"terminal/wait_for_exit","params":{"terminalId":"terminal-1"}}`)
		p.say(`{"method":"$/cancel_request","params":{"requestId":9}}`)
		got <- p.next()
	})
	_, ev := begin(t, e, agent.StartOptions{})
	for _, id := range []string{`"id":"p"`, `"id":9`} {
		if s := <-got; !strings.Contains(s, id) || !strings.Contains(s, `"code":-32800`) {
			t.Errorf("got %s", s)
		}
	}
	await(t, ev, anyEvent[agent.Permission]).Reply("too late")
}

// The frames that we send, byte for byte.
func TestGoldenFrames(t *testing.T) {
	t.Parallel()
	var sent []string
	var mu sync.Mutex
	note := func(s string) string {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, s)
		return s
	}
	dir := t.TempDir()
	prompted := make(chan struct{})
	e := with(t, &Options{Mode: "default", Authenticate: "api-key"}, func(p *peer) {
		note(p.next())
		p.say(`{"id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true},"sessionCapabilities":{"systemPrompt":{}}},"_meta":{"steering":{"supported":true}}}}`)
		note(p.next())
		p.say(`{"id":2,"result":{}}`)
		note(p.next())
		p.say(`{"id":3,"error":{"code":-32002,"message":"no such session"}}`)
		note(p.next())
		p.say(`{"id":4,"result":{"sessionId":"s"}}`)
		note(p.next())
		p.say(`{"id":5,"result":{}}`)
		note(p.next()) // prompt
		close(prompted)
		note(p.next()) // steering
		p.say(`{"id":7,"result":{"outcome":"injected"}}`)
		p.say(`{"id":"ask","method":"session/request_permission","params":{"toolCall":{"toolCallId":"1"},"options":[{"optionId":"a","kind":"allow_once","name":"A"}]}}`)
		note(p.next())
		p.say(`{"id":10,"method":"craft/drainMidTurnQueue","params":{}}`)
		note(p.next())
		p.say(`{"id":11,"method":"vendor/ask","params":{}}`)
		note(p.next())
		p.say(`{"id":12,"method":"terminal/create","params":{"command":"exit 3"}}`)
		note(p.next())
		p.say(`{"id":13,"method":"terminal/wait_for_exit","params":{"terminalId":"terminal-1"}}`)
		note(p.next())
		p.say(`{"id":14,"method":"terminal/output","params":{"terminalId":"terminal-1"}}`)
		note(p.next())
		note(p.next()) // cancel
		p.say(`{"id":6,"result":{"stopReason":"cancelled"}}`)
	})
	ev := newEvents()
	sink := func(x agent.Event) {
		switch x := x.(type) {
		case agent.Permission:
			x.Reply("a")
		case agent.Drain:
			go func() { _ = x.Reply(user("waiting")) }()
		}
		ev.sink(x)
	}
	so := agent.StartOptions{
		Dir: dir, Resume: "old", System: "Be kind.",
		MCPServers: []agent.MCPServer{
			{Name: "net", HTTP: "http://127.0.0.1:1/mcp/token", SSE: "http://127.0.0.1:1/sse/token"},
			{Name: "old", SSE: "http://127.0.0.1:1/sse", Headers: []agent.Header{{Name: "X-A", Value: "<b>"}}},
			{Name: "io", Command: []string{"/bin/sh"}},
			{Name: "io2", Command: []string{"/bin/sh", "-c", "x"}, Env: []string{"A=b=c"}},
			{Name: "net", Command: []string{"/bin/sh"}},
			{Name: "nothing"},
			{Name: "lost", Command: []string{"no-such-bridge"}},
		},
	}
	info, err := e.Start(t.Context(), so, sink)
	if err != nil {
		t.Fatal(err)
	}
	if !info.System || !info.Steering || info.Resumed {
		t.Errorf("got %+v", info)
	}
	if d := cmp.Diff([]agent.Injected{
		{Server: "net", Transport: "http"},
		{Server: "old", Transport: "sse"},
		{Server: "io", Transport: "stdio", Assumed: true},
		{Server: "io2", Transport: "stdio", Assumed: true},
		{Server: "net", Reason: "duplicate_name"},
		{Server: "nothing", Reason: "no_transport"},
		{Server: "lost", Reason: "command_not_found"},
	}, info.Injected); d != "" {
		t.Error(d)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := e.Turn(ctx, agent.Prompt{Parts: []agent.Part{{Text: "one \xff <&> \u2028"}, {Kind: agent.PartNotice, Text: "two"}}})
		done <- err
	}()
	<-prompted
	if out, err := e.Steer(t.Context(), user("by the way")); out != agent.SteerInjected || err != nil {
		t.Fatal(out, err)
	}
	for {
		mu.Lock()
		n := len(sent)
		mu.Unlock()
		if n == 13 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	got := strings.ReplaceAll(strings.Join(sent, "\n")+"\n", dir, "/work-dir")
	golden(t, "sent.jsonl", strings.Replace(got, e.hello().ClientInfo.Version, "VERSION", 1))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Error(d)
	}
}

// The recorder writes lines as they were, and survives its writer.
func TestRecorder(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := &recorder{w: &b}
	r.frame("sent", []byte(`{"id":12345678901234567890,"x":1.0}`))
	r.frame("received", []byte("plain \"text\" \xff"))
	_, _ = r.Write([]byte("one\ntw"))
	_, _ = r.Write([]byte("o\n"))
	_, _ = r.Write(bytes.Repeat([]byte("z"), maxStderrLine+1))
	var got []string
	for l := range strings.SplitSeq(strings.TrimSpace(b.String()), "\n") {
		var e struct {
			Time  time.Time
			Dir   string
			Bytes int
			Raw   json.RawMessage
			Text  string
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil || e.Time.IsZero() {
			t.Fatalf("%s: %v", l, err)
		}
		got = append(got, fmt.Sprintf("%s %d %s%.20s", e.Dir, e.Bytes, e.Raw, e.Text))
	}
	want := []string{`sent 35 {"id":12345678901234567890,"x":1.0}`, "received 14 plain \"text\" \uFFFD", "stderr 3 one", "stderr 3 two", "stderr 65537 zzzzzzzzzzzzzzzzzzzz"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	broken := &recorder{w: failing{}}
	broken.frame("sent", []byte("{}"))
	broken.frame("sent", []byte("{}"))
	if broken.w != nil {
		t.Error("a broken writer is kept")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }
