package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Restored tells what became of the watches in the state file.
type Restored struct {
	Running []string // restarted, from a fresh baseline
	Kept    []string // could not be restarted now; they stay in the file
	Dropped []string // can never start; they are removed from the file
	Problem string   // why the file could not be read, if it could not
}

// Restore restarts the watches of the state file (W-131 to W-137), each from a
// fresh baseline, and sends one notice that lists them all if there is anything
// to tell. It takes as long as the servers take to answer; ctx bounds it.
func (m *Manager) Restore(ctx context.Context) Restored {
	m.load(ctx)
	var result Restored
	if m.file == nil {
		return result
	}
	m.file.mu.Lock()
	result.Problem = m.file.problem
	m.file.mu.Unlock()
	specs := m.unrestored()
	var lines []string
	for _, s := range specs {
		err := m.restoreOne(ctx, s)
		name := bound(s.Name, MaxName)
		switch {
		case err == nil:
			result.Running = append(result.Running, s.Name)
			lines = append(lines, fmt.Sprintf("restored %s %s", name, s.URI))
		case never(err):
			result.Dropped = append(result.Dropped, s.Name)
			lines = append(lines, fmt.Sprintf("dropped %s %s, it can never start: %v", name, s.URI, err))
		default:
			result.Kept = append(result.Kept, s.Name)
			kept := "kept until watch_start or watch_stop"
			if m.toolless {
				kept = "kept for the next start"
			}
			lines = append(lines, fmt.Sprintf("not restored %s %s, %s: %v", name, s.URI, kept, err))
		}
	}
	if len(specs) > 0 {
		m.save(ctx)
		m.log.LogAttrs(ctx, levelDetail, "watch.restored", logattr.Count(len(result.Running)), ofAttr(len(specs)))
	}
	m.tellRestored(result, lines, len(specs))
	return result
}

// ofAttr is the number of things of which a line counts some.
func ofAttr(n int) slog.Attr { return slog.Int("of", n) }

// unrestored are the specifications that were loaded and not yet started.
func (m *Manager) unrestored() []spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	var waiting []*savedWatch
	for _, s := range m.saved {
		if errors.Is(s.err, errNotRestored) {
			waiting = append(waiting, s)
		}
	}
	slices.SortFunc(waiting, func(a, b *savedWatch) int { return a.number - b.number })
	specs := make([]spec, len(waiting))
	for i, s := range waiting {
		specs[i] = s.spec
	}
	return specs
}

func (m *Manager) restoreOne(ctx context.Context, s spec) error {
	req := StartRequest(s)
	err := req.check()
	if err == nil {
		_, err = m.start(ctx, req)
	}
	if err == nil {
		return nil
	}
	defer m.looking.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	if was := m.saved[s.Name]; was != nil {
		was.err = err
		if never(err) {
			delete(m.saved, s.Name)
		}
	}
	return err
}

// never reports whether a start that failed so will always fail (W-133). What
// may be the fault of a server that is down, or of a machine that is busy, is
// not final.
func never(err error) bool {
	if filter, ok := errors.AsType[*FilterError](err); ok {
		return !filter.Temporary
	}
	_, argument := errors.AsType[*ArgumentError](err)
	_, limit := errors.AsType[*LimitError](err)
	return argument || limit
}

// tellRestored sends the one notice of a restore (W-132).
func (m *Manager) tellRestored(result Restored, lines []string, total int) {
	var head []string
	if result.Problem != "" {
		head = append(head, result.Problem)
	}
	if total > 0 {
		head = append(head, fmt.Sprintf("restored %d of %d saved watches; changes made while they were not running may have been missed",
			len(result.Running), total))
	}
	if len(head) == 0 {
		return
	}
	if most := m.limits.Watches + m.limits.Lines; len(lines) > most {
		left := len(lines) - most
		lines = append(lines[:most], fmt.Sprintf("+%d more", left))
	}
	lines = append(head, lines...)
	for i := range lines {
		lines[i] = bound(strings.TrimSpace(lines[i]), m.limits.LineRunes)
	}
	m.out.enqueueNotice(Notice{Kind: KindRestored, Lines: lines, Time: time.Now().UTC()})
}
