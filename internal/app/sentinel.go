package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
)

// Names of the sentinel and its tool. Prompts name the tool.
const (
	SentinelName = "sentinel"
	SentinelTool = "sentinel_echo"
)

// sentinelTime bounds the end of a sentinel.
const sentinelTime = 2 * time.Second

// sentinel is an MCP server on loopback that is there to be observed: both eras
// and the older transport, at unguessable paths.
type sentinel struct {
	server   *mcpserver.Server
	sources  *listen.Registry
	observer *observe.Observer
	web      *httpserver.Server
	token    string
	gone     context.Context //nolint:containedctx // ends the streams of the older transport
	leave    context.CancelFunc
	stop     context.CancelFunc
	ended    chan error
}

// newSentinel starts to serve. The caller closes it.
func newSentinel(ctx context.Context, sink observe.Sink, trace func(observe.Exchange), log *slog.Logger) (*sentinel, error) {
	s := &sentinel{token: strings.ToLower(rand.Text()), ended: make(chan error, 1)}
	s.sources = listen.NewRegistry(&listen.RegistryOptions{Logger: log})
	hub := listen.NewHub(s.sources, &listen.HubOptions{Logger: log})
	server, err := mcpserver.New(s.sources, hub, []mcpserver.Tool{sentinelTool()}, &mcpserver.Options{Name: version.Name + "-" + SentinelName, Logger: log})
	if err != nil {
		s.sources.Close()
		return nil, fmt.Errorf("start sentinel: %w", err)
	}
	s.server = server
	s.observer = observe.New(sink, &observe.Options{Server: SentinelName, Trace: trace, Logger: log})
	s.gone, s.leave = context.WithCancel(context.Background())
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err := s.serve(ctx, run, log); err != nil {
		s.ended <- nil
		return nil, errors.Join(fmt.Errorf("start sentinel: %w", err), s.close())
	}
	return s, nil
}

func (s *sentinel) serve(ctx, run context.Context, log *slog.Logger) (err error) {
	older := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s.server.SDK() }, &mcp.SSEOptions{
		DisableLocalhostProtection: true, // the server in front checks Host and Origin
		MaxRequestBodyBytes:        mcpserver.DefaultMaxBody,
	})
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.gone, cancel)()
		older.ServeHTTP(w, r.WithContext(ctx))
	})
	s.web, err = httpserver.New(s, &httpserver.Options{
		Addr: "127.0.0.1:0", NoAuth: true, Logger: log, Budget: httpserver.Budget{Requests: sentinelTime},
		Routes: []httpserver.Route{
			{Pattern: httpserver.MCPPath + "/" + s.token, Handler: s.observer.Handler(s.server.Handler())},
			{Pattern: ssePath + "/" + s.token, Handler: s.observer.Handler(stream)},
		},
	})
	if err != nil {
		return err
	}
	if err := s.web.Listen(ctx); err != nil {
		return err
	}
	go func() { s.ended <- s.web.Run(run) }()
	return nil
}

func sentinelTool() mcpserver.Tool {
	return mcpserver.Tool{
		Name: SentinelTool, ReadOnly: true,
		Description: "Answers with the text that it is given. It proves that you can call tools of this server.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`),
		Call: func(_ context.Context, args json.RawMessage) (mcpserver.ToolResult, error) {
			var a struct {
				Text string `json:"text"`
			}
			if err := json.Unmarshal(args, &a); err != nil {
				return mcpserver.ToolResult{Text: "give {\"text\": a string}", IsError: true}, nil //nolint:nilerr // a mistake of the model
			}
			return mcpserver.ToolResult{Text: "sentinel heard: " + a.Text}, nil
		},
	}
}

// Handler implements httpserver.MCP: without a token there is nothing.
func (s *sentinel) Handler() http.Handler { return http.NotFoundHandler() }

// Shutdown implements httpserver.MCP.
func (s *sentinel) Shutdown(ctx context.Context) error {
	s.leave()
	return s.server.Shutdown(ctx)
}

// entry is how an agent reaches the sentinel.
func (s *sentinel) entry() agent.MCPServer {
	base := strings.TrimSuffix(s.web.URL(), httpserver.MCPPath)
	return agent.MCPServer{Name: SentinelName, HTTP: base + httpserver.MCPPath + "/" + s.token, SSE: base + ssePath + "/" + s.token}
}

// close ends the sentinel and waits until everything was observed. Connections
// that their clients keep open are cut.
func (s *sentinel) close() error {
	s.leave()
	s.stop()
	err := <-s.ended
	s.sources.Close()
	s.observer.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
