package pty

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
)

// Strategy knows how one kind of CLI is given MCP servers for one run. It is
// pure: it says what to write, and writes nothing.
type Strategy interface {
	// Plan says how the program is started. An error means that none of the servers
	// can be handed over; the program may still be started without.
	Plan(r Request) (Plan, error)
}

// Request is what a strategy plans for.
type Request struct {
	Servers []agent.MCPServer
	System  string // standing instruction
	// Dir is where the files of the plan will be: private, and gone after the run.
	Dir string
	// Env is the environment of the program without the plan: what a person has set
	// there is kept.
	Env []string
	// ReadFile and ReadDir read what a person has; ReadDir returns names.
	ReadFile func(path string) ([]byte, error)
	ReadDir  func(path string) ([]string, error)
}

// Plan is how a program is started.
type Plan struct {
	Args  []string // more arguments
	Env   []string // "KEY=value", on top
	Files []File
	Links []Link
	// System: the standing instruction has its place.
	System bool
	// Decided says, for each server in order, by which transport the program gets
	// it, or why not: an attach.Reason.
	Decided []agent.Injected
}

// File is one of a plan's files, for the program's user alone.
type File struct {
	Name string // within Request.Dir, a local path
	Data []byte
}

// Link stands in the plan's directory for something of a person's.
type Link struct {
	Name   string // within Request.Dir, a local path
	Target string
}

// StrategyOf returns the strategy of a kind, nil if there is none.
func StrategyOf(k Kind) Strategy {
	switch k {
	case Claude:
		return claudeStrategy{}
	case Codex:
		return codexStrategy{}
	case Gemini:
		return geminiStrategy{}
	case OpenCode:
		return openCodeStrategy{}
	case Qwen:
		return qwenStrategy{}
	default:
		return nil
	}
}

// without are the decisions where there is no strategy.
func without(servers []agent.MCPServer) []agent.Injected {
	var all []agent.Injected
	for _, s := range servers {
		all = append(all, agent.Injected{Server: s.Name, Reason: string(attach.ReasonNoStrategy)})
	}
	return all
}

// chosen is a server with the way in that was chosen for it.
type chosen struct {
	agent.MCPServer

	name string // as the CLIs take it: letters, digits, "-" and "_"
	by   attach.Transport
}

// choose takes the best way to each server among those that the CLI takes, in the
// order HTTP, SSE, command. What the CLIs take they do not advertise: it is assumed.
// A server with a value that does not fit cannot be handed over: it would arrive as
// something else.
func choose(servers []agent.MCPServer, fits func(value string) bool, takes ...attach.Transport) (taken []chosen, decided []agent.Injected) {
	names := map[string]bool{}
	for _, s := range servers {
		c := chosen{MCPServer: s, name: safeName(s.Name)}
		d := agent.Injected{Server: s.Name}
		var reason attach.Reason
		if c.by, reason = way(s, takes); reason == "" {
			switch {
			case !all(c, fits):
				reason = attach.ReasonMaterializeFailed
			case names[c.name]:
				reason = attach.ReasonDuplicateName
			}
		}
		d.Reason, d.Assumed = string(reason), reason == attach.ReasonUnsupportedAssumed
		if reason == "" {
			names[c.name] = true
			d.Transport, d.Assumed = string(c.by), true
			taken = append(taken, c)
		}
		decided = append(decided, d)
	}
	return taken, decided
}

func way(s agent.MCPServer, takes []attach.Transport) (attach.Transport, attach.Reason) {
	has := map[attach.Transport]bool{attach.HTTP: s.HTTP != "", attach.SSE: s.SSE != "", attach.Stdio: len(s.Command) > 0 && s.Command[0] != ""}
	any := false
	for _, t := range []attach.Transport{attach.HTTP, attach.SSE, attach.Stdio} {
		if has[t] && slices.Contains(takes, t) {
			return t, ""
		}
		any = any || has[t]
	}
	if any {
		return "", attach.ReasonUnsupportedAssumed
	}
	return "", attach.ReasonNoTransport
}

// url is where the server is, by the way that was chosen.
func (c chosen) url() string {
	if c.by == attach.SSE {
		return c.SSE
	}
	return c.HTTP
}

// all reports whether all values that are written down for a server fit.
func all(c chosen, fits func(string) bool) bool {
	values := []string{c.url()}
	if c.by == attach.Stdio {
		values = slices.Concat(c.Command, c.Env)
	}
	for _, h := range c.Headers {
		values = append(values, h.Name, h.Value)
	}
	return !slices.ContainsFunc(values, func(v string) bool { return !fits(v) })
}

// plain is text that every configuration can hold: UTF-8 without NUL.
func plain(value string) bool { return utf8.ValidString(value) && !strings.ContainsRune(value, 0) }

// safeName makes a name that all CLIs take.
func safeName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, name)
	if name = name[:min(len(name), 64)]; name == "" {
		return "-"
	}
	return name
}

// variables moves values into the environment of the program, where they cannot be
// seen by everybody on the machine, as arguments can.
type variables struct{ env []string }

// put returns the name of a new variable with the value.
func (v *variables) put(value string) string {
	name := fmt.Sprintf("OSSICLE_MCP_%d", len(v.env)+1)
	v.env = append(v.env, name+"="+value)
	return name
}

// lookup finds a variable; the last setting counts.
func lookup(env []string, name string) (string, bool) {
	for _, e := range slices.Backward(env) {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// pairs splits "KEY=value".
func pairs(env []string) map[string]string {
	m := map[string]string{}
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok && k != "" {
			m[k] = v
		}
	}
	return m
}

// headers are HTTP headers by name; of two of one name the last counts, since the
// CLIs take one of each.
func headers(hs []agent.Header) map[string]string {
	m := map[string]string{}
	for _, h := range hs {
		m[h.Name] = h.Value
	}
	return m
}

// insert puts arguments behind those of a command, before "--" and what follows.
func insert(command, args []string) []string {
	at := slices.Index(command, "--")
	if at < 1 {
		at = len(command)
	}
	return slices.Concat(command[:at], args, command[at:])
}

// materialize writes the files of a plan into a directory that it makes.
func (p Plan) materialize(dir string) error {
	if len(p.Files) == 0 {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, l := range p.Links {
		path, err := within(dir, l.Name)
		if err == nil {
			err = os.Symlink(l.Target, path)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range p.Files {
		path, err := within(dir, f.Name)
		if err == nil {
			err = os.WriteFile(path, f.Data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// within makes the directory of a local path.
func within(dir, name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("write %s: %w", name, fs.ErrInvalid)
	}
	path := filepath.Join(dir, name)
	return path, os.MkdirAll(filepath.Dir(path), 0o700)
}

// readOptional reads a file; without one there is nothing.
func readOptional(read func(string) ([]byte, error), path string) ([]byte, error) {
	if read == nil {
		return nil, nil
	}
	b, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
