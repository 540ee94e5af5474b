package pythontest

import (
	"errors"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/python"
)

// testErrors: an exception says what, where, and whether the text is to blame
// (W-111, W-112).
func testErrors(t *testing.T, e python.Engine) {
	for _, c := range []struct {
		source, typ, message string
		line                 int
		function             string
		static               bool
	}{
		{"x = 1\n1/0", "ZeroDivisionError", "division by zero", 2, "", false},
		{"event = {}\nevent['object']['metadata']", "KeyError", "object", 2, "", false},
		{"def f():\n    return inner()\ndef inner():\n    return {}['k']\nf()", "KeyError", "k", 4, "inner", false},
		{"raise ValueError('bad thing')", "ValueError", "bad thing", 1, "", false},
		{"'a' + 1", "TypeError", "", 1, "", false},
		{"None.x", "AttributeError", "'NoneType' object has no attribute 'x'", 1, "", false},
		{"[][0]", "IndexError", "", 1, "", false},
		{"assert 1 == 2, 'nope'", "AssertionError", "nope", 1, "", false},
		{"\n\ntypo_name", "NameError", "name 'typo_name' is not defined", 3, "", true},
		{"x = 1\ntypo_fn(1)", "NameError", "name 'typo_fn' is not defined", 2, "", true},
		{"def f():\n    return missing\nf()", "NameError", "missing", 2, "f", true},
		{"def f():\n    x += 1\nx = 1\nf()", "UnboundLocalError", "", 0, "*", true},
		{"x = (1,\n", "SyntaxError", "", 0, "", true},
		{"ok = 1\ndef f(:\n  pass", "SyntaxError", "", 2, "", true},
		{"x = 'abc", "SyntaxError", "", 1, "", true},
		{"break", "SyntaxError", "", 1, "", true},
		{"import socket", "ModuleNotFoundError", "No module named 'socket'", 1, "", true},
		{"from json import nothing", "ImportError", "nothing", 1, "", true},
	} {
		s := scope(t, e, nil)
		got := s.raised(c.source, c.typ)
		if !strings.Contains(got.Message, c.message) {
			t.Errorf("%q: message %q, want %q in it", c.source, got.Message, c.message)
		}
		if c.line > 0 && got.Line != c.line {
			t.Errorf("%q: line %d, want %d", c.source, got.Line, c.line)
		}
		if c.function != "*" && got.Func != c.function {
			t.Errorf("%q: in function %q, want %q", c.source, got.Func, c.function)
		}
		if got.Static() != c.static {
			t.Errorf("%q: static %v", c.source, got.Static())
		}
		if c.line > 0 && got.SourceLine == "" {
			t.Errorf("%q: no source line", c.source)
		}
	}
	testSandbox(t, e)
	testHugeError(t, e)
}

// testSandbox: there is no way out of the interpreter.
func testSandbox(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	for _, source := range []string{
		"open('/etc/passwd').read()",
		"with open('/tmp/pythontest-escape', 'w') as f:\n    f.write('x')",
		"from pathlib import Path\nPath('/etc/passwd').read_text()",
		"import os\nos.environ['HOME']",
		"import os\nos.system('true')",
		"import subprocess",
		"import ctypes",
		"__import__('os').system('true')",
		"eval(\"__import__('os')\")",
		"().__class__.__bases__[0].__subclasses__()",
		"import sys\nsys.modules['os']",
	} {
		if r, err := s.run(source); err == nil {
			t.Errorf("%q gave %s", source, r.Text)
		} else if _, ok := errors.AsType[*python.Error](err); !ok {
			t.Errorf("%q: %v, want an exception", source, err)
		}
	}
}

func testHugeError(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	got := s.raised("raise ValueError('x' * 3_000_000)", "ValueError")
	if n := len(got.Error()); n > 64<<10 {
		t.Errorf("message of %d bytes", n)
	}
	long := "x = 1; " + strings.Repeat("y = 1; ", 5000) + "1/0"
	if got := s.raised(long, "ZeroDivisionError"); len(got.SourceLine) > 64<<10 {
		t.Errorf("source line of %d bytes", len(got.SourceLine))
	}
}

// testChecker: unknown names in branches that are not taken (W-111, W-265).
func testChecker(t *testing.T, e python.Engine) {
	c, ok := e.(python.Checker)
	if !ok {
		t.Skip("the engine has no checker")
	}
	names := []string{"event", "read_resource"}
	for _, source := range []string{
		"",
		"event['a'] if event else None",
		"try:\n    n += 1\nexcept NameError:\n    n = 1\nn",
		"for c in event:\n    x = c\n[x for x in event if x]",
		"r = await read_resource(uri='a')\nr['x'].missing + 1",
		"def f():\n    return g()\ndef g():\n    return f\nf()",
		"import re, json\nre.sub('a', 'b', event)\nlen(sorted(set(event)))",
		"open('x')\nint, str, ValueError, print, hasattr",
		"def f():\n    global total\n    total = 1\nif event:\n    total",
		"(w := 1) + w",
		"while True:\n    pass", // is not run
		"raise ValueError('is not run')",
		"# typo_name is only mentioned\nevent",
		"if event:\n    if 'typo' in event:\n        event.typo_attribute\n",
	} {
		if err := c.Check(t.Context(), source, names); err != nil {
			t.Errorf("check %q: %v", source, err)
		}
	}
	for _, f := range []struct {
		source, name string
		line, col    int
	}{
		{"if event.get('never'):\n    typo_name\n", "typo_name", 2, 5},
		{"def f():\n    return missing(1)\nevent", "missing", 2, 12},
		{"x = [é for a in event if typo]", "é", 1, 6},
		{"x = 1\nf'{x} {typo!r}'", "typo", 2, 8},
		{"try:\n    pass\nexcept FooError:\n    pass", "FooError", 3, 8},
		{"b_typo\na_typo", "b_typo", 1, 1},
		{"event.typo\nif event:\n    typo", "typo", 3, 5}, // an attribute assigns nothing
	} {
		err := c.Check(t.Context(), f.source, names)
		got, ok := errors.AsType[*python.Error](err)
		if !ok {
			t.Errorf("check %q: %v, want a NameError", f.source, err)
			continue
		}
		if !got.Static() || got.Type != "NameError" || !strings.Contains(got.Message, f.name) || got.Line != f.line || got.Col != f.col {
			t.Errorf("check %q: %+v, want %s at %d:%d", f.source, got, f.name, f.line, f.col)
		}
	}
}
