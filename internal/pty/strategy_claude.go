package pty

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/ossicle/ossicle/attach"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// claudeStrategy names a file of servers to Claude Code, beside those of the
// person's own settings. It expands "${NAME}" in every value.
type claudeStrategy struct{}

const serversFile = "mcp.json"

// Plan implements Strategy.
func (claudeStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	if len(servers) == 0 {
		return p, nil
	}
	var v variables
	entries := map[string]any{}
	for _, s := range servers {
		e := v.standard(s, "${")
		if s.by == attach.Stdio {
			e["type"] = string(attach.Stdio)
		}
		entries[s.name] = e
	}
	text, err := encode(map[string]any{"mcpServers": entries})
	if err != nil {
		return p, err
	}
	// With "=", since the option takes every word that follows it otherwise.
	p.Args = []string{"--mcp-config=" + filepath.Join(r.Dir, serversFile)}
	p.Env, p.Files = v.env, []File{{serversFile, text}}
	return p, nil
}
