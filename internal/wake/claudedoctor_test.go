package wake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/notice"
)

// D-9, D-12: the doctor names what keeps a channel from working.
func TestCheckClaudeChannel(t *testing.T) {
	t.Parallel()
	const (
		good  = `{"mcpServers":{"ears":{"type":"stdio","command":"BIN/ossicle","args":["mcp","--agent","me","--claude-channel"],"env":{}}},"numStartups":3}`
		plain = `{"mcpServers":{"ears":{"command":"BIN/ossicle","args":["mcp","--agent","me"]},"web":{"type":"http","url":"http://x/mcp"}}}`
		local = `{"projects":{"TMP/project":{"mcpServers":{"mine":{"command":"BIN/ossicle","args":["mcp","--claude-channel"]}}},"/elsewhere":{}}}`
	)
	for name, tt := range map[string]struct {
		version       string // what claude --version prints; "-" is no claude
		home, project string // .claude.json, .mcp.json
		managed       string
		env           string
		want          string // failed checks: name and the beginning of the cause
	}{
		"all well":         {version: "2.1.318 (Claude Code)", home: good},
		"the first":        {version: "2.1.80 (Claude Code)", project: good},
		"for the project":  {version: "3.0.0", home: local},
		"old":              {version: "2.1.79 (Claude Code)", home: good, want: "version: 2.1.79 has no channels"},
		"older":            {version: "1.9.99", home: good, want: "version: 1.9.99 has no channels"},
		"no version":       {version: "hello", home: good, want: "version: TMP/claude says"},
		"not installed":    {version: "-", home: good, want: "version: ask TMP/claude for its version"},
		"other provider":   {version: "2.2.0", home: good, env: "CLAUDE_CODE_USE_VERTEX=1", want: "provider: CLAUDE_CODE_USE_VERTEX is set"},
		"provider off":     {version: "2.2.0", home: good, env: "CLAUDE_CODE_USE_VERTEX=0"},
		"not declared":     {version: "2.2.0", home: `{"mcpServers":{"x":{"command":"other","args":["mcp","--claude-channel"]}}}`, want: "server: none in TMP/home/.claude.json"},
		"no files":         {version: "2.2.0", want: "server: none in TMP/home/.claude.json"},
		"no channel":       {version: "2.2.0", home: plain, want: `server: "ears" runs ossicle mcp without --claude-channel`},
		"no such program":  {version: "2.2.0", home: strings.ReplaceAll(good, "BIN", "/nowhere"), want: "server ears: exec: "},
		"not JSON":         {version: "2.2.0", home: "{", project: good, want: "configuration: TMP/home/.claude.json: it cannot be read"},
		"not allowed":      {version: "2.2.0", home: good, managed: `{"channelsEnabled":false}`, want: "organisation: TMP/managed.json does not set channelsEnabled"},
		"not said":         {version: "2.2.0", home: good, managed: `{}`, want: "organisation: TMP/managed.json does not set channelsEnabled"},
		"allowed":          {version: "2.2.0", home: good, managed: `{"channelsEnabled":true}`},
		"damaged policies": {version: "2.2.0", home: good, managed: `[`, want: "organisation: TMP/managed.json: it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put := func(path, text string, mode os.FileMode) {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				text = strings.NewReplacer("TMP", dir, "BIN", dir).Replace(text)
				if err := os.WriteFile(path, []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			put("ossicle", "#!/bin/sh\n", 0o700)
			if tt.version != "-" {
				put("claude", "#!/bin/sh\necho '"+tt.version+"'\n", 0o700)
			}
			for path, text := range map[string]string{"home/.claude.json": tt.home, "project/.mcp.json": tt.project, "managed.json": tt.managed} {
				if text != "" {
					put(path, text, 0o600)
				}
			}
			setup := ClaudeSetup{
				Command: filepath.Join(dir, "claude"), Home: filepath.Join(dir, "home"), Project: filepath.Join(dir, "project"), Managed: filepath.Join(dir, "managed.json"),
				Getenv: func(name string) (string, bool) {
					key, value, _ := strings.Cut(tt.env, "=")
					return value, key == name
				},
			}
			failed := failures(t, CheckClaudeChannel(t.Context(), setup))
			got := strings.ReplaceAll(strings.Join(failed, ", "), dir, "TMP")
			if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" || len(failed) > 1 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// failures are the checks that failed, and each must say what to do.
func failures(t *testing.T, checks []notice.Check) []string {
	t.Helper()
	var failed []string
	for _, c := range checks {
		if c.OK {
			continue
		}
		if c.Fix == "" {
			t.Errorf("%+v says not what to do", c)
		}
		failed = append(failed, c.Name+": "+c.Cause)
	}
	return failed
}

// D-9: what a running channel knows of its host is a cause too.
func TestChannelStateChecks(t *testing.T) {
	t.Parallel()
	well := ChannelState{Connected: true, Client: "claude-code 2.1.318", Protocol: "2025-11-25"}
	for want, change := range map[string]func(*ChannelState){
		"":                             func(*ChannelState) {},
		"session: no client":           func(s *ChannelState) { s.Connected = false },
		"session: the client has not":  func(s *ChannelState) { s.Protocol = "" },
		"session: the client speaks":   func(s *ChannelState) { s.Protocol = firstModern },
		"session: the client does not": func(s *ChannelState) { s.Stuck = true },
		"client: \"vim\" is not known": func(s *ChannelState) { s.Client = "vim" },
		"pushes: the client called no": func(s *ChannelState) { s.Pushes = 3 },
	} {
		s := well
		change(&s)
		failed := failures(t, s.Checks())
		got := strings.Join(failed, ", ")
		if !strings.HasPrefix(got, want) || want == "" && got != "" || len(failed) > 1 {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
