// Package files makes files and directories below configured roots watchable.
// Changes are learnt from the kernel (inotify, by fsnotify); nothing is polled.
//
// # URIs
//
// Three forms, each one a state resource:
//
//	file:///abs/path/to/file    the contents: text, or a blob
//	file:///abs/path/to/dir/    with the slash: the entries of a directory
//	files://ROOT/pattern        the entries below a root that match a glob
//
// Root is the name of a root, and pattern a doublestar glob relative to it
// (`**` spans directories, `*`, `?`, `[a-z]` and `{md,txt}` stay within one
// name). Characters that no URI may carry are percent-encoded; the glob
// characters may stand as they are.
//
// A list is a JSON array of objects, sorted by name:
//
//	{"name":"a/b.md","type":"file","size":12,"mode":"0644","mtime":"2026-01-02T03:04:05.678Z"}
//
// Name is the path relative to the directory or the root, type is file, dir,
// symlink or other. Only files have a size and an mtime: those of a directory
// change with its entries, which are watched themselves.
//
// # What a watch sees
//
// A watch outlives its file: a file that is replaced by rename, deleted and
// created again, or whose directory comes later is announced each time. Links
// inside the root are followed and watched link by link, so that a swapped
// link counts as a change; a link that leads out of the root is not followed,
// neither in reads nor in watches. Announcements within one settle time
// coalesce. When the kernel drops events, everything is announced once.
package files

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Default limits of a [Source].
const (
	DefaultMaxFile    = 1 << 20 // bytes of one file
	DefaultMaxEntries = 10_000  // entries of one list
	DefaultMaxDirs    = 8192    // directories watched at a time
	DefaultSettle     = 25 * time.Millisecond
)

// Root is one directory, or one file, that may be read and watched.
type Root struct {
	// Name stands for the root in glob URIs. Empty means the last element of
	// Path, with a number where that is taken.
	Name string
	// Path is made absolute when the source is made. It must exist.
	Path string
}

// Options configure a [Source]. Zero fields take the defaults of this package.
type Options struct {
	// MaxFile bounds the size of a file that is read, in bytes.
	MaxFile int64
	// MaxEntries bounds the length of a list.
	MaxEntries int
	// MaxDirs bounds the directories that are watched at a time.
	MaxDirs int
	// Settle is how long announcements are held back to be one.
	Settle time.Duration
	// Logger takes what goes wrong after a watch began. Nil discards it.
	Logger *slog.Logger
}

// ErrTooLarge is wrapped by the errors of reads that a limit refuses.
var ErrTooLarge = errors.New("too large")

// ErrWatchLimit is wrapped by the errors of watches that need more directories
// than the options or the system allow.
var ErrWatchLimit = errors.New("watch limit reached")

// Source is a [listen.Source] of files. It is safe for concurrent use.
type Source struct {
	opts  Options
	roots []*root
	log   *slog.Logger

	mu      sync.Mutex // guards watcher and closed
	watcher *watcher   // made by the first watch
	closed  bool
}

// root is a resolved Root.
type root struct {
	name string
	path string // absolute and clean, as URIs spell it
	real string // path without links, as the kernel reports it
	only string // base name of the file when the root is one file
}

// New makes a source of the given roots. It starts nothing before the first
// watch.
func New(roots []Root, opts *Options) (*Source, error) {
	s := &Source{log: slog.New(slog.DiscardHandler)}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.MaxFile <= 0 {
		s.opts.MaxFile = DefaultMaxFile
	}
	if s.opts.MaxEntries <= 0 {
		s.opts.MaxEntries = DefaultMaxEntries
	}
	if s.opts.MaxDirs <= 0 {
		s.opts.MaxDirs = DefaultMaxDirs
	}
	if s.opts.Settle <= 0 {
		s.opts.Settle = DefaultSettle
	}
	if s.opts.Logger != nil {
		s.log = s.opts.Logger
	}
	if len(roots) == 0 {
		return nil, errors.New("open files: no root given: name at least one directory")
	}
	for _, r := range roots {
		if err := s.addRoot(r); err != nil {
			return nil, fmt.Errorf("open root %q: %w", r.Path, err)
		}
	}
	return s, nil
}

func (s *Source) addRoot(r Root) error {
	abs, err := filepath.Abs(r.Path)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return err
	}
	rt := &root{name: r.Name, path: abs}
	switch {
	case info.IsDir():
	case info.Mode().IsRegular():
		rt.path, rt.only = filepath.Dir(abs), filepath.Base(abs)
	default:
		return errors.New("neither a directory nor a regular file")
	}
	if rt.real, err = filepath.EvalSymlinks(rt.path); err != nil {
		return err
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(s.roots, func(o *root) bool { return o.name == name })
	}
	if rt.name == "" {
		rt.name = freeName(rootName(abs), taken)
	}
	if rt.name != rootName(rt.name) {
		return fmt.Errorf("name %q: use letters, digits, '.', '_' and '-'", rt.name)
	}
	if taken(rt.name) {
		return fmt.Errorf("name %q is taken by another root", rt.name)
	}
	s.roots = append(s.roots, rt)
	return nil
}

// rootName makes a URI authority of the last element of a path.
func rootName(path string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-", r):
			return r
		}
		return '-'
	}, filepath.Base(path))
	if strings.Trim(name, ".-") == "" {
		return "root"
	}
	return name
}

func freeName(name string, taken func(string) bool) string {
	for i := 1; ; i++ {
		try := name
		if i > 1 {
			try = fmt.Sprintf("%s-%d", name, i)
		}
		if !taken(try) {
			return try
		}
	}
}

// Close ends all watches and waits for them. Reads still work afterwards.
func (s *Source) Close() error {
	s.mu.Lock()
	w := s.watcher
	s.watcher, s.closed = nil, true
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.close()
}
