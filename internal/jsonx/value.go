package jsonx

import (
	"strconv"
)

// Kind is the kind of a JSON value.
type Kind uint8

// The kinds. Null is the zero Kind, so the zero Value is null.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "bool"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "array"
	case Object:
		return "object"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Value is one JSON value, immutable after it was made. The zero Value is null.
type Value struct {
	kind    Kind
	text    string // decoded string, or the literal of a number or a bool
	items   []Value
	members []Member
}

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// StringOf makes a string. Invalid UTF-8 in s becomes U+FFFD when appended.
func StringOf(s string) Value { return Value{kind: String, text: s} }

// BoolOf makes a bool.
func BoolOf(b bool) Value { return Value{kind: Bool, text: strconv.FormatBool(b)} }

// Int makes a number.
func Int(n int64) Value { return Value{kind: Number, text: strconv.FormatInt(n, 10)} }

// ArrayOf makes an array of items, which it keeps.
func ArrayOf(items ...Value) Value { return Value{kind: Array, items: items} }

// ObjectOf makes an object of members, which it keeps, in their order. Names
// must be unique.
func ObjectOf(members ...Member) Value { return Value{kind: Object, members: members} }

// Kind returns the value's kind.
func (v Value) Kind() Kind { return v.kind }

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.kind == Null }

// Text returns the decoded text of a string, the literal of a number or a
// bool, "null" for null, and "" for arrays and objects.
func (v Value) Text() string {
	if v.kind == Null {
		return "null"
	}
	return v.text
}

// Int64 returns the number if its literal is an integer that fits: neither
// 1.0 nor 1e3 is one.
func (v Value) Int64() (int64, bool) {
	if v.kind != Number {
		return 0, false
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	return n, err == nil
}

// Items returns the items of an array, nil for other kinds. The caller must
// not change them.
func (v Value) Items() []Value { return v.items }

// Members returns the members of an object in document order, nil for other
// kinds. The caller must not change them.
func (v Value) Members() []Member { return v.members }

// Get returns the value at a path of member names. It is false where a step is
// missing or is not an object.
func (v Value) Get(path ...string) (Value, bool) {
	for _, name := range path {
		found := false
		for i := range v.members {
			if v.members[i].Name == name {
				v, found = v.members[i].Value, true
				break
			}
		}
		if !found {
			return Value{}, false
		}
	}
	return v, true
}
