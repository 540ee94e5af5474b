package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/mcpclient"
)

// silent accepts and never answers, until the test ends.
func silent(t *testing.T) string {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(over); s.Close() })
	return s.URL
}

func answering(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(s.Close)
	return s.URL
}

// children counts the processes that this one has started, but for the guard of
// them, which ends with the last.
func children(t *testing.T, marker string) (n int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), marker) {
			n++
		}
	}
	return n
}

// A test of a server ends its client and its process whatever comes: a success, an
// error, a cancel, and the end of its time. What it finds is kept as
// reachability; the status stays what it was.
//
//
func TestEndpointTests(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	play := func(how string) mcpclient.Spec {
		// No more than the marker tells the processes of one test from another's.
		return mcpclient.Spec{Command: self(t), Env: map[string]string{envPlayServer: how, "OSSICLE_TEST_MARK": t.Name() + "/" + how}}
	}
	for name, tc := range map[string]struct {
		spec   mcpclient.Spec
		reason evidence.Reason
		says   string
	}{
		"http":             {spec: mcpclient.Spec{URL: serveThird(t, false).URL}},
		"sse":              {spec: mcpclient.Spec{URL: serveThird(t, true).URL, Transport: mcpclient.SSE}},
		"stdio":            {spec: play("healthy")},
		"refuses":          {mcpclient.Spec{URL: closed.URL + "/hunter2", Headers: map[string]string{"X-Key": "hunter2"}}, evidence.ReasonConnectRefused, "connection refused"},
		"wants a login":    {mcpclient.Spec{URL: answering(t, http.StatusUnauthorized)}, evidence.ReasonAuthRequired, "401"},
		"errs":             {mcpclient.Spec{URL: answering(t, http.StatusInternalServerError)}, evidence.ReasonHTTPStatus, "Internal Server Error"},
		"is no server":     {mcpclient.Spec{URL: serveText(t)}, evidence.ReasonProtocolError, ""},
		"hangs":            {mcpclient.Spec{URL: silent(t)}, evidence.ReasonTimeout, ""},
		"hangs on a pipe":  {play("hangs"), evidence.ReasonTimeout, ""},
		"exits":            {play("exits"), evidence.ReasonExited, "exit status 1"},
		"is noise":         {play("noise"), evidence.ReasonProtocolError, "no MCP"},
		"is not installed": {mcpclient.Spec{Command: "no-such-server"}, evidence.ReasonCommandNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := reporting(t, t.TempDir(), nil)
			tc.spec.Name, tc.spec.Attach = "m", mcpclient.ByAgent // nobody else connects to it here
			one := start(t, a, AgentSpec{ID: "a", Engine: agenttest.New().New, Servers: []mcpclient.Spec{tc.spec}})
			mustSay(t, one, "hello")
			if tc.reason == evidence.ReasonTimeout {
				a.reports.find("a").reachTime = 2 * time.Second
			}
			before := report(t, a, "a").CurrentAttempt().Server("m")
			began := time.Now()
			got, err := a.TestEndpoint(t.Context(), "a", "m")
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took >= reachTime && tc.reason == evidence.ReasonTimeout {
				t.Errorf("it took %v", took)
			}
			if got.Succeeded != (tc.reason == "") || got.Reason != tc.reason || !strings.Contains(got.Summary, tc.says) || strings.Contains(got.Summary, "hunter2") {
				t.Errorf("got %+v", got)
			}
			if got.Succeeded && (got.ToolCount == nil || *got.ToolCount != 2) {
				t.Errorf("tools %v", got.ToolCount)
			}
			after := report(t, a, "a").CurrentAttempt().Server("m")
			if after.EndpointTest == nil {
				t.Fatal("the report has no result")
			}
			if diff := cmp.Diff(got, *after.EndpointTest); diff != "" {
				t.Errorf("kept: %s", diff)
			}
			if after.Status != before.Status || after.Reason != before.Reason || after.ToolCount != before.ToolCount || !after.ConnectedAt.IsZero() {
				t.Errorf("the row was %+v, and is %+v", before, after)
			}
			if mark := tc.spec.Env["OSSICLE_TEST_MARK"]; mark != "" && children(t, mark) != 0 {
				t.Errorf("%d processes are left", children(t, mark))
			}
		})
	}
}

// Somebody who gives up on a test gets no result, nor does the report, and
// nothing of the test goes on; so it is at the end of the session.
//
//
func TestEndpointTestsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, cancel context.CancelFunc, one *Agent) error{
		"cancelled": func(_ *testing.T, cancel context.CancelFunc, _ *Agent) error { cancel(); return context.Canceled },
		"session ended": func(t *testing.T, _ context.CancelFunc, one *Agent) error {
			_ = one.Close(t.Context())
			return ErrNotLive
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := reporting(t, t.TempDir(), nil)
			mark := "mark of " + t.Name()
			one := start(t, a, AgentSpec{ID: "a", Engine: agenttest.New().New, Servers: []mcpclient.Spec{
				{Name: "m", Attach: mcpclient.ByAgent, Command: self(t), Env: map[string]string{envPlayServer: "hangs", "OSSICLE_TEST_MARK": mark}},
			}})
			mustSay(t, one, "hello")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tested := make(chan error, 1)
			go func() {
				_, err := a.TestEndpoint(ctx, "a", "m")
				tested <- err
			}()
			deadline := time.Now().Add(patience)
			for children(t, mark) == 0 { // only the process itself says that it runs
				if time.Now().After(deadline) {
					t.Fatal("no server was started")
				}
				time.Sleep(time.Millisecond)
			}
			if _, err := a.TestEndpoint(t.Context(), "a", "m"); !errors.Is(err, ErrTesting) {
				t.Errorf("a second test: %v", err)
			}
			began := time.Now()
			want := end(t, cancel, one)
			if err := <-tested; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if took := time.Since(began); took >= reachTime {
				t.Errorf("it took %v", took)
			}
			if n := children(t, mark); n != 0 {
				t.Errorf("%d processes are left", n)
			}
			if s := report(t, a, "a").CurrentAttempt().Server("m"); s.EndpointTest != nil {
				t.Errorf("kept %+v", s.EndpointTest)
			}
		})
	}
}

// Our own endpoint is tested as an agent would reach it, and that is no evidence
// about the agent, nor lets its first turn begin.
//
//
func TestEndpointTestOfOurOwn(t *testing.T) {
	t.Parallel()
	a := reporting(t, t.TempDir(), nil)
	one := start(t, a, AgentSpec{ID: "a", Engine: agenttest.New().New})
	for name, want := range map[string]error{builtin: ErrNotAttached, "other": ErrNoServer, "": ErrNoServer} {
		if _, err := a.TestEndpoint(t.Context(), "a", name); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := a.TestEndpoint(t.Context(), "b", builtin); !errors.Is(err, ErrNotLive) {
		t.Errorf("a session that does not run: %v", err)
	}
	mustSay(t, one, "hello")
	got, err := a.TestEndpoint(t.Context(), "a", builtin)
	if err != nil || !got.Succeeded || *got.ToolCount != len(one.tools(t.Context())) {
		t.Errorf("got %+v, %v", got, err)
	}
	if s := report(t, a, "a").CurrentAttempt().Server(builtin); s.Status == evidence.Active || !s.ConnectedAt.IsZero() || s.ToolCount != nil || s.EndpointTest == nil {
		t.Errorf("row %+v", s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.endpoint.AwaitListed(ctx, "a"); err == nil {
		t.Error("the agent is said to have listed the tools")
	}
	a.endpoint.mu.Lock()
	defer a.endpoint.mu.Unlock()
	if len(a.endpoint.probes) != 0 {
		t.Errorf("%d ways in of tests are left", len(a.endpoint.probes))
	}
}

// The end of what an agent wrote to standard error is shown within bounds, as
// text, and said not to be live when the agent has ended.
//
//
func TestRecentOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := reporting(t, dir, nil)
	if got := a.RecentOutput("a"); got.Live || got.Lines == nil || len(got.Lines) != 0 {
		t.Errorf("of no session: %+v", got)
	}
	spec := mockSpec(t, "a", "eager")
	spec.Profile.Env = append(spec.Profile.Env, "OSSICLE_TEST_STDERR=\x1b[31mstarting\x1b]0;title\x07 up\r")
	one := start(t, a, spec)
	if got := a.RecentOutput("a"); got.Live || len(got.Lines) != 0 {
		t.Errorf("before its start: %+v", got)
	}
	mustSay(t, one, "hello")
	// It is read beside what the agent answers.
	for deadline := time.Now().Add(patience); len(a.RecentOutput("a").Lines) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if got := a.RecentOutput("a"); !got.Live || len(got.Lines) == 0 || got.Lines[0] != "starting up" || got.Truncated {
		t.Errorf("got %+v", got)
	}
	if _, err := say(t, one, "DIE"); err == nil {
		t.Fatal("it did not die")
	}
	if got := a.RecentOutput("a"); got.Live || len(got.Lines) < 2 {
		t.Errorf("after its death: %+v", got)
	}
	other := start(t, a, AgentSpec{ID: "b", Engine: agenttest.New().New})
	mustSay(t, other, "hello")
	if got := a.RecentOutput("b"); got.Live || len(got.Lines) != 0 {
		t.Errorf("of an agent that has none: %+v", got)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.RecentOutput("a"); got.Live || len(got.Lines) != 0 {
		t.Errorf("after its end: %+v", got)
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 80 {
		fmt.Fprintf(&many, "line %d\n", i)
	}
	long := strings.Repeat("é", outputBytes)
	for name, tc := range map[string]struct {
		text        string
		n           int
		first, last string
		cut         bool
	}{
		"nothing":    {"", 0, "", "", false},
		"one":        {"one\n", 1, "one", "one", false},
		"empty ones": {"a\n\nb\n\n", 3, "a", "b", false},
		"many":       {many.String(), outputLines, "line 30", "line 79", true},
		"colours":    {"\x1b[1;31mred\x1b[0m\n\x1b]0;title\x07say\x1b7\n", 2, "red", "say", false},
		"one long":   {long, 1, long[:outputBytes], long[:outputBytes], true},
		"long ones":  {strings.Repeat(strings.Repeat("x", 999)+"\n", 30), 16, strings.Repeat("x", 999), strings.Repeat("x", 999), true},
	} {
		lines, cut := lastLines(tc.text)
		if len(lines) != tc.n || cut != tc.cut || tc.n > 0 && (lines[0] != tc.first || lines[tc.n-1] != tc.last) {
			t.Errorf("%s: %d lines, cut %t, from %.20q to %.20q", name, len(lines), cut, lines[0], lines[len(lines)-1])
		}
		if size := len(strings.Join(lines, "\n")); size > outputBytes {
			t.Errorf("%s: %d bytes", name, size)
		}
	}
}

var _ agent.Engine = (*reported)(nil)
