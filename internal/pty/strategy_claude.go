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

const (
	serversFile = "mcp.json"
	systemFile  = "system.md"
)

// Plan implements Strategy.
func (claudeStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	// With "=", since the first option takes every word that follows it otherwise.
	if len(servers) > 0 {
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
		p.Args = append(p.Args, "--mcp-config="+filepath.Join(r.Dir, serversFile))
		p.Env, p.Files = v.env, append(p.Files, File{serversFile, text})
	}
	if r.System != "" {
		p.Args = append(p.Args, "--append-system-prompt-file="+filepath.Join(r.Dir, systemFile))
		p.Files, p.System = append(p.Files, File{systemFile, []byte(r.System)}), true
	}
	return p, nil
}
