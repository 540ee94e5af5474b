package listen

import (
	"context"
	"errors"
	"fmt"
)

// Source is anything that can be watched. It lists its resources, reads one,
// and says when one has changed. A source knows nothing of MCP, of sessions or
// of subscribers: a [Registry] mounts it and a [Hub] counts who listens.
//
// All methods are safe for concurrent use. A URI reaches a source only after
// Owns said yes to it.
type Source interface {
	// Owns reports whether the URI belongs to this source, by its form alone:
	// it does no I/O and needs no existing object.
	Owns(uri string) bool
	// List returns the fixed resources and the URI templates.
	List(ctx context.Context) (Listing, error)
	// Read returns the current contents. A first read waits, bounded by ctx,
	// until the source has started. Errors: *NotFoundError for a URI of the
	// right form that names nothing.
	Read(ctx context.Context, uri string, opts ReadOptions) ([]Contents, error)
	// Watch begins to observe uri and calls changed after each change, until
	// stop is called; changed must not be called after stop has returned, may
	// be called from any goroutine, never blocks and takes coalesced changes.
	// Watch does not wait for the world: it checks the URI, begins, and returns.
	// Errors: *NotFoundError, ErrNotWatchable.
	Watch(ctx context.Context, uri string, changed func()) (stop func(), err error)
}

// ErrNotWatchable is returned by [Source.Watch] for a resource that can be
// read but never announces a change.
var ErrNotWatchable = errors.New("listen: resource is readable but not watchable")

// NotFoundError says that a URI names nothing.
type NotFoundError struct {
	URI  string
	Hint string // what to do instead, for instance "did you mean: a, b"
}

func (e *NotFoundError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("resource %q not found", e.URI)
	}
	return fmt.Sprintf("resource %q not found: %s", e.URI, e.Hint)
}

// Listing is what a source offers.
type Listing struct {
	Resources []Resource
	Templates []Template
}

// Resource is one fixed resource. Static marks one that cannot be watched.
type Resource struct {
	URI, Name, Title, Description, MIMEType string
	Static                                  bool
}

// Template is a family of resources by RFC 6570 template.
type Template struct {
	URITemplate, Name, Title, Description, MIMEType string
	Static                                          bool
}

// ReadOptions refine a read.
type ReadOptions struct {
	// After asks an event-log resource for events with a greater seq only
	// (specification M-6). Nil asks for the whole ring. Sources of state
	// ignore it.
	After *int64
}

// Contents is one content block of a read.
type Contents struct {
	URI, MIMEType string
	Text          string
	Blob          []byte // set instead of Text for binary contents
}

// EventLogMIME is the media type of an event-log body (specification W-017).
const EventLogMIME = "application/vnd.ossicle.events+json"

// EventLogMIMECompat is the media type that other implementations of the same
// contract use; readers treat both alike.
const EventLogMIMECompat = "application/vnd.asyncai.events+json"
