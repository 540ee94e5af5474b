package mcpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkServer is a server on the official SDK with one resource and a tool that
// changes it.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		Capabilities:       &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{Subscribe: true}, Tools: &mcp.ToolCapabilities{}},
	})
	s.AddResource(&mcp.Resource{URI: "a:/1", Name: "one"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "value of " + r.Params.URI}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "touch", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct{ URI string }
		_ = json.Unmarshal(r.Params.Arguments, &args)
		return &mcp.CallToolResult{}, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: args.URI})
	})
	return s
}

// C8, M-11: over each transport of the SDK's servers, tools, reads and watches
// work, those of the legacy era by opt-in.
func TestSDKServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		transport Transport
		version   string
	}{
		{"Streamable HTTP, modern", HTTP, "2026-07-28"},
		{"Streamable HTTP, with sessions", HTTP, "2025-11-25"},
		{"HTTP+SSE", SSE, "2025-11-25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			one := sdkServer()
			var h http.Handler
			get := func(*http.Request) *mcp.Server { return one }
			switch tt.transport {
			case SSE:
				h = mcp.NewSSEHandler(get, nil)
			default:
				h = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: tt.version == "2026-07-28", PropagateRequestCancellation: true})
			}
			srv := httptest.NewServer(h)
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() }) // after the pool
			o := quick()
			o.LegacyWatch = true
			s := newTestPool(t, o, Spec{Name: "srv", URL: srv.URL, Transport: tt.transport})
			if info, err := s.Info(ctxOf(t)); err != nil || info.ProtocolVersion != tt.version || !info.Listens {
				t.Errorf("%+v, %v", info, err)
			}
			if got := readText(t, s, "a:/1"); got != "value of a:/1" {
				t.Errorf("read %q", got)
			}
			a, _ := mustSubscribe(t, s, "a:/1")
			b, _ := mustSubscribe(t, s, "b:/1")
			for range 3 {
				touch(t, s, "a:/1")
				await(t, "update of a", a.updated)
				touch(t, s, "b:/1")
				await(t, "update of b", b.updated)
			}
			if tools, err := s.Tools(ctxOf(t)); err != nil || len(tools) != 1 {
				t.Errorf("tools %v, %v", tools, err)
			}
		})
	}
}
