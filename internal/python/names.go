package python

import (
	"fmt"
	"slices"
	"strings"
)

// Identifier makes a Python name of any name.
func Identifier(name string) string {
	s := strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	if s == "" || '0' <= s[0] && s[0] <= '9' {
		s = "_" + s
	}
	if slices.Contains(keywords, s) {
		s += "_"
	}
	return s
}

var keywords = strings.Fields(`False None True and as assert async await break class continue def del elif else except finally for from global
	if import in is lambda nonlocal not or pass raise return try while with yield`)

// reserved are names that a tool must not hide from a program: those of the
// built-in functions of the hosts, of Python, and of the modules that programs
// import most.
var reserved = strings.Fields(`list_resources read_resource watch_start watch_stop watch_list event print abs all any bool bytes chr dict divmod enumerate
	filter float format frozenset getattr hasattr hash hex id input int isinstance iter len list map max min next object oct open ord
	pow range repr reversed round set slice sorted str sum super tuple type zip asyncio json re math`)

// Reserved reports whether a name stands for something that every program has,
// so that no tool may take it.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// ToolID names a tool of a server.
type ToolID struct{ Server, Tool string }

// ToolNames gives every tool the name that programs use, in the order of the
// tools: its own as an identifier, prefixed by its server's where two servers, or
// Python, have the same (specification N-5). One rule for all programs, so that
// what a model learned in one place holds in the other.
func ToolNames(tools []ToolID) []string {
	uses := map[string]int{}
	for _, t := range tools {
		uses[Identifier(t.Tool)]++
	}
	used := map[string]bool{}
	free := func(name string) bool { return !used[name] && !Reserved(name) }
	names := make([]string, len(tools))
	for i, t := range tools {
		name := Identifier(t.Tool)
		if uses[name] > 1 || !free(name) {
			name = Identifier(t.Server + "_" + t.Tool)
		}
		for base, n := name, 2; !free(name); n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		used[name] = true
		names[i] = name
	}
	return names
}
