package acp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/mockagent"
)

// The test binary is also the agent and the stdio MCP server of its tests.
const (
	envAgent = "ACP_TEST_AGENT" // mock agent modes, comma-separated; "-" for none
	envMCP   = "ACP_TEST_MCP"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envAgent) != "":
		os.Exit(playAgent(os.Getenv(envAgent)))
	case os.Getenv(envMCP) != "":
		if err := mcpServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func playAgent(modes string) int {
	o, err := mockagent.ParseModes(strings.FieldsFunc(strings.Trim(modes, "-"), func(r rune) bool { return r == ',' }))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := mockagent.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, o); err != nil {
		return 3
	}
	return 0
}

// mock is an engine around the mock agent in a process of its own.
func mock(t *testing.T, modes string, o *Options) *Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = &Options{}
	}
	if modes == "" {
		modes = "-"
	}
	o.Env = append(os.Environ(), envAgent+"="+modes)
	e := New([]string{self}, o)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func begin(t *testing.T, e *Engine, so agent.StartOptions) (agent.Info, *events) {
	t.Helper()
	if so.Dir == "" {
		so.Dir = t.TempDir()
	}
	ev := newEvents()
	info, err := e.Start(t.Context(), so, ev.sink)
	if err != nil {
		t.Fatal(err)
	}
	return info, ev
}

func turnOf(t *testing.T, e *Engine, prompt string) agent.Outcome {
	t.Helper()
	out, err := e.Turn(t.Context(), user(prompt))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func user(text string) agent.Prompt {
	return agent.Prompt{Parts: []agent.Part{{Kind: agent.PartUser, Text: text}}}
}

// events collects what an engine emits.
type events struct {
	mu    sync.Mutex
	list  []agent.Event
	grown chan struct{}
}

func newEvents() *events { return &events{grown: make(chan struct{})} }

func (e *events) sink(ev agent.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
	close(e.grown)
	e.grown = make(chan struct{})
}

func (e *events) all() []agent.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]agent.Event(nil), e.list...)
}

// text is the reply so far.
func (e *events) text() string {
	var b strings.Builder
	for _, ev := range e.all() {
		if t, ok := ev.(agent.Text); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

const patience = 20 * time.Second

// await waits for an event that matches, also one of the past.
func await[E agent.Event](t *testing.T, e *events, match func(E) bool) E {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for at := 0; ; {
		e.mu.Lock()
		list, grown := e.list, e.grown
		e.mu.Unlock()
		for ; at < len(list); at++ {
			if ev, ok := list[at].(E); ok && match(ev) {
				return ev
			}
		}
		select {
		case <-grown:
		case <-deadline.C:
			t.Fatalf("no such event in %v; have %+v", patience, list)
		}
	}
}

func anyEvent[E agent.Event](E) bool { return true }

func mcpServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sentinel", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "sentinel_echo", Description: "Echo text back"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Text string `json:"text"`
	},
	) (*mcp.CallToolResult, any, error) {
		if in.Text == "fail" {
			return nil, nil, errors.New("it failed")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "echo:" + in.Text}}}, nil, nil
	})
	return s
}

// sentinel is an MCP server that notes the methods it is asked for.
type sentinel struct {
	*httptest.Server

	mu   sync.Mutex
	seen []string
}

// newSentinel serves both eras below /mcp and the old transport below /sse.
func newSentinel(t *testing.T) *sentinel {
	t.Helper()
	s := &sentinel{}
	server := mcpServer()
	get := func(*http.Request) *mcp.Server { return server }
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}))
	mux.Handle("/sse", mcp.NewSSEHandler(get, nil))
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			s.mu.Lock()
			s.seen = append(s.seen, method)
			s.mu.Unlock()
			return next(ctx, method, req)
		}
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *sentinel) methods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *sentinel) entry() agent.MCPServer {
	return agent.MCPServer{Name: "sentinel", HTTP: s.URL + "/mcp", SSE: s.URL + "/sse"}
}
