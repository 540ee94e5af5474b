package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Server is an MCP server as code mode sees it. Its methods connect when
// needed and are safe for concurrent use.
type Server interface {
	// Name is the configured name, unique in a session.
	Name() string
	// Tools lists the server's tools, all pages.
	Tools(ctx context.Context) ([]RemoteTool, error)
	// CallTool calls a tool; args is a JSON object. The result is JSON. A tool
	// error is an error.
	CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)
}

// RemoteTool is a tool of a server.
type RemoteTool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments
}

// catalogue is what a program can call.
type catalogue struct {
	builtins []string // sorted; empty when no server is connected
	tools    map[string]boundTool
	silent   []string // servers that did not answer; asked again next time
}

type boundTool struct {
	server    Server
	tool      RemoteTool
	signature signature
}

// names are the functions of the scope, sorted.
func (c *catalogue) names() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, name := range c.builtins {
			if !yield(name) {
				return
			}
		}
		maps.Keys(c.tools)(yield)
	})
}

// Invalidate says that the tools may have changed: a server connected, went, or
// announced another list. They are asked for with the next program.
func (c *CodeMode) Invalidate() {
	c.mu.Lock()
	c.known = nil
	c.mu.Unlock()
}

// catalogue asks the servers once, and again after Invalidate or when one did
// not answer. Nothing is asked by timer.
func (c *CodeMode) catalogue(ctx context.Context) *catalogue {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known != nil && len(known.silent) == 0 {
		return known
	}
	known = c.ask(ctx)
	c.mu.Lock()
	c.known = known
	c.mu.Unlock()
	return known
}

func (c *CodeMode) ask(ctx context.Context) *catalogue {
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListTime)
	defer cancel()
	lists := make([][]RemoteTool, len(c.servers))
	errs := make([]error, len(c.servers))
	var g errgroup.Group
	g.SetLimit(maxServersAtOnce)
	for i, server := range c.servers {
		g.Go(func() error {
			lists[i], errs[i] = server.Tools(ctx)
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	known := &catalogue{}
	var all []boundTool
	for i, server := range c.servers {
		if errs[i] != nil {
			known.silent = append(known.silent, server.Name())
			c.log.LogAttrs(ctx, slog.LevelWarn, "code.tools_missing", logattr.Server(server.Name()), logattr.Err(errs[i]))
		}
		for _, t := range lists[i] {
			all = append(all, boundTool{server: server, tool: t})
		}
	}
	known.tools = nameTools(all)
	if c.watches != nil {
		known.builtins = slices.Sorted(slices.Values(c.watches.Functions(ctx)))
	}
	return known
}
