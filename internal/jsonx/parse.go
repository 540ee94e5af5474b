package jsonx

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Parse reads one JSON document. Errors: ErrSize, ErrDepth, ErrValues, or the
// syntax error with its offset; a duplicate name and invalid UTF-8 are syntax errors.
func Parse(b []byte) (Value, error) {
	if len(b) > MaxSize {
		return Value{}, ErrSize
	}
	p := parser{d: jsontext.NewDecoder(bytes.NewBuffer(b))}
	v, err := p.value()
	if err != nil {
		return Value{}, fmt.Errorf("parse JSON: %w", err)
	}
	if err := end(p.d); err != nil {
		return Value{}, err
	}
	return v, nil
}

// Valid reports whether b is one JSON document within the bounds of size and
// depth.
func Valid(b []byte) bool {
	return len(b) <= MaxSize && jsontext.Value(b).IsValid() && depthWithin(b, MaxDepth)
}

// Fits reports whether valid JSON can be put into a document below so many levels.
func Fits(b []byte, levels int) bool { return depthWithin(b, MaxDepth-levels) }

type parser struct {
	d     *jsontext.Decoder
	count int
}

func (p *parser) value() (Value, error) {
	if p.count++; p.count > MaxValues {
		return Value{}, ErrValues
	}
	tok, err := p.d.ReadToken()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Value{}, err
	}
	switch tok.Kind() {
	case '"':
		return Value{kind: String, text: tok.String()}, nil
	case '0':
		return Value{kind: Number, text: tok.String()}, nil
	case 't', 'f':
		return Value{kind: Bool, text: tok.String()}, nil
	case '[':
		return p.items()
	case '{':
		return p.members()
	default:
		return Value{}, nil
	}
}

func (p *parser) items() (Value, error) {
	v := Value{kind: Array}
	if p.d.StackDepth() > MaxDepth {
		return Value{}, ErrDepth
	}
	for p.d.PeekKind() != ']' {
		item, err := p.value()
		if err != nil {
			return Value{}, err
		}
		v.items = append(v.items, item)
	}
	_, err := p.d.ReadToken()
	return v, err
}

func (p *parser) members() (Value, error) {
	v := Value{kind: Object}
	if p.d.StackDepth() > MaxDepth {
		return Value{}, ErrDepth
	}
	for p.d.PeekKind() != '}' {
		name, err := p.d.ReadToken()
		if err != nil {
			return Value{}, err
		}
		m := Member{Name: name.String()}
		if m.Value, err = p.value(); err != nil {
			return Value{}, err
		}
		v.members = append(v.members, m)
	}
	_, err := p.d.ReadToken()
	return v, err
}

// end checks that nothing but white space follows.
func end(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = fmt.Errorf("more than one value, the second ends at offset %d", d.InputOffset())
		}
		return fmt.Errorf("parse JSON: %w", err)
	}
	return nil
}

// depthWithin reports whether valid JSON nests at most limit levels. Counting
// all brackets, those in strings too, is a cheap upper bound that settles
// nearly every document.
func depthWithin(b []byte, limit int) bool {
	if bytes.Count(b, []byte{'{'})+bytes.Count(b, []byte{'['}) <= limit {
		return true
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}
