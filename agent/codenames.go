package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/python"
)

// Names of the built-in functions (specification W-060 to W-066).
const (
	FuncListResources = "list_resources"
	FuncReadResource  = "read_resource"
	FuncWatchStart    = "watch_start"
	FuncWatchStop     = "watch_stop"
	FuncWatchList     = "watch_list"
	// FuncRunCode is the tool that runs a program.
	FuncRunCode = "run_code"
)

// nameTools gives every tool the name that programs use: its own, prefixed by
// its server's where two servers, or Python, have the same (N-5).
func nameTools(tools []boundTool) map[string]boundTool {
	ids := make([]python.ToolID, len(tools))
	for i, t := range tools {
		ids[i] = python.ToolID{Server: t.server.Name(), Tool: t.tool.Name}
	}
	named := map[string]boundTool{}
	for i, name := range python.ToolNames(ids) {
		t := tools[i]
		t.signature = toolSignature(name, t.tool.Schema)
		named[name] = t
	}
	return named
}

// signature is what a function takes.
type signature struct {
	name   string
	params []param
	// closed: no other argument is accepted.
	closed bool
}

type param struct {
	name     string // as programs write it
	original string // as the server calls it
	kind     string // Python's name of its type, "" for any
	required bool
	nullable bool // null is a value of it, not its absence
}

// toolSignature reads a JSON Schema. What it cannot read is accepted as it
// comes: the server has the last word on its arguments.
func toolSignature(name string, schema []byte) signature {
	sig := signature{name: name}
	v, err := jsonx.Parse(schema)
	if err != nil {
		return sig
	}
	additional, _ := v.Get("additionalProperties")
	sig.closed = additional.Kind() == jsonx.Bool && additional.Text() == "false"
	required, _ := v.Get("required")
	properties, _ := v.Get("properties")
	var used []string
	for _, m := range properties.Members() {
		p := param{original: m.Name, name: python.Identifier(m.Name)}
		for base, n := p.name, 2; slices.Contains(used, p.name); n++ {
			p.name = fmt.Sprintf("%s_%d", base, n)
		}
		used = append(used, p.name)
		p.required = slices.ContainsFunc(required.Items(), func(r jsonx.Value) bool { return r.Kind() == jsonx.String && r.Text() == m.Name })
		p.kind, p.nullable = paramKind(m.Value)
		sig.params = append(sig.params, p)
	}
	return sig
}

var pythonTypes = map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}

func paramKind(schema jsonx.Value) (kind string, nullable bool) {
	t, ok := schema.Get("type")
	if !ok {
		return "", true
	}
	types := []jsonx.Value{t}
	if t.Kind() == jsonx.Array {
		types = t.Items()
	}
	var names []string
	for _, t := range types {
		switch name := pythonTypes[t.Text()]; {
		case t.Kind() == jsonx.String && t.Text() == "null":
			nullable = true
		case name != "":
			names = append(names, name)
		}
	}
	return strings.Join(names, "|"), nullable
}

// String writes the signature as Python does.
func (s signature) String() string {
	var b strings.Builder
	b.WriteString(s.name + "(")
	for i, p := range s.params {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.name)
		if p.kind != "" {
			b.WriteString(": " + p.kind)
		}
		if !p.required {
			b.WriteString("=None")
		}
	}
	return b.String() + ")"
}
