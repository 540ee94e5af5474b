package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/python"
)

// Names of the built-in functions of code mode (specification section 6).
const (
	FuncListResources = "list_resources"
	FuncReadResource  = "read_resource"
	FuncWatchStart    = "watch_start"
	FuncWatchStop     = "watch_stop"
	FuncWatchList     = "watch_list"
)

// maxToolCalls bounds how many servers are asked for something at once.
const maxToolCalls = 8

// catalogue is what a filter can call (W-081): the tools of all servers that
// are known to change nothing, list_resources and read_resource. It holds for
// the life of a watch.
type catalogue struct {
	tools  map[string]boundTool // by the name that programs use
	denied map[string]string    // names that are not callable: why
	silent []string             // servers that did not say what tools they have
}

type boundTool struct {
	server Server
	tool   Tool
}

// names are the functions of a scope, sorted.
func (c *catalogue) names() []string {
	names := []string{FuncListResources, FuncReadResource}
	for name := range c.tools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// catalogue asks all servers for their tools. A server that does not answer
// contributes none: a filter that does not need it must not fail for it.
func (m *Manager) catalogue(ctx context.Context) *catalogue {
	perServer := make([][]Tool, len(m.servers))
	silent := make([]bool, len(m.servers))
	var g errgroup.Group
	g.SetLimit(maxToolCalls)
	for i, server := range m.servers {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, m.limits.ReadTime)
			defer cancel()
			tools, err := server.Tools(ctx)
			if silent[i] = err != nil; silent[i] {
				m.log.LogAttrs(ctx, levelDetail, "watch.tools_missing", logattr.Server(server.Name()), logattr.Err(err))
			}
			perServer[i] = tools
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	var all []boundTool
	for i, tools := range perServer {
		for _, t := range tools {
			all = append(all, boundTool{m.servers[i], t})
		}
	}
	c := newCatalogue(all, m.readOnly)
	for i, server := range m.servers {
		if silent[i] {
			c.silent = append(c.silent, server.Name())
		}
	}
	return c
}

func newCatalogue(all []boundTool, readOnly func(server string, t Tool) bool) *catalogue {
	c := &catalogue{tools: map[string]boundTool{}, denied: map[string]string{}}
	ids := make([]python.ToolID, len(all))
	for i, t := range all {
		ids[i] = python.ToolID{Server: t.server.Name(), Tool: t.tool.Name}
	}
	for i, name := range python.ToolNames(ids) {
		t := all[i]
		if !readOnly(t.server.Name(), t.tool) {
			c.denied[name] = fmt.Sprintf("tool %s of server %s may change something, and a filter can only read", t.tool.Name, t.server.Name())
			continue
		}
		c.tools[name] = t
	}
	for _, name := range []string{FuncWatchStart, FuncWatchStop, FuncWatchList} {
		c.denied[name] = "a filter cannot start, stop or list watches"
	}
	return c
}

// call runs a function for a program.
func (c *catalogue) call(ctx context.Context, m *Manager, call python.Call) (json.RawMessage, error) {
	switch call.Name {
	case FuncListResources, FuncReadResource:
		return m.Call(ctx, call)
	}
	t, ok := c.tools[call.Name]
	if !ok {
		return nil, &python.Error{Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", call.Name)}
	}
	args, err := toolArguments(t.tool, call)
	if err != nil {
		return nil, err
	}
	result, err := t.server.CallTool(ctx, t.tool.Name, args)
	if err != nil {
		return nil, fmt.Errorf("call tool %s: %w", t.tool.Name, err)
	}
	return result, nil
}

// toolArguments makes the JSON object of a call. Positional arguments take the
// names of the tool's schema, in its order.
func toolArguments(t Tool, call python.Call) (json.RawMessage, error) {
	names := parameterNames(t.Parameters)
	if len(call.Args) > len(names) {
		return nil, &python.Error{
			Type:    "TypeError",
			Message: fmt.Sprintf("%s() takes %d positional arguments but %d were given; use keyword arguments", call.Name, len(names), len(call.Args)),
		}
	}
	b := []byte{'{'}
	for i, arg := range call.Args {
		if _, twice := call.Kwargs[names[i]]; twice {
			return nil, &python.Error{Type: "TypeError", Message: fmt.Sprintf("%s() got multiple values for argument '%s'", call.Name, names[i])}
		}
		b = appendField(b, names[i], arg)
	}
	for _, name := range sortedKeys(call.Kwargs) {
		b = appendField(b, name, call.Kwargs[name])
	}
	return append(b, '}'), nil
}

func parameterNames(schema json.RawMessage) []string {
	v, err := jsonx.Parse(schema)
	if err != nil {
		return nil
	}
	properties, _ := v.Get("properties")
	var names []string
	for _, m := range properties.Members() {
		names = append(names, m.Name)
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
