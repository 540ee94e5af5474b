// Package mcpclient is the pool of connections to configured MCP servers.
//
// A [Pool] holds one [Server] for each [Spec]. A server connects when it is
// first needed, over a child's pipes, Streamable HTTP or the older HTTP+SSE,
// finds out which era of the protocol the server speaks, and serves everybody
// with that one connection: it implements the port watch.Server. Everything
// that comes from a server is untrusted: its frames are bounded, checked and
// counted before the SDK sees them (specification M-11 to M-18).
package mcpclient

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
)

// Transport is how a server is reached.
type Transport string

// The transports of an MCP server.
const (
	Stdio Transport = "stdio" // a child's pipes
	HTTP  Transport = "http"  // Streamable HTTP
	SSE   Transport = "sse"   // HTTP+SSE of 2024, for old servers
)

// Attach says who connects to a server that is configured for an agent.
type Attach string

// Who connects: ossicle, and the agent reaches the server through its tools; or
// the agent itself; or each of them.
const (
	ByOssicle Attach = "ossicle" // the default
	ByAgent   Attach = "agent"
	ByBoth    Attach = "both"
)

// ToAgent reports whether the agent is handed the server.
func (a Attach) ToAgent() bool { return a == ByAgent || a == ByBoth }

// Spec says how to reach one server. Command, Args, Env and Dir are for stdio,
// URL and Headers for the others.
type Spec struct {
	Name      string
	Transport Transport // empty: stdio with a Command, http with a URL

	Command string            // program, looked up in PATH
	Args    []string          // its arguments
	Env     map[string]string // added to the environment of the pool
	Dir     string            // working directory; empty is ours

	URL     string
	Headers map[string]string // added to every request; secrets, never logged

	Attach Attach // empty is ByOssicle
}

// Normalize fills in the transport and checks the rest.
func (s Spec) Normalize() (Spec, error) {
	if s.Name == "" {
		return s, errors.New("server without a name")
	}
	if s.Transport == "" {
		s.Transport = Stdio
		if s.URL != "" {
			s.Transport = HTTP
		}
	}
	switch s.Attach {
	case "", ByOssicle, ByAgent, ByBoth:
	default:
		return s, fmt.Errorf("server %q: attach %q: use ossicle, agent or both", s.Name, s.Attach)
	}
	switch {
	case s.Command != "" && s.URL != "":
		return s, fmt.Errorf("server %q: command and url exclude each other", s.Name)
	case s.Transport == Stdio && s.Command == "":
		return s, fmt.Errorf("server %q: stdio needs a command", s.Name)
	case s.Transport == Stdio:
		return s, nil
	case s.Transport != HTTP && s.Transport != SSE:
		return s, fmt.Errorf("server %q: unknown transport %q", s.Name, s.Transport)
	case s.URL == "":
		return s, fmt.Errorf("server %q: %s needs a url", s.Name, s.Transport)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return s, fmt.Errorf("server %q: url: %w", s.Name, errors.Unwrap(err))
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return s, fmt.Errorf("server %q: url must begin with http:// or https:// and name a host", s.Name)
	}
	return s, nil
}

// Target is what may be shown of where the server is: the program's base name,
// or scheme and host. Arguments, paths and queries may hold secrets.
func (s Spec) Target() string {
	if s.URL == "" {
		return filepath.Base(s.Command)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host
}

// LogValue shows name, transport and target, and nothing that may be secret.
func (s Spec) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("name", s.Name), slog.String("transport", string(s.Transport)), slog.String("target", s.Target()))
}

// environ is the environment of the child: base with Env laid over it.
func (s Spec) environ(base []string) []string {
	out := make([]string, 0, len(base)+len(s.Env))
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if _, replaced := s.Env[name]; !replaced {
			out = append(out, kv)
		}
	}
	for name, value := range s.Env {
		out = append(out, name+"="+value)
	}
	return out
}
