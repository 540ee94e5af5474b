package pty

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/attach"
)

// geminiStrategy gives Gemini CLI another home for its own files: its settings with
// the servers added, and everything else of the person's by links. There is no
// option, and what it calls the system's settings must belong to root. It expands
// "${NAME}", and "$NAME" where there is such a variable, in every value, more than
// once, and knows no escape: a value with that cannot be handed over.
type geminiStrategy struct{}

const (
	geminiHome   = "GEMINI_CLI_HOME"
	geminiDir    = ".gemini"
	settingsFile = "settings.json"
)

// geminiBeside are what Gemini CLI looks for in the home beside its directory.
var geminiBeside = []string{".agents", ".env"}

// Plan implements Strategy.
func (geminiStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, r.geminiFits, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	if len(servers) == 0 {
		return p, nil
	}
	home, _ := lookup(r.Env, geminiHome)
	if home == "" {
		home, _ = lookup(r.Env, "HOME")
	}
	if !filepath.IsAbs(home) {
		return p, errors.New("find the home of Gemini CLI: HOME is no absolute path")
	}
	entries := map[string]any{}
	for _, s := range servers {
		entries[s.name] = geminiEntry(s)
	}
	own := filepath.Join(home, geminiDir)
	old, err := readOptional(r.ReadFile, filepath.Join(own, settingsFile))
	if err != nil {
		return p, fmt.Errorf("read settings: %w", err)
	}
	text, err := merge(old, "mcpServers", entries)
	if err != nil {
		return p, fmt.Errorf("read settings: %w", err)
	}
	names, err := r.ReadDir(own)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("read settings: %w", err)
	}
	for _, name := range names {
		if name != settingsFile {
			p.Links = append(p.Links, Link{filepath.Join(geminiDir, name), filepath.Join(own, name)})
		}
	}
	beside, _ := r.ReadDir(home) // where there is none nothing is missed
	for _, name := range geminiBeside {
		if !slices.Contains(beside, name) {
			continue
		}
		p.Links = append(p.Links, Link{name, filepath.Join(home, name)})
	}
	p.Env = []string{geminiHome + "=" + r.Dir}
	p.Files = []File{{filepath.Join(geminiDir, settingsFile), text}}
	return p, nil
}

var geminiName = regexp.MustCompile(`\$(\w+)`)

// geminiFits reports whether a value arrives as it is.
func (r Request) geminiFits(value string) bool {
	if !plain(value) || strings.Contains(value, "${") {
		return false
	}
	for _, m := range geminiName.FindAllStringSubmatch(value, -1) {
		if _, set := lookup(r.Env, m[1]); set {
			return false
		}
	}
	return true
}

// geminiEntry is an entry as Gemini CLI and Qwen Code take it.
func geminiEntry(c chosen) map[string]any {
	if c.by == attach.Stdio {
		return command(c)
	}
	where := "httpUrl"
	if c.by == attach.SSE {
		where = "url"
	}
	entry := map[string]any{where: c.url()}
	if h := headers(c.Headers); len(h) > 0 {
		entry["headers"] = h
	}
	return entry
}

// qwenStrategy names a file of servers to Qwen Code, which takes its values as they
// are and puts them beside those of the person's own settings.
type qwenStrategy struct{}

// Plan implements Strategy.
func (qwenStrategy) Plan(r Request) (Plan, error) {
	servers, decided := choose(r.Servers, plain, attach.HTTP, attach.SSE, attach.Stdio)
	p := Plan{Decided: decided}
	if len(servers) > 0 {
		entries := map[string]any{}
		for _, s := range servers {
			entries[s.name] = geminiEntry(s)
		}
		text, err := encode(map[string]any{"mcpServers": entries})
		if err != nil {
			return p, err
		}
		p.Args = append(p.Args, "--mcp-config="+filepath.Join(r.Dir, serversFile))
		p.Files = []File{{serversFile, text}}
	}
	if r.System != "" && !strings.ContainsRune(r.System, 0) {
		p.Args, p.System = append(p.Args, "--append-system-prompt="+r.System), true
	}
	return p, nil
}
