// Package memo is the reference state source: one small JSON object that tools
// change and clients watch as memo://notes (specification W-230, W-231).
//
// A [Store] keeps keys in the order in which they came and every number
// exactly as it was written. It is bounded in keys and bytes, lives in memory,
// and is written to a file only when one is named.
package memo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Default limits of a [Store].
const (
	DefaultMaxKeys  = 1000
	DefaultMaxKey   = 256      // bytes of one key
	DefaultMaxValue = 64 << 10 // bytes of one value, compact
	DefaultMaxBytes = 1 << 20  // bytes of all keys and values
)

// Options configure a [Store]. Zero fields take the defaults of this package.
type Options struct {
	MaxKeys  int
	MaxKey   int
	MaxValue int
	MaxBytes int
	// Path names the file that keeps the notes between runs; every change
	// replaces it as a whole. Empty keeps them in memory only.
	Path string
}

// LimitError says which bound a change would break, and what helps.
type LimitError struct {
	What  string // "keys", "key", "value" or "bytes"
	Limit int
	Hint  string
}

func (e *LimitError) Error() string {
	unit := "bytes"
	if e.What == "keys" {
		unit = "keys"
	}
	return fmt.Sprintf("set note: over the limit of %d %s (%s): %s", e.Limit, unit, e.What, e.Hint)
}

// ErrInvalid is wrapped by errors about a key or a value that no store takes.
var ErrInvalid = errors.New("not a note")

// Store is a JSON object with a memory for order. It is safe for concurrent
// use.
type Store struct {
	opts Options

	mu    sync.RWMutex
	notes []note
	bytes int

	observers observers
}

type note struct {
	key   string
	value jsontext.Value
}

func (n note) size() int { return len(n.key) + len(n.value) }

// New makes a store, filled from the file that opts name if it exists. Nil
// options mean an empty store in memory.
func New(opts *Options) (*Store, error) {
	s := &Store{}
	if opts != nil {
		s.opts = *opts
	}
	setDefault(&s.opts.MaxKeys, DefaultMaxKeys)
	setDefault(&s.opts.MaxKey, DefaultMaxKey)
	setDefault(&s.opts.MaxValue, DefaultMaxValue)
	setDefault(&s.opts.MaxBytes, DefaultMaxBytes)
	if s.opts.Path == "" {
		return s, nil
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("load notes: %w", err)
	}
	return s, nil
}

func setDefault(n *int, value int) {
	if *n <= 0 {
		*n = value
	}
}

// Set stores value under key and tells the observers. A key that exists keeps
// its place. Setting a key to the value that it has is no change.
//
// Errors: *LimitError; an error that wraps ErrInvalid for an empty key or a
// value that is not one JSON value; an error of the file.
func (s *Store) Set(key string, value json.RawMessage) error {
	v, err := s.check(key, value)
	if err != nil {
		return err
	}
	return s.change(func(notes []note) ([]note, error) {
		i := find(notes, key)
		switch {
		case i < 0 && len(notes) >= s.opts.MaxKeys:
			return nil, &LimitError{What: "keys", Limit: s.opts.MaxKeys, Hint: "delete notes that are no longer needed with memo_delete"}
		case i < 0:
			return append(notes, note{key, v}), nil
		case bytes.Equal(notes[i].value, v):
			return nil, nil
		}
		notes[i].value = v
		return notes, nil
	})
}

// Delete removes key and reports whether it was there.
func (s *Store) Delete(key string) (bool, error) {
	found := false
	err := s.change(func(notes []note) ([]note, error) {
		i := find(notes, key)
		if i < 0 {
			return nil, nil
		}
		found = true
		return slices.Delete(notes, i, i+1), nil
	})
	return found && err == nil, err
}

// Get returns the value under key.
func (s *Store) Get(key string) (json.RawMessage, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := find(s.notes, key)
	if i < 0 {
		return nil, false
	}
	return slices.Clone(json.RawMessage(s.notes[i].value)), true
}

// Keys returns the keys in their order.
func (s *Store) Keys() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := make([]string, len(s.notes))
	for i, n := range s.notes {
		keys[i] = n.key
	}
	return keys
}

// JSON returns all notes as one compact JSON object.
func (s *Store) JSON() json.RawMessage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return render(s.notes, s.bytes)
}

// change applies edit to a copy of the notes; edit returns nil for no change.
// The file is written before the change is seen, so that what was seen lasts.
func (s *Store) change(edit func([]note) ([]note, error)) error {
	s.mu.Lock()
	notes, err := edit(slices.Clone(s.notes))
	if err != nil || notes == nil {
		s.mu.Unlock()
		return err
	}
	size := 0
	for _, n := range notes {
		size += n.size()
	}
	if size > s.opts.MaxBytes && size > s.bytes {
		s.mu.Unlock()
		return &LimitError{What: "bytes", Limit: s.opts.MaxBytes, Hint: "delete or shorten notes first"}
	}
	if err := s.save(render(notes, size)); err != nil {
		s.mu.Unlock()
		return fmt.Errorf("save notes: %w", err)
	}
	s.notes, s.bytes = notes, size
	s.mu.Unlock()
	s.observers.notify()
	return nil
}

func (s *Store) check(key string, value json.RawMessage) (jsontext.Value, error) {
	switch {
	case key == "":
		return nil, fmt.Errorf("set note: %w: the key is empty", ErrInvalid)
	case !utf8.ValidString(key):
		return nil, fmt.Errorf("set note: %w: the key is not UTF-8", ErrInvalid)
	case len(key) > s.opts.MaxKey:
		return nil, &LimitError{What: "key", Limit: s.opts.MaxKey, Hint: "use a shorter key"}
	}
	v := slices.Clone(jsontext.Value(value))
	// Compact alone lets duplicate names and broken UTF-8 pass.
	if err := v.Compact(jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)); err != nil {
		return nil, fmt.Errorf("set note %q: %w: the value is not JSON: %w", key, ErrInvalid, err)
	}
	if len(v) > s.opts.MaxValue {
		return nil, &LimitError{What: "value", Limit: s.opts.MaxValue, Hint: "store less, or split it over several keys"}
	}
	return v, nil
}

func find(notes []note, key string) int {
	return slices.IndexFunc(notes, func(n note) bool { return n.key == key })
}

func render(notes []note, size int) json.RawMessage {
	b := make([]byte, 0, size+8*len(notes)+2)
	b = append(b, '{')
	for i, n := range notes {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, n.key) // keys are UTF-8: it cannot fail
		b = append(b, ':')
		b = append(b, n.value...)
	}
	return append(b, '}')
}

// Similar returns up to three keys that are near key, for hints.
func (s *Store) Similar(key string) []string {
	var near []string
	for _, k := range s.Keys() {
		if strings.EqualFold(k, key) || strings.Contains(k, key) || strings.Contains(key, k) || within(k, key, 2) {
			near = append(near, k)
		}
		if len(near) == 3 {
			break
		}
	}
	return near
}

// within reports whether the edit distance of a and b is at most d. It is cut
// off for long strings, because it only serves hints.
func within(a, b string, d int) bool {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) > d || len(b)-len(a) > d {
		return false
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)] <= d
}
