package listen

import (
	"io"

	"github.com/ossicle/ossicle/sse"
)

// MaxEventSize is the default bound of one server-sent event, in bytes.
const MaxEventSize = sse.DefaultMaxEvent

// ErrEventTooLarge is returned by [EventReader.Next] for an event over its limit.
// The stream cannot be read on.
var ErrEventTooLarge = sse.ErrTooLarge

// Event is one server-sent event.
type Event = sse.Event

// EventReader reads a text/event-stream; see [sse.Reader].
type EventReader = sse.Reader

// NewEventReader returns a reader of r that takes events of at most limit
// bytes; zero means [MaxEventSize].
func NewEventReader(r io.Reader, limit int) *EventReader { return sse.NewReader(r, limit) }
