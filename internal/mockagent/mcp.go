package mockagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/version"
)

// legacyVersion is the newest MCP version that begins with initialize.
const legacyVersion = "2025-11-25"

// entry is an MCP server as session/new has it.
type entry struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Headers []pair   `json:"headers"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []pair   `json:"env"`
}

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// check refuses what strict agents refuse: missing or null lists, and
// transports that were not advertised.
func (e *entry) check(o Options) error {
	switch {
	case e == nil || e.Name == "":
		return errors.New("mcpServers: entry without a name")
	case e.Type == "" && (e.Args == nil || e.Env == nil || e.Command == ""):
		return fmt.Errorf("mcpServers: %s: command, args and env are required", e.Name)
	case e.Type != "" && (e.Headers == nil || e.URL == ""):
		return fmt.Errorf("mcpServers: %s: url and headers are required", e.Name)
	case e.Type == "http" && o.NoHTTP, e.Type == "sse" && o.NoSSE:
		return fmt.Errorf("mcpServers: %s: %s is not supported", e.Name, e.Type)
	case e.Type != "" && e.Type != "http" && e.Type != "sse":
		return fmt.Errorf("mcpServers: %s: unknown type %s", e.Name, e.Type)
	}
	return nil
}

// server is a connection to one MCP server.
type server struct {
	entry
	era Era

	mu      sync.Mutex
	session *mcp.ClientSession
	tools   []string
}

// connect attaches, once.
func (s *server) connect(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		return nil
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "mock-agent", Version: version.Number()}, nil)
	o := &mcp.ClientSessionOptions{}
	if s.era == Legacy {
		o.ProtocolVersion = legacyVersion
	}
	// The session outlives the request that made it.
	session, err := c.Connect(context.WithoutCancel(ctx), s.transport(), o)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	var names []string
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			_ = session.Close()
			return fmt.Errorf("list tools: %w", err)
		}
		names = append(names, tool.Name)
	}
	s.session, s.tools = session, names
	return nil
}

func (s *server) transport() mcp.Transport {
	client := &http.Client{Transport: headerTransport{base: http.DefaultTransport, headers: s.Headers}}
	switch s.Type {
	case "http":
		return &mcp.StreamableClientTransport{Endpoint: s.URL, HTTPClient: client}
	case "sse":
		return &mcp.SSEClientTransport{Endpoint: s.URL, HTTPClient: client}
	default:
		cmd := exec.Command(s.Command, s.Args...) //nolint:noctx // ends with its session
		cmd.Env = os.Environ()
		for _, e := range s.Env {
			cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
		}
		return &mcp.CommandTransport{Command: cmd}
	}
}

// tool returns the full name of a tool that contains word.
func (s *server) tool(word string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.tools {
		if strings.Contains(name, word) {
			return name, true
		}
	}
	return "", false
}

func (s *server) call(ctx context.Context, tool, args string) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	return session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
}

func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		_ = s.session.Close()
	}
}

// headerTransport adds the entry's headers to every request.
type headerTransport struct {
	base    http.RoundTripper
	headers []pair
}

func (t headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(t.headers) > 0 {
		r = r.Clone(r.Context())
		for _, h := range t.headers {
			r.Header.Set(h.Name, h.Value)
		}
	}
	return t.base.RoundTrip(r)
}
