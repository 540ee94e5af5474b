//nolint:staticcheck // The scenarios ask for sampling, roots and logging, which are deprecated.
package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs the fixture and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	server, reg, err := newServer(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpserver.New(server, &httpserver.Options{Addr: "127.0.0.1:0", NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // a cleanup ends it
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		reg.Close()
	})
	return h.URL()
}

// client connects with a revision, and can give everything that is asked for.
func client(t *testing.T, url, version string) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "Paris"}}, nil
		},
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann", "color": "red", "ok": true, "context": "c", "username": "ann", "email": "a@example"}}, nil
		},
	})
	c.AddRoots(&mcp.Root{URI: "file:///root"})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: transport}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

// M-10: one handler asks the client in the way of its era.
func TestInputIsAskedForInBothEras(t *testing.T) {
	t.Parallel()
	url := serve(t)
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		cs := client(t, url, version)
		for tool, want := range map[string]string{
			"test_sampling": "LLM response: Paris", "test_elicitation": "action=accept",
			"test_input_required_result_elicitation": "Hello, Ann!", "test_input_required_result_sampling": "Paris",
			"test_input_required_result_list_roots": "file:///root", "test_input_required_result_request_state": "state-ok",
			"test_input_required_result_multiple_inputs": "Paris Ann, with 1 roots",
			"test_input_required_result_capabilities":    "client_roots, greeting, user_name",
		} {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"prompt": "p", "message": "m"}})
			if err != nil || len(res.Content) != 1 || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, want) {
				t.Errorf("%s %s: %+v, %v, want %q", version, tool, res, err, want)
			}
		}
	}
	// Legacy clients are asked once at the most.
	res, err := client(t, url, "2026-07-28").CallTool(t.Context(), &mcp.CallToolParams{Name: "test_input_required_result_multi_round"})
	if err != nil || res.Content[0].(*mcp.TextContent).Text != "Ann likes red" {
		t.Errorf("two rounds: %+v, %v", res, err)
	}
}

func TestStatesCannotBeChanged(t *testing.T) {
	t.Parallel()
	s := newSealer()
	open := func(tool, state string) (string, error) {
		return s.open(&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool, RequestState: state}})
	}
	sealed := s.seal("a", "2:Ann")
	if got, err := open("a", sealed); got != "2:Ann" || err != nil {
		t.Errorf("open = %q, %v", got, err)
	}
	for _, bad := range [][2]string{{"b", sealed}, {"a", sealed + "x"}, {"a", "x" + sealed}, {"a", "x"}, {"a", "."}, {"a", newSealer().seal("a", "2:Ann")}} {
		var wire *jsonrpc.Error
		if got, err := open(bad[0], bad[1]); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("open(%q) = %q, %v", bad, got, err)
		}
	}
}

func TestRunPrintsItsURL(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var out syncBuffer
	out.written = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- run(ctx, "127.0.0.1:0", false, &out) }()
	select {
	case <-out.written:
	case <-time.After(10 * time.Second):
		t.Error("nothing was printed")
	}
	cancel()
	if err := <-done; err != nil || !strings.HasPrefix(out.b.String(), "http://127.0.0.1:") || !strings.HasSuffix(out.b.String(), "/mcp\n") {
		t.Errorf("run = %v, printed %q", err, out.b.String())
	}
	if err := run(t.Context(), "0.0.0.0:0", false, &out); err == nil {
		t.Error("it serves everybody")
	}
}

type syncBuffer struct {
	b       bytes.Buffer
	written chan struct{}
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	n, err := s.b.Write(p)
	close(s.written)
	return n, err
}
