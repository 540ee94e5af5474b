package watch

import (
	"context"
	"strings"
	"time"
)

// Kind tells what a notice is about.
type Kind string

// The kinds of notices.
const (
	KindEvents   Kind = "events"   // lines of one watch
	KindFailed   Kind = "failed"   // a watch is over (W-051)
	KindRestored Kind = "restored" // what became of the saved watches (W-132)
)

// Notice is one message to an agent or a person. Its lines are bounded in
// number and length and made of untrusted text: they are neutralised, so that a
// line is one line and cannot end the frame that a reader puts around them.
type Notice struct {
	Watch string    `json:"name"` // empty for KindRestored
	URI   string    `json:"uri"`  // empty for KindRestored
	Kind  Kind      `json:"kind"`
	Lines []string  `json:"lines"`
	Time  time.Time `json:"time"` // when it was made, UTC
}

// Text is the lines as one text.
func (n Notice) Text() string { return strings.Join(n.Lines, "\n") }

// Sink takes notices. Notify is called by one goroutine at a time and may
// block: meanwhile lines gather in their watches and leave as one notice each,
// so that a slow sink delays nothing but itself. ctx ends when the engine is
// closed. A notice for which Notify returns an error is logged and lost; a sink
// that can fail for a time keeps a store of its own.
type Sink interface {
	Notify(ctx context.Context, n Notice) error
}

// SinkFunc makes a Sink of a function.
type SinkFunc func(ctx context.Context, n Notice) error

// Notify calls f.
func (f SinkFunc) Notify(ctx context.Context, n Notice) error { return f(ctx, n) }
