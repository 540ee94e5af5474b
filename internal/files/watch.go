package files

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fsnotify/fsnotify"

	"github.com/ossicle/ossicle/internal/logattr"
)

// The kernel watches directories, never files: a file that is replaced by
// rename has a new inode, and only its directory tells of it. A target is what
// one subscription looks at. A survey walks from the root to it, asks the
// kernel to watch each directory on the way, and notes which names in them
// matter (steps). It asks before it looks, so that what changes during the
// walk is an event and no gap. After every event that concerns a target it is
// surveyed again, before the change is announced: whoever reads after the
// announcement has all later changes announced.

// watcher owns one inotify instance and the goroutine that reads it.
type watcher struct {
	opts Options
	log  *slog.Logger
	fs   *fsnotify.Watcher
	done chan struct{} // closed when run has returned

	mu      sync.Mutex // guards what follows and the fields of targets
	targets map[*target]struct{}
	dirs    map[string]map[*target]struct{} // watched directory → who needs it
	dirty   map[*target]struct{}            // to survey and announce
}

// target is one watched place.
type target struct {
	place
	steps map[string]struct{} // paths of which every event matters
	dirs  map[string]struct{} // directories watched for it
	list  string              // the directory that a list shows; empty while it is missing

	mu      sync.Mutex // held while changed runs
	changed func()     // nil once stopped
}

func newWatcher(opts Options, log *slog.Logger) (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if errors.Is(err, syscall.EMFILE) {
		return nil, fmt.Errorf("%w: the system gives no more inotify instances: raise fs.inotify.max_user_instances with sysctl", ErrWatchLimit)
	}
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	w := &watcher{
		opts: opts, log: log, fs: fs, done: make(chan struct{}),
		targets: map[*target]struct{}{}, dirs: map[string]map[*target]struct{}{}, dirty: map[*target]struct{}{},
	}
	go w.run()
	return w, nil
}

func (w *watcher) close() error {
	err := w.fs.Close() // closes Events, which ends run
	<-w.done
	w.mu.Lock()
	targets := w.targets
	w.targets = map[*target]struct{}{}
	w.mu.Unlock()
	for t := range targets {
		t.silence()
	}
	return err
}

// add begins to watch a place.
func (w *watcher) add(p place, changed func()) (stop func(), err error) {
	t := &target{place: p, changed: changed}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.survey(t); err != nil {
		w.release(t, t.dirs)
		return nil, err
	}
	w.targets[t] = struct{}{}
	return func() { w.remove(t) }, nil
}

func (w *watcher) remove(t *target) {
	w.mu.Lock()
	delete(w.targets, t)
	delete(w.dirty, t)
	w.release(t, t.dirs)
	t.dirs = nil
	w.mu.Unlock()
	t.silence()
}

// silence makes sure that changed is not running and will not run again.
func (t *target) silence() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = nil
}

func (t *target) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed != nil {
		t.changed()
	}
}

// run turns kernel events into announcements. The timer is armed by an event.
func (w *watcher) run() {
	defer close(w.done)
	timer := time.NewTimer(0)
	if !timer.Stop() {
		<-timer.C
	}
	armed := false
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if w.note(e) && !armed {
				timer.Reset(w.opts.Settle)
				armed = true
			}
		case err, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			w.log.Warn("watching files went wrong", logattr.Err(err))
			// Whatever was lost, a fresh look at everything makes up for it.
			if w.noteAll() && !armed {
				timer.Reset(w.opts.Settle)
				armed = true
			}
		case <-timer.C:
			armed = false
			w.flush()
		}
	}
}

// note marks the targets that an event concerns and reports whether any is.
func (w *watcher) note(e fsnotify.Event) bool {
	if e.Name == "" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range []string{filepath.Dir(e.Name), e.Name} {
		for t := range w.dirs[d] {
			if t.concerns(e) {
				w.dirty[t] = struct{}{}
			}
		}
	}
	return len(w.dirty) > 0
}

func (w *watcher) noteAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.targets {
		w.dirty[t] = struct{}{}
	}
	return len(w.dirty) > 0
}

// concerns reports whether an event in a watched directory matters to t.
func (t *target) concerns(e fsnotify.Event) bool {
	if _, ok := t.steps[e.Name]; ok {
		// A file's mode and times are no part of its contents.
		return t.kind != file || e.Op != fsnotify.Chmod
	}
	if _, ok := t.dirs[e.Name]; ok && e.Has(fsnotify.Remove|fsnotify.Rename) {
		return true
	}
	switch t.kind {
	case dir:
		return filepath.Dir(e.Name) == t.list
	case glob:
		rel, err := filepath.Rel(t.list, e.Name)
		if err != nil || t.list == "" || !filepath.IsLocal(rel) {
			return false
		}
		base, _ := doublestar.SplitPattern(t.pattern)
		if doublestar.MatchUnvalidated(t.pattern, path.Join(base, filepath.ToSlash(rel))) {
			return true
		}
		// A new directory may hold matches already.
		return e.Has(fsnotify.Create) && isDir(e.Name)
	case file:
	}
	return false
}

func isDir(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// flush surveys what changed and then announces it.
func (w *watcher) flush() {
	w.mu.Lock()
	dirty := make([]*target, 0, len(w.dirty))
	for t := range w.dirty {
		dirty = append(dirty, t)
		if err := w.survey(t); err != nil {
			w.log.Warn("a directory cannot be watched; some changes below it will go unseen", logattr.Err(err))
		}
	}
	clear(w.dirty)
	w.mu.Unlock()
	for _, t := range dirty {
		t.announce()
	}
}

// survey brings the kernel's watches for t up to date. On an error t keeps
// what was reached. w.mu is held.
func (w *watcher) survey(t *target) error {
	old := t.dirs
	t.steps, t.dirs, t.list = map[string]struct{}{}, map[string]struct{}{}, ""
	err := w.trace(t)
	for d := range t.dirs {
		delete(old, d)
	}
	w.release(t, old)
	return err
}

// release ends the watches of directories that only t needed. w.mu is held.
func (w *watcher) release(t *target, dirs map[string]struct{}) {
	for d := range dirs {
		delete(w.dirs[d], t)
		if len(w.dirs[d]) == 0 {
			delete(w.dirs, d)
			_ = w.fs.Remove(d) // the kernel may have ended it before us
		}
	}
}

// watch asks the kernel to watch a directory for t. A directory that went away
// in between is no error: the one above it tells when it is back.
func (w *watcher) watch(t *target, d string) error {
	if _, ok := t.dirs[d]; ok {
		return nil
	}
	if w.dirs[d] == nil && len(w.dirs) >= w.opts.MaxDirs {
		return fmt.Errorf("%w: more than %d directories: use a narrower glob, or a server for each part", ErrWatchLimit, w.opts.MaxDirs)
	}
	// Also for one that is watched already: the kernel forgets a directory that
	// is deleted, and the one that is there now may be another.
	err := w.fs.Add(d)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: the system gives no more inotify watches: raise fs.inotify.max_user_watches with sysctl, or use a narrower glob", ErrWatchLimit)
	default:
		return fmt.Errorf("watch directory %s: %w", d, err)
	}
	if w.dirs[d] == nil {
		w.dirs[d] = map[*target]struct{}{}
	}
	w.dirs[d][t] = struct{}{}
	t.dirs[d] = struct{}{}
	return nil
}

// trace walks from the root to the target.
func (w *watcher) trace(t *target) error {
	ok, err := w.traceRoot(t)
	if !ok || err != nil {
		return err
	}
	rel := t.rel
	if t.kind == glob {
		rel, _ = doublestar.SplitPattern(t.pattern)
	}
	end, ok, err := w.tracePath(t, rel)
	if !ok || err != nil || t.kind == file {
		return err
	}
	t.list = end
	if t.kind == dir {
		return w.watch(t, end)
	}
	return w.traceBelow(t, end, globDepth(t.pattern))
}

// traceRoot watches the root, or while it is missing the nearest directory
// above it.
func (w *watcher) traceRoot(t *target) (exists bool, err error) {
	real := t.root.real
	if err := w.watch(t, real); err != nil || isDir(real) {
		return err == nil, err
	}
	for missing := real; ; missing = filepath.Dir(missing) {
		up := filepath.Dir(missing)
		t.steps[missing] = struct{}{}
		if err := w.watch(t, up); err != nil {
			return false, err
		}
		if isDir(up) || up == missing {
			break
		}
	}
	if !isDir(real) {
		return false, nil
	}
	// It came while we looked above it.
	return true, w.watch(t, real)
}

// maxLinks bounds the links on the way to one file, as the kernel does.
const maxLinks = 40

// tracePath follows rel from the root, link by link, and returns where it
// leads. It stops where something is missing or leads out of the root.
func (w *watcher) tracePath(t *target, rel string) (end string, ok bool, err error) {
	at := t.root.real
	names := strings.Split(filepath.ToSlash(rel), "/")
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if at == t.root.real {
				return "", false, nil
			}
			at = filepath.Dir(at)
			continue
		}
		if err := w.watch(t, at); err != nil {
			return "", false, err
		}
		next := filepath.Join(at, name)
		t.steps[next] = struct{}{}
		info, err := os.Lstat(next)
		if err != nil {
			return "", false, nil //nolint:nilerr // the directory tells when it is there
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		to, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks || filepath.IsAbs(to) {
			return "", false, nil //nolint:nilerr // reads refuse it; its directory tells when it changes
		}
		names = append(strings.Split(filepath.ToSlash(to), "/"), names...)
	}
	return at, true, nil
}

// traceBelow watches d and, to the given depth, the directories below it.
// Links are not followed: a list shows them as links.
func (w *watcher) traceBelow(t *target, d string, depth int) error {
	if err := w.watch(t, d); err != nil {
		return err
	}
	if depth == 0 {
		return nil
	}
	entries, _ := os.ReadDir(d) // what cannot be read has no visible entries
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := w.traceBelow(t, filepath.Join(d, e.Name()), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// globDepth is how many levels below its base a pattern can match beyond the
// first; without a bound it is -1.
func globDepth(pattern string) int {
	_, rest := doublestar.SplitPattern(pattern)
	if strings.Contains(rest, "**") || strings.ContainsAny(rest, "{") {
		return -1
	}
	return strings.Count(rest, "/")
}
