package pty

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
)

// codexStrategy sets the servers by options of Codex, which stand above a person's
// configuration one by one. Options can be seen by others on the machine, so values
// of headers and of variables go through the environment; a URL cannot.
type codexStrategy struct{}

// Plan implements Strategy.
func (codexStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, plain, attach.HTTP, attach.Stdio)
	p := Plan{Decided: decided}
	var v variables
	for _, s := range servers {
		set := func(key, value string) {
			p.Args = append(p.Args, "-c", "mcp_servers."+s.name+"."+key+"="+value)
		}
		if s.by == attach.HTTP {
			set("url", tomlString(s.url()))
			if h := headers(s.Headers); len(h) > 0 {
				named := map[string]string{}
				for _, name := range sortedKeys(h) {
					named[name] = v.put(h[name])
				}
				set("env_http_headers", tomlTable(named))
			}
			continue
		}
		command, passed, ok := v.wrap(s.Command, pairs(s.Env))
		if !ok {
			i := slices.IndexFunc(p.Decided, func(d agent.Injected) bool { return d.Server == s.Name && d.Transport != "" })
			p.Decided[i] = agent.Injected{Server: s.Name, Reason: string(attach.ReasonMaterializeFailed)}
			continue
		}
		set("command", tomlString(command[0]))
		set("args", tomlList(command[1:]))
		if len(passed) > 0 {
			set("env_vars", tomlList(passed))
		}
	}
	p.Env = v.env
	return p, nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// wrap has a shell set the variables of a command from ours, whose names Codex
// passes on: one environment serves all servers, and Codex itself.
func (v *variables) wrap(command []string, env map[string]string) (wrapped, passed []string, ok bool) {
	if len(env) == 0 {
		return command, nil, true
	}
	var script strings.Builder
	for _, k := range sortedKeys(env) {
		if !variable.MatchString(k) {
			return nil, nil, false
		}
	}
	for _, k := range sortedKeys(env) {
		name := v.put(env[k])
		passed = append(passed, name)
		fmt.Fprintf(&script, "export %s=\"$%s\"; unset %s; ", k, name, name)
	}
	script.WriteString(`exec "$@"`)
	return append([]string{"/bin/sh", "-c", script.String(), "sh"}, command...), passed, true
}

// tomlString writes a basic string of TOML.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func tomlList(all []string) string {
	quoted := []string{}
	for _, s := range all {
		quoted = append(quoted, tomlString(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func tomlTable(m map[string]string) string {
	var all []string
	for _, k := range sortedKeys(m) {
		all = append(all, tomlString(k)+" = "+tomlString(m[k]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}
