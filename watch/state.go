package watch

import (
	"bytes"
	"sort"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// State is one read of a state resource, kept so that the next read can be
// compared with it (specification W-030 to W-036). It holds the text of the read
// and where the parts of it lie; nothing is decoded until it is known to differ.
type State struct {
	body    []byte
	form    form
	items   []item   // of a list
	members []member // of an object
}

type form uint8

const (
	formText form = iota
	formList
	formObject
)

// item says where one list item and its key lie. Offsets fit: a body over
// jsonx.MaxSize is text. keySlot is an index of keyPaths, or noKey for an item
// that is its own key.
type item struct {
	start, end       int32
	keyStart, keyEnd int32
	keySlot          int8
}

const noKey = int8(-1)

func (i item) raw(body []byte) []byte { return body[i.start:i.end:i.end] }

func (i item) moved(by int32) item {
	i.start, i.end = i.start+by, i.end+by
	if i.keySlot != noKey {
		i.keyStart, i.keyEnd = i.keyStart+by, i.keyEnd+by
	}
	return i
}

type member struct {
	name  string
	value jsonx.Span
}

// keyPaths are the members that identify a list item, the first present wins
// (W-030). Present means a number or a string that is not empty.
var keyPaths = []jsonx.Want{
	{Name: "metadata", Slot: -1, Sub: []jsonx.Want{{Name: "uid", Slot: 0}, {Name: "name", Slot: 3}}},
	{Name: "uid", Slot: 1},
	{Name: "id", Slot: 2},
	{Name: "name", Slot: 4},
}

// maxItems bounds the items or members that are compared one by one; a larger
// body is text, and changes as a whole. State resources are for small state: a
// collection of that size belongs in an event log.
const maxItems = 200_000

// ParseState makes a State of a body. prev, if not nil, is an earlier read of
// the same resource: the parts of a list that it shares with body are not
// validated again. A body that is not exact JSON within the bounds of
// internal/jsonx, or is a scalar, is text (W-032, W-036). ParseState keeps body.
func ParseState(body []byte, prev *State) *State {
	if prev != nil && prev.form == formList && len(body) <= jsonx.MaxSize {
		if items, ok := reuse(body, prev); ok {
			return &State{body: body, form: formList, items: items}
		}
	}
	var items []item
	list, err := jsonx.ScanList(body, keyPaths, func(at jsonx.Span, found []jsonx.Span) {
		items = append(items, newItem(body, at, found))
	})
	if err != nil || len(items) > maxItems {
		return &State{body: body}
	}
	if list {
		return &State{body: body, form: formList, items: items}
	}
	var members []member
	object, err := jsonx.ScanObject(body, func(name string, value jsonx.Span) {
		members = append(members, member{name, value})
	})
	if err != nil || !object || len(members) > maxItems {
		return &State{body: body}
	}
	return &State{body: body, form: formObject, members: members}
}

func newItem(body []byte, at jsonx.Span, found []jsonx.Span) item {
	it := item{start: int32(at.Start), end: int32(at.End), keySlot: noKey}
	for slot, key := range found {
		if key.Found() && isKey(key.Of(body)) {
			it.keyStart, it.keyEnd, it.keySlot = int32(key.Start), int32(key.End), int8(slot)
			break
		}
	}
	return it
}

func isKey(raw []byte) bool {
	switch raw[0] {
	case '"':
		return len(raw) > 2
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return true
	}
	return false
}

// reuse finds the items of body when it shares its beginning and its end with
// prev, a valid list: only the items between are scanned. It is sound because a
// JSON reader that has passed the shared items and a comma is in a state that
// depends on nothing else, and the shared end begins with an item. It reports
// false whenever the middle alone does not scan, and a whole scan then decides.
func reuse(body []byte, prev *State) ([]item, bool) {
	if bytes.Equal(body, prev.body) {
		return prev.items, true
	}
	shared := commonPrefix(body, prev.body)
	head, from := prev.head(shared)
	if from == 0 {
		return nil, false
	}
	grown := len(body) - len(prev.body)
	tail := prev.tail(len(prev.body)-commonSuffix(body[shared:], prev.body[shared:]), head)
	to := len(body)
	if tail < len(prev.items) {
		to = int(prev.items[tail].start) + grown
	}
	if to < from {
		return nil, false
	}
	middle, ok := scanMiddle(body, from, to, head > 0)
	if !ok {
		return nil, false
	}
	items := make([]item, 0, head+len(middle)+len(prev.items)-tail)
	items = append(items, prev.items[:head]...)
	items = append(items, middle...)
	for _, it := range prev.items[tail:] {
		items = append(items, it.moved(int32(grown)))
	}
	return items, len(items) <= maxItems
}

// head returns how many items, each with the comma after it, lie in the first
// shared bytes, and the offset that follows them: 0 if not even the opening
// bracket does.
func (s *State) head(shared int) (n, from int) {
	n = sort.Search(len(s.items), func(i int) bool { return int(s.items[i].end) >= shared })
	for ; n > 0; n-- {
		comma := skipSpace(s.body, int(s.items[n-1].end))
		if comma < shared && s.body[comma] == ',' {
			return n, comma + 1
		}
	}
	if open := skipSpace(s.body, 0); open < shared {
		return 0, open + 1
	}
	return 0, 0
}

// tail returns the first item, not before item head, that begins at or after an
// offset.
func (s *State) tail(offset, head int) int {
	return max(head, sort.Search(len(s.items), func(i int) bool { return int(s.items[i].start) >= offset }))
}

// standIn stands for the items that follow the middle. No beginning of a value
// can absorb it: not a number, not a string, not an escape.
const standIn = "{}"

// scanMiddle scans body[from:to], which is either the rest of the document or
// ends where a known item begins: a stand-in takes its place.
func scanMiddle(body []byte, from, to int, afterComma bool) ([]item, bool) {
	rest := to == len(body)
	doc := make([]byte, 0, to-from+len("[]")+len(standIn))
	doc = append(append(doc, '['), body[from:to]...)
	if !rest {
		doc = append(append(doc, standIn...), ']')
	}
	var items []item
	list, err := jsonx.ScanList(doc, keyPaths, func(at jsonx.Span, found []jsonx.Span) {
		items = append(items, newItem(doc, at, found).moved(int32(from)-1))
	})
	if err != nil || !list {
		return nil, false
	}
	if !rest {
		// It is an item of its own only if the middle ended between items.
		last := len(items) - 1
		return items[:max(last, 0)], last >= 0 && int(items[last].start) == to
	}
	return items, len(items) > 0 || !afterComma // [1,] is no list
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// block is the step in which two bodies are compared.
const block = 4096

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+block <= n && bytes.Equal(a[i:i+block], b[i:i+block]) {
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func commonSuffix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+block <= n && bytes.Equal(a[len(a)-i-block:len(a)-i], b[len(b)-i-block:len(b)-i]) {
		i += block
	}
	for i < n && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	return i
}
