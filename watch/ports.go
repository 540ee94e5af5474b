package watch

import (
	"context"
	"encoding/json"
	"time"
)

// Server is one MCP server as the watch engine sees it: a place that lists,
// reads and announces. internal/mcpclient implements it over its pool of
// connections; tests implement it in memory. Methods connect when needed, are
// bounded by ctx, and are safe for concurrent use.
type Server interface {
	// Name is the configured name, unique among the servers of an engine.
	Name() string
	// Info tells what the connected server can do. It connects if needed.
	Info(ctx context.Context) (ServerInfo, error)
	// Entries lists fixed resources, then templates, all pages.
	Entries(ctx context.Context) ([]Entry, error)
	// Read returns the text of a resource, never from a cache. After asks an
	// event log for newer events only; servers that do not know it answer
	// with the whole ring.
	Read(ctx context.Context, uri string, after *int64) (Body, error)
	// Subscribe adds uri to the server's listen and returns once the server has
	// acknowledged it; ctx bounds that call and not the subscription. Afterwards
	// it reports to s until cancel is called; nothing is reported after cancel
	// has returned. Errors: *VersionError, *RefusedError, or the server's own
	// error.
	Subscribe(ctx context.Context, uri string, s Subscriber) (cancel func(), err error)
	// Tools lists the server's tools, all pages.
	Tools(ctx context.Context) ([]Tool, error)
	// CallTool calls a tool; args is a JSON object. The result is the
	// structured content if there is one, else the text parts: JSON where they
	// parse as such, otherwise a JSON string. A tool error is an error.
	CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)
}

// Subscriber hears about one subscription. Its methods must not block.
type Subscriber interface {
	// Updated says that the resource changed: read it now. Calls coalesce.
	Updated()
	// Interrupted says that the listen ended and will be reopened after delay;
	// attempt counts from 1.
	Interrupted(cause error, attempt int, delay time.Duration)
	// Restored says that the listen is up again: read once to close the gap
	// (specification W-053).
	Restored()
	// Failed says that the subscription is over for good.
	Failed(cause error)
}

// ServerInfo describes a connected server.
type ServerInfo struct {
	ProtocolVersion string
	// Subscribable: the server advertises resources.subscribe.
	Subscribable bool
	// Listens: the server speaks a version with subscriptions/listen, or legacy
	// watching was opted in, so that Subscribe can work (W-013, W-014).
	Listens bool
}

// Entry is one line of resources/list or resources/templates/list.
type Entry struct {
	URI         string `json:"uri"` // the template text when Template
	Template    bool   `json:"template"`
	Name        string `json:"name"`
	Description string `json:"description"`
	MIMEType    string `json:"mime_type"`
	// Static: the entry itself declares in _meta that it cannot be watched.
	Static bool `json:"-"`
}

// Body is the text of a read and its media type.
type Body struct {
	Text     string
	MIMEType string
}

// Tool is a tool as filters see it.
type Tool struct {
	Name        string
	Description string
	ReadOnly    bool            // readOnlyHint is present and true (WA-15)
	Parameters  json.RawMessage // JSON Schema of the arguments
}
