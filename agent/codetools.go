package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/python"
)

// builtin is one of the five functions, as a program calls it and as a tool.
type builtin struct {
	signature signature
	readOnly  bool
	text      string // for the model
	schema    string
}

var builtins = map[string]builtin{
	FuncListResources: {
		signature: signature{name: FuncListResources, closed: true}, readOnly: true,
		text:   "List what can be read and watched: uri (template text if template), name, description, example, mime_type, server, subscribable.",
		schema: `{"type":"object","properties":{},"additionalProperties":false}`,
	},
	FuncReadResource: {
		signature: signature{name: FuncReadResource, closed: true, params: []param{{name: "uri", original: "uri", kind: "str", required: true}}},
		readOnly:  true,
		text:      "Read a resource: parsed JSON, or text.",
		schema:    `{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"],"additionalProperties":false}`,
	},
	FuncWatchStart: {
		signature: signature{name: FuncWatchStart, closed: true, params: []param{
			{name: "name", original: "name", kind: "str", required: true},
			{name: "uri", original: "uri", kind: "str", required: true},
			{name: "on_event", original: "on_event", kind: "str", nullable: true},
		}},
		text: "Be told when a resource changes. Call it at once: a wrong uri fails with what is right. " +
			"on_event is Python source text, run once per event, that sees event: type (ADDED, MODIFIED, DELETED, CHANGED, GAP), old, changed, and object, or key and new; " +
			"its last value is one line of the notice, None drops the event. Variables in it persist; it can read and not write. A name in use is replaced. Returns name, uri, shape.",
		schema: `{"type":"object","properties":{"name":{"type":"string","description":"short name of the watch"},"uri":{"type":"string"},` +
			`"on_event":{"type":["string","null"],"description":"Python source text; leave it out to hear of every event"}},` +
			`"required":["name","uri"],"additionalProperties":false}`,
	},
	FuncWatchStop: {
		signature: signature{name: FuncWatchStop, closed: true, params: []param{{name: "name", original: "name", kind: "str", required: true}}},
		text:      "End a watch. True if there was one of that name.",
		schema:    `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}`,
	},
	FuncWatchList: {
		signature: signature{name: FuncWatchList, closed: true}, readOnly: true,
		text:   "List the watches: name, uri, shape, events, notices; restore_failed or failed where one does not run.",
		schema: `{"type":"object","properties":{},"additionalProperties":false}`,
	},
}

// builtin binds the arguments of a call by name and hands it on.
func (c *CodeMode) builtin(ctx context.Context, call python.Call) (json.RawMessage, error) {
	args, err := builtins[call.Name].signature.bind(call)
	if err != nil {
		return nil, err
	}
	return c.watches.Call(ctx, python.Call{Name: call.Name, Kwargs: args})
}

// Tools returns run_code and, if at least one server is connected, the five
// built-ins as plain tools, for agents that write no code (N-6, W-060).
func (c *CodeMode) Tools(ctx context.Context) []Tool {
	known := c.catalogue(ctx)
	var tools []Tool
	if c.python != nil {
		tools = append(tools, Tool{
			Name: FuncRunCode, Description: c.describe(known),
			InputSchema: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","description":"Python"}},"required":["code"],"additionalProperties":false}`),
			Call:        c.runTool,
		})
	}
	for _, name := range known.builtins {
		b, ok := builtins[name]
		if !ok {
			continue
		}
		tools = append(tools, Tool{
			Name: name, Description: b.text, InputSchema: json.RawMessage(b.schema), ReadOnly: b.readOnly,
			Call: func(ctx context.Context, args json.RawMessage) (ToolResult, error) {
				return c.plainTool(ctx, name, args)
			},
		})
	}
	return tools
}

func (c *CodeMode) runTool(ctx context.Context, raw json.RawMessage) (ToolResult, error) {
	args, err := toolArguments(raw)
	if err == nil {
		sig := signature{name: FuncRunCode, closed: true, params: []param{{name: "code", original: "code", kind: "str", required: true}}}
		args, err = sig.bind(python.Call{Name: FuncRunCode, Kwargs: args})
	}
	if err != nil {
		return ToolResult{Text: errorText(err), IsError: true}, nil //nolint:nilerr // the model mends its call
	}
	code, err := jsonx.Parse(args["code"])
	if err != nil || code.Kind() != jsonx.String {
		return ToolResult{Text: "TypeError: code must be a string of Python source text", IsError: true}, nil //nolint:nilerr // as above
	}
	return c.Run(ctx, code.Text())
}

func (c *CodeMode) plainTool(ctx context.Context, name string, raw json.RawMessage) (ToolResult, error) {
	args, err := toolArguments(raw)
	var value json.RawMessage
	if err == nil {
		value, err = c.builtin(ctx, python.Call{Name: name, Kwargs: args})
	}
	if err != nil {
		if ctx.Err() != nil {
			return ToolResult{}, ctx.Err()
		}
		return ToolResult{Text: errorText(err), IsError: true}, nil
	}
	text := string(value)
	if v, err := jsonx.Parse(value); err == nil && v.Kind() == jsonx.String {
		text = v.Text()
	}
	if text == "" {
		text = "(empty)"
	}
	return ToolResult{Text: c.bounded(text)}, nil
}

// toolArguments reads the arguments of a tool call: exactly, names by case.
func toolArguments(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := jsonx.Parse(raw)
	if err != nil {
		return nil, &python.Error{Type: "ValueError", Message: "the arguments are not JSON: " + err.Error()}
	}
	if v.IsNull() {
		return nil, nil
	}
	if v.Kind() != jsonx.Object {
		return nil, &python.Error{Type: "TypeError", Message: "the arguments must be a JSON object"}
	}
	args := map[string]json.RawMessage{}
	for _, m := range v.Members() {
		args[m.Name] = m.Value.Append(nil)
	}
	return args, nil
}

// Bounds of the description of run_code. It is a cost of every model call.
const (
	maxDescribed     = 12 << 10 // bytes of signatures and descriptions
	maxToolSentence  = 120
	maxToolSignature = 300
)

// describe writes the description of run_code: how to use it, and what can be
// called. Where that is too much, descriptions go first, then signatures.
func (c *CodeMode) describe(known *catalogue) string {
	var b strings.Builder
	b.WriteString("Run Python in this session's own sandbox. Variables persist from call to call. " +
		"The last expression and prints are the result; print only what matters. " +
		"These functions are async: await f(key=value), several at once with asyncio.gather. Failures raise RuntimeError. " +
		"To end the turn without a reply, answer " + NoReply + ".\n")
	for _, name := range known.builtins {
		if f, ok := builtins[name]; ok {
			fmt.Fprintf(&b, "- %s: %s\n", f.signature, f.text)
		}
	}
	if len(known.builtins) > 0 {
		b.WriteString("Watch with a filter: await watch_start(name=\"cm\", uri=\"…\", on_event='''\n" +
			"f'{event[\"type\"].lower()} {event[\"key\"]}' if event[\"type\"] in (\"ADDED\", \"DELETED\") else None\n''')\n")
	}
	names := slices.Sorted(maps.Keys(known.tools))
	room := maxDescribed
	for i, name := range names {
		t := known.tools[name]
		line := "- " + cut(t.signature.String(), maxToolSignature)
		if what := sentence(t.tool.Description); what != "" && room > maxDescribed/2 {
			line += ": " + what
		}
		if room -= len(line) + 1; room < 0 {
			fmt.Fprintf(&b, "- and, with keyword arguments: %s\n", cut(strings.Join(names[i:], ", "), maxDescribed/4))
			break
		}
		b.WriteString(line + "\n")
	}
	for _, server := range known.silent {
		fmt.Fprintf(&b, "(the tools of server %q could not be listed; the next program tries again)\n", cut(server, 80))
	}
	return strings.TrimSpace(b.String())
}

// sentence is the start of a description from outside, as one line.
func sentence(description string) string {
	description = strings.TrimSpace(description)
	first, _, _ := strings.Cut(description, "\n")
	if s, _, ok := strings.Cut(first, ". "); ok {
		first = s
	}
	short := cut(oneLine(first), maxToolSentence)
	if len(short) < len(oneLine(first)) {
		short += "…"
	}
	return short
}
