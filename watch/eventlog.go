package watch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// logBody is one read of an event log (specification W-018).
type logBody struct {
	id      string // identity of the ring, empty if the server has none (WA-06)
	lastSeq *int64 // position of the ring, nil if the server gives none (WA-05)
	events  []logEntry
	broken  int // entries that are no events
}

type logEntry struct {
	seq int64
	raw json.RawMessage
}

// parseLog reads an event-log body. Entries without an integer seq or without
// a type cannot be ordered or told apart: they are counted and left out. The
// entries come sorted by seq, one per seq, the first that the body has.
func parseLog(body []byte) (*logBody, error) {
	log := &logBody{}
	var events jsonx.Span
	var err error
	object, scanErr := jsonx.ScanObject(body, func(name string, at jsonx.Span) {
		switch name {
		case "events":
			events = at
		case "log":
			if v, e := jsonx.Parse(at.Of(body)); e == nil && v.Kind() == jsonx.String {
				log.id = v.Text()
			}
		case "last_seq":
			if v, e := jsonx.Parse(at.Of(body)); e == nil {
				if n, ok := v.Int64(); ok && n >= 0 && n < math.MaxInt64 {
					log.lastSeq = &n
				}
			}
		}
	})
	if scanErr != nil {
		return nil, fmt.Errorf("read event log: %w", scanErr)
	}
	if !object || !events.Found() {
		return nil, fmt.Errorf(`read event log: the body is not {"events":[...]}`)
	}
	list, err := jsonx.ScanList(events.Of(body), entryFields, func(at jsonx.Span, found []jsonx.Span) {
		log.add(events.Of(body), at, found)
	})
	if err != nil || !list {
		return nil, fmt.Errorf(`read event log: "events" is not a list`)
	}
	slices.SortStableFunc(log.events, func(a, b logEntry) int { return cmp.Compare(a.seq, b.seq) })
	log.events = slices.CompactFunc(log.events, func(a, b logEntry) bool { return a.seq == b.seq })
	return log, nil
}

var entryFields = []jsonx.Want{{Name: "seq", Slot: 0}, {Name: "type", Slot: 1}}

func (l *logBody) add(list []byte, at jsonx.Span, found []jsonx.Span) {
	if !found[0].Found() || !found[1].Found() || list[found[1].Start] != '"' || found[1].End-found[1].Start <= 2 {
		l.broken++
		return
	}
	v, err := jsonx.Parse(found[0].Of(list))
	seq, ok := v.Int64()
	if err != nil || !ok || seq <= 0 || seq == math.MaxInt64 {
		l.broken++
		return
	}
	l.events = append(l.events, logEntry{seq, at.Of(list)})
}

func (l *logBody) maxSeq() int64 {
	if len(l.events) == 0 {
		return 0
	}
	return l.events[len(l.events)-1].seq
}

// position is the greatest seq that this read tells of.
func (l *logBody) position() int64 {
	if l.lastSeq != nil {
		return max(*l.lastSeq, l.maxSeq())
	}
	return l.maxSeq()
}

// logCursor is how far one watch has read an event log.
type logCursor struct {
	id        string
	last      int64
	resumable bool // newer events can be asked for alone
}

// baseline is the cursor after a read whose events are not delivered (W-044).
// The events that the read has count before last_seq: a server that took both
// at slightly different times must not cost an event.
func (l *logBody) baseline() logCursor {
	if len(l.events) > 0 {
		return logCursor{l.id, l.maxSeq(), l.resumable()}
	}
	return logCursor{l.id, l.position(), l.resumable()}
}

// resumable reports whether the server gives what a read with a cursor needs:
// without an identity and a position, an answer with no newer events could as
// well come from a ring that began anew.
func (l *logBody) resumable() bool { return l.id != "" && l.lastSeq != nil }

// restarted reports whether the log is another one than the cursor's, so that
// its seqs count from a new beginning.
func (c logCursor) restarted(l *logBody) bool {
	switch {
	case l.id != c.id:
		return true
	case l.lastSeq != nil:
		return l.position() < c.last
	case len(l.events) == 0:
		return false
	default:
		return l.maxSeq() < c.last
	}
}

// advance returns the events with a greater seq than the cursor's, in order,
// preceded by a GAP if events between were lost or the log began anew, and moves
// the cursor behind them (W-040 to W-043, WA-06).
func (c *logCursor) advance(l *logBody, partial bool) []Event {
	var events []Event
	switch {
	case c.restarted(l):
		events = append(events, restartGap(c.last))
		*c = logCursor{id: l.id}
	case len(l.events) > 0 && l.events[0].seq > c.last+1:
		events = append(events, seqGap(c.last+1, l.events[0].seq-1))
	case len(l.events) == 0 && !partial && l.position() > c.last:
		// Everything since was already evicted from the ring.
		events = append(events, seqGap(c.last+1, l.position()))
		c.last = l.position()
	}
	for _, entry := range l.events {
		if entry.seq > c.last {
			events = append(events, newLogEvent(entry))
		}
	}
	c.last = max(c.last, l.maxSeq())
	c.resumable = l.resumable()
	return events
}

func seqGap(from, to int64) Event {
	return ownEvent(TypeGap, jsonx.Member{Name: "from", Value: jsonx.Int(from)}, jsonx.Member{Name: "to", Value: jsonx.Int(to)},
		jsonx.Member{Name: "message", Value: jsonx.StringOf(gapText(from, to))})
}

func gapText(from, to int64) string {
	if from == to {
		return fmt.Sprintf("event %d was missed", from)
	}
	return fmt.Sprintf("%d events were missed (seq %d to %d)", to-from+1, from, to)
}

func restartGap(last int64) Event {
	return ownEvent(TypeGap, jsonx.Member{Name: "restarted", Value: jsonx.BoolOf(true)}, jsonx.Member{
		Name:  "message",
		Value: jsonx.StringOf(fmt.Sprintf("the event log began anew after seq %d; events may have been missed", last)),
	})
}

// ownEvent is an event that the engine adds to what a server sends. It has the
// form of a log entry, so that filters and lines need to know one form only.
func ownEvent(kind string, fields ...jsonx.Member) Event {
	return Event{Type: kind, Fields: jsonx.ObjectOf(fields...).Append(nil), own: true}
}

// newLogEvent reads an entry. It cannot fail: what has not the expected form is
// passed through as it is.
func newLogEvent(entry logEntry) Event {
	e := Event{Seq: entry.seq, Fields: entry.raw}
	v, err := jsonx.Parse(entry.raw)
	if err != nil {
		// More values than a tree may have. The type is short, so read it alone.
		_, _ = jsonx.ScanObject(entry.raw, func(name string, at jsonx.Span) {
			if t, err := jsonx.Parse(at.Of(entry.raw)); name == "type" && err == nil {
				e.Type = t.Text()
			}
		})
		return e
	}
	kind, _ := v.Get("type")
	e.Type = kind.Text()
	object, present := v.Get("object")
	if present {
		e.object, e.Key = &object, itemKey(object)
	}
	old, ok := v.Get("old")
	if e.Type != TypeModified || !ok || old.IsNull() {
		return e
	}
	e.Old = old.Append(nil)
	if present {
		e.setChanges(changesBetween(old, object, nil))
	}
	return e
}
