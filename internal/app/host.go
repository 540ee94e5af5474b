package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/listen"
)

// Budgets of the teardown.
const (
	serverBudget   = 5 * time.Second
	registryBudget = 2 * time.Second
)

// Host serves sources and their tools over MCP.
type Host struct {
	MCP *mcpserver.Server

	down teardown.Stack
}

// HostOptions refine a Host.
type HostOptions struct {
	// Name is what the server calls itself; empty means the program's name.
	Name string
	// Instructions tell a model how to use the server.
	Instructions string
	// More are further sources, behind the first.
	More []listen.Source
	// EventLogMIME is the media type of event logs; empty means our own.
	EventLogMIME string
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// NewHost builds a server of the source, and of those of the options. The caller
// closes it.
func NewHost(source listen.Source, tools []mcpserver.Tool, o *HostOptions) (*Host, error) {
	if o == nil {
		o = &HostOptions{}
	}
	registry := listen.NewRegistry(&listen.RegistryOptions{Logger: o.Logger})
	for _, s := range append([]listen.Source{source}, o.More...) {
		if err := registry.Mount(s); err != nil {
			return nil, fmt.Errorf("mount source: %w", err)
		}
	}
	h := &Host{}
	h.down.Push("sources", registryBudget, func(context.Context) error { registry.Close(); return nil })
	hub := listen.NewHub(registry, &listen.HubOptions{Authorize: httpserver.AuthorizeListen, Logger: o.Logger})
	server, err := mcpserver.New(registry, hub, tools, &mcpserver.Options{
		Name: o.Name, Instructions: o.Instructions, EventLogMIME: o.EventLogMIME, Authorize: httpserver.Authorize, Logger: o.Logger,
	})
	if err != nil {
		registry.Close()
		return nil, err
	}
	h.MCP = server
	h.down.Push("server", serverBudget, server.Shutdown)
	return h, nil
}

// HTTPOptions say where a host listens and who may come in.
type HTTPOptions struct {
	Addr string
	// NoAuth asks nobody for a token; the address must then be a loopback one.
	NoAuth bool
	// TokenFile holds the bearer token; it is made if it does not exist.
	TokenFile string
	// Ready is called with the URL once the address is bound.
	Ready func(url string) error
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// ServeHTTP serves Streamable HTTP until ctx ends, and then ends what is under
// way politely.
func (h *Host) ServeHTTP(ctx context.Context, o HTTPOptions) error {
	opts := &httpserver.Options{Addr: o.Addr, NoAuth: o.NoAuth, Logger: o.Logger}
	if !o.NoAuth {
		tokens, err := httpserver.TokenFile(o.TokenFile)
		if err != nil {
			return err
		}
		opts.Auth = tokens
	}
	server, err := httpserver.New(h.MCP, opts)
	if err != nil {
		return err
	}
	if err := server.Listen(ctx); err != nil {
		return err
	}
	if o.Ready != nil {
		if err := o.Ready(server.URL()); err != nil {
			return errors.Join(err, server.Close())
		}
	}
	return server.Run(ctx)
}

// ServeStdio serves one peer on a pipe until its input ends or ctx does.
func (h *Host) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	return h.MCP.ServeStdio(ctx, in, out)
}

// Close ends listens politely and stops the source.
func (h *Host) Close(ctx context.Context) error { return h.down.Run(ctx) }
