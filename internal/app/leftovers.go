package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/atomicfile"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// leftoverAge is how old a file must be to be one that nobody comes back for.
	leftoverAge = 90 * 24 * time.Hour
	// unfinishedAge is how old an unfinished file must be that nobody writes any more.
	unfinishedAge = 24 * time.Hour
)

// sweepLeftovers removes what sessions left in the data directory that are no more:
// the watches and the places of listeners of those that the store does not know,
// and what processes said of themselves that were killed. known reports whether
// there is a session.
func sweepLeftovers(ctx context.Context, data string, known func(session string) bool, now time.Time, log *slog.Logger) {
	removed := 0
	for _, dir := range []string{"", "watches", "listeners", liveDir, earsDir} {
		entries, err := os.ReadDir(filepath.Join(data, dir))
		if err != nil {
			continue // there is none
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() || ctx.Err() != nil {
				continue
			}
			age, path := now.Sub(info.ModTime()), filepath.Join(data, dir, e.Name())
			if lock, ok := strings.CutSuffix(e.Name(), ".lock"); ok && dir == liveDir && age >= leftoverAge && !known(lock) && filelock.Remove(path) == nil {
				removed++
				continue
			}
			session, state := strings.CutSuffix(e.Name(), ".json")
			left := strings.HasPrefix(e.Name(), atomicfile.Prefix) && age >= unfinishedAge
			switch {
			case left || dir == "" || !state || age < leftoverAge:
			case dir == liveDir:
				if _, answers := askPlace(ctx, path); !answers && ctx.Err() == nil {
					left = ofNobody(path) // who lives may be too busy for an answer
				}
			case dir == earsDir:
				left = ofNobody(path)
			default:
				left = !known(session)
			}
			if left && os.Remove(path) == nil {
				removed++
			}
		}
	}
	if removed > 0 {
		log.LogAttrs(ctx, slog.LevelInfo, "files of what is no more were removed", logattr.Count(removed))
	}
}

// ofNobody reports whether the process is gone that wrote a file about itself.
func ofNobody(path string) bool {
	var by struct {
		PID int `json:"pid"`
	}
	text, err := os.ReadFile(path)
	return err == nil && (json.Unmarshal(text, &by) != nil || !alive(by.PID))
}

// sweepLeft does so at the start of a daemon.
func (a *Agents) sweepLeft(ctx context.Context, o *ServeOptions) {
	sessions, err := a.Store.Sessions(ctx)
	if err != nil {
		return // the next start tries again
	}
	there := map[string]bool{}
	for i := range sessions {
		there[sessions[i].ID] = true
	}
	known := func(session string) bool { return there[session] || a.Agent(session) != nil }
	sweepLeftovers(ctx, o.Data, known, time.Now(), o.Logger)
}
