package monty

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// printer spells values as Python's str and repr do. The interpreter sends
// values, not their text, and asking it for the text would cost a second turn;
// an instance of a class of the program therefore prints as a plain one does in
// Python, whatever its __str__ says.
type printer struct {
	limit int // of bytes written
	dst   []byte
}

// str is str(value).
func (p *printer) str(o object) (string, error) {
	p.dst = nil
	switch o.num {
	case objStr, objPath:
		return strings.ToValidUTF8(string(o.b), "\uFFFD"), nil
	case objException:
		return text(o.b, 2), nil
	case objDate:
		return parseCivil(o).date(), nil
	case objDateTime:
		c := parseCivil(o)
		return c.date() + " " + c.clock(), nil
	case objTime:
		return parseCivil(o).clock(), nil
	case objTimeDelta:
		return parseDelta(o.b).String(), nil
	case objTimeZone:
		return parseZone(o.b).String(), nil
	}
	if err := p.repr(o, 0); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(string(p.dst), "\uFFFD"), nil
}

func (p *printer) add(s string) { p.dst = append(p.dst, s...) }

// repr appends repr(value). Errors: errDepth, errTooLarge, or what is wrong
// with the message.
func (p *printer) repr(o object, depth int) error {
	if depth > maxValueDepth {
		return errDepth
	}
	if len(p.dst) > p.limit {
		return errTooLarge
	}
	switch o.num {
	case objList:
		return p.sequence(o, "[", "]", depth)
	case objTuple:
		return p.sequence(o, "(", ")", depth)
	case objSet:
		return p.set(o, "set()", "{", "}", depth)
	case objFrozenSet:
		return p.set(o, "frozenset()", "frozenset({", "})", depth)
	case objDict:
		return p.dict(o.b, depth)
	case objNamedTuple:
		return p.named(o, depth)
	case objInstance:
		p.add("<" + typeName(o.b) + " object>")
	default:
		p.scalar(o)
	}
	return nil
}

func (p *printer) scalar(o object) {
	switch o.num {
	case objNone:
		p.add("None")
	case objEllipsis:
		p.add("Ellipsis")
	case objNotImplemented:
		p.add("NotImplemented")
	case objBool:
		if o.n != 0 {
			p.add("True")
		} else {
			p.add("False")
		}
	case objInt:
		p.dst = strconv.AppendInt(p.dst, protowire.DecodeZigZag(o.n), 10)
	case objBigInt:
		if n, ok := bigInt(o.b); ok {
			p.dst = n.Append(p.dst, 10)
		} else {
			p.add(fmt.Sprintf("<int of more than %d digits>", maxDigits))
		}
	case objFloat:
		p.dst = appendFloatRepr(p.dst, math.Float64frombits(o.n))
	case objStr:
		p.dst = appendStrRepr(p.dst, string(o.b))
	case objBytes:
		p.dst = appendBytesRepr(p.dst, o.b)
	case objPath:
		p.add("PosixPath(")
		p.dst = appendStrRepr(p.dst, string(o.b))
		p.add(")")
	case objException:
		p.add(text(o.b, 1) + "(")
		if arg := text(o.b, 2); arg != "" {
			p.dst = appendStrRepr(p.dst, arg)
		}
		p.add(")")
	case objDate, objDateTime, objTime:
		p.add(parseCivil(o).repr())
	case objTimeDelta:
		p.add(parseDelta(o.b).repr())
	case objTimeZone:
		p.add(parseZone(o.b).repr())
	case objType:
		p.add("<class '" + text(o.b, 1) + "'>")
	case objFunction:
		p.add("<function " + text(o.b, 1) + ">")
	case objBuiltin:
		p.add("<built-in function " + string(o.b) + ">")
	case objFile:
		p.add("<file " + text(o.b, 1) + ">")
	case objRepr:
		p.dst = append(p.dst, o.b...)
	case objCycle:
		p.add(text(o.b, 2))
	default:
		p.add("<unknown value>")
	}
}

// typeName is the class of an instance.
func typeName(b []byte) string {
	name := "object"
	_ = fields(b, func(f field) error {
		if f.num == 1 {
			name = text(f.b, 1)
		}
		return nil
	})
	return name
}

func (p *printer) sequence(o object, left, right string, depth int) error {
	p.add(left)
	n := 0
	err := o.items(func(item object) error {
		if n++; n > 1 {
			p.add(", ")
		}
		return p.repr(item, depth+1)
	})
	if o.num == objTuple && n == 1 {
		p.add(",")
	}
	p.add(right)
	return err
}

func (p *printer) set(o object, empty, left, right string, depth int) error {
	if len(o.b) == 0 {
		p.add(empty)
		return nil
	}
	return p.sequence(o, left, right, depth)
}

func (p *printer) dict(b []byte, depth int) error {
	p.add("{")
	first := true
	err := pairs(b, func(k, v object) error {
		if !first {
			p.add(", ")
		}
		first = false
		if err := p.repr(k, depth+1); err != nil {
			return err
		}
		p.add(": ")
		return p.repr(v, depth+1)
	})
	p.add("}")
	return err
}

func (p *printer) named(o object, depth int) error {
	var names []string
	_ = fields(o.b, func(f field) error {
		if f.num == 2 {
			names = append(names, string(f.b))
		}
		return nil
	})
	p.add(text(o.b, 1) + "(")
	n := 0
	err := o.items(func(item object) error {
		if n > 0 {
			p.add(", ")
		}
		if n < len(names) {
			p.add(names[n] + "=")
		}
		n++
		return p.repr(item, depth+1)
	})
	p.add(")")
	return err
}

func appendFloat(dst []byte, f float64) []byte {
	dst = protowire.AppendTag(dst, objFloat, protowire.Fixed64Type)
	return protowire.AppendFixed64(dst, math.Float64bits(f))
}

// appendFloatRepr is repr(f): the shortest digits, an exponent below 1e-4 and
// from 1e16, and always a point or an exponent.
func appendFloatRepr(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendStrRepr is repr(s).
func appendStrRepr(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r < 0x100:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r < 0x10000:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		}
	}
	return append(dst, quote)
}

// appendBytesRepr is repr(b).
func appendBytesRepr(dst, b []byte) []byte {
	quote := byte('\'')
	if bytes.IndexByte(b, '\'') >= 0 && bytes.IndexByte(b, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, 'b', quote)
	for _, c := range b {
		switch {
		case c == quote || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c >= 0x20 && c < 0x7f:
			dst = append(dst, c)
		default:
			dst = fmt.Appendf(dst, `\x%02x`, c)
		}
	}
	return append(dst, quote)
}
