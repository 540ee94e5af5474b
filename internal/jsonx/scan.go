package jsonx

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Span is where a value lies in a document: b[Start:End], no white space
// around it. The zero Span is "absent": no value starts at 0 and ends there.
type Span struct{ Start, End int }

// Of returns the bytes of the span in b.
func (s Span) Of(b []byte) []byte { return b[s.Start:s.End:s.End] }

// Found reports whether the span is present.
func (s Span) Found() bool { return s.End > s.Start }

// Want is a member that a scan of a list is to find in each item that is an
// object.
type Want struct {
	Name string
	// Slot is the index under which a found value is reported, or negative for
	// a member of which only Sub is wanted.
	Slot int
	// Sub are wanted members of the value, if it is an object.
	Sub []Want
}

// ScanList validates a document in one pass and, if it is an array, calls item
// for each of its items, with what was found of the wanted members. The
// slice found is overwritten by the next call. list is false when the document
// is valid and not an array. Bounds and errors are those of [Parse].
func ScanList(b []byte, want []Want, item func(at Span, found []Span)) (list bool, err error) {
	if len(b) > MaxSize {
		return false, ErrSize
	}
	s := scanner{d: jsontext.NewDecoder(bytes.NewBuffer(b)), found: make([]Span, slots(want))}
	if s.d.PeekKind() != '[' {
		if _, err := s.value(); err != nil {
			return false, fmt.Errorf("scan JSON: %w", err)
		}
		return false, end(s.d)
	}
	if err := s.list(want, item); err != nil {
		return true, fmt.Errorf("scan JSON: %w", err)
	}
	return true, end(s.d)
}

// ScanObject validates a document in one pass and, if it is an object, calls
// member for each of its members in order. object is false when the document is
// valid and not an object. Bounds and errors are those of [Parse].
func ScanObject(b []byte, member func(name string, value Span)) (object bool, err error) {
	if len(b) > MaxSize {
		return false, ErrSize
	}
	s := scanner{d: jsontext.NewDecoder(bytes.NewBuffer(b))}
	if s.d.PeekKind() != '{' {
		if _, err := s.value(); err != nil {
			return false, fmt.Errorf("scan JSON: %w", err)
		}
		return false, end(s.d)
	}
	if _, err := s.members(func(name []byte) error {
		text := string(name) // the next read overwrites name's bytes
		at, err := s.value()
		if err == nil {
			member(text, at)
		}
		return err
	}); err != nil {
		return true, fmt.Errorf("scan JSON: %w", err)
	}
	return true, end(s.d)
}

type scanner struct {
	d     *jsontext.Decoder
	found []Span
	name  []byte // scratch for names with escapes
}

func (s *scanner) list(want []Want, item func(Span, []Span)) error {
	if _, err := s.d.ReadToken(); err != nil {
		return err
	}
	for n := 0; s.d.PeekKind() != ']'; n++ {
		if n == MaxValues {
			return ErrValues
		}
		clear(s.found)
		at, err := s.pick(want)
		if err != nil {
			return err
		}
		item(at, s.found)
	}
	_, err := s.d.ReadToken()
	return err
}

// pick passes over one value and notes the wanted members in it.
func (s *scanner) pick(want []Want) (Span, error) {
	if len(want) == 0 || s.d.PeekKind() != '{' {
		return s.value()
	}
	return s.members(func(name []byte) error {
		w := lookup(want, name)
		if w == nil {
			_, err := s.value()
			return err
		}
		got, err := s.pick(w.Sub)
		if err == nil && w.Slot >= 0 {
			s.found[w.Slot] = got
		}
		return err
	})
}

// members passes over one object.
func (s *scanner) members(member func(name []byte) error) (Span, error) {
	if _, err := s.d.ReadToken(); err != nil {
		return Span{}, err
	}
	start := int(s.d.InputOffset()) - 1
	for n := 0; s.d.PeekKind() != '}'; n++ {
		if n == MaxValues {
			return Span{}, ErrValues
		}
		raw, err := s.d.ReadValue()
		if err != nil {
			return Span{}, err
		}
		name, err := s.unquote(raw)
		if err != nil {
			return Span{}, err
		}
		if err := member(name); err != nil {
			return Span{}, err
		}
	}
	if _, err := s.d.ReadToken(); err != nil {
		return Span{}, err
	}
	return Span{start, int(s.d.InputOffset())}, nil
}

func (s *scanner) unquote(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	var err error
	s.name, err = jsontext.AppendUnquote(s.name[:0], raw)
	return s.name, err
}

// value passes over one whole value.
func (s *scanner) value() (Span, error) {
	raw, err := s.d.ReadValue()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Span{}, err
	}
	if !depthWithin(raw, MaxDepth-s.d.StackDepth()) {
		return Span{}, ErrDepth
	}
	stop := int(s.d.InputOffset())
	return Span{stop - len(raw), stop}, nil
}

func lookup(want []Want, name []byte) *Want {
	for i := range want {
		if want[i].Name == string(name) {
			return &want[i]
		}
	}
	return nil
}

func slots(want []Want) int {
	n := 0
	for _, w := range want {
		n = max(n, w.Slot+1, slots(w.Sub))
	}
	return n
}
