package jsonx

// Equal reports whether two values are the same. Objects are unordered,
// arrays ordered. Numbers are equal by their literal: 1 and 1.0 differ, because
// a server that writes another literal has written another thing, and because
// no conversion can then make two large integers one.
func Equal(a, b Value) bool {
	if a.kind != b.kind || a.text != b.text || len(a.items) != len(b.items) || len(a.members) != len(b.members) {
		return false
	}
	for i := range a.items {
		if !Equal(a.items[i], b.items[i]) {
			return false
		}
	}
	return equalMembers(a.members, b.members)
}

// smallObject is the size up to which a linear search beats a map.
const smallObject = 8

func equalMembers(a, b []Member) bool {
	// Most often both sides have one order.
	i := 0
	for i < len(a) && a[i].Name == b[i].Name {
		if !Equal(a[i].Value, b[i].Value) {
			return false
		}
		i++
	}
	a, b = a[i:], b[i:]
	if len(a) > smallObject {
		return equalByMap(a, b)
	}
	for _, m := range a {
		other, ok := find(b, m.Name)
		if !ok || !Equal(m.Value, other) {
			return false
		}
	}
	return true
}

func equalByMap(a, b []Member) bool {
	index := make(map[string]Value, len(b))
	for _, m := range b {
		index[m.Name] = m.Value
	}
	for _, m := range a {
		other, ok := index[m.Name]
		if !ok || !Equal(m.Value, other) {
			return false
		}
	}
	return true
}

func find(members []Member, name string) (Value, bool) {
	for i := range members {
		if members[i].Name == name {
			return members[i].Value, true
		}
	}
	return Value{}, false
}
