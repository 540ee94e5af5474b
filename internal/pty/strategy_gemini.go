package pty

import (
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/ossicle/ossicle/attach"
)

// geminiStrategy gives Gemini CLI its servers as defaults of the system, the lowest
// of its layers: a person's settings and an administrator's stand above them, and
// defaults that exist are part of ours. It expands "$NAME" and "${NAME}" in every
// value.
type geminiStrategy struct{}

const (
	geminiDefaults = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"
	geminiSettings = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"
	settingsFile   = "settings.json"
	defaultsFile   = "system-defaults.json"
)

// Plan implements Strategy.
func (geminiStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	if len(servers) == 0 {
		return p, nil
	}
	v, entries := &variables{}, map[string]any{}
	for _, s := range servers {
		entries[s.name] = v.gemini(s, "$")
	}
	old, err := readOptional(r.ReadFile, geminiDefaultsPath(r.Env))
	if err != nil {
		return p, fmt.Errorf("read the system's defaults: %w", err)
	}
	text, err := merge(old, "mcpServers", entries)
	if err != nil {
		return p, fmt.Errorf("read the system's defaults: %w", err)
	}
	p.Env = append(v.env, geminiDefaults+"="+filepath.Join(r.Dir, settingsFile))
	p.Files = []File{{settingsFile, text}}
	return p, nil
}

// geminiDefaultsPath is where Gemini CLI would look for its defaults.
func geminiDefaultsPath(env []string) string {
	if path, _ := lookup(env, geminiDefaults); path != "" {
		return path
	}
	if path, _ := lookup(env, geminiSettings); path != "" {
		return filepath.Join(filepath.Dir(path), defaultsFile)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join("/Library/Application Support/GeminiCli", defaultsFile)
	}
	return filepath.Join("/etc/gemini-cli", defaultsFile)
}

// gemini is an entry as Gemini CLI and Qwen Code take it.
func (v *variables) gemini(c chosen, mark string) map[string]any {
	var entry map[string]any
	switch c.by {
	case attach.HTTP:
		entry = map[string]any{"httpUrl": v.protect(c.url(), mark)}
	case attach.SSE:
		entry = map[string]any{"url": v.protect(c.url(), mark)}
	default:
		return v.command(c, mark)
	}
	if h := v.texts(headers(c.Headers), mark); len(h) > 0 {
		entry["headers"] = h
	}
	return entry
}

// qwenStrategy names a file of servers to Qwen Code, which takes its values as they
// are and puts them beside those of the person's own settings.
type qwenStrategy struct{}

// Plan implements Strategy.
func (qwenStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	if len(servers) == 0 {
		return p, nil
	}
	v, entries := &variables{}, map[string]any{}
	for _, s := range servers {
		entries[s.name] = v.gemini(s, "\x00") // nothing has it
	}
	text, err := encode(map[string]any{"mcpServers": entries})
	if err != nil {
		return p, err
	}
	p.Args = []string{"--mcp-config=" + filepath.Join(r.Dir, serversFile)}
	p.Files = []File{{serversFile, text}}
	return p, nil
}
