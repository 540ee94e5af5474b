package pty

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/attach"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// claudeStrategy names a file of servers to Claude Code, beside those of the
// person's own settings. It expands "${NAME}" in every value, more than once, and
// knows no escape: a value with that cannot be handed over.
type claudeStrategy struct{}

const (
	serversFile = "mcp.json"
	systemFile  = "system.md"
)

// Plan implements Strategy.
func (claudeStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, func(v string) bool { return plain(v) && !strings.Contains(v, "${") }, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	// With "=", since the first option takes every word that follows it otherwise.
	if len(servers) > 0 {
		entries := map[string]any{}
		for _, s := range servers {
			entries[s.name] = standard(s)
		}
		text, err := encode(map[string]any{"mcpServers": entries})
		if err != nil {
			return p, err
		}
		p.Args = append(p.Args, "--mcp-config="+filepath.Join(r.Dir, serversFile))
		p.Files = append(p.Files, File{serversFile, text})
	}
	if r.System != "" {
		p.Args = append(p.Args, "--append-system-prompt-file="+filepath.Join(r.Dir, systemFile))
		p.Files, p.System = append(p.Files, File{systemFile, []byte(r.System)}), true
	}
	return p, nil
}
