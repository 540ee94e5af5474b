package wake

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/notice"
)

// maxSettings bounds a settings file of a host, in bytes.
const maxSettings = 4 << 20

// hookFiles are where each host looks for hooks, below the home and the
// project's directory.
var hookFiles = map[HookFormat]struct{ home, project []string }{
	HookClaude: {[]string{".claude/settings.json"}, []string{".claude/settings.json", ".claude/settings.local.json"}},
	HookCodex:  {[]string{".codex/hooks.json"}, []string{".codex/hooks.json"}},
	HookGemini: {[]string{".gemini/settings.json"}, []string{".gemini/settings.json"}},
}

// CheckHook says whether a host's settings, below the home and a project's
// directory, run "ossicle digest" at an event at which it can show something.
func CheckHook(format HookFormat, home, project string) []notice.Check {
	places, known := hookFiles[format]
	if !known {
		return []notice.Check{bad("hook", fmt.Sprintf("%q is no host with hooks", format), "name claude, codex or gemini")}
	}
	var paths []string
	for _, p := range places.home {
		paths = append(paths, filepath.Join(home, p))
	}
	for _, p := range places.project {
		paths = append(paths, filepath.Join(project, p))
	}
	fix := fmt.Sprintf("add a command hook \"ossicle digest --agent NAME --format %s\" for the event %s", format, hookPrompt[format])
	var checks []notice.Check
	found := false
	for _, path := range paths {
		events, err := hookedEvents(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			checks = append(checks, bad("settings", path+": "+err.Error(), "mend the file"))
			continue
		}
		for _, event := range events {
			if hookEvents[format][event] == hookMute {
				checks = append(checks, bad("hook at "+event, "nothing that is printed there reaches the model", fix))
				continue
			}
			found = true
			checks = append(checks, ok("hook at "+event))
		}
	}
	if !found {
		checks = append(checks, bad("hook", "none of "+strings.Join(paths, ", ")+" runs \"ossicle digest\"", fix))
	}
	return checks
}

// hookSettings is what the settings of all three hosts have in common.
type hookSettings struct {
	Disabled bool `json:"disableAllHooks"`
	Hooks    map[string][]struct {
		Hooks []struct {
			Command string `json:"command"`
		} `json:"hooks"`
	} `json:"hooks"`
}

// hookedEvents returns the events of a file at which a digest is printed, in
// order.
func hookedEvents(path string) ([]string, error) {
	var s hookSettings
	if err := readSettings(path, &s); err != nil {
		return nil, err
	}
	var events []string
	for event, groups := range s.Hooks {
		for _, g := range groups {
			for _, h := range g.Hooks {
				if strings.Contains(h.Command, "ossicle") && strings.Contains(h.Command, "digest") {
					events = append(events, event)
				}
			}
		}
	}
	if s.Disabled && len(events) > 0 {
		return nil, errors.New("disableAllHooks is set")
	}
	slices.Sort(events)
	return slices.Compact(events), nil
}
