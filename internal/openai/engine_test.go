package openai

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/scripted"
)

var updateGolden = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// events collects what an engine emits.
type events struct {
	mu   sync.Mutex
	list []agent.Event
}

func (e *events) sink(ev agent.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *events) all() []agent.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func (e *events) text() string {
	var b strings.Builder
	for _, ev := range e.all() {
		if t, ok := ev.(agent.Text); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func (e *events) calls() []agent.ToolCall {
	var calls []agent.ToolCall
	for _, ev := range e.all() {
		if c, ok := ev.(agent.ToolCall); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

func user(text string) agent.Prompt {
	return agent.Prompt{Parts: []agent.Part{{Kind: agent.PartUser, Text: text}}}
}

// tool is a tool that notes its calls.
type tool struct {
	mu   sync.Mutex
	args []string
	do   func(ctx context.Context, n int) (agent.ToolResult, error)
}

func (w *tool) tool(name string) agent.Tool {
	return agent.Tool{
		Name: name, Description: "Does a thing.", InputSchema: stdjson.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}}}`),
		Call: func(ctx context.Context, args stdjson.RawMessage) (agent.ToolResult, error) {
			w.mu.Lock()
			w.args = append(w.args, string(args))
			n := len(w.args)
			w.mu.Unlock()
			if w.do != nil {
				return w.do(ctx, n)
			}
			return agent.ToolResult{Text: "done " + string(args)}, nil
		},
	}
}

func (w *tool) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.args)
}

// with is a started engine on a scripted model.
func with(t *testing.T, reply func(scripted.Turn) scripted.Reply, o *Options, tools ...agent.Tool) (*Engine, *scripted.Server, *events) {
	t.Helper()
	model, err := scripted.Start(t.Context(), &scripted.Options{Reply: reply})
	if err != nil {
		t.Fatal(err)
	}
	e, ev := begin(t, model.URL(), o, tools...)
	t.Cleanup(model.Close)
	return e, model, ev
}

func begin(t *testing.T, url string, o *Options, tools ...agent.Tool) (*Engine, *events) {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = time.Millisecond
	}
	e, ev := New(url, "scripted", o), &events{}
	t.Cleanup(func() { _ = e.Close() })
	info, err := e.Start(t.Context(), agent.StartOptions{System: "Be kind.", Tools: tools}, ev.sink)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(agent.Info{Name: "scripted", Protocol: "openai chat", System: true, Steering: true}, info); d != "" {
		t.Error(d)
	}
	return e, ev
}

func turnOf(t *testing.T, e *Engine, prompt string) agent.Outcome {
	t.Helper()
	out, err := e.Turn(t.Context(), user(prompt))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// N-3, W-260: the requests of a turn with a tool call, byte for byte; numbers
// stay exact in schema and arguments.
func TestToolCall(t *testing.T) {
	t.Parallel()
	w := &tool{}
	e, model, ev := with(t, nil, nil, w.tool("count"))
	out, err := e.Turn(t.Context(), agent.Prompt{Parts: []agent.Part{
		{Kind: agent.PartContext, Text: "Variables: x"}, {Kind: agent.PartUser, Text: `CALL count {"n":12345678901234567890}`},
	}})
	if err != nil || out.Stop != agent.StopEndTurn {
		t.Fatal(out, err)
	}
	if d := cmp.Diff([]string{`{"n":12345678901234567890}`}, w.seen()); d != "" {
		t.Error(d)
	}
	if got := ev.text(); got != `tool said done {"n":12345678901234567890}` {
		t.Errorf("reply %q", got)
	}
	want := []agent.ToolCall{
		{ID: "call_1_0", Title: "count", Kind: "other", Status: agent.ToolRunning, Input: stdjson.RawMessage(`{"n":12345678901234567890}`)},
		{ID: "call_1_0", Status: agent.ToolCompleted, Output: stdjson.RawMessage(`"done {\"n\":12345678901234567890}"`)},
	}
	if d := cmp.Diff(want, ev.calls()); d != "" {
		t.Error(d)
	}
	if got := ev.all()[len(ev.all())-1]; got != (agent.Usage{InputTokens: 20, OutputTokens: 10, ContextUsed: 15}) {
		t.Errorf("got %+v", got)
	}
	turnOf(t, e, "and now?")
	var bodies bytes.Buffer
	for _, r := range model.Records() {
		if err := stdjson.Indent(&bodies, r.Body, "", " "); err != nil {
			t.Fatal(err)
		}
		bodies.WriteByte('\n')
	}
	golden(t, "requests.json", bodies.String())
	if r := model.Records()[2]; r.Users != 2 {
		t.Errorf("the model sees %d user texts", r.Users)
	}
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
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}
}

// N-3: at most 50 rounds a turn.
func TestRounds(t *testing.T) {
	t.Parallel()
	w := &tool{}
	e, model, _ := with(t, func(scripted.Turn) scripted.Reply {
		return scripted.Reply{Calls: []scripted.Call{{Tool: "count", Args: "{}"}}}
	}, nil, w.tool("count"))
	if out := turnOf(t, e, "go"); out.Stop != agent.StopMaxRequests || !out.Delivered() {
		t.Errorf("got %+v", out)
	}
	if n := len(model.Records()); n != DefaultMaxRounds || len(w.seen()) != DefaultMaxRounds {
		t.Errorf("%d calls of the model, %d of the tool", n, len(w.seen()))
	}
}

// N-7, W-261: a tool that ends the turn ends it, as NO_REPLY would.
func TestToolEndsTheTurn(t *testing.T) {
	t.Parallel()
	w := &tool{do: func(context.Context, int) (agent.ToolResult, error) {
		return agent.ToolResult{Text: "The turn has ended.", EndTurn: true}, nil
	}}
	other := &tool{}
	e, model, ev := with(t, func(t scripted.Turn) scripted.Reply {
		if t.User == "go" {
			return scripted.Reply{Calls: []scripted.Call{{Tool: "run_code", Args: "{}"}, {Tool: "other", Args: "{}"}}}
		}
		return scripted.Words(t)
	}, nil, w.tool("run_code"), other.tool("other"))
	if out := turnOf(t, e, "go"); out.Stop != agent.StopEndTurn {
		t.Errorf("got %+v", out)
	}
	if len(model.Records()) != 1 || len(other.seen()) != 0 || !agent.Suppressed(ev.text()) {
		t.Errorf("%d model calls, reply %q", len(model.Records()), ev.text())
	}
	turnOf(t, e, "next") // the conversation is still well-formed
	if r := model.Records()[1]; !strings.Contains(string(r.Body), `"Not called: the turn is over."`) || strings.Count(string(r.Body), `"tool_call_id"`) != 2 {
		t.Errorf("got %s", r.Body)
	}
}

// What a model gets wrong is told to the model, and nothing is called.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, args, want string }{
		{"count", `{"n":`, "The arguments are not a JSON object: "},
		{"count", `[1]`, "The arguments are not a JSON object: "},
		{"count", `{"n":1,"n":2}`, "duplicate object member name"},
		{"count", `{"n":1} {"n":2}`, "text after its end"},
		{"count", `"{}"`, "The arguments are not a JSON object: "},
		{"lost", `{}`, `There is no tool \"lost\".`},
	} {
		t.Run(tc.name+tc.args, func(t *testing.T) {
			t.Parallel()
			w := &tool{}
			e, model, ev := with(t, func(q scripted.Turn) scripted.Reply {
				if len(q.Calls) == 0 {
					return scripted.Reply{Calls: []scripted.Call{{Tool: tc.name, Args: tc.args}}}
				}
				return scripted.Reply{Text: "sorry"}
			}, nil, w.tool("count"))
			turnOf(t, e, "go")
			if len(w.seen()) != 0 {
				t.Errorf("called with %v", w.seen())
			}
			r := model.Records()[1]
			if !strings.Contains(string(r.Body), tc.want) {
				t.Errorf("the model was not told:\n%s", r.Body)
			}
			if r.Calls[0].Args != "{}" {
				t.Errorf("damaged arguments go back to the server: %q", r.Calls[0].Args)
			}
			if calls := ev.calls(); len(calls) != 2 || calls[1].Status != agent.ToolFailed {
				t.Errorf("got %+v", calls)
			}
		})
	}
}

func TestToolResults(t *testing.T) {
	t.Parallel()
	w := &tool{do: func(_ context.Context, n int) (agent.ToolResult, error) {
		switch n {
		case 1:
			return agent.ToolResult{}, errors.New("it is closed")
		case 2:
			return agent.ToolResult{Text: strings.Repeat("ä", 200<<10)}, nil
		default:
			return agent.ToolResult{Text: "bad \xff", IsError: true}, nil
		}
	}}
	e, model, _ := with(t, nil, nil, w.tool("count"))
	turnOf(t, e, "CALL count CALL count CALL count")
	got := model.Records()[3].Results
	if len(got) != 3 || got[0] != "The tool failed: it is closed" || len(got[1]) > maxResult+100 ||
		!strings.HasSuffix(got[1], "[cut: 409600 bytes]") || got[2] != "bad \uFFFD" {
		t.Errorf("%d results, %.60q, %d bytes, %q", len(got), got[0], len(got[1]), got[2])
	}
}

// N-22: a cancelled turn is over, the model is told nothing twice, and the
// user's words stay.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancel", "context", "close"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e, model, _ := with(t, nil, nil)
			if err := e.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			type result struct {
				out agent.Outcome
				err error
			}
			done := make(chan result, 1)
			go func() {
				out, err := e.Turn(ctx, agent.Prompt{Parts: []agent.Part{
					{Kind: agent.PartContext, Text: "scope note"}, {Kind: agent.PartUser, Text: "what I said"}, {Kind: agent.PartNotice, Text: "<watch-event>SLEEP 600s</watch-event>"},
				}})
				done <- result{out, err}
			}()
			if _, err := model.Await(t.Context(), scripted.UserContains("SLEEP")); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Turn(t.Context(), user("too early")); !errors.Is(err, ErrBusy) {
				t.Errorf("got %v", err)
			}
			switch how {
			case "cancel":
				_ = e.Cancel(t.Context())
			case "context":
				cancel()
			case "close":
				_ = e.Close()
			}
			r := <-done
			switch {
			case how == "cancel" && (r.err != nil || r.out.Stop != agent.StopCancelled),
				how == "context" && !errors.Is(r.err, context.Canceled),
				how == "close" && !errors.Is(r.err, agent.ErrClosed):
				t.Errorf("got %+v", r)
			}
			if _, err := model.Await(t.Context(), func(r scripted.Record) bool { return r.Aborted }); err != nil {
				t.Error(err)
			}
			if how == "close" {
				if _, err := e.Turn(t.Context(), user("x")); !errors.Is(err, agent.ErrClosed) {
					t.Errorf("got %v", err)
				}
				return
			}
			turnOf(t, e, "next")
			body := string(model.Records()[1].Body)
			if strings.Contains(body, "watch-event") || strings.Contains(body, "scope note") || !strings.Contains(body, `"what I said\n\nnext"`) {
				t.Errorf("the model sees %s", body)
			}
		})
	}
}

func TestCancelDuringTool(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	w := &tool{do: func(ctx context.Context, _ int) (agent.ToolResult, error) {
		close(running)
		<-ctx.Done()
		return agent.ToolResult{}, ctx.Err()
	}}
	e, model, _ := with(t, nil, nil, w.tool("count"))
	go func() {
		<-running
		_ = e.Cancel(t.Context())
	}()
	if out := turnOf(t, e, "CALL count"); out.Stop != agent.StopCancelled {
		t.Errorf("got %+v", out)
	}
	turnOf(t, e, "next") // every call has a result, or servers refuse it
	if body := string(model.Records()[1].Body); !strings.Contains(body, "The call was interrupted.") {
		t.Errorf("the model sees %s", body)
	}
}

// N-24: an offer is injected only if the running turn's model has it.
func TestSteer(t *testing.T) {
	t.Parallel()
	inTool, goOn := make(chan struct{}), make(chan struct{})
	w := &tool{do: func(context.Context, int) (agent.ToolResult, error) {
		inTool <- struct{}{}
		<-goOn
		return agent.ToolResult{Text: "ok"}, nil
	}}
	thinks, answer := make(chan struct{}), make(chan struct{})
	e, model, _ := with(t, func(q scripted.Turn) scripted.Reply {
		if q.User == "think" {
			thinks <- struct{}{}
			<-answer
		}
		return scripted.Words(q)
	}, &Options{MaxRounds: 3}, w.tool("count"))
	if s, err := e.Steer(t.Context(), user("early")); s != agent.SteerNeedsTurn || err != nil {
		t.Errorf("got %v %v", s, err)
	}
	type result struct {
		s   agent.SteerOutcome
		err error
	}
	offered := func(text string) <-chan result {
		done := make(chan result, 1)
		before := 0
		e.mu.Lock()
		if e.turn != nil {
			before = len(e.turn.offers)
		}
		e.mu.Unlock()
		go func() {
			s, err := e.Steer(t.Context(), user(text))
			done <- result{s, err}
		}()
		deadline := time.Now().Add(30 * time.Second)
		for there := false; !there; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q is not offered", text)
			}
			e.mu.Lock()
			there = e.turn != nil && len(e.turn.offers) > before
			e.mu.Unlock()
		}
		return done
	}
	ended := make(chan agent.Outcome, 1)
	run := func(prompt string) {
		go func() {
			out, err := e.Turn(t.Context(), user(prompt))
			if err != nil {
				t.Error(err)
			}
			ended <- out
		}()
	}
	run("CALL count")
	<-inTool
	first := offered("by the way")
	goOn <- struct{}{}
	if r := <-first; r.s != agent.SteerInjected || r.err != nil {
		t.Errorf("got %+v", r)
	}
	<-ended
	if r := model.Records()[1]; r.User != "by the way" {
		t.Errorf("the model saw %q", r.User)
	}

	// While the model thinks about its last answer: the turn goes on.
	run("think")
	<-thinks
	then := offered("and then")
	answer <- struct{}{}
	if r := <-then; r.s != agent.SteerInjected {
		t.Errorf("got %+v", r)
	}
	<-ended

	// The rounds are used up: the offer waits for another turn.
	run("CALL count CALL count CALL count")
	<-inTool
	goOn <- struct{}{}
	<-inTool
	goOn <- struct{}{}
	<-inTool
	late := offered("too late")
	goOn <- struct{}{}
	if r := <-late; r.s != agent.SteerNeedsTurn {
		t.Errorf("got %+v", r)
	}
	if out := <-ended; out.Stop != agent.StopMaxRequests {
		t.Errorf("got %+v", out)
	}
	for _, r := range model.Records() {
		if strings.Contains(string(r.Body), "too late") {
			t.Error("a refused offer was sent")
		}
	}

	// An offer that is given up is not sent either.
	run("CALL count SAY ok")
	<-inTool
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := e.Steer(ctx, user("given up")); s != agent.SteerFailed || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v %v", s, err)
	}
	goOn <- struct{}{}
	<-ended
	if r := model.Records(); strings.Contains(string(r[len(r)-1].Body), "given up") {
		t.Error("an offer that was given up was sent")
	}
}

// Without a round left, an offer during the last answer is not taken.
func TestSteerWithoutRounds(t *testing.T) {
	t.Parallel()
	e, model, _ := with(t, nil, &Options{MaxRounds: 1})
	ended := make(chan error, 1)
	go func() {
		_, err := e.Turn(t.Context(), user("SLEEP 200ms"))
		ended <- err
	}()
	if _, err := model.Await(t.Context(), scripted.UserContains("SLEEP")); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Steer(t.Context(), user("too late")); s != agent.SteerNeedsTurn || err != nil {
		t.Errorf("got %v %v", s, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	turnOf(t, e, "next")
	if r := model.Records()[1]; strings.Contains(string(r.Body), "too late") {
		t.Error("a refused offer was sent")
	}
}

// No key of the environment goes to a server that somebody named.
func TestKey(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	t.Setenv("OPENAI_ORG_ID", "org")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	for _, key := range []string{"", "mine"} {
		got := make(chan http.Header, 1)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header
			_, _ = fmt.Fprint(w, data(`{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`))
		})
		e, _ := begin(t, s, &Options{Key: key})
		turnOf(t, e, "hello")
		h := <-got
		want := ""
		if key != "" {
			want = "Bearer mine"
		}
		if h.Get("Authorization") != want || h.Get("Openai-Organization") != "" {
			t.Errorf("sent %v", h)
		}
	}
}

func TestModelIsFound(t *testing.T) {
	t.Parallel()
	model, err := scripted.Start(t.Context(), &scripted.Options{Model: "the-only-one"})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	e := New(model.URL()+"/v1/", "", nil)
	defer e.Close()
	info, err := e.Start(t.Context(), agent.StartOptions{}, (&events{}).sink)
	if err != nil || info.Name != "the-only-one" {
		t.Fatal(info, err)
	}
	turnOf(t, e, "hi")
	if r := model.Records()[0]; r.Model != "the-only-one" || len(r.Tools) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	empty := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"object":"list","data":[]}`)
	})
	denied := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprint(w, `{"error":{"message":"no key","code":"invalid_api_key"}}`)
	})
	for base, want := range map[string]string{
		"ftp://x": "no http address", "127.0.0.1:80": "parse model server", "http://": "no http address", "http://user:secret@": "no http address",
		empty: ErrNoModel.Error(), denied: "401 Unauthorized: no key",
	} {
		e := New(base, "", &Options{RetryDelay: time.Millisecond})
		_, err := e.Start(t.Context(), agent.StartOptions{}, (&events{}).sink)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", base, err)
		}
		if _, err := e.Turn(t.Context(), user("x")); !errors.Is(err, agent.ErrClosed) {
			t.Errorf("%s: %v", base, err)
		}
	}
	e := New("http://127.0.0.1:1", "m", nil)
	if _, err := e.Turn(t.Context(), user("x")); err == nil {
		t.Error("a turn before the start")
	}
	_, _ = e.Start(t.Context(), agent.StartOptions{}, (&events{}).sink)
	if _, err := e.Start(t.Context(), agent.StartOptions{}, (&events{}).sink); !errors.Is(err, ErrStarted) {
		t.Errorf("got %v", err)
	}
	_ = e.Close()
	_ = e.Close()
}
