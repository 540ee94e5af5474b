package watch

import (
	"encoding/json"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// Types of events that the engine itself makes (specification W-033, W-042).
// Event logs have types of their own beside them; TypeError is the one by which
// they report a failure of their source (W-022).
const (
	TypeAdded    = "ADDED"
	TypeModified = "MODIFIED"
	TypeDeleted  = "DELETED"
	TypeChanged  = "CHANGED"
	TypeGap      = "GAP"
	TypeError    = "ERROR"
)

// Event is one change of a watched resource. The values are JSON as the server
// wrote it; an Event is immutable and shared by the watches of a resource.
type Event struct {
	Type string
	// Key names the list item, the object member, or the object of an event log.
	// It is empty where the event concerns the whole resource.
	Key string
	// Old is what was there before, for MODIFIED and CHANGED; New what is there
	// now; Item the value concerned, for DELETED the removed one. An event log has
	// New and Item in its own fields instead.
	Old, New, Item json.RawMessage
	// Changed are the sorted paths that differ, for MODIFIED with Old. It is nil
	// where there is nothing to compare, and empty where only what changes with
	// every write has changed (W-074, W-075).
	Changed []string
	// Fields is the event as the server of an event log wrote it, else nil.
	Fields json.RawMessage
	// Seq is the position in an event log, else 0.
	Seq int64

	state   bool         // from a diff
	own     bool         // a GAP or an ERROR that the engine wrote: it has no object
	changes []change     // what Changed are the paths of
	object  *jsonx.Value // of an event log, nil without one
}

// compare fills in Changed.
func (e *Event) compare(old, new json.RawMessage, base ...string) {
	was, err := jsonx.Parse(old)
	now, err2 := jsonx.Parse(new)
	if err != nil || err2 != nil {
		e.Changed = []string{rootPath} // more values than a tree may have
		return
	}
	e.setChanges(changesBetween(was, now, base))
}

func (e *Event) setChanges(changes []change) {
	e.changes = changes
	e.Changed = make([]string, len(changes))
	for i, c := range changes {
		e.Changed[i] = c.path
	}
}

// noop reports whether the event says that something was written and nothing
// that matters has changed (W-075).
func (e *Event) noop() bool { return e.Type == TypeModified && e.Changed != nil && len(e.Changed) == 0 }

// Object is the event as a filter sees it (specification W-070 to W-077):
// watch, uri, type, old, then changed for MODIFIED with an old, then key, item
// and new from a diff, or the server's other fields from an event log.
func (e *Event) Object(watch, uri string) json.RawMessage {
	b := make([]byte, 0, 256+len(e.Old)+len(e.New)+len(e.Item)+len(e.Fields))
	b = append(b, '{')
	b = appendField(b, "watch", jsonx.AppendString(nil, watch))
	b = appendField(b, "uri", jsonx.AppendString(nil, uri))
	b = appendField(b, "type", jsonx.AppendString(nil, e.Type))
	b = appendField(b, "old", e.Old)
	if e.Changed != nil {
		b = appendField(b, "changed", stringList(e.Changed))
	}
	if e.state {
		b = appendField(b, "key", jsonx.AppendString(nil, e.Key))
		b = appendField(b, "item", e.Item)
		if e.New != nil {
			b = appendField(b, "new", e.New)
		}
	}
	return append(e.appendServerFields(b), '}')
}

// reserved are the names that the engine gives and a server cannot.
var reserved = map[string]bool{"watch": true, "uri": true, "type": true, "old": true, "changed": true}

func (e *Event) appendServerFields(b []byte) []byte {
	// Fields was scanned before it became an event.
	_, _ = jsonx.ScanObject(e.Fields, func(name string, at jsonx.Span) {
		if !reserved[name] {
			b = appendField(b, name, at.Of(e.Fields))
		}
	})
	return b
}

func appendField(b []byte, name string, value []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(jsonx.AppendString(b, name), ':')
	if value == nil {
		return append(b, "null"...)
	}
	return append(b, value...)
}

func stringList(list []string) []byte {
	b := []byte{'['}
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonx.AppendString(b, s)
	}
	return append(b, ']')
}
