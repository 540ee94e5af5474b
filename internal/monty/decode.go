package monty

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxValueDepth bounds the nesting of a value that comes out. The interpreter
// itself stops earlier.
const maxValueDepth = 1000

var (
	errNoShape  = errors.New("value has no JSON shape")
	errDepth    = errors.New("value is nested too deeply")
	errTooLarge = errors.New("value is too large")
)

// object is the body of a MontyObject, reduced to its kind and content.
type object field

// parseObject finds the kind of a value. A message without one is None, for
// that is what an absent value is.
func parseObject(b []byte) (object, error) {
	o := object{num: objNone}
	err := fields(b, func(f field) error {
		o = object(f)
		return nil
	})
	return o, err
}

// items calls fn with each item of a list, tuple, set or frozenset, and with
// each value of a named tuple.
func (o object) items(fn func(object) error) error {
	num := int32(1)
	if o.num == objNamedTuple {
		num = 3
	}
	return fields(o.b, func(f field) error {
		if f.num != num {
			return nil
		}
		item, err := parseObject(f.b)
		if err != nil {
			return err
		}
		return fn(item)
	})
}

// pairs calls fn with each entry of a dict message.
func pairs(b []byte, fn func(key, value object) error) error {
	return fields(b, func(f field) error {
		if f.num != 1 {
			return nil
		}
		k, v, err := parsePair(f.b)
		if err != nil {
			return err
		}
		return fn(k, v)
	})
}

func parsePair(b []byte) (key, value object, err error) {
	key.num, value.num = objNone, objNone
	err = fields(b, func(f field) (err error) {
		switch f.num {
		case 1:
			key, err = parseObject(f.b)
		case 2:
			value, err = parseObject(f.b)
		}
		return err
	})
	return key, value, err
}

// jsonWriter writes values as compact JSON.
type jsonWriter struct {
	// limit bounds the bytes written.
	limit int
	// lenient writes a value that has no JSON shape as the string str(value).
	lenient bool
}

// append appends o. Errors: errNoShape, errDepth, errTooLarge, or what is wrong
// with the message.
func (w jsonWriter) append(dst []byte, o object, depth int) ([]byte, error) {
	if depth > maxValueDepth {
		return nil, errDepth
	}
	if len(dst) > w.limit {
		return nil, errTooLarge
	}
	switch o.num {
	case objNone:
		return append(dst, "null"...), nil
	case objBool:
		return strconv.AppendBool(dst, o.n != 0), nil
	case objInt:
		return strconv.AppendInt(dst, protowire.DecodeZigZag(o.n), 10), nil
	case objBigInt:
		if n, ok := bigInt(o.b); ok {
			return n.Append(dst, 10), nil
		}
	case objFloat:
		if f := math.Float64frombits(o.n); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return appendFloatRepr(dst, f), nil
		}
	case objStr:
		return appendQuote(dst, string(o.b))
	case objList, objTuple, objNamedTuple, objSet, objFrozenSet:
		return w.array(dst, o, depth)
	case objDict:
		return w.dict(dst, o, depth)
	}
	if !w.lenient {
		return nil, errNoShape
	}
	p := printer{limit: w.limit - len(dst)}
	s, err := p.str(o)
	if err != nil {
		return nil, err
	}
	return appendQuote(dst, s)
}

func (w jsonWriter) array(dst []byte, o object, depth int) ([]byte, error) {
	dst = append(dst, '[')
	first := true
	err := o.items(func(item object) (err error) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst, err = w.append(dst, item, depth+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	return append(dst, ']'), nil
}

// dict spells the keys as json.dumps does. Keys that collide when spelled ("1"
// and 1) have no JSON shape: an object with one name twice is read by nobody.
func (w jsonWriter) dict(dst []byte, o object, depth int) ([]byte, error) {
	mixed := false
	_ = pairs(o.b, func(k, _ object) error {
		mixed = mixed || k.num != objStr
		return nil
	})
	var seen map[string]bool
	if mixed {
		seen = map[string]bool{}
	}
	dst = append(dst, '{')
	first := true
	err := pairs(o.b, func(k, v object) error {
		name, err := w.key(k)
		if err != nil {
			return err
		}
		if mixed {
			if seen[name] {
				if !w.lenient {
					return errNoShape
				}
				return nil
			}
			seen[name] = true
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if dst, err = appendQuote(dst, name); err != nil {
			return err
		}
		dst, err = w.append(append(dst, ':'), v, depth+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

func (w jsonWriter) key(k object) (string, error) {
	switch k.num {
	case objStr:
		return string(k.b), nil
	case objNone, objBool, objInt, objBigInt, objFloat:
		b, err := jsonWriter{limit: w.limit}.append(nil, k, 0)
		return string(b), err
	}
	if !w.lenient {
		return "", errNoShape
	}
	p := printer{limit: w.limit}
	return p.str(k)
}

func appendQuote(dst []byte, s string) ([]byte, error) {
	// The error says that s is not UTF-8, and the text has replacement runes
	// then, which is what we want of a hostile child.
	out, err := jsontext.AppendQuote(dst, s)
	if out == nil && err != nil {
		return nil, fmt.Errorf("quote string: %w", err)
	}
	return out, nil
}

// bigInt reads a BigInt message, unless it has more digits than Python itself
// would print.
func bigInt(b []byte) (*big.Int, bool) {
	var magnitude []byte
	var negative bool
	err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			negative = f.n != 0
		case 2:
			magnitude = f.b
		}
		return nil
	})
	const maxBytes = maxDigits*1000/2408 + 1 // a byte is 2.408 digits
	if err != nil || len(magnitude) > maxBytes {
		return nil, false
	}
	n := new(big.Int).SetBytes(magnitude)
	if negative {
		n.Neg(n)
	}
	return n, true
}
