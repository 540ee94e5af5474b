package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

// hang is longer than anything takes that does not hang, on a machine that is busy;
// it is less than the limits of quick.
const hang = 15 * time.Second

// quick are options with short pauses.
func quick() *Options {
	return &Options{
		ProbeTimeout: 20 * time.Second, HTTPProbeTimeout: 20 * time.Second,
		ConnectTimeout: 30 * time.Second, StopGrace: 300 * time.Millisecond, RequestTimeout: 5 * time.Minute,
		RestartBudget: 100, Listen: listen.ClientOptions{Backoff: 10 * time.Millisecond},
	}
}

// stdioSpec is this test binary as a server of those words.
func stdioSpec(words string) Spec {
	return Spec{Name: "srv", Command: os.Args[0], Env: map[string]string{fakeEnv: words}}
}

func newTestPool(t *testing.T, o *Options, spec Spec) *Server {
	t.Helper()
	p, err := NewPool([]Spec{spec}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Server("srv")
}

func stdioServer(t *testing.T, words string) *Server {
	t.Helper()
	return newTestPool(t, quick(), stdioSpec(words))
}

// httpServer serves a fake over HTTP.
func httpServer(t *testing.T, words string, o *Options) (*Server, *fake, *httptest.Server) {
	t.Helper()
	f := newFake(words)
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	s := newTestPool(t, o, Spec{Name: "srv", URL: srv.URL + "/mcp"})
	return s, f, srv
}

// everywhere runs a test over both transports.
func everywhere(t *testing.T, words string, f func(t *testing.T, s *Server)) {
	t.Run("stdio", func(t *testing.T) { t.Parallel(); f(t, stdioServer(t, words)) })
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		s, _, _ := httpServer(t, words, quick())
		f(t, s)
	})
	t.Run("http sse", func(t *testing.T) {
		t.Parallel()
		s, _, _ := httpServer(t, words+" sse", quick())
		f(t, s)
	})
}

func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func readText(t *testing.T, s *Server, uri string) string {
	t.Helper()
	b, err := s.Read(ctxOf(t), uri, nil)
	if err != nil {
		t.Errorf("read %s: %v", uri, err)
	}
	return b.Text
}

// M-11, M-12: what a modern server offers.
func TestServerModern(t *testing.T) {
	t.Parallel()
	everywhere(t, "", func(t *testing.T, s *Server) {
		info, err := s.Info(ctxOf(t))
		if diff := cmp.Diff(watch.ServerInfo{ProtocolVersion: "2026-07-28", Subscribable: true, Listens: true}, info); err != nil || diff != "" {
			t.Errorf("info: %v (-want +got):\n%s", err, diff)
		}
		entries, err := s.Entries(ctxOf(t))
		want := []watch.Entry{
			{URI: "a:/1", Name: "one", MIMEType: "application/json", Description: "d"},
			{URI: "s:/1", Name: "s", Static: true},
			{URI: "a:/{x}", Name: "t", Template: true},
		}
		if diff := cmp.Diff(want, entries); err != nil || diff != "" {
			t.Errorf("entries: %v (-want +got):\n%s", err, diff)
		}
		tools, err := s.Tools(ctxOf(t))
		wantTools := []watch.Tool{
			{Name: "touch", Description: "d", ReadOnly: true, Parameters: json.RawMessage(`{"type":"object","maximum":9007199254740993}`)},
			{Name: "other", Parameters: json.RawMessage(`{"type":"object"}`)},
			{Name: "third", Parameters: json.RawMessage(`{"type":"object"}`)},
		}
		if diff := cmp.Diff(wantTools, tools); err != nil || diff != "" {
			t.Errorf("tools: %v (-want +got):\n%s", err, diff)
		}
		for uri, want := range map[string]string{
			"t:/exact": `{"id":1915883588174806058}`, // B-051
			"t:/blob":  "hi", "t:/many": `[{"uri":"t:/1","text":"a"},{"uri":"t:/2","blob":"/w=="}]`,
			"t:/case": "yes", "t:/bytes": "a\uFFFDb", // M-16
		} {
			if got := readText(t, s, uri); got != want {
				t.Errorf("read %s = %q, want %q", uri, got, want)
			}
		}
		after := int64(1915883588174806058)
		if b, err := s.Read(ctxOf(t), "t:/after", &after); err != nil || !strings.HasPrefix(b.Text, "1.9158835") { // the fake rounds
			t.Errorf("after: %v, %v", b, err)
		}
		if _, err := s.Read(ctxOf(t), "t:/none", nil); err == nil || !strings.Contains(err.Error(), "resource not found") {
			t.Errorf("missing resource: %v", err)
		}
	})
}

// B-051: arguments and results of tools are exact.
func TestServerCallTool(t *testing.T) {
	t.Parallel()
	everywhere(t, "", func(t *testing.T, s *Server) {
		for _, tt := range []struct{ name, args, want string }{
			{"echo", `{"id":1915883588174806058,"f":1.0,"e":1E400,"s":"<&>"}`, `{"id":1915883588174806058,"f":1.0,"e":1E400,"s":"<&>"}`},
			{"texts", ``, `[{"id":1915883588174806058},"plain"]`},
			{"json", `null`, ` [1.0, 1915883588174806058]`},
			{"nothing", `{}`, `null`},
			{"touch", `{}`, `"touched"`},
		} {
			got, err := s.CallTool(ctxOf(t), tt.name, json.RawMessage(tt.args))
			if err != nil || string(got) != tt.want {
				t.Errorf("%s = %s, %v; want %s", tt.name, got, err, tt.want)
			}
		}
		var failed *ToolError
		if _, err := s.CallTool(ctxOf(t), "broken", nil); !errors.As(err, &failed) || failed.Text != "disk full" {
			t.Errorf("broken tool: %v", err)
		}
		if _, err := s.CallTool(ctxOf(t), "unheard-of", nil); err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("unknown tool: %v", err)
		}
		for _, args := range []string{`[]`, `"x"`, `{"a":1,"a":2}`, `{`} {
			if _, err := s.CallTool(ctxOf(t), "echo", json.RawMessage(args)); err == nil {
				t.Errorf("arguments %s were accepted", args)
			}
		}
	})
}

// C9: nothing is served from a cache, though the fake says ttlMs 60000.
func TestServerNoCache(t *testing.T) {
	t.Parallel()
	everywhere(t, "", func(t *testing.T, s *Server) {
		if a, b := readText(t, s, "t:/count"), readText(t, s, "t:/count"); a != "1" || b != "2" {
			t.Errorf("two reads saw %s and %s", a, b)
		}
	})
}

// M-16: a bad message fails its own call and no other.
func TestServerBadMessages(t *testing.T) {
	t.Parallel()
	everywhere(t, "", func(t *testing.T, s *Server) {
		if n := len(readText(t, s, "t:/large")); n != maxFrame-1000 {
			t.Errorf("a message just under the limit has %d bytes", n)
		}
		for _, uri := range []string{"t:/huge", "t:/duplicates"} {
			_, err := s.Read(ctxOf(t), uri, nil)
			var bad *FrameError
			if !errors.As(err, &bad) { // and not the time limit
				t.Errorf("%s: %v", uri, err)
			}
		}
		first, _ := s.session(ctxOf(t))
		if got := readText(t, s, "a:/1"); got != "value of a:/1" {
			t.Errorf("afterwards: %q", got)
		}
		if again, _ := s.session(ctxOf(t)); again != first {
			t.Error("the connection did not survive")
		}
		if _, err := s.Read(ctxOf(t), "t:/input", nil); err == nil || !strings.Contains(err.Error(), "input") {
			t.Errorf("a result that asks for input: %v", err)
		}
	})
}

// M-16: lists without an end have one.
func TestServerEndlessLists(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		words          string
		pages, entries int
	}{{"endless", maxPages, maxPages}, {"same-cursor", 2, 0}, {"crowd", 2, 12000}} {
		t.Run(tt.words, func(t *testing.T) {
			t.Parallel()
			s := stdioServer(t, tt.words)
			_, err := s.Tools(ctxOf(t))
			var endless *EndlessError
			if !errors.As(err, &endless) || endless.Pages != tt.pages || endless.Entries != tt.entries {
				t.Errorf("error %v", err)
			}
		})
	}
	s := stdioServer(t, "no-templates")
	if entries, err := s.Entries(ctxOf(t)); err != nil || len(entries) != 2 {
		t.Errorf("without templates: %v, %v", entries, err)
	}
}

// B-096: log lines between the frames are counted and shown; a server that
// writes nothing else is given up.
func TestServerNoise(t *testing.T) {
	t.Parallel()
	s := stdioServer(t, "noise")
	for range 5 {
		readText(t, s, "a:/1")
	}
	sess, err := s.session(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	total, lines := sess.noise.snapshot()
	if total != 18 || len(lines) != maxNoiseRow || lines[0] != "Server is running..." && lines[0] != "[debug] x" && !strings.HasPrefix(lines[0], `{"level"`) {
		t.Errorf("%d lines of noise, last %q", total, lines)
	}
	bad := stdioServer(t, "banner")
	_, err = bad.Info(ctxOf(t))
	var noise *NoiseError
	if !errors.As(err, &noise) || len(noise.Lines) != maxNoiseRow || !strings.Contains(err.Error(), "banner line 9") {
		t.Errorf("banner: %v", err)
	}
}

// B-032: a server that dies again and again is not started for ever, and its
// last words are shown.
func TestServerRestartBudget(t *testing.T) {
	t.Parallel()
	o := quick()
	o.RestartBudget, o.RestartWindow = 2, time.Hour
	s := newTestPool(t, o, stdioSpec("dies-at-once"))
	for i := range 5 {
		_, err := s.Info(ctxOf(t))
		var budget *RestartError
		if errors.As(err, &budget) != (i >= 3) {
			t.Errorf("start %d: %v", i, err)
		}
		if !strings.Contains(err.Error(), "cannot open the database") {
			t.Errorf("start %d does not show what the server said: %v", i, err)
		}
	}
}

// A program that is not there is a server that cannot be reached.
func TestServerProgramMissing(t *testing.T) {
	t.Parallel()
	s := newTestPool(t, quick(), Spec{Name: "srv", Command: "no-such-program-here"})
	_, err := s.Info(ctxOf(t))
	var failed *ConnectError
	if !errors.As(err, &failed) || failed.Server != "srv" || !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error: %v", err)
	}
}

// A connection that broke is made again by the next call, and a read that it cut
// short is repeated once.
func TestServerReconnects(t *testing.T) {
	t.Parallel()
	s := stdioServer(t, "")
	_, err := s.Read(ctxOf(t), "t:/dies", nil)
	var lost *LostError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "out of memory") || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("a server that dies: %v", err)
	}
	s.mu.Lock()
	starts := len(s.starts)
	s.mu.Unlock()
	if starts != 2 {
		t.Errorf("%d starts for a read that kills the server", starts)
	}
	if got := readText(t, s, "a:/1"); got != "value of a:/1" {
		t.Errorf("afterwards %q", got)
	}
	if _, err := s.CallTool(ctxOf(t), "die", nil); !errors.As(err, &lost) {
		t.Errorf("a tool that kills the server: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.starts) != 3 {
		t.Errorf("the call was repeated: %d starts", len(s.starts))
	}
}

// Calls at the same time share one attempt, and giving up is a caller's own.
func TestServerSharesConnection(t *testing.T) {
	t.Parallel()
	f, answer := newFake(""), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-answer
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL})
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	errs := make(chan error, 51)
	go func() { _, err := s.Info(short); errs <- err }()
	for range 50 {
		go func() { _, err := s.Info(ctxOf(t)); errs <- err }()
	}
	if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before there was an answer: %v", err)
	}
	close(answer)
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := f.count(methodDiscover); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// M-17: Close is bounded whatever the child does, and ends calls under way.
func TestPoolClose(t *testing.T) {
	t.Parallel()
	p, err := NewPool([]Spec{stdioSpec("stubborn")}, quick())
	if err != nil {
		t.Fatal(err)
	}
	s := p.Server("srv")
	sess, err := s.session(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	hung := make(chan error, 1)
	go func() { _, err := s.Read(ctxOf(t), "t:/hang", nil); hung <- err }()
	start := time.Now()
	p.Close()
	if took := time.Since(start); took > hang {
		t.Errorf("Close took %v", took)
	}
	if err := <-hung; err == nil {
		t.Error("a call outlived the pool")
	}
	select {
	case <-sess.proc.Done():
	default:
		t.Error("the child lives")
	}
	if _, err := s.Info(ctxOf(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	p.Close()
}

// A call that hangs over HTTP ends with the pool.
func TestPoolCloseHTTP(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(newFake(""))
	defer srv.Close()
	p, err := NewPool([]Spec{{Name: "srv", URL: srv.URL}}, quick())
	if err != nil {
		t.Fatal(err)
	}
	s := p.Server("srv")
	readText(t, s, "a:/1")
	hung := make(chan error, 1)
	go func() { _, err := s.Read(ctxOf(t), "t:/hang", nil); hung <- err }()
	for ctx := ctxOf(t); s.underWay(ctx, t) == 0; {
		runtime.Gosched()
	}
	start := time.Now()
	p.Close()
	if took := time.Since(start); took > hang {
		t.Errorf("Close took %v", took)
	}
	if err := <-hung; err == nil {
		t.Error("a call outlived the pool")
	}
}

// underWay counts the calls on the connection.
func (s *Server) underWay(ctx context.Context, t *testing.T) int {
	t.Helper()
	sess, err := s.session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return len(sess.calls)
}

func TestNewPoolErrors(t *testing.T) {
	t.Parallel()
	if _, err := NewPool([]Spec{stdioSpec(""), stdioSpec("")}, nil); err == nil {
		t.Error("two servers of one name were accepted")
	}
	if _, err := NewPool([]Spec{{Name: "x"}}, nil); err == nil {
		t.Error("a server of nothing was accepted")
	}
	p, err := NewPool([]Spec{{Name: "b", Command: "/does/not/exist"}, {Name: "a", Command: "x"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if names := fmt.Sprint(p.Servers()[0].Name(), p.Servers()[1].Name()); names != "ba" {
		t.Errorf("order %s", names)
	}
	if _, err := p.Server("b").Info(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}
