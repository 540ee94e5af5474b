package watch

import (
	"fmt"
	"mime"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/listen"
)

// Shape tells how a resource is read for changes (specification W-017).
type Shape string

// The shapes.
const (
	ShapeState    Shape = "state"
	ShapeEventLog Shape = "event-log"
)

func shapeOf(mimeType string) Shape {
	base, _, err := mime.ParseMediaType(mimeType)
	if err != nil {
		base = strings.ToLower(strings.TrimSpace(mimeType))
	}
	if base == listen.EventLogMIME || base == listen.EventLogMIMECompat {
		return ShapeEventLog
	}
	return ShapeState
}

// reading is one read of a resource, shared by all its watches.
type reading struct {
	shape   Shape
	state   *State
	log     *logBody
	partial bool // the read asked for newer events only
	fault   string
	// from is the state that diff, computed once, starts from.
	from *State
	diff func() []Event
}

// newReading parses a body. last is the state before, for the parts that a new
// one shares with it, and for the diff that most watches will want.
func newReading(body Body, last *State, partial bool) *reading {
	r := &reading{shape: shapeOf(body.MIMEType), partial: partial}
	if r.shape == ShapeState {
		r.state = ParseState([]byte(body.Text), last)
		if last != nil {
			r.from, r.diff = last, sync.OnceValue(func() []Event { return Diff(last, r.state) })
		}
		return r
	}
	log, err := parseLog([]byte(body.Text))
	if err != nil {
		r.fault = err.Error()
		return r
	}
	r.log = log
	if log.broken > 0 {
		r.fault = fmt.Sprintf("%d entries of the event log have no seq or no type and are left out", log.broken)
	}
	return r
}

// faultReading is what watches are given in place of a read that failed for
// good.
func faultReading(err error) *reading { return &reading{fault: err.Error()} }

// cursor is how far one watch has come.
type cursor struct {
	shape Shape
	state *State
	log   logCursor
}

// baseline is the cursor after a first read.
func (r *reading) baseline() cursor {
	c := cursor{shape: r.shape, state: r.state}
	if r.log != nil {
		c.log = r.log.baseline()
	}
	return c
}

// advance returns what a reading brings to a watch.
func (c *cursor) advance(r *reading) []Event {
	var events []Event
	switch {
	case r.state == nil && r.log == nil:
	case r.shape != c.shape:
		events = append(events, ownEvent(TypeGap, jsonx.Member{Name: "message", Value: jsonx.StringOf(
			fmt.Sprintf("the resource was of shape %s and is now of shape %s; changes may have been missed", c.shape, r.shape))}))
		*c = r.baseline()
	case r.shape == ShapeEventLog:
		events = c.log.advance(r.log, r.partial)
	default:
		if r.from == c.state && r.diff != nil {
			events = r.diff()
		} else {
			events = Diff(c.state, r.state)
		}
		c.state = r.state
	}
	if r.fault != "" {
		events = append(events[:len(events):len(events)], ownEvent(TypeError, jsonx.Member{Name: "message", Value: jsonx.StringOf(r.fault)}))
	}
	return events
}
