package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

func data(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("data: " + l + "\n\n")
	}
	return b.String()
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

const (
	hello = `{"choices":[{"index":0,"delta":{"content":"hello"}}]}`
	stop  = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	half  = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"count","arguments":"{\"n\":1"}}]}}]}`
)

// Calls that fail are repeated, and not for ever.
func TestRetries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		status   []int // of the answers, one after the other; 0 is a good one
		header   string
		requests int32
		want     int // status of the error; 0 is none
	}{
		{"rate limit", []int{429, 429, 429, 429}, "", 3, 429},
		{"rate limit that ends", []int{429, 0}, "", 2, 0},
		{"server error", []int{500, 503, 502, 500}, "", 3, 502},
		{"bad request", []int{400, 0}, "", 1, 400},
		{"not found", []int{404, 0}, "", 1, 404},
		{"asks for an hour", []int{429, 0}, "3600", 1, 429},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if status := tc.status[n.Add(1)-1]; status != 0 {
					if tc.header != "" {
						w.Header().Set("Retry-After", tc.header)
					}
					w.WriteHeader(status)
					_, _ = fmt.Fprintf(w, `{"error":{"message":"because %s"}}`, strings.Repeat("x", 10000))
					return
				}
				_, _ = io.WriteString(w, data(hello, stop, "[DONE]"))
			})
			e, ev := begin(t, s, nil)
			_, err := e.Turn(t.Context(), user("hi"))
			var refused *ModelError
			if tc.want != 0 && (!errors.As(err, &refused) || refused.Status != tc.want || len(err.Error()) > 700 || !strings.Contains(err.Error(), "because")) {
				t.Errorf("got %v", err)
			}
			if tc.want == 0 && (err != nil || ev.text() != "hello") {
				t.Errorf("got %q %v", ev.text(), err)
			}
			if n.Load() != tc.requests {
				t.Errorf("%d requests", n.Load())
			}
		})
	}
}

// A stream that is cut off is repeated only while nothing was shown, and half a
// call is never made.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		bodies   []string // each is sent and cut off
		clean    bool     // the connection ends well
		requests int32
		text     string
		err      error
	}{
		{"before the first word", []string{"", data(hello, stop)}, true, 2, "hello", nil},
		{"before the first word, each time", []string{"", "", "", ""}, true, 3, "", ErrCut},
		{"after the first word", []string{data(hello), data(hello, stop)}, true, 1, "hello", ErrCut},
		{"broken connection", []string{data(hello), data(hello, stop)}, false, 1, "hello", ErrCut},
		{"in a call", []string{data(half), data(half), data(half)}, true, 3, "", ErrCut},
		{"in a call, then well", []string{data(half), data(hello, stop)}, true, 2, "hello", nil},
		{"no end mark but a reason", []string{data(hello, stop)}, true, 1, "hello", nil},
		{"end mark without a reason", []string{data(hello, "[DONE]")}, true, 1, "hello", ErrCut},
		{"an error in the stream", []string{data(hello, `{"error":{"message":"overloaded"}}`)}, true, 1, "hello", errAny},
		{"no JSON", []string{data(`{"choices":[`)}, true, 1, "", errAny},
		{"a web page", []string{"<html>hello</html>", "<html>", "<html>"}, true, 3, "", ErrCut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				body := tc.bodies[n.Add(1)-1]
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, body)
				if !tc.clean {
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
			})
			w := &tool{}
			e, ev := begin(t, s, nil, w.tool("count"))
			_, err := e.Turn(t.Context(), user("hi"))
			switch {
			case tc.err == nil && err != nil, tc.err != nil && err == nil, tc.err != nil && tc.err != errAny && !errors.Is(err, tc.err): //nolint:errorlint // a mark
				t.Errorf("got %v", err)
			}
			if ev.text() != tc.text || n.Load() != tc.requests || len(w.seen()) != 0 {
				t.Errorf("%q, %d requests, tool calls %v", ev.text(), n.Load(), w.seen())
			}
		})
	}
}

var errAny = errors.New("any error")

// An answer without end is cut off at its size, whatever it is made of.
func TestEndlessStreams(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64<<10)
	for name, piece := range map[string]string{
		"text":      data(`{"choices":[{"index":0,"delta":{"content":"` + long + `"}}]}`),
		"thoughts":  data(`{"choices":[{"index":0,"delta":{"reasoning_content":"` + long + `"}}]}`),
		"arguments": data(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + long + `"}}]}}]}`),
		"calls":     data(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":-1,"id":"` + long + `","function":{"name":"f"}}]}}]}`),
		"comments":  ": " + long + "\n",
		"one event": "data: " + long,
		"one line":  long,
		"nothing":   data(`{"choices":[],"x":"` + long + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for {
					if _, err := io.WriteString(w, piece); err != nil {
						return
					}
				}
			})
			e, ev := begin(t, s, &Options{CallTimeout: 5 * time.Minute})
			_, err := e.Turn(t.Context(), user("hi"))
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("got %v", err)
			}
			if n := len(ev.text()); n > maxAnswer {
				t.Errorf("%d bytes were shown", n)
			}
		})
	}
}

// W-260: a call has 600 s, also when the server goes on sending.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	for name, piece := range map[string]string{"silent": "", "comments": ": still there\n", "drip": data(`{"choices":[{"index":0,"delta":{"content":"x"}}]}`)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := New("http://model", "m", &Options{Client: &http.Client{Transport: dripping(piece)}})
				defer e.Close()
				if _, err := e.Start(t.Context(), agent.StartOptions{}, (&events{}).sink); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err := e.Turn(t.Context(), user("hi"))
				if !errors.Is(err, ErrTimeout) || time.Since(began) != 600*time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// dripping is a server that sends a piece every second, for ever.
type dripping string

func (d dripping) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: q,
		Body: &drip{ctx: q.Context(), piece: string(d)},
	}, nil
}

type drip struct {
	ctx   context.Context //nolint:containedctx // a request's body
	piece string
}

func (d *drip) Read(p []byte) (int, error) {
	next := time.After(time.Second)
	if d.piece == "" {
		next = nil
	}
	select {
	case <-next:
		return copy(p, d.piece), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (d *drip) Close() error { return nil }

// What servers do beside the standard.
func TestQuirks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		body string
		args []string
		text string
		stop agent.StopReason
	}{
		{"pieces", data(
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"count","arguments":""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
		), []string{`{"n":1}`}, "fine", agent.StopEndTurn},
		{"all calls numbered 0, reason stop", data(
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"count","arguments":"{\"n\":1}"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"count","arguments":"{\"n\":2}"}}]}}]}`,
			stop,
		), []string{`{"n":1}`, `{"n":2}`}, "fine", agent.StopEndTurn},
		{"no ids, no arguments", data(
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"count"}},{"index":1,"function":{"name":"count"}}]},"finish_reason":"tool_calls"}]}`,
		), []string{`{}`, `{}`}, "fine", agent.StopEndTurn},
		{"thoughts", data(`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"index":0,"delta":{"reasoning":"well"}}]}`, hello, stop), nil, "hello", agent.StopEndTurn},
		{"length", data(hello, `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`), nil, "hello", agent.StopMaxTokens},
		{"length in a call", data(half, `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`), nil, "", agent.StopMaxTokens},
		{"filter", data(hello, `{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}`), nil, "hello", agent.StopRefusal},
		{"refusal", data(`{"choices":[{"index":0,"delta":{"refusal":"no"}}]}`, stop), nil, "no", agent.StopRefusal},
		{"new reason", data(hello, `{"choices":[{"index":0,"delta":{},"finish_reason":"eos"}]}`), nil, "hello", agent.StopEndTurn},
		{"CRLF and keep-alives", ": hi\r\n\r\n" + strings.ReplaceAll(data(hello, stop), "\n", "\r\n"), nil, "hello", agent.StopEndTurn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				body := tc.body
				if n.Add(1) > 1 {
					body = data(`{"choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":"stop"}]}`)
				}
				_, _ = io.WriteString(w, body)
			})
			w := &tool{}
			e, ev := begin(t, s, nil, w.tool("count"))
			if out := turnOf(t, e, "hi"); out.Stop != tc.stop {
				t.Errorf("got %+v", out)
			}
			if d := cmp.Diff(tc.args, w.seen()); d != "" || ev.text() != tc.text {
				t.Errorf("%q %s", ev.text(), d)
			}
			ids := map[string]bool{}
			for _, c := range ev.calls() {
				ids[c.ID] = true
			}
			if len(ids) != len(tc.args) || ids[""] {
				t.Errorf("ids %v", ids)
			}
			if tc.name == "thoughts" {
				if d := cmp.Diff([]agent.Event{agent.Thought{Text: "hm"}, agent.Thought{Text: "well"}}, ev.all()[:2]); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// An id that comes again gets a new one, or results would go to another call.
func TestRepeatedIDs(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var bodies []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies = append(bodies, string(b))
		n := len(bodies)
		mu.Unlock()
		if n > 2 {
			_, _ = io.WriteString(w, data(hello, stop))
			return
		}
		_, _ = io.WriteString(w, data(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_0","function":{"name":"count","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`))
	})
	w := &tool{}
	e, ev := begin(t, s, nil, w.tool("count"))
	turnOf(t, e, "hi")
	ids := map[string]int{}
	for _, c := range ev.calls() {
		ids[c.ID]++
	}
	if len(ids) != 2 || len(w.seen()) != 2 {
		t.Errorf("ids %v", ids)
	}
	for id := range ids {
		if strings.Count(bodies[2], `"`+id+`"`) != 2 {
			t.Errorf("%s is not there once as call and once as result:\n%s", id, bodies[2])
		}
	}
}

// The engine adapts to what a server says about its limits.
func TestAdapts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var bodies []string
	limit := 20 << 10
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies = append(bodies, string(b))
		mu.Unlock()
		refuse := func(code, text string) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":%q}}`, code, text)
		}
		switch {
		case strings.Contains(string(b), `"max_tokens"`):
			refuse("unsupported_parameter", "Use 'max_completion_tokens' instead.")
		case len(b) > limit:
			refuse("context_length_exceeded", "too long")
		default:
			_, _ = io.WriteString(w, data(hello, stop))
		}
	})
	e, _ := begin(t, s, nil)
	for i := range 4 {
		turnOf(t, e, fmt.Sprintf("turn %d %s", i, strings.Repeat("x", 8<<10)))
	}
	last := bodies[len(bodies)-1]
	if !strings.Contains(last, `"max_completion_tokens":8192`) || !strings.Contains(last, "turn 3") || strings.Contains(last, "turn 0") || !strings.Contains(last, "Be kind.") {
		t.Errorf("%d bytes %.300s", len(last), last)
	}
	// What cannot be made to fit is an error, after a few requests.
	before := len(bodies)
	_, err := e.Turn(t.Context(), user(strings.Repeat("x", 100<<10)))
	var refused *ModelError
	if !errors.As(err, &refused) || len(bodies)-before > 6 {
		t.Errorf("%v after %d requests", err, len(bodies)-before)
	}
}

// Whatever a server sends, the turn ends, and only whole calls are made.
func FuzzStream(f *testing.F) {
	for _, s := range []string{data(hello, stop), data(half), data(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":7,"function":{"name":"count","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`), "data: [DONE]\n\n", "event: x\r\ndata\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := &tool{}
		e := New("http://model", "m", &Options{MaxRounds: 3, RetryDelay: time.Nanosecond, Client: &http.Client{Transport: fixed(body)}})
		defer e.Close()
		if _, err := e.Start(t.Context(), agent.StartOptions{Tools: []agent.Tool{w.tool("count")}}, func(agent.Event) {}); err != nil {
			t.Fatal(err)
		}
		out, err := e.Turn(t.Context(), user("hi"))
		if (err == nil) != (out.Stop != "") {
			t.Fatalf("%+v %v", out, err)
		}
		for _, args := range w.seen() {
			if !isObject(args) {
				t.Fatalf("called with %q", args)
			}
		}
		pending := map[string]bool{}
		for _, m := range e.history.messages {
			for _, c := range m.calls {
				if pending[c.id] {
					t.Fatal("an id twice")
				}
				pending[c.id] = true
			}
			if m.role == roleTool {
				if !pending[m.callID] {
					t.Fatal("a result without its call")
				}
				delete(pending, m.callID)
			}
		}
		if len(pending) > 0 {
			t.Fatal("a call without its result")
		}
	})
}

type fixed []byte

func (b fixed) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: q,
		Body: io.NopCloser(bytes.NewReader(b)),
	}, nil
}
