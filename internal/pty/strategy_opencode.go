package pty

import (
	"fmt"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/attach"
)

// openCodeStrategy gives OpenCode a layer of configuration in its environment, above
// a person's files. It looks for "{env:NAME}" and "{file:PATH}" in the text before it
// parses it; so no brace stands in a string of ours.
type openCodeStrategy struct{}

const openCodeContent = "OPENCODE_CONFIG_CONTENT"

// Plan implements Strategy.
func (openCodeStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, plain, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	if len(servers) == 0 && r.System == "" {
		return p, nil
	}
	entries := map[string]any{}
	for _, s := range servers {
		text, err := encode(openCodeEntry(s))
		if err != nil {
			return p, err
		}
		entries[s.name] = jsontext.Value(escapeInStrings(text, '{', `\u007b`))
	}
	// What a person has put there stays as it is, to be expanded.
	theirs, _ := lookup(r.Env, openCodeContent)
	text, err := merge([]byte(theirs), "mcp", entries)
	if err != nil {
		return p, fmt.Errorf("read %s: %w", openCodeContent, err)
	}
	if r.System != "" {
		path, err := encode(filepath.Join(r.Dir, systemFile))
		if err == nil {
			text, err = add(text, "instructions", escapeInStrings(path, '{', `\u007b`))
		}
		if err != nil {
			return p, fmt.Errorf("read %s: %w", openCodeContent, err)
		}
		p.Files, p.System = []File{{systemFile, []byte(r.System)}}, true
	}
	p.Env = []string{openCodeContent + "=" + string(text)}
	return p, nil
}

func openCodeEntry(c chosen) map[string]any {
	if c.by == attach.Stdio {
		entry := map[string]any{"type": "local", "enabled": true, "command": c.Command}
		if env := pairs(c.Env); len(env) > 0 {
			entry["environment"] = env
		}
		return entry
	}
	entry := map[string]any{"type": "remote", "enabled": true, "url": c.url(), "oauth": false}
	if h := headers(c.Headers); len(h) > 0 {
		entry["headers"] = h
	}
	return entry
}
