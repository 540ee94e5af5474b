package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/python"
)

// bind gives every argument of a call its name at the server. The errors are
// Python's own words, with the signature after them, so that a model mends the
// call in one go.
func (s signature) bind(call python.Call) (map[string]json.RawMessage, error) {
	if len(call.Args) > len(s.params) {
		return nil, s.wrong("takes %s but %d %s given", s.arity(), len(call.Args), were(len(call.Args)))
	}
	args := map[string]json.RawMessage{}
	for i, value := range call.Args {
		args[s.params[i].original] = value
	}
	for _, name := range slices.Sorted(maps.Keys(call.Kwargs)) {
		original, ok := s.original(name)
		if !ok {
			if near := s.nearest(name); s.closed || near != "" {
				return nil, s.unexpected(name, near)
			}
			original = name
		}
		if _, twice := args[original]; twice {
			return nil, s.wrong("got multiple values for argument '%s'", name)
		}
		args[original] = call.Kwargs[name]
	}
	var missing []string
	for _, p := range s.params {
		value, given := args[p.original]
		switch {
		case !given && p.required:
			missing = append(missing, "'"+p.name+"'")
		case given && !p.required && !p.nullable && string(value) == "null":
			delete(args, p.original) // None is how Python leaves an argument out
		}
	}
	if len(missing) > 0 {
		return nil, s.wrong("missing %s: %s", plural(len(missing), "required positional argument", "required positional arguments"), and(missing))
	}
	return args, nil
}

func (s signature) original(name string) (string, bool) {
	for _, p := range s.params {
		if p.name == name || p.original == name {
			return p.original, true
		}
	}
	return "", false
}

func (s signature) wrong(format string, args ...any) *python.Error {
	return &python.Error{Type: "TypeError", Message: s.name + "() " + fmt.Sprintf(format, args...) + "; call it as " + s.String()}
}

func (s signature) unexpected(name, near string) *python.Error {
	if near != "" {
		return s.wrong("got an unexpected keyword argument '%s'. Did you mean '%s'?", cut(name, 80), near)
	}
	return s.wrong("got an unexpected keyword argument '%s'", cut(name, 80))
}

func (s signature) arity() string {
	least := 0
	for _, p := range s.params {
		if p.required {
			least++
		}
	}
	if least < len(s.params) {
		return fmt.Sprintf("from %d to %d positional arguments", least, len(s.params))
	}
	return plural(len(s.params), "positional argument", "positional arguments")
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// and joins names as Python does in its messages.
func and(names []string) string {
	switch n := len(names); n {
	case 1:
		return names[0]
	case 2:
		return names[0] + " and " + names[1]
	default:
		return strings.Join(names[:n-1], ", ") + ", and " + names[n-1]
	}
}

// nearest is the parameter that a misspelt name most likely means: many servers
// ignore an argument that they do not know, and answer another question.
func (s signature) nearest(name string) string {
	best, at := "", 3
	for _, p := range s.params {
		if d := distance(name, p.name); d < at && d < len(p.name) {
			best, at = p.name, d
		}
	}
	return best
}

// distance is the number of edits between short names.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// object writes arguments as a JSON object, in the order of the parameters.
func (s signature) object(args map[string]json.RawMessage) json.RawMessage {
	b := []byte{'{'}
	field := func(name string) {
		value, ok := args[name]
		if !ok {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsonx.AppendString(b, name), ':'), value...)
		delete(args, name)
	}
	for _, p := range s.params {
		field(p.original)
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		field(name)
	}
	return append(b, '}')
}
