package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/python"
)

// builtinParameters are the built-in functions of code mode, with their
// parameters in order.
var builtinParameters = map[string][]string{
	FuncListResources: {},
	FuncReadResource:  {"uri"},
	FuncWatchStart:    {"name", "uri", "on_event"},
	FuncWatchStop:     {"name"},
	FuncWatchList:     {},
}

// Functions are the names of the built-in functions that a program of the
// agent can call: all five if at least one server is connected, else none
// (W-060). It connects where it must.
func (m *Manager) Functions(ctx context.Context) []string {
	for _, s := range m.servers {
		if _, err := m.info(ctx, s); err == nil {
			return []string{FuncListResources, FuncReadResource, FuncWatchList, FuncWatchStart, FuncWatchStop}
		}
	}
	return nil
}

// Call runs a built-in function for a program of the agent (W-061 to W-066). An
// error is a *python.Error whose type is the exception that the program sees:
// TypeError and ValueError for wrong arguments, else RuntimeError.
func (m *Manager) Call(ctx context.Context, call python.Call) (json.RawMessage, error) {
	args, err := bindArguments(call)
	if err != nil {
		return nil, err
	}
	result, err := m.builtin(ctx, call.Name, args)
	if err != nil {
		return nil, exception(err)
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, exception(fmt.Errorf("encode result of %s: %w", call.Name, err))
	}
	return raw, nil
}

func (m *Manager) builtin(ctx context.Context, name string, args map[string]json.RawMessage) (any, error) {
	switch name {
	case FuncListResources:
		list, err := m.Resources(ctx)
		if len(list) > 0 {
			err = nil // what the others offer is more useful than the failure of one
		}
		return list, err
	case FuncReadResource:
		uri, err := textArgument(args, "uri", "pass a URI that list_resources() shows")
		if err != nil {
			return nil, err
		}
		return m.Read(ctx, uri)
	case FuncWatchStart:
		req, err := startArguments(args)
		if err != nil {
			return nil, err
		}
		return m.Start(ctx, req)
	case FuncWatchStop:
		watch, err := textArgument(args, "name", "pass the name of a watch that watch_list() shows")
		if err != nil {
			return nil, err
		}
		return m.Stop(watch), nil
	default:
		return m.List(), nil
	}
}

func startArguments(args map[string]json.RawMessage) (StartRequest, error) {
	var req StartRequest
	var err error
	if req.Name, err = textArgument(args, "name", `pass a short name for the watch, for instance name="cm"`); err != nil {
		return req, err
	}
	if req.URI, err = textArgument(args, "uri", "pass a URI that list_resources() shows"); err != nil {
		return req, err
	}
	source, ok := args["on_event"]
	if !ok {
		return req, nil
	}
	v, err := jsonx.Parse(source)
	switch {
	case err == nil && v.IsNull():
		return req, nil
	case err == nil && v.Kind() == jsonx.String:
		req.OnEvent = v.Text()
		return req, nil
	}
	return req, notSource(string(source))
}

func textArgument(args map[string]json.RawMessage, name, fix string) (string, error) {
	raw, ok := args[name]
	if !ok {
		return "", &ArgumentError{name, "it is missing", fix}
	}
	v, err := jsonx.Parse(raw)
	if err != nil || v.Kind() != jsonx.String {
		return "", &ArgumentError{name, "it is not a string", fix}
	}
	return v.Text(), nil
}

// bindArguments gives positional arguments their names.
func bindArguments(call python.Call) (map[string]json.RawMessage, error) {
	names, ok := builtinParameters[call.Name]
	if !ok {
		return nil, &python.Error{Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", call.Name)}
	}
	wrong := func(format string, args ...any) error {
		return &python.Error{Type: "TypeError", Message: call.Name + "() " + fmt.Sprintf(format, args...)}
	}
	if len(call.Args) > len(names) {
		return nil, wrong("takes %d arguments but %d were given", len(names), len(call.Args))
	}
	args := map[string]json.RawMessage{}
	for i, arg := range call.Args {
		args[names[i]] = arg
	}
	for _, name := range sortedKeys(call.Kwargs) {
		if !slices.Contains(names, name) {
			return nil, wrong("got an unexpected keyword argument '%s'; it takes %v", name, names)
		}
		if _, twice := args[name]; twice {
			return nil, wrong("got multiple values for argument '%s'", name)
		}
		args[name] = call.Kwargs[name]
	}
	return args, nil
}

func exception(err error) *python.Error {
	kind := "RuntimeError"
	if _, ok := errors.AsType[*ArgumentError](err); ok {
		kind = "ValueError"
	}
	if _, ok := errors.AsType[*FilterError](err); ok {
		kind = "ValueError"
	}
	return &python.Error{Type: kind, Message: neutral(err.Error())}
}

// filterCall runs the functions of a filter's scope.
func (m *Manager) filterCall(c *catalogue) func(context.Context, python.Call) (json.RawMessage, error) {
	return func(ctx context.Context, call python.Call) (json.RawMessage, error) { return c.call(ctx, m, call) }
}
