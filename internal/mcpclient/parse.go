package mcpclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxConfig bounds a server configuration, in bytes.
const MaxConfig = 4 << 20

// serverJSON is one server as other tools write it. Unknown members are
// theirs.
type serverJSON struct {
	Type      string            `json:"type"`
	Transport string            `json:"transport"`
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	Cwd       string            `json:"cwd"`
	URL       string            `json:"url"`
	HTTPURL   string            `json:"httpUrl"` // Gemini CLI: Streamable HTTP
	ServerURL string            `json:"serverUrl"`
	Headers   map[string]string `json:"headers"`
	Attach    Attach            `json:"attach"` // ours: who connects
	Disabled  bool              `json:"disabled"`
	Enabled   *bool             `json:"enabled"`
}

// ParseServers reads the configuration of MCP servers as other tools write it:
// an object with "mcpServers" (Claude, Cursor and most others) or "servers" (VS
// Code), or the inner object itself. Comments and trailing commas are allowed.
// The order is that of the file; servers that are disabled are left out.
// ${VAR}, ${VAR:-default} and ${env:VAR} are expanded in command, args, env,
// cwd, url and headers by getenv. Errors: [*MissingVariableError], or what is
// wrong and where.
func ParseServers(data []byte, getenv func(string) (string, bool)) ([]Spec, error) {
	if len(data) > MaxConfig {
		return nil, fmt.Errorf("parse servers: configuration over %d bytes", MaxConfig)
	}
	plain := plainJSON(data)
	var file struct {
		MCPServers jsontext.Value `json:"mcpServers"`
		Servers    jsontext.Value `json:"servers"`
	}
	if err := json.Unmarshal(plain, &file); err != nil {
		return nil, fmt.Errorf("parse servers: %w", err)
	}
	servers := file.MCPServers
	if servers == nil {
		servers = file.Servers
	}
	if servers == nil {
		servers = plain
	}
	specs, err := parseEntries(servers, getenv)
	if err != nil {
		return nil, fmt.Errorf("parse servers: %w", err)
	}
	return specs, nil
}

// parseEntries reads an object of servers in its order.
func parseEntries(object []byte, getenv func(string) (string, bool)) ([]Spec, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if dec.PeekKind() != '{' {
		return nil, errors.New("servers must be an object of name to server")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var specs []Spec
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return nil, noEOF(err)
		}
		name := tok.String()
		raw, err := dec.ReadValue()
		if err != nil {
			return nil, noEOF(err)
		}
		spec, ok, err := parseEntry(name, raw, getenv)
		if err != nil {
			return nil, err
		}
		if ok {
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseEntry reads one server; ok is false for one that is disabled, whose
// variables need not be set.
func parseEntry(name string, raw []byte, getenv func(string) (string, bool)) (spec Spec, ok bool, err error) {
	var j serverJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return Spec{}, false, fmt.Errorf("server %q: %w", name, err)
	}
	if j.Disabled || (j.Enabled != nil && !*j.Enabled) {
		return Spec{}, false, nil
	}
	spec = Spec{Name: name, Command: j.Command, Args: j.Args, Env: j.Env, Dir: j.Cwd, Headers: j.Headers, Attach: j.Attach}
	if spec.Transport, err = transportOf(j); err != nil {
		return Spec{}, false, fmt.Errorf("server %q: %w", name, err)
	}
	for _, u := range []string{j.URL, j.HTTPURL, j.ServerURL} {
		if spec.URL == "" {
			spec.URL = u
		}
	}
	if err := expandSpec(&spec, getenv); err != nil {
		return Spec{}, false, err
	}
	spec, err = spec.Normalize()
	return spec, err == nil, err
}

func transportOf(j serverJSON) (Transport, error) {
	kind := j.Type
	if kind == "" {
		kind = j.Transport
	}
	switch strings.ToLower(kind) {
	case "":
		return "", nil
	case "stdio", "local":
		return Stdio, nil
	case "http", "streamable-http", "streamablehttp", "streamable_http", "remote":
		return HTTP, nil
	case "sse":
		return SSE, nil
	}
	return "", fmt.Errorf("unknown type %q; use stdio, http or sse", kind)
}

// expandSpec replaces the variables in every field that may hold one.
func expandSpec(s *Spec, getenv func(string) (string, bool)) error {
	var err error
	one := func(field, text string) string {
		out, missing := expand(text, getenv)
		if missing != "" && err == nil {
			err = &MissingVariableError{Server: s.Name, Field: field, Variable: missing}
		}
		return out
	}
	all := func(field string, m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			out[k] = one(field+"."+k, m[k])
		}
		return out
	}
	s.Command, s.Dir, s.URL = one("command", s.Command), one("cwd", s.Dir), one("url", s.URL)
	for i, a := range s.Args {
		s.Args[i] = one(fmt.Sprintf("args[%d]", i), a)
	}
	if s.Env != nil {
		s.Env = all("env", s.Env)
	}
	if s.Headers != nil {
		s.Headers = all("headers", s.Headers)
	}
	return err
}

// plainJSON blanks out the comments and trailing commas that editors allow in
// configuration files. Offsets in error messages stay right.
func plainJSON(data []byte) []byte {
	out := bytes.Clone(data)
	comma := -1 // a comma after which only blanks came
	for i := 0; i < len(out); {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			i = stringEnd(out, i)
			continue
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			i = blankComment(out, i)
			continue
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			out[comma], comma = ' ', -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
		i++
	}
	return out
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// blankComment overwrites the comment at i and returns the index after it.
func blankComment(b []byte, i int) int {
	end := len(b)
	if b[i+1] == '/' {
		if n := bytes.IndexByte(b[i:], '\n'); n >= 0 {
			end = i + n
		}
	} else if n := bytes.Index(b[i+2:], []byte("*/")); n >= 0 {
		end = i + 2 + n + 2
	}
	for ; i < end; i++ {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
	return end
}
