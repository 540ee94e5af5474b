package acp

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

// N-2, N-23: every way to attach, in both eras, over every transport.
func TestCallsAToolOfAnInjectedServer(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ modes, transport, first string }{
		{"eager", "http", "server/discover"},
		{"async,legacy", "http", "initialize"},
		{"lazy", "http", "server/discover"},
		{"eager,nohttp", "sse", ""},
		{"eager,nohttp,nosse", "stdio", ""},
	} {
		t.Run(tc.modes, func(t *testing.T) {
			t.Parallel()
			s := newSentinel(t)
			entry := s.entry()
			entry.Command, entry.Env = []string{self}, []string{envMCP + "=1", envAgent + "="}
			e := mock(t, tc.modes, nil)
			info, ev := begin(t, e, agent.StartOptions{MCPServers: []agent.MCPServer{entry}})
			if d := cmp.Diff([]agent.Injected{{Server: "sentinel", Transport: tc.transport, Assumed: tc.transport == "stdio"}}, info.Injected); d != "" {
				t.Error(d)
			}
			if info.Name != "mock-agent" || info.Protocol != "acp 1" || info.Conversation == "" || info.Resumed || info.Steering {
				t.Errorf("got %+v", info)
			}
			if strings.HasPrefix(tc.modes, "async") {
				awaitMethod(t, s, "tools/list")
			}
			if tc.modes == "lazy" && len(s.methods()) > 0 {
				t.Errorf("a lazy agent asked %v", s.methods())
			}
			out := turnOf(t, e, `CALL sentinel_echo {"text":"hi"}`)
			if out.Stop != agent.StopEndTurn || !out.Delivered() {
				t.Errorf("got %+v", out)
			}
			if got := ev.text(); got != "tool said echo:hi" {
				t.Errorf("reply %q", got)
			}
			if tc.first != "" && s.methods()[0] != tc.first {
				t.Errorf("the server saw %v", s.methods())
			}
			var calls []agent.ToolCall
			for _, x := range ev.all() {
				if c, ok := x.(agent.ToolCall); ok {
					calls = append(calls, c)
				}
			}
			if len(calls) != 2 || calls[0].ID != calls[1].ID || calls[0].Title != "sentinel.sentinel_echo" ||
				calls[0].Status != agent.ToolRunning || !calls[1].Status.Done() ||
				!strings.Contains(string(calls[0].Input), `"arguments":{"text":"hi"}`) || string(calls[1].Output) != `{"text":"echo:hi"}` {
				t.Errorf("got %+v", calls)
			}
			await(t, ev, func(u agent.Usage) bool { return u.InputTokens == 10 && u.OutputTokens == 5 })
		})
	}
}

func awaitMethod(t *testing.T, s *sentinel, method string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	// The agent attaches on its own and tells nobody, so this looks again.
	for !slices.Contains(s.methods(), method) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s; have %v", method, s.methods())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// N-22: a prompt is never sent while one is in flight.
func TestNoSecondPromptInFlight(t *testing.T) {
	t.Parallel()
	var frames syncBuffer
	e := mock(t, "abort", &Options{Frames: &frames})
	_, ev := begin(t, e, agent.StartOptions{})
	var wg sync.WaitGroup
	results := make([]error, 20)
	for i := range results {
		wg.Go(func() { _, results[i] = e.Turn(t.Context(), user("SLEEP 300ms")) })
	}
	wg.Wait()
	sent := strings.Count(frames.String(), `"method":"session/prompt"`)
	ended, busy := 0, 0
	for _, err := range results {
		switch {
		case err == nil:
			ended++
		case errors.Is(err, ErrBusy):
			busy++
		default:
			t.Error(err)
		}
	}
	if ended != sent || ended+busy != len(results) || busy == 0 {
		t.Errorf("%d ended, %d busy, %d sent", ended, busy, sent)
	}
	if strings.Contains(frames.String(), "overlap") {
		t.Errorf("the agent saw an overlap:\n%s", frames.String())
	}
	if n := strings.Count(ev.text(), "you said"); n != ended {
		t.Errorf("%d replies, %d turns", n, ended)
	}
	if out := turnOf(t, e, "again"); out.Stop != agent.StopEndTurn {
		t.Errorf("got %+v", out)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	e := mock(t, "", nil)
	begin(t, e, agent.StartOptions{})
	if err := e.Cancel(t.Context()); err != nil {
		t.Fatalf("cancel without a turn: %v", err)
	}
	type result struct {
		out agent.Outcome
		err error
	}
	run := func(ctx context.Context) <-chan result {
		done := make(chan result, 1)
		go func() {
			out, err := e.Turn(ctx, user("SLEEP 600s"))
			done <- result{out, err}
		}()
		awaitTurn(e)
		return done
	}
	done := run(t.Context())
	if err := e.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.out.Stop != agent.StopCancelled || r.out.Delivered() {
		t.Errorf("got %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done = run(ctx)
	cancel()
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %+v", r)
	}
	if out := turnOf(t, e, "still there?"); out.Stop != agent.StopEndTurn {
		t.Errorf("got %+v", out)
	}
}

// awaitTurn returns when a turn runs, of which nothing else tells.
func awaitTurn(e *Engine) {
	for started := false; !started; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		started = e.turn != nil
		e.mu.Unlock()
	}
}

// held are the words of a prompt that is not over before it is released.
func held(t *testing.T) (words string, release func()) {
	t.Helper()
	free := filepath.Join(t.TempDir(), "free")
	return "RUN until [ -e " + free + " ]; do sleep 0.02; done", func() {
		if err := os.WriteFile(free, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// N-22: an agent that does not end a cancelled turn is ended, so that the next
// prompt can never meet the old one.
func TestDeafAgentIsKilled(t *testing.T) {
	t.Parallel()
	e := mock(t, "deaf", &Options{CancelGrace: 200 * time.Millisecond})
	_, ev := begin(t, e, agent.StartOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { awaitTurn(e); cancel() }()
	_, err := e.Turn(ctx, user("SLEEP 600s"))
	var exit *agent.ExitError
	if !errors.As(err, &exit) || !errors.Is(err, ErrUnresponsive) {
		t.Fatalf("got %v", err)
	}
	if got := await(t, ev, anyEvent[agent.Exited]); got.Err != exit {
		t.Errorf("event %v, error %v", got.Err, exit)
	}
}

// N-2: a dead agent is reported, with its last words.
func TestDeath(t *testing.T) {
	t.Parallel()
	e := mock(t, "dies=2", nil)
	_, ev := begin(t, e, agent.StartOptions{})
	turnOf(t, e, "one")
	_, err := e.Turn(t.Context(), user("two"))
	var exit *agent.ExitError
	if !errors.As(err, &exit) || !strings.Contains(exit.Stderr, "dying") || !strings.Contains(exit.Error(), "exit status 3") {
		t.Fatalf("got %v", err)
	}
	if got := await(t, ev, anyEvent[agent.Exited]); got.Err != exit {
		t.Errorf("event %v, error %v", got.Err, exit)
	}
	if _, err := e.Turn(t.Context(), user("three")); !errors.Is(err, exit) {
		t.Errorf("got %v", err)
	}
	if out, err := e.Steer(t.Context(), user("x")); out != agent.SteerFailed || !errors.Is(err, exit) {
		t.Errorf("got %v %v", out, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	last := ev.all()[len(ev.all())-1]
	if _, ok := last.(agent.Exited); !ok {
		t.Errorf("last event %+v", last)
	}
}

// N-21: what we do not know stays raw, is refused, and is never taken for
// something else.
func TestUnknownStaysRaw(t *testing.T) {
	t.Parallel()
	var frames syncBuffer
	e := mock(t, "unknown,noise", &Options{Frames: &frames})
	_, ev := begin(t, e, agent.StartOptions{})
	turnOf(t, e, "hello")
	if got := ev.text(); got != "you said hello" {
		t.Errorf("reply %q", got)
	}
	kinds := map[string]string{}
	for _, x := range ev.all() {
		if r, ok := x.(agent.Raw); ok {
			kinds[r.Kind] = string(r.JSON)
		}
	}
	want := map[string]string{
		"notice":              `{"sessionUpdate":"notice","severity":"warning","title":"rename me"}`,
		"future_chunk":        `{"content":{"text":"not a user message","type":"text"},"n":12345678901234567890,"sessionUpdate":"future_chunk"}`,
		"vendor/notify/thing": kinds["vendor/notify/thing"],
		"vendor/ask":          kinds["vendor/ask"],
		"stdout":              `{"bytes":31,"text":"[debug] about to write a frame"}`,
	}
	for k := range kinds {
		kinds[k] = canonical(kinds[k])
		want[k] = canonical(want[k])
	}
	if d := cmp.Diff(want, kinds); d != "" || kinds["vendor/ask"] == "" || kinds["vendor/notify/thing"] == "" {
		t.Error(d)
	}
	if !strings.Contains(frames.String(), `"error":{"code":-32601`) {
		t.Error("the unknown request was not refused")
	}
	if strings.Contains(frames.String(), "cannot know") {
		t.Error("the unknown request was answered")
	}
}

// N-25: by kind, not by position, and before the tool call.
func TestPermission(t *testing.T) {
	t.Parallel()
	s := newSentinel(t)
	e := mock(t, "permission", nil)
	_, ev := begin(t, e, agent.StartOptions{MCPServers: []agent.MCPServer{s.entry()}})
	ask := func(pick func(agent.Permission) string) (string, error) {
		from := len(ev.all())
		done := make(chan error, 1)
		go func() {
			_, err := e.Turn(t.Context(), user(`CALL echo {"text":"hi"}`))
			done <- err
		}()
		p := await(t, ev, func(p agent.Permission) bool { return len(ev.all()) > from })
		for _, x := range ev.all()[from:] {
			if q, ok := x.(agent.Permission); ok {
				p = q
			}
		}
		p.Reply(pick(p))
		p.Reply("opt-1") // the first answer counts
		err := <-done
		var b strings.Builder
		for _, x := range ev.all()[from:] {
			if text, ok := x.(agent.Text); ok {
				b.WriteString(text.Text)
			}
		}
		return b.String(), err
	}
	byKind := func(k agent.PermissionKind) func(agent.Permission) string {
		return func(p agent.Permission) string {
			if p.Call.ID == "" || p.Call.Status != agent.ToolPending || len(p.Options) != 3 || p.Options[0].Kind != agent.AllowAlways {
				t.Errorf("got %+v", p)
			}
			for _, o := range p.Options {
				if o.Kind == k {
					return o.ID
				}
			}
			return ""
		}
	}
	for _, tc := range []struct {
		pick func(agent.Permission) string
		want string
	}{
		{byKind(agent.AllowOnce), "tool said echo:hi"},
		{byKind(agent.RejectOnce), "tool said error: not permitted: selected opt-3"},
		{func(agent.Permission) string { return "" }, "tool said error: not permitted: cancelled "},
		{func(agent.Permission) string { return "invented" }, "tool said error: not permitted: cancelled "},
		{func(agent.Permission) string { _ = e.Cancel(t.Context()); return "opt-2" }, ""},
	} {
		got, err := ask(tc.pick)
		if got != tc.want || err != nil {
			t.Errorf("got %q %v, want %q", got, err, tc.want)
		}
	}
}

// N-2: session/load and session/resume; what they replay is not shown.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ modes, method string }{{"", `"method":"session/load"`}, {"resume", `"method":"session/resume"`}} {
		var frames syncBuffer
		e := mock(t, tc.modes, &Options{Frames: &frames})
		info, ev := begin(t, e, agent.StartOptions{Resume: "mock-old"})
		if !info.Resumed || info.Conversation != "mock-old" || !strings.Contains(frames.String(), tc.method) {
			t.Errorf("%s: %+v", tc.modes, info)
		}
		turnOf(t, e, "hello")
		if got := ev.text(); got != "you said hello" {
			t.Errorf("%s: reply %q", tc.modes, got)
		}
	}
	for _, modes := range []string{"", "noload"} {
		e := mock(t, modes, nil)
		info, _ := begin(t, e, agent.StartOptions{Resume: "somebody else's"})
		if info.Resumed || (info.Conversation == "") != (modes == "noload") {
			t.Errorf("%s: %+v", modes, info)
		}
		turnOf(t, e, "hello")
	}
}

// N-2: file and terminal requests are confined to the working directory.
func TestFilesAndTerminals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	e := mock(t, "", nil)
	_, ev := begin(t, e, agent.StartOptions{Dir: dir})
	turnOf(t, e, "WRITE "+dir+"/sub/a.txt some text\nREAD "+dir+"/sub/a.txt\nRUN pwd && echo err >&2; exit 3")
	if got := ev.text(); !strings.HasPrefix(got, "tool said written; some text; ") || !strings.Contains(got, dir) ||
		!strings.Contains(got, "err") || !strings.HasSuffix(got, `{"exitCode":3,"signal":null}`) {
		t.Errorf("reply %q", got)
	}
	turnOf(t, e, "READ /etc/passwd\nREAD "+dir+"/out/passwd\nREAD "+dir+"/../x\nWRITE /tmp/ossicle-must-not-exist text")
	if got := ev.text(); strings.Contains(got, "root:") || strings.Count(got, "client refused") != 4 {
		t.Errorf("reply %q", got)
	}
	none := mock(t, "", &Options{NoFiles: true, NoTerminals: true})
	_, ev = begin(t, none, agent.StartOptions{Dir: dir})
	turnOf(t, none, "READ "+dir+"/sub/a.txt\nRUN true")
	if got := ev.text(); strings.Count(got, "-32601") != 2 {
		t.Errorf("reply %q", got)
	}
}

// N-24.
func TestSteering(t *testing.T) {
	t.Parallel()
	var frames syncBuffer
	e := mock(t, "steering", &Options{Frames: &frames})
	info, ev := begin(t, e, agent.StartOptions{})
	if !info.Steering {
		t.Fatal("steering is not told")
	}
	if out, err := e.Steer(t.Context(), user("too early")); out != agent.SteerNeedsTurn || err != nil {
		t.Errorf("got %v %v", out, err)
	}
	done := make(chan error, 1)
	words, release := held(t)
	go func() {
		_, err := e.Turn(t.Context(), user(words))
		done <- err
	}()
	for !strings.Contains(frames.String(), `"method":"session/prompt"`) {
		time.Sleep(time.Millisecond)
	}
	if out, err := e.Steer(t.Context(), user("by the way")); out != agent.SteerInjected || err != nil {
		t.Errorf("got %v %v", out, err)
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := ev.text(); !strings.Contains(got, "steered: by the way") {
		t.Errorf("reply %q", got)
	}
	if !strings.Contains(frames.String(), `"_meta":{"steering":{"idleBehavior":"promptRequired"}}`) {
		t.Error("idleBehavior is missing")
	}
}

// N-24: Qwen's question in the middle of a turn is always answered.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newSentinel(t)
	e := mock(t, "drain", nil)
	ev := newEvents()
	replies := make(chan error, 1)
	answer := true
	sink := func(x agent.Event) {
		if d, ok := x.(agent.Drain); ok && answer {
			go func() { replies <- d.Reply(user("meanwhile")) }()
		}
		ev.sink(x)
	}
	if _, err := e.Start(t.Context(), agent.StartOptions{Dir: t.TempDir(), MCPServers: []agent.MCPServer{s.entry()}}, sink); err != nil {
		t.Fatal(err)
	}
	turnOf(t, e, `CALL echo {"text":"a"}`)
	if err := <-replies; err != nil {
		t.Error(err)
	}
	if got := ev.text(); got != "tool said drained meanwhile; echo:a" {
		t.Errorf("reply %q", got)
	}
	answer = false
	turnOf(t, e, `CALL echo {"text":"b"}`)
	if got := ev.text(); !strings.HasSuffix(got, "tool said echo:b") {
		t.Errorf("reply %q", got)
	}
	drains := 0
	for _, x := range ev.all() {
		if d, ok := x.(agent.Drain); ok {
			if drains++; d.Reply(agent.Prompt{}) == nil {
				t.Error("answered twice")
			}
		}
	}
	if drains != 2 {
		t.Errorf("%d questions", drains)
	}
}

// N-22: what comes after the end of a turn comes as events outside of it.
func TestOutOfTurn(t *testing.T) {
	t.Parallel()
	e := mock(t, "unprompted", nil)
	_, ev := begin(t, e, agent.StartOptions{})
	turnOf(t, e, "LATER 50ms and then")
	await(t, ev, func(x agent.Text) bool { return x.Text == "by the way" })
	await(t, ev, func(x agent.Text) bool { return x.Text == "and then" })
	await(t, ev, func(x agent.Usage) bool { return x.ContextUsed == 15 && x.ContextSize == 1000 })
	turnOf(t, e, "again") // the context of before and the tokens of this turn
	await(t, ev, func(x agent.Usage) bool { return x.ContextUsed == 15 && x.InputTokens == 10 && x.OutputTokens == 5 })
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	e := mock(t, "", &Options{ExitGrace: 100 * time.Millisecond})
	_, ev := begin(t, e, agent.StartOptions{})
	pid := e.child.Pid()
	done := make(chan error, 1)
	go func() {
		_, err := e.Turn(t.Context(), user("RUN sleep 600"))
		done <- err
	}()
	for {
		e.h.terms.mu.Lock()
		n := len(e.h.terms.open)
		e.h.terms.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, agent.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the agent is still there: %v", err)
	}
	if _, err := e.Turn(t.Context(), user("x")); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := e.Start(t.Context(), agent.StartOptions{Dir: t.TempDir()}, ev.sink); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("got %v", err)
	}
	for _, x := range ev.all() {
		if _, ok := x.(agent.Exited); ok {
			t.Error("a closed agent is no death")
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, dir string
		command   []string
		want      string
	}{
		{"no command", "/", nil, "no command given"},
		{"no program", "/", []string{"no-such-agent-anywhere"}, "executable file not found"},
		{"relative directory", ".", []string{"true"}, "not absolute"},
		{"no directory", "/no/such/dir", []string{"true"}, "no such file"},
		{"exits", t.TempDir(), []string{"sh", "-c", "echo bad config >&2; exit 4"}, "exit status 4"},
		{"closes stdout", t.TempDir(), []string{"sh", "-c", "exec >&-; cat"}, "it exited"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := New(tc.command, &Options{ExitGrace: 100 * time.Millisecond})
			_, err := e.Start(t.Context(), agent.StartOptions{Dir: tc.dir}, newEvents().sink)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v", err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// syncBuffer is a buffer that several goroutines use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
