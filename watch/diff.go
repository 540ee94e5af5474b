package watch

import (
	"bytes"
	"strings"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// Diff returns what changed from one read of a state resource to the next:
// items of a list matched by key, members of an object by name, anything else
// as one whole (specification W-030 to W-036). ADDED and MODIFIED come in the
// order of next, then DELETED in the order of prev. The order of a list is not
// part of its state.
func Diff(prev, next *State) []Event {
	switch {
	case bytes.Equal(prev.body, next.body):
		return nil
	case prev.form != next.form || next.form == formText:
		return []Event{changedWhole(prev, next)}
	case next.form == formList:
		return diffLists(prev, next)
	default:
		return diffObjects(prev, next)
	}
}

func changedWhole(prev, next *State) Event {
	return Event{Type: TypeChanged, Old: prev.whole(), New: next.whole(), Item: next.whole(), state: true}
}

// whole is the body as one JSON value: itself, or a string of the text.
func (s *State) whole() []byte {
	if s.form == formText {
		return jsonx.AppendString(nil, string(s.body))
	}
	return s.body
}

// group collects what one key names in both reads, in order. Nearly always
// that is at most one item on each side.
type group struct {
	old, new []int
	isKey    bool // false: the item is its own key, so it is never MODIFIED
}

// diffLists compares the items between the beginning and the end that both
// lists share, byte by byte. Leaving those out is right also for keys that occur
// several times, because equal items of one key cancel out wherever they stand.
func diffLists(prev, next *State) []Event {
	head, tail := sharedItems(prev, next)
	groups := map[string]*group{}
	at := func(s *State, i int) *group {
		key := s.items[i].identity(s.body)
		g := groups[key]
		if g == nil {
			g = &group{isKey: s.items[i].keySlot != noKey}
			groups[key] = g
		}
		return g
	}
	for i := head; i < len(prev.items)-tail; i++ {
		g := at(prev, i)
		g.old = append(g.old, i)
	}
	for i := head; i < len(next.items)-tail; i++ {
		g := at(next, i)
		g.new = append(g.new, i)
	}
	partner, gone := map[int]int{}, map[int]bool{} // by index in next; by index in prev
	for _, g := range groups {
		g.match(prev, next, partner, gone)
	}
	return listEvents(prev, next, partner, gone)
}

// fresh marks an item of next that has no partner in prev.
const fresh = -1

// match cancels the equal items of a group, pairs what is left in order
// (MODIFIED), and reports the rest as gone or fresh.
func (g *group) match(prev, next *State, partner map[int]int, gone map[int]bool) {
	old, added := cancel(g.old, g.new, func(i int) string { return string(prev.items[i].raw(prev.body)) },
		func(i int) string { return string(next.items[i].raw(next.body)) })
	if len(old) > 0 && len(added) > 0 {
		old, added = cancel(old, added, func(i int) string { return canonical(prev.items[i].raw(prev.body)) },
			func(i int) string { return canonical(next.items[i].raw(next.body)) })
	}
	if g.isKey {
		for len(old) > 0 && len(added) > 0 {
			partner[added[0]] = old[0]
			old, added = old[1:], added[1:]
		}
	}
	for _, i := range old {
		gone[i] = true
	}
	for _, i := range added {
		partner[i] = fresh
	}
}

// cancel removes from both sides what has the same text, as often as it has.
func cancel(old, added []int, oldText, newText func(int) string) (restOld, restNew []int) {
	if len(old) == 1 && len(added) == 1 {
		if oldText(old[0]) == newText(added[0]) {
			return nil, nil
		}
		return old, added
	}
	if len(old) == 0 || len(added) == 0 {
		return old, added
	}
	count := make(map[string]int, len(old))
	for _, i := range old {
		count[oldText(i)]++
	}
	spent := map[string]int{}
	for _, i := range added {
		text := newText(i)
		if count[text] > 0 {
			count[text]--
			spent[text]++
			continue
		}
		restNew = append(restNew, i)
	}
	for _, i := range old {
		text := oldText(i)
		if spent[text] > 0 {
			spent[text]--
			continue
		}
		restOld = append(restOld, i)
	}
	return restOld, restNew
}

func listEvents(prev, next *State, partner map[int]int, gone map[int]bool) []Event {
	var events []Event
	for i, it := range next.items {
		p, ok := partner[i]
		if !ok {
			continue
		}
		raw := it.raw(next.body)
		e := Event{Type: TypeAdded, Key: it.label(next.body), New: raw, Item: raw, state: true}
		if p != fresh {
			e.Type, e.Old = TypeModified, prev.items[p].raw(prev.body)
			e.compare(e.Old, e.New)
		}
		events = append(events, e)
	}
	for i, it := range prev.items {
		if gone[i] {
			events = append(events, Event{Type: TypeDeleted, Key: it.label(prev.body), Item: it.raw(prev.body), state: true})
		}
	}
	return events
}

func sharedItems(prev, next *State) (head, tail int) {
	n := min(len(prev.items), len(next.items))
	for head < n && bytes.Equal(prev.items[head].raw(prev.body), next.items[head].raw(next.body)) {
		head++
	}
	p, q := len(prev.items)-1, len(next.items)-1
	for tail < n-head && bytes.Equal(prev.items[p-tail].raw(prev.body), next.items[q-tail].raw(next.body)) {
		tail++
	}
	return head, tail
}

// identity is a text that two items share exactly if they have one key: the
// path of the key and its literal, or the whole item.
func (i item) identity(body []byte) string {
	if i.keySlot == noKey {
		return "=" + canonical(i.raw(body))
	}
	key := body[i.keyStart:i.keyEnd]
	if bytes.IndexByte(key, '\\') >= 0 {
		return string(rune('0'+i.keySlot)) + canonical(key)
	}
	return string(rune('0'+i.keySlot)) + string(key)
}

// label is the key as events and lines show it.
func (i item) label(body []byte) string {
	raw := i.raw(body)
	if i.keySlot != noKey {
		raw = body[i.keyStart:i.keyEnd]
	}
	if v, err := jsonx.Parse(raw); err == nil {
		if v.Kind() == jsonx.Array || v.Kind() == jsonx.Object {
			return v.String()
		}
		return v.Text()
	}
	return string(raw)
}

func canonical(raw []byte) string {
	if v, err := jsonx.Parse(raw); err == nil {
		return v.Canonical()
	}
	return string(raw) // more values than a tree may have: equal by its bytes only
}

func diffObjects(prev, next *State) []Event {
	old := make(map[string]jsonx.Span, len(prev.members))
	for _, m := range prev.members {
		old[m.name] = m.value
	}
	var events []Event
	for _, m := range next.members {
		raw := m.value.Of(next.body)
		e := Event{Type: TypeAdded, Key: m.name, New: raw, Item: raw, state: true}
		if was, ok := old[m.name]; ok {
			delete(old, m.name)
			e.Type, e.Old = TypeModified, was.Of(prev.body)
			if bytes.Equal(e.Old, e.New) || canonical(e.Old) == canonical(e.New) {
				continue
			}
			e.compare(e.Old, e.New, m.name)
		}
		events = append(events, e)
	}
	for _, m := range prev.members {
		if _, left := old[m.name]; left {
			events = append(events, Event{Type: TypeDeleted, Key: m.name, Item: m.value.Of(prev.body), state: true})
		}
	}
	return events
}

// itemKey returns what identifies an object of an event log: the same members
// as for a list item, with the namespace where only a name is unique in it.
func itemKey(v jsonx.Value) string {
	for _, path := range [][]string{{"metadata", "uid"}, {"uid"}, {"id"}, {"metadata", "name"}, {"name"}} {
		key, ok := v.Get(path...)
		if !ok || (key.Kind() != jsonx.String && key.Kind() != jsonx.Number) || key.Text() == "" {
			continue
		}
		if ns, ok := v.Get("metadata", "namespace"); ok && path[len(path)-1] == "name" {
			return ns.Text() + "/" + key.Text()
		}
		return strings.Join(path, ".") + "=" + key.Text()
	}
	return ""
}
