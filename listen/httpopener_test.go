package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// wire is an http.RoundTripper whose event streams the test writes.
type wire struct {
	requests chan *http.Request
	streams  chan *io.PipeWriter
	answer   func() *http.Response // nil: an event stream
}

func newWire() *wire {
	return &wire{requests: make(chan *http.Request, 10), streams: make(chan *io.PipeWriter, 10)}
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.requests <- r
	if w.answer != nil {
		return w.answer(), nil
	}
	pr, pw := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = pr.CloseWithError(r.Context().Err()) })
	w.streams <- pw
	return reply(200, "text/event-stream; charset=utf-8", pr), nil
}

func reply(status int, mediaType string, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {mediaType}}, Body: body}
}

func (w *wire) opener(o HTTPOptions) *HTTPOpener {
	o.Client = &http.Client{Transport: w}
	o.ClientInfo = ClientInfo{Name: "test", Version: "1"}
	return NewHTTPOpener("http://server/mcp", &o)
}

// send writes raw bytes of an event stream.
func send(t *testing.T, w io.Writer, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(w, format, args...); err != nil {
		t.Errorf("write: %v", err)
	}
}

const (
	ackEvent     = `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"ossicle-listen-1"},"notifications":{"resourceSubscriptions":["a:/1"]}}}` + "\n\n"
	updatedEvent = `data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"ossicle-listen-1"},"uri":"a:/1"}}` + "\n\n"
	resultEvent  = `data: {"jsonrpc":"2.0","id":"ossicle-listen-1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"ossicle-listen-1"}}}` + "\n\n"
	cancelEvent  = `data: {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ossicle-listen-1"}}` + "\n\n"
	errorEvent   = `data: {"jsonrpc":"2.0","id":"ossicle-listen-1","error":{"code":-32603,"message":"Subscription limit reached"}}` + "\n\n"
)

// open opens a listen that is acknowledged.
func (w *wire) open(t *testing.T, o HTTPOptions) (*Stream, *io.PipeWriter) {
	t.Helper()
	server := make(chan *io.PipeWriter, 1)
	go func() {
		pw := <-w.streams
		send(t, pw, ackEvent)
		server <- pw
	}()
	s, err := w.opener(o).Open(t.Context(), uris("a:/1", "a:/2"))
	if err != nil {
		t.Fatal(err)
	}
	return s, <-server
}

// M-13, notes §5: headers and body of a listen.
func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		s, _ := w.open(t, HTTPOptions{})
		defer s.Close()
		r := <-w.requests
		for k, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
		} {
			if got := r.Header.Get(k); got != want {
				t.Errorf("header %s = %q, want %q", k, got, want)
			}
		}
		body, _ := r.GetBody()
		b, _ := io.ReadAll(body)
		want := `{"jsonrpc":"2.0","id":"ossicle-listen-1","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}},"notifications":{"resourceSubscriptions":["a:/1","a:/2"]}}}`
		if r.Method != http.MethodPost || string(b) != want {
			t.Errorf("%s\n got %s\nwant %s", r.Method, b, want)
		}
		if diff := cmp.Diff(uris("a:/1"), s.Filter()); diff != "" {
			t.Errorf("honoured (-want +got):\n%s", diff)
		}
	})
}

// B-013, B-020, B-004: every way to end; half an event is none.
func TestHTTPEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, send string
		want       EndReason
	}{
		{"result", resultEvent, EndGraceful},
		{"cancelled", cancelEvent, EndCancelled},
		{"both", resultEvent + cancelEvent, EndGraceful},
		{"both, the other way round", cancelEvent + resultEvent, EndCancelled},
		{"error", errorEvent, EndFailed},
		{"nothing", "", EndLost},
		{"half a result", strings.TrimSuffix(resultEvent, "\n"), EndLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			s, pw := w.open(t, HTTPOptions{})
			go func() {
				// The reader hangs up after the end, so that the rest finds nobody.
				_, _ = io.WriteString(pw, updatedEvent+tt.send)
				_ = pw.Close()
			}()
			if b, err := s.Next(t.Context()); err != nil || len(b.URIs) != 1 {
				t.Errorf("%s: Next = %v, %v", tt.name, b, err)
			}
			_, err := s.Next(t.Context())
			var end *EndError
			if !errors.As(err, &end) || end.Reason != tt.want {
				t.Errorf("%s: end %v, want %s", tt.name, err, tt.want)
			}
			if tt.want == EndLost && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: cause %v", tt.name, end.Err)
			}
			s.Close()
		})
	}
}

// M-16: what is no frame of ours is skipped, and the stream stays in step.
func TestHTTPSkips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		s, pw := w.open(t, HTTPOptions{MaxEvent: 1000})
		defer s.Close()
		send(t, pw, ": ka\n\ndata\n\ndata: hello\n\nevent: other\n"+updatedEvent)
		send(t, pw, `data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:/1","uri":"a:/1"}}`+"\n\n")
		send(t, pw, `data: {"jsonrpc":"2.0","Method":"notifications/resources/updated","params":{"uri":"a:/1"}}`+"\n\n")
		send(t, pw, `data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"URI":"a:/1"}}`+"\n\n")
		send(t, pw, `data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":[1]}`+"\n\n")
		send(t, pw, `data: {"jsonrpc":"1.0","id":1,"result":{}}`+"\n\n")
		synctest.Wait()
		if got := drain(t, s); got != nil || s.Err() != nil {
			t.Errorf("heard %q, end %v", got, s.Err())
		}
		send(t, pw, updatedEvent)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a:/1"}, drain(t, s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		go func() { _, _ = io.WriteString(pw, "data: "+strings.Repeat("x", 2000)+"\n\n") }()
		<-s.Done()
		if !errors.Is(s.Err(), ErrEventTooLarge) {
			t.Errorf("end %v, want ErrEventTooLarge", s.Err())
		}
	})
}

// B-017: replies that are no event stream.
func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	rpc := func(code int64) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":"ossicle-listen-1","error":{"code":%d,"message":"no"}}`, code)
	}
	for _, tt := range []struct {
		name     string
		status   int
		media    string
		body     string
		noListen bool
		code     int64
		httpCode int
	}{
		{"404 with method not found", 404, "application/json", rpc(-32601), true, -32601, 0},
		{"200 with method not found", 200, "application/json", rpc(-32601), true, -32601, 0},
		{"404 without a body", 404, "text/plain", "404 page not found", true, 0, 404},
		{"400 with a JSON-RPC error", 400, "application/json", rpc(-32022), false, -32022, 0},
		{"503", 503, "text/html", "<html>\x00busy", false, 0, 503},
		{"401", 401, "", "", false, 0, 401},
		{"an error body that claims to be a stream", 500, "text/event-stream", "data: x\n\n", false, 0, 500},
		{"200 of nonsense", 200, "application/json", "[]", false, 0, 200},
		{"duplicate names", 200, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""},"error":{"code":1,"message":""}}`, false, 0, 200},
	} {
		w := newWire()
		w.answer = func() *http.Response {
			return reply(tt.status, tt.media, io.NopCloser(strings.NewReader(tt.body)))
		}
		_, err := w.opener(HTTPOptions{}).Open(t.Context(), uris("a:/1"))
		var none *NoListenError
		var code *jsonrpc.Error
		var status *StatusError
		if errors.As(err, &none) != tt.noListen {
			t.Errorf("%s: %v", tt.name, err)
		}
		if errors.As(err, &code) != (tt.code != 0) || (code != nil && code.Code != tt.code) {
			t.Errorf("%s: code %v in %v", tt.name, code, err)
		}
		if errors.As(err, &status) != (tt.httpCode != 0) || (status != nil && status.Status != tt.httpCode) {
			t.Errorf("%s: status %v in %v", tt.name, status, err)
		}
		if err == nil || strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("%s: text %q", tt.name, err)
		}
	}
}

// B-014: no acknowledgement, no listen; nothing is left behind.
func TestHTTPNoAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		start := time.Now()
		_, err := w.opener(HTTPOptions{}).Open(t.Context(), uris("a:/1"))
		if !errors.Is(err, ErrNoAck) || time.Since(start) != DefaultAckTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := io.WriteString(<-w.streams, "x"); err == nil {
			t.Error("the request lives on")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errDown) })
		if _, err = w.opener(HTTPOptions{}).Open(ctx, uris("a:/1")); !errors.Is(err, errDown) {
			t.Errorf("cancelled opening: %v", err)
		}
	})
}

// The context of Open ends the opening, not the stream.
func TestHTTPOutlivesContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		go func() { send(t, <-w.streams, ackEvent) }()
		ctx, cancel := context.WithCancel(t.Context())
		s, err := w.opener(HTTPOptions{}).Open(ctx, uris("a:/1"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.Err() != nil {
			t.Errorf("the stream ended: %v", s.Err())
		}
		s.Close()
	})
}

// B-005: silence is judged where the server keeps an interval, and only there.
func TestHTTPWatchdog(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration, n int) func(io.Writer) {
		return func(w io.Writer) {
			for range n {
				time.Sleep(d)
				_, _ = io.WriteString(w, ": ka\n\n")
			}
		}
	}
	for _, tt := range []struct {
		name string
		send func(io.Writer)
		idle time.Duration
		want time.Duration // from the last byte to the end; 0: lives
	}{
		{"no comments at all", func(io.Writer) {}, 0, 0},
		{"updates without comments", func(w io.Writer) { _, _ = io.WriteString(w, updatedEvent) }, 0, 0},
		{"a greeting", func(w io.Writer) { _, _ = io.WriteString(w, ": hello\n\n") }, 0, 0},
		{"the usual interval", every(15*time.Second, 10), 0, 45 * time.Second},
		{"one comment is enough", every(15*time.Second, 1), 0, 45 * time.Second},
		{"a long interval", every(time.Minute, 3), 0, 3 * time.Minute},
		{"a short interval", every(2*time.Second, 3), 6 * time.Second, 6 * time.Second},
		{"switched off", every(15*time.Second, 3), -1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			s, pw := w.open(t, HTTPOptions{IdleTimeout: tt.idle})
			tt.send(pw)
			last := time.Now()
			if tt.want == 0 {
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if s.Err() != nil {
					t.Errorf("%s: ended: %v", tt.name, s.Err())
				}
				s.Close()
				return
			}
			<-s.Done()
			var silence *SilenceError
			if !errors.As(s.Err(), &silence) || s.Err().Reason != EndLost || time.Since(last) != tt.want {
				t.Errorf("%s: %v after %v, want %v", tt.name, s.Err(), time.Since(last), tt.want)
			}
			s.Close()
		})
	}
}

// M-13: over real connections, closing the stream closes the request, and a
// server that vanishes is noticed.
func TestHTTPReal(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ackEvent+updatedEvent)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	o := NewHTTPOpener(srv.URL, &HTTPOptions{Client: &http.Client{Transport: transport}})
	for _, end := range []struct {
		f    func(*Stream)
		want EndReason
	}{{(*Stream).Close, EndLocal}, {func(*Stream) { srv.CloseClientConnections() }, EndLost}} {
		s, err := o.Open(t.Context(), uris("a:/1"))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := s.Next(t.Context()); err != nil || len(b.URIs) != 1 {
			t.Errorf("Next = %v, %v", b, err)
		}
		end.f(s)
		<-gone
		<-s.Done()
		if s.Err().Reason != end.want {
			t.Errorf("end %v, want %s", s.Err(), end.want)
		}
	}
}
