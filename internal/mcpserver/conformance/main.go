// Conformance serves what the official MCP conformance suite asks for, on this
// project's own server: its tools, resources and prompts have the names and the
// behaviour that the scenarios describe, and are of no other use.
//
//	go run ./internal/mcpserver/conformance -http 127.0.0.1:7719
//	npx conformance server --url http://127.0.0.1:7719/mcp --requirements 2026-07-28
//	npx conformance server --url http://127.0.0.1:7719/mcp --requirements 2025-11-25
//
// It asks for no token, prints the URL of its endpoint when it is ready, and
// serves until it is killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/listen"
)

func main() {
	addr := flag.String("http", "127.0.0.1:0", "address to serve on, a loopback one")
	verbose := flag.Bool("v", false, "log to standard error")
	flag.Parse()
	if err := run(context.Background(), *addr, *verbose, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, verbose bool, out io.Writer) error {
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	server, reg, err := newServer(log)
	if err != nil {
		return err
	}
	defer reg.Close()
	h, err := httpserver.New(server, &httpserver.Options{Addr: addr, NoAuth: true, Logger: log})
	if err != nil {
		return err
	}
	if err := h.Listen(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, h.URL())
	return h.Run(ctx)
}

// newServer makes the server of all fixtures.
func newServer(log *slog.Logger) (*mcpserver.Server, *listen.Registry, error) {
	reg := listen.NewRegistry(&listen.RegistryOptions{Logger: log})
	if err := reg.Mount(source{}); err != nil {
		return nil, nil, err
	}
	lists := []listen.List{listen.ToolsList, listen.PromptsList}
	hub := listen.NewHub(reg, &listen.HubOptions{Lists: lists, Logger: log})
	server, err := mcpserver.New(reg, hub, nil, &mcpserver.Options{
		Name: "ossicle-conformance", Lists: lists, Logger: log,
		Configure: func(o *mcp.ServerOptions) {
			o.Capabilities.Logging = &mcp.LoggingCapabilities{} //nolint:staticcheck // a scenario asks for it
			o.CompletionHandler = func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
				return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"test-value"}, Total: 1}}, nil
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	addContentTools(server.SDK())
	addInputTools(server.SDK(), newSealer())
	addPrompts(server.SDK())
	addTriggers(server, hub)
	return server, reg, nil
}

// addTriggers adds the tools that change a list.
func addTriggers(server *mcpserver.Server, hub *listen.Hub) {
	addTool(server.SDK(), "test_trigger_tool_change", "Announces that the list of tools changed", none, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		server.AddTools(transient)
		return text("the list of tools changed"), nil
	})
	addTool(server.SDK(), "test_trigger_prompt_change", "Announces that the list of prompts changed", none, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		addPrompt(server.SDK(), &mcp.Prompt{Name: "test_transient_prompt", Description: "Is there to be announced"}, "transient")
		hub.ListChanged(listen.PromptsList)
		return text("the list of prompts changed"), nil
	})
}
