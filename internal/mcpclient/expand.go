package mcpclient

import (
	"fmt"
	"strings"
)

// MissingVariableError says that a configuration uses a variable that is not
// set and gives no default for it.
type MissingVariableError struct {
	Server   string // the server that uses it
	Field    string // where, for instance "env.TOKEN"
	Variable string
}

func (e *MissingVariableError) Error() string {
	return fmt.Sprintf("server %q: %s uses the variable %s, which is not set (${%s:-default} would give it a default)",
		e.Server, e.Field, e.Variable, e.Variable)
}

// expand replaces ${VAR}, ${VAR:-default} and ${env:VAR} (also with a default)
// in text. A default is taken as it stands. What is no such reference is kept: $VAR,
// a lone $ and ${ without an end. missing is the name of the first variable that
// has neither value nor default. As in a shell, :- takes an empty value as none.
func expand(text string, getenv func(string) (string, bool)) (out, missing string) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), ""
		}
		ref, after, closed := strings.Cut(rest, "}")
		if !closed {
			b.WriteString("${" + rest)
			return b.String(), ""
		}
		name, fallback, hasDefault := strings.Cut(ref, ":-")
		name = strings.TrimPrefix(name, "env:")
		value, set := "", false
		if name != "" {
			value, set = getenv(name)
		}
		switch {
		case hasDefault && value == "":
			value = fallback
		case !set && !hasDefault:
			return "", name
		}
		b.WriteString(value)
		text = after
	}
}
