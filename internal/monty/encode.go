package monty

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxDigits is Python's own bound for an integer in decimal.
const maxDigits = 4300

var (
	errDigits   = fmt.Errorf("integer of more than %d digits", maxDigits)
	errTrailing = errors.New("more than one JSON value")
)

// encoder turns JSON text into MontyObject messages, token by token: no tree is
// built, so key order and the spelling of numbers come through.
type encoder struct {
	dec *jsontext.Decoder
	// depth is the deepest nesting of messages seen, in messages.
	depth int
}

// encodeJSON returns the body of a MontyObject with the value of a JSON text. An
// empty text is None. depth is the nesting of messages that it needs.
func encodeJSON(text json.RawMessage) (object []byte, depth int, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return appendMessage(nil, objNone, nil), 1, nil
	}
	e := encoder{dec: jsontext.NewDecoder(bytes.NewBuffer(text))}
	if object, err = e.value(nil, 1); err != nil {
		return nil, 0, err
	}
	if _, err := e.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errTrailing
		}
		return nil, 0, err
	}
	return object, e.depth, nil
}

func (e *encoder) value(dst []byte, depth int) ([]byte, error) {
	e.depth = max(e.depth, depth)
	switch e.dec.PeekKind() {
	case '[':
		return e.list(dst, depth)
	case '{':
		return e.dict(dst, depth)
	default: // a scalar, or an error that reading it brings
	}
	v, err := e.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	switch v.Kind() {
	case 'n':
		return appendMessage(dst, objNone, nil), nil
	case 't':
		return appendUint(dst, objBool, 1), nil
	case 'f':
		return appendUint(dst, objBool, 0), nil
	case '"':
		return appendQuoted(dst, v)
	default:
		return appendNumber(dst, v)
	}
}

func (e *encoder) list(dst []byte, depth int) ([]byte, error) {
	if _, err := e.dec.ReadToken(); err != nil {
		return nil, err
	}
	dst, list := open(dst, objList)
	for e.dec.PeekKind() != ']' {
		var item mark
		var err error
		dst, item = open(dst, 1)
		if dst, err = e.value(dst, depth+2); err != nil {
			return nil, err
		}
		dst = item.close(dst)
	}
	if _, err := e.dec.ReadToken(); err != nil {
		return nil, err
	}
	return list.close(dst), nil
}

func (e *encoder) dict(dst []byte, depth int) ([]byte, error) {
	if _, err := e.dec.ReadToken(); err != nil {
		return nil, err
	}
	dst, dict := open(dst, objDict)
	for e.dec.PeekKind() != '}' {
		var pair, part mark
		name, err := e.dec.ReadValue()
		if err != nil {
			return nil, err
		}
		dst, pair = open(dst, 1)
		dst, part = open(dst, 1)
		if dst, err = appendQuoted(dst, name); err != nil {
			return nil, err
		}
		dst = part.close(dst)
		dst, part = open(dst, 2)
		if dst, err = e.value(dst, depth+3); err != nil {
			return nil, err
		}
		dst = pair.close(part.close(dst))
	}
	if _, err := e.dec.ReadToken(); err != nil {
		return nil, err
	}
	return dict.close(dst), nil
}

// appendQuoted appends a str from a JSON string. Most have no escape and are
// copied as they are.
func appendQuoted(dst []byte, quoted jsontext.Value) ([]byte, error) {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		dst = protowire.AppendTag(dst, objStr, protowire.BytesType)
		return protowire.AppendBytes(dst, inner), nil
	}
	s, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil, err
	}
	dst = protowire.AppendTag(dst, objStr, protowire.BytesType)
	return protowire.AppendBytes(dst, s), nil
}

// appendNumber follows Python's json: a number with a point or an exponent is a
// float, infinite when out of range; any other is an exact int.
func appendNumber(dst []byte, lit jsontext.Value) ([]byte, error) {
	if bytes.ContainsAny(lit, ".eE") {
		f, err := strconv.ParseFloat(string(lit), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, err
		}
		return appendFloat(dst, f), nil
	}
	if n, err := strconv.ParseInt(string(lit), 10, 64); err == nil {
		return appendUint(dst, objInt, protowire.EncodeZigZag(n)), nil
	}
	if len(bytes.TrimPrefix(lit, []byte("-"))) > maxDigits {
		return nil, errDigits
	}
	n, ok := new(big.Int).SetString(string(lit), 10)
	if !ok {
		return nil, fmt.Errorf("number %.40q is no integer", lit)
	}
	var b []byte
	if n.Sign() < 0 {
		b = appendUint(b, 1, 1)
	}
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, n.Bytes())
	return appendMessage(dst, objBigInt, b), nil
}

// mark is where the body of a message begins whose length is not known yet.
type mark int

// open starts a message in dst with room for a length of one byte.
func open(dst []byte, num protowire.Number) ([]byte, mark) {
	dst = append(protowire.AppendTag(dst, num, protowire.BytesType), 0)
	return dst, mark(len(dst))
}

// close writes the length, moving the body when it needs more than one byte.
func (m mark) close(dst []byte) []byte {
	n := len(dst) - int(m)
	extra := protowire.SizeVarint(uint64(n)) - 1
	if extra > 0 {
		dst = slices.Grow(dst, extra)[:len(dst)+extra]
		copy(dst[int(m)+extra:], dst[m:int(m)+n])
	}
	protowire.AppendVarint(dst[:m-1], uint64(n))
	return dst
}

// keywords cannot name a variable.
var keywords = []string{
	"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
	"elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
	"not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
}

// identifier reports whether s can name a variable.
func identifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != "" && !slices.Contains(keywords, s)
}
