package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/jsonx"
)

func state(s string) *State { return ParseState([]byte(s), nil) }

// brief shows events as "TYPE key old→new [changed]".
func brief(events []Event) []string {
	list := []string{}
	for _, e := range events {
		s := e.Type + " " + e.Key
		switch {
		case e.Old != nil:
			s += " " + string(e.Old) + "→" + string(e.New)
		default:
			s += " " + string(e.Item)
		}
		if e.Changed != nil {
			s += " " + fmt.Sprint(e.Changed)
		}
		list = append(list, s)
	}
	return list
}

// W-250: state diff of lists, objects and text.
func TestDiff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, old, new string
		want           []string
	}{
		// W-030: the key is the first present of metadata.uid, uid, id, metadata.name, name.
		{"key metadata.uid", `[{"metadata":{"uid":"u1","name":"a"},"v":1}]`, `[{"metadata":{"uid":"u2","name":"a"},"v":1}]`, []string{
			`ADDED u2 {"metadata":{"uid":"u2","name":"a"},"v":1}`, `DELETED u1 {"metadata":{"uid":"u1","name":"a"},"v":1}`,
		}},
		{"key uid before id", `[{"id":1,"uid":"u"}]`, `[{"id":2,"uid":"u"}]`, []string{`MODIFIED u {"id":1,"uid":"u"}→{"id":2,"uid":"u"} [id]`}},
		{"key id before metadata.name", `[{"metadata":{"name":"a"},"id":7}]`, `[{"metadata":{"name":"b"},"id":7}]`, []string{
			`MODIFIED 7 {"metadata":{"name":"a"},"id":7}→{"metadata":{"name":"b"},"id":7} [metadata.name]`,
		}},
		{"key metadata.name before name", `[{"name":"x","metadata":{"name":"a"}}]`, `[{"name":"y","metadata":{"name":"a"}}]`, []string{
			`MODIFIED a {"name":"x","metadata":{"name":"a"}}→{"name":"y","metadata":{"name":"a"}} [name]`,
		}},
		{"key name", `[{"name":"x","v":1},{"name":"y","v":1}]`, `[{"name":"y","v":2},{"name":"x","v":1}]`, []string{
			`MODIFIED y {"name":"y","v":1}→{"name":"y","v":2} [v]`,
		}},
		{"a key that is null or empty is absent", `[{"uid":null,"id":"","name":"x","v":1}]`, `[{"uid":null,"id":"","name":"x","v":2}]`, []string{
			`MODIFIED x {"uid":null,"id":"","name":"x","v":1}→{"uid":null,"id":"","name":"x","v":2} [v]`,
		}},
		{"field names match by case", `[{"ID":1,"v":1}]`, `[{"ID":1,"v":2}]`, []string{`ADDED {"ID":1,"v":2} {"ID":1,"v":2}`, `DELETED {"ID":1,"v":1} {"ID":1,"v":1}`}},
		{"a key may be written with escapes", `[{"\u0069d":"\u0061","v":1}]`, `[{"id":"a","v":2}]`, []string{`MODIFIED a {"\u0069d":"\u0061","v":1}→{"id":"a","v":2} [v]`}},
		// W-030: none present, the whole item is its own key.
		{"scalars", `[1,"a",true]`, `["a",2,true]`, []string{`ADDED 2 2`, `DELETED 1 1`}},
		// WA-03: a multiset by whole item.
		{"scalars are a multiset", `["a","a","b"]`, `["b","a"]`, []string{`DELETED a "a"`}},
		{"one and one point zero differ", `[1]`, `[1.0]`, []string{`ADDED 1.0 1.0`, `DELETED 1 1`}},
		{"keyless objects are equal in any order", `[{"a":1,"b":2}]`, `[ {"b":2, "a":1} ]`, []string{}},
		// WA-03: duplicate keys are compared as ordered groups, equal items first.
		{"duplicate keys", `[{"id":1,"v":"a"},{"id":1,"v":"b"},{"id":1,"v":"c"}]`, `[{"id":1,"v":"b"},{"id":1,"v":"x"}]`, []string{
			`MODIFIED 1 {"id":1,"v":"a"}→{"id":1,"v":"x"} [v]`, `DELETED 1 {"id":1,"v":"c"}`,
		}},
		{"a duplicate key outside the part that differs", `[{"id":1,"v":"a"},{"id":2}]`, `[{"id":1,"v":"a"},{"id":1,"v":"a"},{"id":2}]`, []string{
			`ADDED 1 {"id":1,"v":"a"}`,
		}},
		// WA-03: a mixed list takes the key of each item.
		{"mixed", `[{"id":1,"v":1},"s",{"name":"n","v":1}]`, `["t",{"name":"n","v":2},{"id":1,"v":1}]`, []string{
			`ADDED t "t"`, `MODIFIED n {"name":"n","v":1}→{"name":"n","v":2} [v]`, `DELETED s "s"`,
		}},
		// B-051, B-053: large integers are different keys by their literal.
		{"big integer keys", `[{"id":50000000014435121,"v":1},{"id":50000000014435124,"v":1}]`, `[{"id":50000000014435121,"v":1},{"id":50000000014435124,"v":2}]`, []string{
			`MODIFIED 50000000014435124 {"id":50000000014435124,"v":1}→{"id":50000000014435124,"v":2} [v]`,
		}},
		{"big integer values", `[{"id":"a","n":1915883588174806058}]`, `[{"id":"a","n":1915883588174806059}]`, []string{
			`MODIFIED a {"id":"a","n":1915883588174806058}→{"id":"a","n":1915883588174806059} [n]`,
		}},
		{"a number and a string are different keys", `[{"id":1}]`, `[{"id":"1"}]`, []string{`ADDED 1 {"id":"1"}`, `DELETED 1 {"id":1}`}},
		{"white space and order say nothing", `[{"id":1,"a":1,"b":[2]}]`, " [ { \"b\":[ 2 ],\n\"a\":1 , \"id\":1 } ]\n", []string{}},
		{"order of a list says nothing", `[{"id":1},{"id":2},{"id":3}]`, `[{"id":3},{"id":1},{"id":2}]`, []string{}},
		{"empty lists", `[]`, `[ ]`, []string{}},
		{"first item", `[]`, `[{"id":1}]`, []string{`ADDED 1 {"id":1}`}},
		{"last item", `[{"id":1}]`, `[]`, []string{`DELETED 1 {"id":1}`}},
		// W-031: an object, by top-level key.
		{"object", `{"todo":"a","gone":1,"same":{"x":1}}`, `{"owner":"me","todo":"b","same":{ "x":1}}`, []string{
			`ADDED owner "me"`, `MODIFIED todo "a"→"b" [.]`, `DELETED gone 1`,
		}},
		{"object member that is an object", `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, []string{`MODIFIED a {"b":{"c":1}}→{"b":{"c":2}} [b.c]`}},
		{"one Kubernetes object, written again", `{"metadata":{"name":"a","resourceVersion":"1"}}`, `{"metadata":{"name":"a","resourceVersion":"2"}}`, []string{
			`MODIFIED metadata {"name":"a","resourceVersion":"1"}→{"name":"a","resourceVersion":"2"} []`,
		}},
		// W-032, WA-04: text and scalars are one whole.
		{"text", `hello`, `hello world`, []string{`CHANGED  "hello"→"hello world"`}},
		{"scalar", `1`, `2`, []string{`CHANGED  "1"→"2"`}},
		{"scalar with white space", `1`, ` 1`, []string{`CHANGED  "1"→" 1"`}},
		// W-034: equal reads.
		{"equal text", `hello`, `hello`, []string{}},
		{"equal list", `[{"id":1}]`, `[{"id":1}]`, []string{}},
		// W-036: another shape, and what is not JSON.
		{"list to object", `[1]`, `{"a":1}`, []string{`CHANGED  [1]→{"a":1}`}},
		{"object to text", `{"a":1}`, `{"a":1`, []string{`CHANGED  {"a":1}→"{\"a\":1"`}},
		{"text to list", ``, `[]`, []string{`CHANGED  ""→[]`}},
		{"duplicate names are text", `{"a":1,"a":2}`, `{"a":1,"a":3}`, []string{`CHANGED  "{\"a\":1,\"a\":2}"→"{\"a\":1,\"a\":3}"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			old := state(c.old)
			if diff := cmp.Diff(c.want, brief(Diff(old, state(c.new)))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.want, brief(Diff(old, ParseState([]byte(c.new), old)))); diff != "" {
				t.Errorf("with the parts of the last read: %s", diff)
			}
		})
	}
}

// W-033: the types that a diff makes, and no others.
func TestDiffTypes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, pair := range [][2]string{{`[{"id":1,"v":1},{"id":2}]`, `[{"id":1,"v":2},{"id":3}]`}, {`a`, `b`}} {
		for _, e := range Diff(state(pair[0]), state(pair[1])) {
			seen[e.Type] = true
		}
	}
	if diff := cmp.Diff([]string{"ADDED", "CHANGED", "DELETED", "MODIFIED"}, sortedKeys(seen)); diff != "" {
		t.Error(diff)
	}
}

// W-036: what is too deep or too large is text and never a panic.
func TestDiffHostileBodies(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	bodies := []string{
		deep, `[` + deep + `]`, "", "\x00", "[", "[]]", "[1,]", "[,1]", "{}", "[[[]]]", "\xff\xfe", "[\"\xff\"]", "null", "[null]", `[{"metadata":null}]`,
		`[{"metadata":{"uid":{}}}]`, `[{"id":[1]}]`, `[{"id":1},{"id":1},1,1,null,null]`, `{"":{"":{"":{"":1}}}}`, " [1 ,2 ] ", "[1,2]x",
	}
	for _, a := range bodies {
		for _, b := range bodies {
			events := Diff(state(a), ParseState([]byte(b), state(a)))
			if (a == b) != (len(events) == 0) {
				t.Errorf("%.20q to %.20q: %d events", a, b, len(events))
			}
			for _, e := range events {
				if object := e.Object("w", "u"); !json.Valid(object) {
					t.Errorf("%.20q to %.20q: the event is not JSON: %.100s", a, b, object)
				}
				(&liner{}).line(&e)
			}
		}
	}
}

// apply is the inverse of Diff for lists and objects: what old becomes by its
// events, as a multiset of canonical texts.
func apply(t *testing.T, old *State, events []Event) map[string]int {
	t.Helper()
	have := parts(old)
	take := func(text string) {
		if have[text]--; have[text] < 0 {
			t.Fatalf("an event removes %s, which is not there", text)
		}
		if have[text] == 0 {
			delete(have, text)
		}
	}
	prefix := func(e Event, raw json.RawMessage) string {
		if old.form == formObject {
			return e.Key + "=" + canonical(raw)
		}
		return canonical(raw)
	}
	for _, e := range events {
		switch e.Type {
		case TypeAdded:
			have[prefix(e, e.New)]++
		case TypeDeleted:
			take(prefix(e, e.Item))
		case TypeModified:
			take(prefix(e, e.Old))
			have[prefix(e, e.New)]++
		default:
			t.Fatalf("unexpected event %s", e.Type)
		}
	}
	return have
}

func parts(s *State) map[string]int {
	have := map[string]int{}
	for _, it := range s.items {
		have[canonical(it.raw(s.body))]++
	}
	for _, m := range s.members {
		have[m.name+"="+canonical(m.value.Of(s.body))]++
	}
	return have
}

// randomItems makes list items with few keys, so that duplicates, scalars and
// missing keys are common.
func randomItems(r *rand.Rand, n int) []string {
	items := make([]string, n)
	for i := range items {
		switch r.IntN(6) {
		case 0:
			items[i] = fmt.Sprint(r.IntN(4))
		case 1:
			items[i] = fmt.Sprintf(`{"v":%d}`, r.IntN(3))
		case 2:
			items[i] = fmt.Sprintf(`{ "metadata":{"uid":"u%d"},"v":%d}`, r.IntN(5), r.IntN(3))
		case 3:
			items[i] = fmt.Sprintf(`"a,]\"[%d"`, r.IntN(3))
		default:
			items[i] = fmt.Sprintf(`{"id":%d,"v":%d}`, 50000000014435120+r.IntN(6), r.IntN(3))
		}
	}
	return items
}

// edit changes a list a little, as a server does between two reads.
func edit(r *rand.Rand, items []string) []string {
	items = slices.Clone(items)
	for range r.IntN(4) {
		i := r.IntN(len(items) + 1)
		switch r.IntN(4) {
		case 0:
			items = slices.Insert(items, i, randomItems(r, 1)...)
		case 1:
			if i < len(items) {
				items = slices.Delete(items, i, i+1)
			}
		case 2:
			if i < len(items) {
				items[i] = randomItems(r, 1)[0]
			}
		default:
			r.Shuffle(len(items), func(a, b int) { items[a], items[b] = items[b], items[a] })
		}
	}
	return items
}

func listText(r *rand.Rand, items []string) string {
	space := []string{"", "", "", " ", "\n "}[r.IntN(5)]
	return space + "[" + space + strings.Join(items, space+","+space) + space + "]" + space
}

// TestDiffRoundTrip: the old read and the events make the new read, and a read
// parsed with the parts of the last one is what it is when parsed alone.
func TestDiffRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		items := randomItems(r, r.IntN(12))
		old := state(listText(r, items))
		for range 3 {
			items = edit(r, items)
			text := listText(r, items)
			next := ParseState([]byte(text), old)
			if alone := state(text); !sameState(alone, next) {
				t.Fatalf("after %s\n%s\nis parsed as %+v\nwant %+v", old.body, text, next, alone)
			}
			events := Diff(old, next)
			if diff := cmp.Diff(parts(next), apply(t, old, events)); diff != "" {
				t.Fatalf("%s to %s by %v: %s", old.body, text, brief(events), diff)
			}
			old = next
		}
	}
}

func sameState(a, b *State) bool {
	return a.form == b.form && bytes.Equal(a.body, b.body) && slices.Equal(a.items, b.items) && slices.Equal(a.members, b.members)
}

func TestDiffObjectRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	random := func() string {
		m := map[string]int{}
		for range r.IntN(8) {
			m[fmt.Sprintf("k%d", r.IntN(6))] = r.IntN(3)
		}
		raw, _ := json.Marshal(m)
		return string(raw)
	}
	for range 1000 {
		old, next := state(random()), state(random())
		if got, want := apply(t, old, Diff(old, next)), parts(next); !maps.Equal(got, want) {
			t.Fatalf("%s to %s gives %v", old.body, next.body, got)
		}
	}
}

// FuzzReuse: parts of the last read never change how a read is understood.
func FuzzReuse(f *testing.F) {
	for _, pair := range [][2]string{
		{`[1,2,3]`, `[1,9,3]`},
		{`["a","b"]`, `["\"a","b"]`},
		{`[{"id":1},{"id":2}]`, `[{"id":1},{"id":12},{"id":2}]`},
		{`[]`, `[1]`},
		{`[1,2]`, `[1,]`},
		{`["x",1,2]`, `["x,1,2]`},
		{`[1,12]`, `[1,1]`},
		{" [ 1 , 2 ] ", " [ 1 , 3 , 2 ] "},
		{`[[1],2]`, `[[1,2]`},
		{`[1,2,3]`, `[1,2],3]`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		old := ParseState(a, nil)
		alone, next := ParseState(b, nil), ParseState(b, old)
		if !sameState(alone, next) {
			t.Fatalf("after %q, %q is %+v, alone %+v", a, b, next, alone)
		}
		events := Diff(old, next)
		if old.form == next.form && old.form != formText {
			if got, want := apply(t, old, events), parts(next); !maps.Equal(got, want) {
				t.Fatalf("%q to %q gives %v, want %v", a, b, got, want)
			}
		}
		for _, e := range events {
			if object := e.Object("w", "u"); !jsonx.Valid(object) {
				t.Fatalf("the event is not JSON: %s", object)
			}
		}
	})
}

// bigList is a list of n Kubernetes-like items of about size bytes each.
func bigList(n, size, changed int) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		phase := "Running"
		if i == changed {
			phase = "Succeeded"
		}
		item := fmt.Sprintf(`{"metadata":{"name":"item-%d","namespace":"default","uid":"6f1c-%06d","resourceVersion":"%d"},"status":{"phase":"%s"},"note":"`,
			i, i, 1000+i, phase)
		b.WriteString(item)
		b.WriteString(strings.Repeat("x", max(0, size-len(item)-2)))
		b.WriteString(`"}`)
	}
	b.WriteByte(']')
	return b.Bytes()
}

// BenchmarkDiff is the diff of a list with one change, reading included.
func BenchmarkDiff(b *testing.B) {
	for _, size := range []int{200, 1024} {
		old := ParseState(bigList(10_000, size, -1), nil)
		body := bigList(10_000, size, 5_000)
		b.Run(fmt.Sprintf("one of 10000 items of %d bytes", size), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if events := Diff(old, ParseState(body, old)); len(events) != 1 {
					b.Fatal(brief(events))
				}
			}
		})
		b.Run(fmt.Sprintf("cold, one of 10000 items of %d bytes", size), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if events := Diff(old, ParseState(body, nil)); len(events) != 1 {
					b.Fatal(brief(events))
				}
			}
		})
	}
}
