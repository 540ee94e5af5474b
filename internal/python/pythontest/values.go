package pythontest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
)

// testPersistence: variables persist from run to run exactly (W-080).
func testPersistence(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	s.ok(`
import re
from json import dumps as to_json
big = 10**40 + 1
pair = (1, (2.0, "x"), b"\x00\xff")
order = {"z": 1, "a": 2, 3: "three", (1, 2): "tuple"}
seen = {"a", "b"}
frozen = frozenset([1])
shared = alias = [1]
nested = {"list": shared}
neg = -0.0
def add(a, b=2, *rest, **kw):
    return a + b + offset
offset = 100
def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step
step = counter()
step()
class Point:
    def __init__(self, x): self.x = x
    def double(self): return Point(self.x * 2)
    def __repr__(self): return f"Point({self.x})"
p = Point(4)
async def later(x): return x + 1
square = lambda x: x * x
`)
	s.is("big", "10000000000000000000000000000000000000001")
	s.is("type(pair) is tuple and pair == (1, (2.0, 'x'), b'\\x00\\xff')", "true")
	s.is("[str(k) for k in order]", `["z","a","3","(1, 2)"]`)
	s.is("order[(1, 2)] + order[3]", `"tuplethree"`)
	s.is("seen == {'a', 'b'} and type(seen) is set and type(frozen) is frozenset", "true")
	s.is("str(neg)", `"-0.0"`)
	s.is("add(1)", "103")
	s.is("offset = 200\nadd(1, 5)", "206")
	s.is("step()", "2")
	s.is("step()", "3")
	s.is("repr(p.double())", `"Point(8)"`)
	s.is("type(p.double()) is Point", "true")
	s.is("await later(1)", "2")
	s.is("square(7)", "49")
	s.is("re.sub('[0-9]+', '#', 'a12b')", `"a#b"`)
	s.is("to_json([1])", `"[1]"`)
	s.is("shared.append(2)\nalias", "[1,2]")
	s.is("nested['list'].append(3)\nalias", "[1,2,3]")
	s.is("alias is shared and nested['list'] is shared", "true")

	// What was assigned before an exception stays.
	s.raises("offset = 300\nadd(1)\n1/0\noffset = 400", "ZeroDivisionError")
	s.is("offset", "300")
	s.raises("offset = 500\noffset = (", "SyntaxError")
	s.is("offset", "300")
}

// testNames: the scope can say what persists (N-8).
func testNames(t *testing.T, e python.Engine) {
	s := scope(t, e, echo, "fetch")
	if got := s.Names(); len(got) != 0 {
		t.Errorf("names of an empty scope: %v", got)
	}
	s.ok(`
import json
total: int = 1
local_only = None
def helper(arg):
    inner = arg
    return inner
(a, b), *rest = (1, 2), 3
for item in [1]: pass
with_walrus = (w := 3)
x = fetch("a")
if False:
    never = 1
items = sorted([2, 1], key=len) if False else list([1])
`)
	want := []string{"a", "b", "helper", "item", "items", "json", "local_only", "rest", "total", "w", "with_walrus", "x"}
	if diff := cmp.Diff(want, s.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, err := s.Run(t.Context(), "type = event\nfloat = int\nnever = 2", input("event", "1"), python.Limits{Time: ample}); err != nil {
		t.Fatal(err)
	}
	want = []string{"a", "b", "float", "helper", "item", "items", "json", "local_only", "never", "rest", "total", "type", "w", "with_walrus", "x"}
	if diff := cmp.Diff(want, s.Names()); diff != "" {
		t.Errorf("names after another run (-want +got):\n%s", diff)
	}
	s.is("[total, a, b, rest, w]", "[1,1,2,[3],3]") // looking has changed nothing
	s.Close()
	if got := s.Names(); len(got) != 0 {
		t.Errorf("names of a closed scope: %v", got)
	}
}

// testInputs: JSON comes in with order, integers and floats exact.
func testInputs(t *testing.T, e python.Engine) {
	deep := strings.Repeat(`{"k":[`, 40) + "7" + strings.Repeat("]}", 40)
	for _, c := range []struct{ in, source, want string }{
		{`{"b":1,"a":{"d":[],"c":{}}}`, "v", `{"b":1,"a":{"d":[],"c":{}}}`},
		{`1915883588174806058`, "v + 1", "1915883588174806059"},
		{`-9223372036854775808`, "v - 1", "-9223372036854775809"},
		{`18446744073709551616`, "v", "18446744073709551616"},
		{`-123456789012345678901234567890`, "v * 10 + 1", "-1234567890123456789012345678899"},
		{`1.0`, "[v, type(v) is float]", "[1.0,true]"},
		{`1e3`, "[v, type(v) is float]", "[1000.0,true]"},
		{`-0`, "str(v)", `"0"`},
		{`-0.0`, "str(v)", `"-0.0"`},
		{`0.1`, "v + 0.2", "0.30000000000000004"},
		{`1e400`, "str(v)", `"inf"`},
		{`5e-324`, "v", "5e-324"},
		{`true`, "[v is True, type(v) is bool]", "[true,true]"},
		{`null`, "v is None", "true"},
		{` "\u00e9\ud83d\ude00\n\u0000\"" `, "[v, len(v)]", `["é😀\n\u0000\"",5]`},
		{`{"":{"é":1}}`, "v", `{"":{"é":1}}`},
		{`[[],{},[[]],"",0]`, "v", `[[],{},[[]],"",0]`},
		{deep, "x = v\nfor i in range(40): x = x['k'][0]\nx", "7"},
		{``, "v is None", "true"},
	} {
		s := scope(t, e, nil)
		r, err := s.Run(t.Context(), c.source, input("v", c.in), python.Limits{Time: ample})
		if err != nil {
			t.Errorf("input %.80s: %v", c.in, err)
			continue
		}
		if got := string(r.Value); got != c.want {
			t.Errorf("input %.80s: value %s, want %s", c.in, got, c.want)
		}
	}
	testBadInputs(t, e)
}

func testBadInputs(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	s.ok("kept = 1")
	for _, c := range []struct{ name, value string }{
		{"v", `{"a":1,"a":2}`},
		{"v", `[1,`},
		{"v", `1 2`},
		{"v", `nul`},
		{"v", "\"\xff\""},
		{"v", strings.Repeat("9", 5000)},
		{"not a name", `1`},
		{"class", `1`},
		{"", `1`},
	} {
		_, err := s.Run(t.Context(), "kept = 2", input(c.name, c.value), python.Limits{Time: ample})
		if _, raised := errors.AsType[*python.Error](err); err == nil || raised {
			t.Errorf("input %q = %.40q: error %v, want a refusal", c.name, c.value, err)
		}
	}
	s.is("kept", "1")
	testLargeInput(t, e)
}

// testLargeInput: what a program makes of an input persists; the input itself
// does not weigh on the scope.
func testLargeInput(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	text := `{"items":[` + strings.Repeat(`{"name":"item","n":[1,2,3]},`, 20_000) + `{"name":"last"}]}`
	lim := python.Limits{Time: ample, Memory: 512 << 20}
	for range 2 {
		r, err := s.Run(t.Context(), "last = v['items'][-1]\nlen(v['items'])", input("v", text), lim)
		if err != nil || string(r.Value) != "20001" {
			t.Fatalf("large input: %s, %v", r.Value, err)
		}
	}
	if r, err := s.Run(t.Context(), "last['name']", nil, lim); err != nil || r.Text != "last" {
		t.Errorf("what is left of a large input: %q, %v", r.Text, err)
	}
	s.exceeds("1", python.Limits{Time: ample, Memory: 1 << 20}, python.LimitMemory, input("v", text))
}

// testResults: the last expression's value in its three forms (W-083, W-084).
func testResults(t *testing.T, e python.Engine) {
	const noShape = ""
	for _, c := range []struct{ source, value, text string }{
		{`"text"`, `"text"`, `text`},
		{`1 + 1`, `2`, `2`},
		{`True`, `true`, `True`},
		{`2.50`, `2.5`, `2.5`},
		{`1e22`, `1e+22`, `1e+22`},
		{`123456789.0`, `123456789.0`, `123456789.0`},
		{`0.00001`, `1e-05`, `1e-05`},
		{`10**30`, `1000000000000000000000000000000`, `1000000000000000000000000000000`},
		{`{"b": [1, (2, None)], "a": {"x": True}}`, `{"b":[1,[2,null]],"a":{"x":true}}`, `{'b': [1, (2, None)], 'a': {'x': True}}`},
		{`{1: "a", None: "b", False: "c", 1.5: "d"}`, `{"1":"a","null":"b","false":"c","1.5":"d"}`, `{1: 'a', None: 'b', False: 'c', 1.5: 'd'}`},
		{`{1: "a", "1": "b"}`, noShape, `{1: 'a', '1': 'b'}`},
		{`{(1, 2): 3}`, noShape, `{(1, 2): 3}`},
		{`{"only"}`, `["only"]`, `{'only'}`},
		{`set()`, `[]`, `set()`},
		{`(1,)`, `[1]`, `(1,)`},
		{`["it's", 'say "x"', "both ' and \"", "tab\t\x01é"]`, `["it's","say \"x\"","both ' and \"","tab\t\u0001é"]`, `["it's", 'say "x"', 'both \' and "', 'tab\t\x01é']`},
		{`b"a\xff'"`, noShape, `b"a\xff'"`},
		{`float("nan")`, noShape, `nan`},
		{`[float("-inf")]`, noShape, `[-inf]`},
		{`...`, noShape, `Ellipsis`},
		{`ValueError("bad")`, noShape, `bad`},
		{`[KeyError("k")]`, noShape, `[KeyError('k')]`},
		{`"<a & b>"`, `"<a & b>"`, `<a & b>`},
		{`"line\nline"`, `"line\nline"`, "line\nline"},
	} {
		s := scope(t, e, nil)
		r, err := s.run(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		if got := string(r.Value); got != c.value {
			t.Errorf("%s: value %s, want %s", c.source, got, c.value)
		}
		if r.Text != c.text {
			t.Errorf("%s: text %s, want %s", c.source, r.Text, c.text)
		}
		if r.None {
			t.Errorf("%s: none", c.source)
		}
	}
	testNothing(t, e)
}

func testNothing(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	for _, source := range []string{"", "x = 5", "None", "for i in [1]: i", "# only a comment", "def f(): return 1", "if True:\n    5", "print(end='')"} {
		if r := s.ok(source); !r.None || string(r.Value) != "null" || r.Text != "" {
			t.Errorf("%q: none %v, value %s, text %q; want nothing", source, r.None, r.Value, r.Text)
		}
	}
	for _, source := range []string{"0", "''", "[]", "False", "x = 1\nx", "x; x"} {
		if r := s.ok(source); r.None {
			t.Errorf("%q: none", source)
		}
	}
	s.ok("def shown(): pass")
	if r := s.ok("shown"); r.Value != nil || !strings.HasPrefix(r.Text, "<function") {
		t.Errorf("function: value %s, text %q", r.Value, r.Text)
	}
}

// testOutput: prints are collected, and cut without stopping the program.
func testOutput(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	r := s.ok("print('a', 1, [2.0])\nprint('b', end='')\n3")
	if r.Output != "a 1 [2.0]\nb" || r.OutputCut || string(r.Value) != "3" {
		t.Errorf("output %q, cut %v, value %s", r.Output, r.OutputCut, r.Value)
	}
	r, err := s.Run(t.Context(), "print('before')\n1/0", nil, python.Limits{Time: ample})
	if err == nil || r.Output != "before\n" {
		t.Errorf("output before an exception: %q, error %v", r.Output, err)
	}
	for _, source := range []string{
		"for i in range(2000): print('é' * 40)\ndone = True\n'end'",
		"print('é' * 5_000_000)\ndone = True\n'end'", // 10 MB at once
	} {
		r, err := s.Run(t.Context(), source, nil, python.Limits{Time: ample, Output: 1001})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Output) > 1001 || len(r.Output) < 900 || !r.OutputCut || strings.Trim(r.Output, "é\n") != "" {
			t.Errorf("%d bytes of output, cut %v: %.20q…%q", len(r.Output), r.OutputCut, r.Output, r.Output[max(0, len(r.Output)-5):])
		}
		if r.Text != "end" {
			t.Errorf("program stopped at its output limit: %q", r.Text)
		}
	}
	if r := s.ok("print('again')"); r.Output != "again\n" || r.OutputCut {
		t.Errorf("output of the next run: %q", r.Output)
	}
}
