package watch

import "context"

// A stage is one step from an event to the lines of a notice. It changes the
// ticket and reports whether the event goes on; one that does not arms no timer
// (W-124). The stages of a watch are a list: drop what has not changed, give it
// a line (by a filter or by default), drop a repetition, gather.
type stage interface {
	apply(ctx context.Context, t *ticket) (keep bool)
}

// ticket accompanies one event through the stages of one watch.
type ticket struct {
	event *Event
	line  string // the line of the event; empty until there is one
	// mark tells apart lines that read alike and mean different things: a
	// default line that names a change without showing the value.
	mark string
	// remarks are lines about the watch itself, for instance that its filter
	// fails. They are not the event's: dedupe leaves them alone.
	remarks []string
}

// unchanged drops a MODIFIED in which nothing that matters differs (W-075).
type unchanged struct{}

func (unchanged) apply(_ context.Context, t *ticket) bool { return !t.event.noop() }

// defaultLine gives every event its default line (W-090 to W-095).
type defaultLine struct {
	liner *liner
	runes int
}

func (d defaultLine) apply(_ context.Context, t *ticket) bool {
	t.line = bound(d.liner.line(t.event), d.runes)
	if e := t.event; e.state && (e.Type == TypeModified || e.Type == TypeChanged) {
		t.mark = digest(string(e.New))
	}
	return t.line != ""
}
