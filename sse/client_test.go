package sse

import (
	"bytes"
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
)

// network is a server of which the test sees every request, on the clock of a
// bubble.
type network struct {
	answer func(n int, r *http.Request) (*http.Response, error)
	at     []time.Duration
	lastID []string
	begun  time.Time
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.begun.IsZero() {
		n.begun = time.Now()
	}
	n.at = append(n.at, time.Since(n.begun))
	n.lastID = append(n.lastID, r.Header.Get("Last-Event-ID"))
	return n.answer(len(n.at), r)
}

func stream200(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, Body: body}
}

func text200(s string) *http.Response { return stream200(io.NopCloser(strings.NewReader(s))) }

// silent is a body of which nothing more comes until the request ends.
func silent(r *http.Request, first string) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, first)
		<-r.Context().Done()
		pw.CloseWithError(context.Cause(r.Context()))
	}()
	return pr
}

func client(t *testing.T, n *network, h Handler, o *Options) *Client {
	t.Helper()
	if h == nil {
		h = func(context.Context, Event) error { return nil }
	}
	o.HTTP = &http.Client{Transport: n}
	c, err := NewClient("http://feed.example/v1/events", h, o)
	if err != nil {
		t.Fatal(err)
	}
	c.jitter = func() time.Duration { return 0 }
	return c
}

// F-23, B-031: a server that accepts and closes, even after an event, is left
// alone for longer and longer.
func TestAcceptAndClose(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"at once": "", "after an event": "id: 1\ndata: x\n\n", "after a comment": ": ok\n\n", "asks for no wait": "retry: 0\n\n", "asks for a long wait": "retry: 99999999999999999999999\n\n"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 285*time.Second)
			defer cancel()
			n := &network{answer: func(int, *http.Request) (*http.Response, error) { return text200(body), nil }}
			if err := client(t, n, nil, &Options{}).Run(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181, 211, 241, 271}
			if name == "asks for a long wait" {
				want = []time.Duration{0, 30, 60, 90, 120, 150, 180, 210, 240, 270}
			}
			for i := range want {
				want[i] *= time.Second
			}
			if diff := cmp.Diff(want, n.at); diff != "" {
				t.Errorf("%s: connections (-want +got):\n%s", name, diff)
			}
		})
	}
}

// F-23: a stream that lived and delivered makes the next wait short again; one
// that lived and said nothing does not.
func TestBackoffBeginsAnew(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]time.Duration{": hb\n\n": time.Second, "data: x\n\n": time.Second, "": 16 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var ended time.Time
			n := &network{}
			n.answer = func(i int, r *http.Request) (*http.Response, error) {
				switch i {
				case 5:
					pr, pw := io.Pipe()
					go func() {
						_, _ = io.WriteString(pw, said)
						time.Sleep(11 * time.Second)
						ended = time.Now()
						_ = pw.Close()
					}()
					return stream200(pr), nil
				case 6:
					if got := time.Since(ended); got != want {
						t.Errorf("%q: waited %v, want %v", said, got, want)
					}
					cancel()
				}
				return nil, errors.New("refused")
			}
			if err := client(t, n, nil, &Options{}).Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// F-23: what was handled is not asked for again, and ids that come without an
// event count, those of events that were cut off do not.
func TestResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := &network{}
		bodies := []string{"id: e-1\ndata: a\n\ndata: b\n\nid: e-2\ndata: cut", "id: e-5\n: heartbeat\n\n", "id: bad\x01id\ndata: c\n\n", "id: " + strings.Repeat("x", MaxID+1) + "\ndata: d\n\n", "data: e\n\n"}
		n.answer = func(i int, r *http.Request) (*http.Response, error) {
			if i > len(bodies) {
				cancel()
				return nil, ctx.Err()
			}
			if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Authorization") != "Bearer x" || r.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("headers %v", r.Header)
			}
			return text200(bodies[i-1]), nil
		}
		c := client(t, n, func(_ context.Context, e Event) error { got = append(got, e.ID+" "+string(e.Data)); return nil },
			&Options{LastID: "e-0", Header: http.Header{"Authorization": {"Bearer x"}}})
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"e-0", "e-1", "e-5", "e-5", "e-5", "e-5"}, n.lastID); diff != "" {
			t.Errorf("resumed after (-want +got):\n%s", diff)
		}
		if len(got) != 5 || got[1] != "e-1 b" || got[4] != "e-5 e" || c.LastID() != "e-5" {
			t.Errorf("events %.40q, last %q", got, c.LastID())
		}
	})
}

// F-23: three heartbeats of silence mean dead, also before the answer; a handler
// that takes its time is no silence.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost []string
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := &network{answer: func(i int, r *http.Request) (*http.Response, error) {
			if i == 1 {
				return stream200(silent(r, ": hi\n\ndata: x\n\n")), nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		begun := time.Now()
		slow := func(context.Context, Event) error { time.Sleep(5 * time.Minute); return nil }
		c := client(t, n, slow, &Options{Lost: func(err error, _ time.Duration) {
			var silence *SilenceError
			if !errors.As(err, &silence) || silence.For != DefaultSilence {
				t.Errorf("lost for %v", err)
			}
			lost = append(lost, time.Since(begun).String())
			if len(lost) == 2 {
				cancel()
			}
		}})
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"5m45s", "6m31s"}, lost); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// F-23: what waiting cannot help ends the client, with an error to branch on.
func TestFinalAnswers(t *testing.T) {
	t.Parallel()
	status := func(code int) func(error) bool {
		return func(err error) bool { var s *StatusError; return errors.As(err, &s) && s.Code == code }
	}
	sentinel := errors.New("handler")
	for name, tt := range map[string]struct {
		answer func() *http.Response
		want   func(error) bool
	}{
		"204": {func() *http.Response { return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody} }, status(204)},
		"401": {func() *http.Response { return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody} }, status(401)},
		"400 with a reason": {func() *http.Response {
			return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"text/plain"}}, ContentLength: 9, Body: io.NopCloser(strings.NewReader("bad\x1b[1m id"))}
		}, func(err error) bool { return strings.HasSuffix(err.Error(), "400 Bad Request: bad [1m id") }},
		"a page": {func() *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: http.NoBody}
		}, func(err error) bool { var c *ContentTypeError; return errors.As(err, &c) }},
		"endless line": {func() *http.Response {
			return stream200(io.NopCloser(io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeros{}, 100<<20))))
		}, func(err error) bool { return errors.Is(err, ErrTooLarge) }},
		"handler": {func() *http.Response { return text200("id: 7\ndata: x\n\n") }, func(err error) bool {
			var h *HandlerError
			return errors.As(err, &h) && h.ID == "7" && errors.Is(err, sentinel)
		}},
	} {
		n := &network{answer: func(int, *http.Request) (*http.Response, error) { return tt.answer(), nil }}
		c := client(t, n, func(context.Context, Event) error { return sentinel }, &Options{MaxEvent: 1 << 20})
		if err := c.Run(t.Context()); !tt.want(err) || len(n.at) != 1 || c.LastID() != "" {
			t.Errorf("%s: %v after %d connections, last id %q", name, err, len(n.at), c.LastID())
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'z'
	}
	return len(p), nil
}

// F-23: a busy server says when to come again, within limits.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		values := []string{"120", "99999999999999999999", "-5", time.Now().Add(2*time.Minute + 421*time.Second).UTC().Format(http.TimeFormat), "x"}
		n := &network{answer: func(i int, _ *http.Request) (*http.Response, error) {
			if i > len(values) {
				cancel()
				return nil, ctx.Err()
			}
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {values[i-1]}}, Body: http.NoBody}, nil
		}}
		if err := client(t, n, nil, &Options{}).Run(ctx); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 120, 420, 424, 541, 557}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, n.at); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// F-23: over a real connection.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		frame, _ := Append(nil, Event{ID: "e-2", Data: []byte("after " + r.Header.Get("Last-Event-ID"))})
		_, _ = w.Write(frame)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got bytes.Buffer
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := NewClient(server.URL, func(_ context.Context, e Event) error { fmt.Fprintf(&got, "%s", e.Data); cancel(); return nil },
		&Options{LastID: "e-1", HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil || got.String() != "after e-1" {
		t.Errorf("got %q, %v", got.String(), err)
	}
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for address, id := range map[string]string{"ftp://x/": "", "http://": "", ":": "", "http://x/": "a\nb"} {
		if _, err := NewClient(address, nil, &Options{LastID: id}); err == nil {
			t.Errorf("%q, %q: no error", address, id)
		}
	}
}

// The consumer of a feed prints what it gets.
func ExampleNewClient() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 7\nevent: incident.updated\ndata: {\"id\":\"INC-2231\"}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // an example has no t
	defer stop()
	c, err := NewClient(server.URL, func(_ context.Context, e Event) error {
		fmt.Println(e.ID, e.Type, string(e.Data))
		stop()
		return nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	// Output: 7 incident.updated {"id":"INC-2231"}
}
