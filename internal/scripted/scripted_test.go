package scripted_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o *scripted.Options) *scripted.Server {
	t.Helper()
	s, err := scripted.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// One question in each protocol, streamed and whole: the tool call comes
// first, with its arguments byte by byte as the script has them.
func TestProtocols(t *testing.T) {
	t.Parallel()
	const word = `CALL echo {\"n\":12345678901234567890}`
	for _, tc := range []struct{ name, path, body, call, second, text string }{
		{
			name: "chat", path: "/v1/chat/completions",
			body:   `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":[{"type":"text","text":"SLEEP 600s cut off"},{"type":"text","text":"` + word + `"},{"type":"text","text":"<system-reminder>x"}]}],"tools":[{"type":"function","function":{"name":"my_echo"}}]}`,
			call:   `"arguments":"{\"n\":12345678901234567890}"`,
			second: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"` + word + `"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"my_echo","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"it worked"}],"tools":[{"type":"function","function":{"name":"my_echo"}}]}`,
		},
		{
			name: "responses", path: "/v1/responses",
			body:   `{"model":"m","stream":STREAM,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"` + word + `"}]}],"tools":[{"type":"web_search"},{"type":"namespace","name":"mcp__x","tools":[{"type":"function","name":"my_echo"}]}]}`,
			call:   `"name":"my_echo","namespace":"mcp__x"`,
			second: `{"model":"m","stream":STREAM,"input":[{"role":"user","content":"` + word + `"},{"type":"function_call","name":"my_echo","namespace":"mcp__x","arguments":"{}","call_id":"a"},{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"it worked"}]}],"tools":[]}`,
		},
		{
			name: "anthropic", path: "/v1/messages",
			body:   `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":[{"type":"text","text":"` + word + `"},{"type":"text","text":"<system-reminder>be kind</system-reminder>"}]}],"tools":[{"name":"my_echo"}]}`,
			call:   `"name":"my_echo"`,
			second: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"` + word + `"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"my_echo","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"it worked"}]}]}],"tools":[]}`,
		},
		{
			name: "gemini", path: "/v1beta/models/g:VERB",
			body:   `{"contents":[{"role":"user","parts":[{"text":"` + word + `"}]}],"tools":[{"functionDeclarations":[{"name":"my_echo"}]}]}`,
			call:   `"args":{"n":12345678901234567890}`,
			second: `{"contents":[{"role":"user","parts":[{"text":"` + word + `"}]},{"role":"model","parts":[{"functionCall":{"name":"my_echo","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"my_echo","response":{"output":"it worked"}}}]}]}`,
		},
	} {
		for _, stream := range []string{"true", "false"} {
			t.Run(tc.name+" stream "+stream, func(t *testing.T) {
				t.Parallel()
				s := start(t, nil)
				path := strings.Replace(tc.path, "VERB", map[string]string{"true": "streamGenerateContent", "false": "generateContent"}[stream], 1)
				status, got := post(t, s.URL()+path, strings.ReplaceAll(tc.body, "STREAM", stream))
				if status != http.StatusOK || !strings.Contains(got, tc.call) {
					t.Fatalf("%d, no %s in\n%s", status, tc.call, got)
				}
				if !strings.Contains(got, "12345678901234567890") {
					t.Errorf("the arguments are not exact:\n%s", got)
				}
				if framed := strings.HasPrefix(got, "data: ") || strings.HasPrefix(got, "event: "); framed != (stream == "true") {
					t.Errorf("stream %s answered\n%s", stream, got)
				}
				_, got = post(t, s.URL()+path, strings.ReplaceAll(tc.second, "STREAM", stream))
				if joined := strings.NewReplacer(`"}}]}`, "", "\n", "").Replace(got); !strings.Contains(joined, "worked") {
					t.Fatalf("the result is not quoted:\n%s", got)
				}
				r := s.Records()[0]
				want := scripted.Record{
					Turn: scripted.Turn{
						N: 1, API: scripted.API(tc.name), Model: map[bool]string{true: "g", false: "m"}[tc.name == "gemini"], Stream: stream == "true",
						User: `CALL echo {"n":12345678901234567890}`, Users: 1, Tools: r.Tools, Body: r.Body,
					},
					Reply: scripted.Reply{Calls: []scripted.Call{{Tool: r.Tools[0], Args: `{"n":12345678901234567890}`}}},
				}
				if d := cmp.Diff(want, r); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	tools := []string{"read", "ns.run_code"}
	for _, tc := range []struct {
		name string
		turn scripted.Turn
		want scripted.Reply
	}{
		{"quote", scripted.Turn{User: "hello \n there"}, scripted.Reply{Text: "you said hello there"}},
		{"nested json", scripted.Turn{User: `please CALL run_code {"code":"f({1: '}'})","x":{"y":[{}]}} now`, Tools: tools}, scripted.Reply{Calls: []scripted.Call{{Tool: "ns.run_code", Args: `{"code":"f({1: '}'})","x":{"y":[{}]}}`}}}},
		{"in order", scripted.Turn{User: "CALL read CALL run_code {}", Tools: tools, Calls: []scripted.Made{{Tool: "read"}}, Results: []string{"r"}}, scripted.Reply{Calls: []scripted.Call{{Tool: "ns.run_code", Args: "{}"}}}},
		{"say at the end", scripted.Turn{User: "CALL read SAY NO_REPLY\nmore", Tools: tools, Calls: []scripted.Made{{Tool: "read"}}, Results: []string{"r"}}, scripted.Reply{Text: "NO_REPLY"}},
		{"result", scripted.Turn{User: "CALL read", Tools: tools, Calls: []scripted.Made{{Tool: "read"}}, Results: []string{"a", "b"}}, scripted.Reply{Text: "tool said b"}},
		{"no such tool", scripted.Turn{User: "CALL write", Tools: tools}, scripted.Reply{Text: "no tool matches write among 2"}},
		{"sleep once", scripted.Turn{User: "SLEEP 20ms", Calls: []scripted.Made{{Tool: "x"}}}, scripted.Reply{Text: "you said SLEEP 20ms"}},
		{"sleep", scripted.Turn{User: "SLEEP 20ms"}, scripted.Reply{Text: "you said SLEEP 20ms", Delay: 20 * time.Millisecond}},
		{"fail", scripted.Turn{User: "FAIL 503"}, scripted.Reply{Status: 503}},
		{"notice", scripted.Turn{User: "<watch-event name=\"a\">\nx is 2\n</watch-event>\nanswer exactly NO_REPLY"}, scripted.Reply{Text: "heard: x is 2"}},
		{"search first", scripted.Turn{User: "CALL echo", Tools: []string{"ToolSearch"}}, scripted.Reply{Calls: []scripted.Call{{Tool: "ToolSearch", Args: `{"query":"echo"}`}}}},
		{"search in vain", scripted.Turn{User: "CALL echo", Tools: []string{"ToolSearch"}, Calls: []scripted.Made{{Tool: "ToolSearch"}}, Results: []string{"none"}}, scripted.Reply{Text: "no tool matches echo among 1"}},
		{"meta tool", scripted.Turn{User: `CALL echo {"a":1}`, Tools: []string{"tool_search", "tool_call"}, Calls: []scripted.Made{{Tool: "tool_search"}}, Results: []string{`{"name":"mcp__s__echo"}`}}, scripted.Reply{Calls: []scripted.Call{{Tool: "tool_call", Args: `{"arguments":{"a":1},"name":"mcp__s__echo"}`}}}},
		{"meta tool in vain", scripted.Turn{User: "CALL echo", Tools: []string{"tool_search", "tool_call"}, Calls: []scripted.Made{{Tool: "tool_search"}}, Results: []string{"No tools found matching 'echo'. Try broader keywords."}}, scripted.Reply{Text: "no tool matches echo among 2"}},
		{"meta tool done", scripted.Turn{User: "CALL echo", Tools: []string{"tool_search", "tool_call"}, Calls: []scripted.Made{{Tool: "tool_search"}, {Tool: "tool_call", Args: `{"name":"mcp__s__echo"}`}}, Results: []string{"found", "ok"}}, scripted.Reply{Text: "tool said ok"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, scripted.Words(tc.turn)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAwaitAndAbort(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"SLEEP 600s"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	if _, err := s.Await(t.Context(), scripted.UserContains("SLEEP")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Await(t.Context(), func(r scripted.Record) bool { return r.Aborted }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := s.Await(t.Context(), scripted.UserContains("never")); !errors.Is(err, scripted.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := start(t, &scripted.Options{Kept: 1})
	for path, body := range map[string]string{
		"/v1/chat/completions": `{`, "/v1/responses": `{"input":[1]}`, "/v1/messages": `[]`, "/x:generateContent": `nope`,
	} {
		if status, got := post(t, s.URL()+path, body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
	if status, _ := post(t, s.URL()+"/nowhere", "{}"); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}
	for range 3 {
		if status, got := post(t, s.URL()+"/chat/completions", `{"messages":[{"role":"user","content":"FAIL 429"}]}`); status != http.StatusTooManyRequests || !strings.Contains(got, "scripted failure") {
			t.Errorf("%d %s", status, got)
		}
	}
	if n := len(s.Records()); n != 1 {
		t.Errorf("%d records kept, want 1", n)
	}
}

func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"CALL x {\"a\":1}"}],"tools":[{"function":{"name":"x"}}],"stream":true}`,
		`{"input":[{"role":"user","content":[{"text":"CALL x"}]}],"tools":[{"name":"x","tools":[{"name":"y"}]}]}`,
		`{"contents":[{"role":"user","parts":[{"text":"a","functionCall":{"name":"b","args":{}}}]}]}`,
	} {
		f.Add([]byte(body))
	}
	s := scripted.New(&scripted.Options{Reply: func(t scripted.Turn) scripted.Reply {
		r := scripted.Words(t)
		r.Delay = 0
		return r
	}})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/chat/completions", "/responses", "/messages", "/m:generateContent"} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			s.ServeHTTP(discard{}, q)
		}
	})
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("bad status")
	}
}
