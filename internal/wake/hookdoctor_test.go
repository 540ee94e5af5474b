package wake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// D-9, D-13: the doctor finds the hook where the host would, or says what is
// missing.
func TestCheckHook(t *testing.T) {
	t.Parallel()
	const good = `{"hooks":{"UserPromptSubmit":[{"matcher":"","hooks":[{"type":"command","command":"other"},{"type":"command","command":"/usr/bin/ossicle digest --agent a --format claude"}]}],"Stop":[{"hooks":[{"command":"ossicle digest"}]}]},"model":"x"}`
	for name, tt := range map[string]struct {
		format HookFormat
		file   string // below home or project
		text   string
		want   string // name, then cause or OK
	}{
		"claude, home":     {HookClaude, "home/.claude/settings.json", good, "hook at Stop OK, hook at UserPromptSubmit OK"},
		"claude, project":  {HookClaude, "project/.claude/settings.local.json", good, "hook at Stop OK, hook at UserPromptSubmit OK"},
		"codex":            {HookCodex, "project/.codex/hooks.json", good, "hook at Stop OK, hook at UserPromptSubmit OK"},
		"gemini":           {HookGemini, "home/.gemini/settings.json", strings.ReplaceAll(good, "UserPromptSubmit", "BeforeAgent"), "hook at BeforeAgent OK, hook at Stop nothing that is printed"},
		"other commands":   {HookClaude, "home/.claude/settings.json", `{"hooks":{"Stop":[{"hooks":[{"command":"make digest"}]}]}}`, "hook none of"},
		"no hooks":         {HookClaude, "home/.claude/settings.json", `{}`, "hook none of"},
		"no file":          {HookClaude, "home/elsewhere", good, "hook none of"},
		"mute event":       {HookClaude, "home/.claude/settings.json", strings.ReplaceAll(strings.ReplaceAll(good, "UserPromptSubmit", "Notification"), "Stop", "PreCompact"), "hook at Notification nothing that is printed"},
		"hooks are off":    {HookClaude, "home/.claude/settings.json", strings.Replace(good, `"model":"x"`, `"disableAllHooks":true`, 1), "settings TMP/home/.claude/settings.json: disableAllHooks is set, hook none of"},
		"not JSON":         {HookClaude, "home/.claude/settings.json", "// comment\n{}", "settings TMP/home/.claude/settings.json: it cannot be read"},
		"no such host":     {"emacs", "home/x", "", `hook "emacs" is no host`},
		"text has no host": {HookText, "home/x", "", `hook "text" is no host`},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, filepath.FromSlash(tt.file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range CheckHook(tt.format, filepath.Join(dir, "home"), filepath.Join(dir, "project")) {
			text := c.Name + " " + c.Cause
			if c.OK {
				text = c.Name + " OK"
			} else if c.Fix == "" {
				t.Errorf("%s: %+v says not what to do", name, c)
			}
			got = append(got, strings.ReplaceAll(text, dir, "TMP"))
		}
		if joined := strings.Join(got, ", "); !strings.HasPrefix(joined, tt.want) {
			t.Errorf("%s: got %q, want %q", name, joined, tt.want)
		}
	}
}
