package watch

import (
	"container/list"
	"context"
	"crypto/sha256"
)

// rows remembers a text for each key, bounded: the row that was used longest
// ago goes first (WA-19).
type rows struct {
	limit int
	order *list.List // of *row, the latest first
	byKey map[string]*list.Element
}

type row struct{ key, text string }

func newRows(limit int) *rows {
	return &rows{limit: limit, order: list.New(), byKey: map[string]*list.Element{}}
}

// set stores the text of a key and reports whether it was another one before.
func (r *rows) set(key, text string) (changed bool) {
	key, text = digest(key), digest(text)
	if el, ok := r.byKey[key]; ok {
		r.order.MoveToFront(el)
		old := el.Value.(*row)
		changed = old.text != text
		old.text = text
		return changed
	}
	r.byKey[key] = r.order.PushFront(&row{key, text})
	if r.order.Len() > r.limit {
		oldest := r.order.Back()
		r.order.Remove(oldest)
		delete(r.byKey, oldest.Value.(*row).key)
	}
	return true
}

func (r *rows) forget(key string) {
	if el, ok := r.byKey[digest(key)]; ok {
		r.order.Remove(el)
		delete(r.byKey, digest(key))
	}
}

// digest keeps a row small: a key may be a whole list item.
func digest(s string) string {
	if len(s) <= sha256.Size {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return string(sum[:])
}

// dedupe drops a line that equals the last one of the same object (W-100). A
// default line of a state that does not show the value is no repetition when the
// value is another: without that, only the first change of a long text would ever
// be told.
type dedupe struct{ last *rows }

func (d *dedupe) apply(_ context.Context, t *ticket) bool {
	keep := t.line != "" && d.last.set(t.event.Key, t.line+t.mark)
	if t.event.Type == TypeDeleted {
		// A successor of the same name begins anew.
		d.last.forget(t.event.Key)
	}
	if !keep {
		t.line = ""
	}
	return t.line != "" || len(t.remarks) > 0
}
