package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mockagent"
	"github.com/ossicle/ossicle/internal/version"
)

// Environment variables by which this test program plays another: an agent with
// these modes, or an MCP server on its standard streams.
const (
	envPlayAgent  = "OSSICLE_TEST_AGENT"
	envPlayServer = "OSSICLE_TEST_SERVER"
	envPlayStderr = "OSSICLE_TEST_STDERR" // what either writes to standard error
)

// role is what this process plays if it is no test.
func role() (play func() int, ok bool) {
	ctx := context.Background()
	code := func(err error) int {
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	switch {
	case len(os.Args) > 1 && os.Args[1] == "bridge":
		return func() int { return code(Bridge(ctx, os.Getenv(EnvBridge), os.Stdin, os.Stdout)) }, true
	case len(os.Args) > 1 && os.Args[1] == "shim":
		return func() int { return code(playShim(ctx, os.Args[2:])) }, true
	case os.Getenv(envPlayServer) != "":
		return func() int { return code(playServer(ctx, os.Getenv(envPlayServer))) }, true
	case os.Getenv(envPlayAgent) != "":
		return func() int { return code(playAgent(ctx, os.Getenv(envPlayAgent))) }, true
	}
	return nil, false
}

// playShim takes the arguments that a session gives to ossicle shim.
func playShim(ctx context.Context, args []string) error {
	o := ShimOptions{To: os.Getenv(EnvShim)}
	for len(args) > 1 && args[0] != "--" {
		switch args[0] {
		case "--name":
			o.Name = args[1]
		case "--dir":
			o.Dir = args[1]
		}
		args = args[2:]
	}
	return ShimStdio(ctx, args[1:], os.Stdin, os.Stdout, os.Stderr, o)
}

func playAgent(ctx context.Context, modes string) error {
	_, _ = fmt.Fprintln(os.Stderr, os.Getenv(envPlayStderr))
	o, err := mockagent.ParseModes(strings.Split(modes, ","))
	if err != nil {
		return err
	}
	return mockagent.Run(ctx, os.Stdin, os.Stdout, os.Stderr, o)
}

// playServer is a server with two tools, or one that misbehaves.
func playServer(ctx context.Context, how string) error {
	_, _ = fmt.Fprintln(os.Stderr, os.Getenv(envPlayStderr))
	switch how {
	case "exits":
		return errors.New("no database at postgres://me:hunter2@db/x")
	case "hangs":
		<-ctx.Done()
	case "noise":
		for range 20 {
			fmt.Println("this is a log line")
		}
	}
	return thirdParty().Run(ctx, &mcp.StdioTransport{})
}

// thirdParty is a server of somebody else.
func thirdParty() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "third party"}, nil)
	type args struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "say_third"}, func(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said " + a.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fail_third"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("cannot")
	})
	return s
}

// self is this program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// reporting are Agents that know how to start bridges and relays.
func reporting(t *testing.T, dir string, log *slog.Logger) *Agents {
	t.Helper()
	c := config.Default()
	c.Home, c.Watch.Quiet = dir, time.Millisecond
	a, err := NewAgents(t.Context(), c, &AgentsOptions{Bridge: []string{self(t), "bridge"}, Shim: []string{self(t), "shim"}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAgents(t, a) })
	return a
}

func closeAgents(t *testing.T, a *Agents) {
	t.Helper()
	if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// mockSpec is a session of the mock agent.
func mockSpec(t *testing.T, id, modes string) AgentSpec {
	t.Helper()
	return AgentSpec{ID: id, Profile: agent.Profile{
		Name: "mock", Command: []string{self(t)}, Dir: t.TempDir(), Env: []string{envPlayAgent + "=" + modes}, Policy: agent.PolicyAllow,
	}}
}

func start(t *testing.T, a *Agents, spec AgentSpec) *Agent {
	t.Helper()
	one, err := a.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// say has a session take a turn, and returns its reply.
func say(t *testing.T, one *Agent, text string) (string, error) {
	t.Helper()
	ticket, err := one.Session.Submit(agent.Input{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := ticket.Wait(ctx)
	return res.Text, err
}

func mustSay(t *testing.T, one *Agent, text string) string {
	t.Helper()
	reply, err := say(t, one, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return reply
}

// awaitReport waits until a report is as it should be, and returns its current
// attempt.
func awaitReport(t *testing.T, a *Agents, session, what string, right func(evidence.Attempt) bool) evidence.Attempt {
	t.Helper()
	changed := make(chan struct{}, 1)
	stop := a.OnReport(func(c ReportChange) {
		if c.SessionID == session {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r, err := a.Report(t.Context(), session)
		if err == nil && right(*r.CurrentAttempt()) {
			return *r.CurrentAttempt()
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("no %s: %v, %+v", what, err, r.CurrentAttempt())
		}
	}
}

func report(t *testing.T, a *Agents, session string) evidence.Report {
	t.Helper()
	r, err := a.Report(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// is reports whether a row has a status.
func is(server string, want evidence.Status) func(evidence.Attempt) bool {
	return func(a evidence.Attempt) bool { s := a.Server(server); return s != nil && s.Status == want }
}

var builtin = version.Name

// serveThird serves a server of somebody else over HTTP, by the transport that is
// asked for, and notes what comes.
type thirdServer struct {
	*httptest.Server

	mu      sync.Mutex
	headers []http.Header
	paths   []string
}

func serveThird(t *testing.T, sse bool) *thirdServer {
	t.Helper()
	server := thirdParty()
	get := func(*http.Request) *mcp.Server { return server }
	var h http.Handler = mcp.NewStreamableHTTPHandler(get, nil)
	if sse {
		h = mcp.NewSSEHandler(get, nil)
	}
	s := &thirdServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.headers, s.paths = append(s.headers, r.Header.Clone()), append(s.paths, r.URL.RequestURI())
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// dialLegacy connects as an agent of the era with connections does.
func dialLegacy(t *testing.T, url string) *mcp.ClientSession {
	t.Helper()
	return dial(t, &mcp.StreamableClientTransport{Endpoint: url}, "2025-11-25")
}
