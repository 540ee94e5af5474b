package jsonx

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustParse(t *testing.T, s string) Value {
	t.Helper()
	v, err := Parse([]byte(s))
	if err != nil {
		t.Fatalf("parse %s: %v", s, err)
	}
	return v
}

// B-051: integers over 2^53, exponents and trailing zeros stay as written.
func TestParseKeepsLiteralsAndOrder(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{"id":1915883588174806058,"a":1.0,"b":1e400,"c":-0,"z":[1,true,false,null,"é\"\\"],"":{}}`,
		`[]`, `{}`, `null`, `"x"`, `12345678901234567890123456789`,
	} {
		if got := mustParse(t, s).String(); got != s {
			t.Errorf("round trip of %s = %s", s, got)
		}
	}
}

// M-16: what is not exact JSON is an error.
func TestParseRejects(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		``, ` `, `{`, `[1,]`, `{"a":1,}`, `01`, `+1`, `1 2`, `nul`, `"\x"`, "\"\xff\"", `"\ud800"`, `{"a":1,"a":2}`,
		`{"a":1,"\u0061":2}`, `[{"k":{"x":1,"x":1}}]`, "\ufeff{}", `{a:1}`, `'x'`, `NaN`, "\"\n\"", `[1 2]`, `[1]]`, `{"a" 1}`,
	} {
		if v, err := Parse([]byte(s)); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", s, v)
		}
		if Valid([]byte(s)) {
			t.Errorf("Valid(%q) = true", s)
		}
		if _, err := ScanList([]byte(s), []Want{{Name: "k", Slot: 0}}, func(Span, []Span) {}); err == nil {
			t.Errorf("ScanList(%q): no error", s)
		}
		if _, err := ScanObject([]byte(s), func(string, Span) {}); err == nil {
			t.Errorf("ScanObject(%q): no error", s)
		}
	}
}

// W-036: depth and size are bounded, at n and n+1.
func TestBounds(t *testing.T) {
	t.Parallel()
	nest := func(n int) []byte { return []byte(strings.Repeat(`[`, n) + strings.Repeat(`]`, n)) }
	nestObjects := func(n int) []byte { return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat(`}`, n)) }
	scans := map[string]func([]byte) error{
		"parse": func(b []byte) error { _, err := Parse(b); return err },
		"valid": func(b []byte) error {
			if !Valid(b) {
				return ErrDepth
			}
			return nil
		},
		"list": func(b []byte) error {
			_, err := ScanList(b, []Want{{Name: "a", Slot: 0}}, func(Span, []Span) {})
			return err
		},
		"object": func(b []byte) error { _, err := ScanObject(b, func(string, Span) {}); return err },
	}
	for name, scan := range scans {
		for _, make := range []func(int) []byte{nest, nestObjects} {
			if err := scan(make(MaxDepth)); err != nil {
				t.Errorf("%s: depth %d: %v", name, MaxDepth, err)
			}
			if err := scan(make(MaxDepth + 1)); !errors.Is(err, ErrDepth) {
				t.Errorf("%s: depth %d: %v, want ErrDepth", name, MaxDepth+1, err)
			}
			if err := scan(make(9_000)); !errors.Is(err, ErrDepth) {
				t.Errorf("%s: depth 9000: %v, want ErrDepth", name, err)
			}
		}
	}
	// Brackets in strings are not depth.
	text := []byte(`["` + strings.Repeat(`[{\"`, 400) + `"]`)
	for name, scan := range scans {
		if err := scan(text); err != nil {
			t.Errorf("%s: brackets in a string: %v", name, err)
		}
	}
	list := []byte("[" + strings.Repeat("1,", MaxValues-2) + "1]")
	if _, err := Parse(list); err != nil {
		t.Errorf("parse at the bound of values: %v", err)
	}
	list = []byte("[" + strings.Repeat("1,", MaxValues) + "1]")
	if _, err := Parse(list); !errors.Is(err, ErrValues) {
		t.Errorf("parse over the bound of values: %v", err)
	}
	if _, err := ScanList(list, nil, func(Span, []Span) {}); !errors.Is(err, ErrValues) {
		t.Errorf("scan over the bound of values: %v", err)
	}
	big := []byte(`"` + strings.Repeat("x", MaxSize-2) + `"`)
	if _, err := Parse(big); err != nil {
		t.Errorf("parse at the size bound: %v", err)
	}
	if _, err := Parse(append(big, ' ')); !errors.Is(err, ErrSize) {
		t.Errorf("parse over the size bound: %v", err)
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1`, true},
		{`1`, `1.0`, false},
		{`1`, `"1"`, false},
		{`50000000014435121`, `50000000014435124`, false}, // B-053
		{`{"a":1,"b":[2,{"c":3}]}`, `{ "b" : [2, {"c":3}], "a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1,"b":2}`, `{"a":1,"c":2}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[]`, `{}`, false},
		{`null`, `false`, false},
		{`"\u00e9"`, `"é"`, true},
		{`{"A":1}`, `{"a":1}`, false},
		{`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10}`, `{"j":10,"i":9,"h":8,"g":7,"f":6,"e":5,"d":4,"c":3,"b":2,"a":1}`, true},
		{`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10}`, `{"j":10,"i":9,"h":8,"g":7,"f":6,"e":5,"d":4,"c":3,"b":2,"a":0}`, false},
	} {
		a, b := mustParse(t, c.a), mustParse(t, c.b)
		if got := Equal(a, b); got != c.want {
			t.Errorf("Equal(%s, %s) = %v", c.a, c.b, got)
		}
		if got := a.Canonical() == b.Canonical(); got != c.want {
			t.Errorf("Canonical of %s and %s equal: %v", c.a, c.b, got)
		}
	}
}

func TestAccessors(t *testing.T) {
	t.Parallel()
	v := mustParse(t, `{"a":{"b":7},"s":"x","f":1.0,"n":null,"big":9223372036854775808,"l":[1]}`)
	if b, ok := v.Get("a", "b"); !ok || b.Text() != "7" {
		t.Errorf("Get(a, b) = %v, %v", b, ok)
	}
	for _, path := range [][]string{{"A"}, {"a", "x"}, {"s", "x"}, {"l", "0"}} {
		if got, ok := v.Get(path...); ok {
			t.Errorf("Get(%v) = %v", path, got)
		}
	}
	if n, ok := mustParse(t, `-7`).Int64(); !ok || n != -7 {
		t.Errorf("Int64(-7) = %d, %v", n, ok)
	}
	for _, name := range []string{"f", "s", "n", "big"} {
		m, _ := v.Get(name)
		if n, ok := m.Int64(); ok {
			t.Errorf("Int64 of %s = %d", name, n)
		}
	}
	built := ObjectOf(Member{"a", ArrayOf(Int(1), BoolOf(true), StringOf("\xffx"), Value{})})
	if got, want := built.String(), "{\"a\":[1,true,\"\ufffdx\",null]}"; got != want {
		t.Errorf("built = %s, want %s", got, want)
	}
}

func TestScanListFindsWantedMembers(t *testing.T) {
	t.Parallel()
	doc := ` [ {"x":[1],"metadata":{"name":"n1","uid":"u1"},"id": 12 } , "s",{"i\u0064":"esc"}, {"metadata":3}, 4.50 ] `
	want := []Want{{Name: "id", Slot: 0}, {Name: "metadata", Slot: -1, Sub: []Want{{Name: "uid", Slot: 1}}}}
	var got []string
	list, err := ScanList([]byte(doc), want, func(at Span, found []Span) {
		s := bytes.Clone(at.Of([]byte(doc)))
		for _, f := range found {
			s = append(s, '|')
			if f.Found() {
				s = append(s, f.Of([]byte(doc))...)
			}
		}
		got = append(got, string(s))
	})
	if err != nil || !list {
		t.Fatalf("ScanList = %v, %v", list, err)
	}
	if diff := cmp.Diff([]string{
		`{"x":[1],"metadata":{"name":"n1","uid":"u1"},"id": 12 }|12|"u1"`, `"s"||`, `{"i\u0064":"esc"}|"esc"|`, `{"metadata":3}||`, `4.50||`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestScanOtherShapes(t *testing.T) {
	t.Parallel()
	if list, err := ScanList([]byte(`{"a":1}`), nil, nil); list || err != nil {
		t.Errorf("ScanList of an object = %v, %v", list, err)
	}
	if object, err := ScanObject([]byte(`[1]`), nil); object || err != nil {
		t.Errorf("ScanObject of a list = %v, %v", object, err)
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,{"id":"x","metadata":{"uid":1}}],"b":"\u00e9"}`, `[{"id":1},{"id":1.0},null,"\ud83d\ude00"]`, `[[[[]]]]`, `{"a":1,"a":2}`,
		`[1e5,-0.0,"\"",{"":{"":[]}}]`, ` [ ] `, `{"x`, "\xff", `[{"metadata":{"name":"n"}}] x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if (err == nil) != Valid(b) {
			t.Fatalf("Parse says %v, Valid says %v", err, Valid(b))
		}
		var items []string
		list, scanErr := ScanList(b, []Want{{Name: "id", Slot: 0}, {Name: "metadata", Slot: -1, Sub: []Want{{Name: "uid", Slot: 1}}}}, func(at Span, _ []Span) {
			items = append(items, string(at.Of(b)))
		})
		var members []string
		object, objectErr := ScanObject(b, func(name string, at Span) { members = append(members, name, string(at.Of(b))) })
		if (err == nil) != (scanErr == nil) || (err == nil) != (objectErr == nil) {
			t.Fatalf("Parse says %v, ScanList %v, ScanObject %v", err, scanErr, objectErr)
		}
		if err != nil {
			return
		}
		again, err := Parse(v.Append(nil))
		if err != nil || !Equal(v, again) || v.Canonical() != again.Canonical() {
			t.Fatalf("round trip of %s: %v, %v", v, again, err)
		}
		if list != (v.Kind() == Array) || object != (v.Kind() == Object) {
			t.Fatalf("list %v, object %v, kind %v", list, object, v.Kind())
		}
		checkParts(t, v, items, members)
	})
}

func checkParts(t *testing.T, v Value, items, members []string) {
	t.Helper()
	if len(items) != len(v.Items()) || len(members) != 2*len(v.Members()) {
		t.Fatalf("scanned %d items and %d members of %s", len(items), len(members)/2, v)
	}
	for i, item := range v.Items() {
		if !Equal(item, mustParse(t, items[i])) {
			t.Fatalf("item %d: scanned %s, parsed %s", i, items[i], item)
		}
	}
	for i, m := range v.Members() {
		if m.Name != members[2*i] || !Equal(m.Value, mustParse(t, members[2*i+1])) {
			t.Fatalf("member %d: scanned %s %s, parsed %s %s", i, members[2*i], members[2*i+1], m.Name, m.Value)
		}
	}
}
