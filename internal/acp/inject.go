package acp

import (
	"os/exec"
	"strings"

	"github.com/ossicle/ossicle/agent"
)

// Reasons why a server is not injected.
const (
	reasonHTTP      = "http_unsupported"
	reasonSSE       = "sse_unsupported"
	reasonDuplicate = "duplicate_name"
	reasonCommand   = "command_not_found"
	reasonNoWay     = "no_transport"
)

// Transports of agent.Injected.
const (
	transportHTTP  = "http"
	transportSSE   = "sse"
	transportStdio = "stdio"
)

// inject makes exactly one entry for each server, by the best transport that
// the agent takes (specification N-23): an entry of a kind that it does not
// take fails the whole session in some agents. Each server gets a decision, with
// what it rests on.
func inject(servers []agent.MCPServer, caps mcpCapabilities) (entries []any, decisions []agent.Injected) {
	entries = []any{}
	names := map[string]bool{}
	for _, s := range servers {
		d := agent.Injected{Server: s.Name}
		if names[s.Name] {
			d.Reason = reasonDuplicate
		} else {
			var entry any
			if entry, d = choose(s, caps); entry != nil {
				entries = append(entries, entry)
				names[s.Name] = true
			}
		}
		decisions = append(decisions, d)
	}
	return entries, decisions
}

func choose(s agent.MCPServer, caps mcpCapabilities) (any, agent.Injected) {
	d := agent.Injected{Server: s.Name}
	switch {
	case s.HTTP != "" && offered(caps.HTTP):
		d.Transport = transportHTTP
		return networkServer{Type: transportHTTP, Name: s.Name, URL: s.HTTP, Headers: headers(s.Headers)}, d
	case s.SSE != "" && offered(caps.SSE):
		d.Transport = transportSSE
		return networkServer{Type: transportSSE, Name: s.Name, URL: s.SSE, Headers: headers(s.Headers)}, d
	case len(s.Command) > 0:
		// Agents want an absolute path; they may look it up in another PATH.
		path, err := exec.LookPath(s.Command[0])
		if err != nil {
			d.Reason = reasonCommand
			return nil, d
		}
		d.Transport, d.Assumed = transportStdio, true // the protocol asks it of every agent
		return stdioServer{Name: s.Name, Command: path, Args: append([]string{}, s.Command[1:]...), Env: environment(s.Env)}, d
	case s.HTTP != "":
		d.Reason, d.Assumed = reasonHTTP, caps.HTTP == nil
	case s.SSE != "":
		d.Reason, d.Assumed = reasonSSE, caps.SSE == nil
	default:
		d.Reason = reasonNoWay
	}
	return nil, d
}

func headers(hs []agent.Header) []pair {
	out := []pair{}
	for _, h := range hs {
		out = append(out, pair(h))
	}
	return out
}

func environment(env []string) []pair {
	out := []pair{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		out = append(out, pair{Name: name, Value: value})
	}
	return out
}
