package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lines reads everything from a connection that a peer wrote in; the messages
// are in JSON, errors of responses in brackets.
func lines(in string) (msgs []string, noisy int, err error) {
	c := newLineConn(strings.NewReader(in), nil, func() {}, slog.New(slog.DiscardHandler))
	for {
		m, err := c.Read(context.Background())
		if err != nil {
			total, _ := c.noise.snapshot()
			return msgs, total, err
		}
		text, _ := jsonrpc.EncodeMessage(m)
		if r, ok := m.(*jsonrpc.Response); ok && r.Error != nil {
			var bad *FrameError
			text = fmt.Appendf(nil, "[%v %v]", r.ID.Raw(), errors.As(r.Error, &bad))
		}
		msgs = append(msgs, string(text))
	}
}

// M-16, B-096.
func TestLineConn(t *testing.T) {
	t.Parallel()
	const good = `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`
	const note = `{"jsonrpc":"2.0","method":"notifications/x"}`
	for _, tt := range []struct {
		name, in string
		want     []string
		noise    int
	}{
		{"frames", good + "\n" + note + "\n", []string{good, note}, 0},
		{"CRLF, blanks, no last newline", good + "\r\n\r\n  \n" + good, []string{good, good}, 0},
		{"a log line", "listening\n" + good + "\n", []string{good}, 1},
		{"a log line in JSON", `{"level":"info","id":1}` + "\n" + good + "\n", []string{good}, 1},
		{"a number, a string, an array", "1\n\"x\"\n[]\n[1]\n" + good + "\n", []string{good}, 4},
		{"a batch", "[" + good + "," + note + "]\n", []string{good, note}, 0},
		{"half a frame at the end", good + "\n" + `{"jsonrpc":"2.0","id":2,"res`, []string{good, "[2 true]"}, 1},
		{"duplicate names", `{"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}` + "\n" + good + "\n", []string{"[2 true]", good}, 1},
		{"duplicate ids", `{"jsonrpc":"2.0","id":2,"id":3,"result":{}}` + "\n", []string{"[2 true]"}, 1},
		{"names of other case", `{"JSONRPC":"2.0","id":2,"result":{}}` + "\n" + `{"jsonrpc":"2.0","ID":2,"result":{}}` + "\n", nil, 2},
		{"a bad notification is nobody's answer", `{"jsonrpc":"2.0","method":"m","id":1,"params":{"a":1,"a":1}}` + "\n", nil, 1},
		{"a bad id", `{"jsonrpc":"2.0","id":{},"result":{"a":1,"a":1}}` + "\n", nil, 1},
		{"a wrong version", `{"jsonrpc":"1.0","id":2,"result":{}}` + "\n", nil, 1},
		{"a large frame", `{"jsonrpc":"2.0","id":2,"result":"` + strings.Repeat("x", maxFrame) + "\"}\n" + good + "\n", []string{"[2 true]", good}, 1},
		{"a large line", strings.Repeat("x", maxFrame*2) + "\n" + good + "\n", []string{good}, 1},
		{"a deep frame", `{"jsonrpc":"2.0","id":2,"result":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}\n" + good + "\n", []string{"[2 true]", good}, 1},
		{"text that is no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}\n\xff\xfe\n", []string{good}, 1},
		{"nothing", "", nil, 0},
	} {
		got, noise, err := lines(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || noise != tt.noise || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %d lines of noise, end %v (-want +got):\n%s", tt.name, noise, err, diff)
		}
	}
	row := strings.Repeat("x\n", maxNoiseRow-1)
	if got, noise, err := lines(row + good + "\n" + row + good + "\n"); len(got) != 2 || noise != 2*maxNoiseRow-2 || !errors.Is(err, io.EOF) {
		t.Errorf("rows that are short enough: %q, %d, %v", got, noise, err)
	}
	var noise *NoiseError
	if got, _, err := lines(row + "y\n" + good + "\n"); len(got) != 0 || !errors.As(err, &noise) || noise.Lines[maxNoiseRow-1] != "y" {
		t.Errorf("a row that is too long: %q, %v", got, err)
	}
}

// FuzzLineConn holds that no input stops the reader before its end but noise, and
// that good frames between it come through.
func FuzzLineConn(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}` + "\n[{]\nx"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const good = `{"jsonrpc":"2.0","id":77,"result":{}}`
		msgs, _, err := lines(string(in) + "\n" + good + "\n")
		var noise *NoiseError
		if errors.As(err, &noise) {
			return
		}
		if !errors.Is(err, io.EOF) || len(msgs) == 0 || msgs[len(msgs)-1] != good {
			t.Fatalf("%v, %q", err, msgs)
		}
	})
}

// deaf is a pipe whose reader never comes.
type deaf struct{ writes int }

func (d *deaf) Write([]byte) (int, error) { d.writes++; return 3, io.ErrShortWrite }
func (d *deaf) Close() error              { return nil }

// A write that failed half-way is the last one: the stream would be out of step.
func TestLineConnBrokenWrite(t *testing.T) {
	t.Parallel()
	w := &deaf{}
	c := newLineConn(strings.NewReader(""), w, func() {}, slog.New(slog.DiscardHandler))
	for range 2 {
		if err := c.Write(t.Context(), &jsonrpc.Request{Method: "m"}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("error %v", err)
		}
	}
	if w.writes != 1 {
		t.Errorf("%d writes", w.writes)
	}
}

// one is an http.RoundTripper with one answer.
type one func(*http.Request) *http.Response

func (o one) RoundTrip(r *http.Request) (*http.Response, error) { return o(r), nil }

// guarded sends a call through a guard and returns what the SDK would read, and
// what was tapped.
func guarded(t testing.TB, status int, media string, body io.Reader) (string, string, error) {
	t.Helper()
	table := newTaps()
	g, err := newGuard(Spec{Name: "srv", URL: "http://srv/mcp"}, one(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}, "Content-Length": {"5"}}, Body: io.NopCloser(body)}
	}), table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, tap := table.begin(t.Context())
	defer tap.end()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://srv/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := g.RoundTrip(req)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	raw, bad := tap.result()
	return string(got), string(raw), bad
}

// M-16, B-004: what the SDK gets to see over HTTP.
func TestGuard(t *testing.T) {
	t.Parallel()
	const good, js, es = `{"jsonrpc":"2.0","id":7,"result":{"n":1915883588174806058}}`, "application/json", "text/event-stream"
	const refusal = `{"jsonrpc":"2.0","id":7,"error":{"code":-32700,"message":"bad message"}}`
	for _, tt := range []struct {
		name   string
		status int
		media  string
		in     string
		want   string
		raw    string
		bad    bool
	}{
		{"JSON", 200, js, good, good, `{"n":1915883588174806058}`, false},
		{"JSON with duplicates", 200, js, `{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}`, refusal, "", true},
		{"JSON that is none", 200, js, `<html>`, refusal, "", true},
		{"JSON over the limit", 200, js, strings.Repeat(" ", maxFrame+1), refusal, "", true},
		{"nothing", 200, js, ``, refusal, "", true},
		{"events", 200, es, ": c\ndata: " + good + "\n\n", "data: " + good + "\n\n", `{"n":1915883588174806058}`, false},
		{"CR and colon-less lines", 200, es, "data\r\rid: 5\rdata:" + good + "\r\rdata: half", "id: 5\ndata: " + good + "\n\n", `{"n":1915883588174806058}`, false},
		{"a message of many lines", 200, es, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":7,\"result\":{}}\n\n", "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":7,\"result\":{}}\n\n", "{}", false},
		{"an id and a retry alone", 200, es, "id: 3\nretry: 10\n\n", "id: 3\nretry: 10\n\n", "", false},
		{"other events pass", 200, es, "event: endpoint\ndata: /x?y\n\n", "event: endpoint\ndata: /x?y\n\n", "", false},
		{"a bad event fails the call", 200, es, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":1,\"a\":1}}\n\n", "data: " + refusal + "\n\n", "", true},
		{"an event over the limit", 200, es, "data: " + strings.Repeat("x", maxFrame+1) + "\n\n", "data: " + refusal + "\n\n", "", true},
		{"errors pass, cut", 500, js, strings.Repeat("x", 2*maxErrorBody), strings.Repeat("x", maxErrorBody), "", false},
	} {
		got, raw, bad := guarded(t, tt.status, tt.media, strings.NewReader(tt.in))
		var frame *FrameError
		if got != tt.want || raw != tt.raw || errors.As(bad, &frame) != tt.bad {
			t.Errorf("%s: got %.200q, tapped %s, %v", tt.name, got, raw, bad)
		}
		if strings.Contains(tt.name, "over the limit") && !strings.Contains(bad.Error(), "16777216 bytes") {
			t.Errorf("%s: %v does not say so", tt.name, bad)
		}
	}
}

// B-005: the listen client gets its stream as it came, comments and all.
func TestGuardLeavesListens(t *testing.T) {
	t.Parallel()
	const stream = ": keep-alive\r\n\r\ndata: x\n\n"
	g, err := newGuard(Spec{Name: "srv", URL: "http://srv/mcp"}, one(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(stream))}
	}), newTaps(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://srv/mcp", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Method", "subscriptions/listen")
	resp, err := g.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != stream {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzGuard holds that whatever a server sends, what passes is valid.
func FuzzGuard(f *testing.F) {
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\r\n\r\nid: 4\n\n"), true)
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}`), false)
	f.Fuzz(func(t *testing.T, in []byte, events bool) {
		media := "application/json"
		if events {
			media = "text/event-stream"
		}
		got, raw, _ := guarded(t, 200, media, bytes.NewReader(in))
		if raw != "" && !json.Valid([]byte(raw)) {
			t.Fatalf("tapped %q", raw)
		}
		if !events && !json.Valid([]byte(got)) {
			t.Fatalf("passed %q", got)
		}
	})
}

// A large request, whose end is not looked at, has its id found.
func TestRequestID(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 10 * salvageLimit} {
		id, err := jsonrpc.MakeID(float64(42))
		if err != nil {
			t.Fatal(err)
		}
		params, _ := json.Marshal(map[string]any{"_meta": mcp.Meta{}, "x": strings.Repeat("x", size)})
		body, err := jsonrpc.EncodeMessage(&jsonrpc.Request{ID: id, Method: "m", Params: params})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://srv", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := requestID(req); string(got) != "42" {
			t.Errorf("id %q of a request of %d bytes", got, len(body))
		}
	}
}
