package jsonx

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Append appends the value as compact JSON, numbers by their literal and
// members in their order.
func (v Value) Append(dst []byte) []byte { return v.append(dst, false) }

// Canonical returns a text that is equal for two values exactly if [Equal]
// says that they are: compact, members sorted by name.
func (v Value) Canonical() string { return string(v.append(nil, true)) }

// String returns the value as compact JSON.
func (v Value) String() string { return string(v.Append(nil)) }

// MarshalJSON makes a Value part of documents that encoding/json writes.
func (v Value) MarshalJSON() ([]byte, error) { return v.Append(nil), nil }

func (v Value) append(dst []byte, sorted bool) []byte {
	switch v.kind {
	case Bool, Number:
		return append(dst, v.text...)
	case String:
		return AppendString(dst, v.text)
	case Array:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.append(dst, sorted)
		}
		return append(dst, ']')
	case Object:
		return v.appendObject(dst, sorted)
	default:
		return append(dst, "null"...)
	}
}

func (v Value) appendObject(dst []byte, sorted bool) []byte {
	members := v.members
	if sorted {
		members = slices.Clone(members)
		slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, m.Name), ':')
		dst = m.Value.append(dst, sorted)
	}
	return append(dst, '}')
}

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	// The only error is invalid UTF-8, which was just replaced.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
