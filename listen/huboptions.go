package listen

import (
	"context"
	"log/slog"
	"time"
)

// Defaults of [HubOptions].
const (
	DefaultMaxListens   = 10_000
	DefaultMaxURIs      = 4096
	DefaultMaxBody      = 1 << 20
	DefaultKeepAlive    = 15 * time.Second
	DefaultWriteTimeout = 5 * time.Second
	DefaultOpenTimeout  = 10 * time.Second
)

// HubOptions tune a [Hub]. The zero value, and nil, mean the defaults.
type HubOptions struct {
	// Authorize decides whether the caller may read a URI; ctx is that of the
	// HTTP request, or for a pipe that of its connection. An error leaves the
	// URI out of the acknowledgement and its text is told to the peer. It is
	// asked before the source, so a refusal does not tell whether the URI exists.
	// Nil permits all.
	Authorize func(ctx context.Context, uri string) error
	// Lists are the lists whose changes the server announces by
	// [Hub.ListChanged]. The acknowledgement leaves the others out.
	Lists []List
	// MaxListens bounds the listens that are open at a time; a legacy session
	// with subscriptions counts as one. Over it a listen is answered with HTTP
	// status 503 and JSON-RPC code -31001, the limit in its data. Zero means
	// [DefaultMaxListens].
	MaxListens int
	// MaxURIs bounds the URIs of one listen. Over it a listen is answered with
	// HTTP status 400 and JSON-RPC code -32602. Zero means [DefaultMaxURIs].
	MaxURIs int
	// MaxBody bounds the body of a listen request over HTTP, in bytes. Over it
	// the answer is HTTP status 413 with JSON-RPC code -32600, and the connection
	// is closed. Zero means [DefaultMaxBody].
	MaxBody int64
	// KeepAlive is the interval of the comment lines on event streams. Zero means
	// [DefaultKeepAlive], a negative value none.
	KeepAlive time.Duration
	// WriteTimeout is how long one write to a peer may take. A peer that does not
	// take it is cut off. Zero means [DefaultWriteTimeout].
	WriteTimeout time.Duration
	// OpenTimeout bounds the time in which the body of a listen request comes, and
	// then that in which Authorize and the sources say yes to its URIs. What has
	// not been said by then is a refusal. Zero means [DefaultOpenTimeout].
	OpenTimeout time.Duration
	// Logger gets a line at debug level for each listen that opens and ends, and
	// at warn level for each peer that is cut off. Nil discards.
	Logger *slog.Logger
}

func (o *HubOptions) withDefaults() HubOptions {
	var out HubOptions
	if o != nil {
		out = *o
	}
	orElse(&out.MaxListens, DefaultMaxListens)
	orElse(&out.MaxURIs, DefaultMaxURIs)
	orElse(&out.MaxBody, DefaultMaxBody)
	orElse(&out.KeepAlive, DefaultKeepAlive)
	orElse(&out.WriteTimeout, DefaultWriteTimeout)
	orElse(&out.OpenTimeout, DefaultOpenTimeout)
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// List is a list of a server whose change can be announced.
type List int

// The lists of MCP.
const (
	ToolsList List = iota
	PromptsList
	ResourcesList
	listCount
)

// wants returns the filter's member for the list.
func (f *Filter) wants(list List) *bool {
	return [listCount]*bool{&f.ToolsListChanged, &f.PromptsListChanged, &f.ResourcesListChanged}[list]
}
