package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ossicle/ossicle/listen"
)

// ear hears announcements of one watch.
type ear struct {
	t    *testing.T
	s    *Source
	uri  string
	ch   chan struct{}
	n    atomic.Int64
	stop func()
}

func listenTo(t *testing.T, s *Source, uri string) *ear {
	t.Helper()
	e := &ear{t: t, s: s, uri: uri, ch: make(chan struct{}, 1)}
	stop, err := s.Watch(t.Context(), uri, func() {
		e.n.Add(1)
		select {
		case e.ch <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatalf("Watch(%s): %v", uri, err)
	}
	e.stop = stop
	t.Cleanup(stop)
	return e
}

// until reads after each announcement until ok says so.
func (e *ear) until(what string, ok func(text string, err error) bool) {
	e.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		select {
		case <-e.ch:
		case <-deadline.C:
			e.t.Fatalf("%s: no announcement led to it", what)
		}
		c, err := e.s.Read(e.t.Context(), e.uri, listen.ReadOptions{})
		text := ""
		if err == nil {
			text = c[0].Text
		}
		if ok(text, err) {
			return
		}
	}
}

func (e *ear) untilText(want string) {
	e.t.Helper()
	e.until(fmt.Sprintf("text with %q", want), func(text string, err error) bool { return err == nil && strings.Contains(text, want) })
}

func (e *ear) untilGone() {
	e.t.Helper()
	e.until("gone", func(_ string, err error) bool {
		var missing *listen.NotFoundError
		return errors.As(err, &missing)
	})
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, p string) {
	t.Helper()
	if err := os.RemoveAll(p); err != nil {
		t.Fatal(err)
	}
}

// W-016: the kernel tells; nothing polls. Each way in which editors and
// programs replace a file is announced.
func TestFileChangesAreAnnounced(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/sub/f.txt")
	f := filepath.Join(top, "r", "sub", "f.txt")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	e := listenTo(t, s, "file://"+f)

	write(t, f, "in place")
	e.untilText("in place")

	write(t, f+".tmp", "by rename")
	rename(t, f+".tmp", f)
	e.untilText("by rename")

	rename(t, f, f+"~") // an editor that keeps a backup
	write(t, f, "after backup")
	e.untilText("after backup")

	remove(t, f)
	e.untilGone()
	write(t, f, "again")
	e.untilText("again")

	remove(t, filepath.Dir(f))
	e.untilGone()
	mkdir(t, filepath.Dir(f))
	write(t, f, "directory again")
	e.untilText("directory again")
	write(t, f, "and its file")
	e.untilText("and its file")

	rename(t, filepath.Join(top, "r", "sub"), filepath.Join(top, "r", "moved"))
	e.untilGone()
	rename(t, filepath.Join(top, "r", "moved"), filepath.Join(top, "r", "sub"))
	e.untilText("and its file")
	write(t, f, "back")
	e.untilText("back")
}

func TestDirectoryThatComesLater(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	f := filepath.Join(top, "r", "a", "b", "f.txt")
	inFile := listenTo(t, s, "file://"+f)
	inDir := listenTo(t, s, "file://"+filepath.Dir(f)+"/")
	inGlob := listenTo(t, s, "files://r/a/b/*.txt")
	inAll := listenTo(t, s, "files://r/**")
	mkdir(t, filepath.Dir(f))
	write(t, f, "here")
	inFile.untilText("here")
	for _, e := range []*ear{inDir, inGlob, inAll} {
		e.untilText("f.txt")
	}
	write(t, f+".txt", "another")
	for _, e := range []*ear{inDir, inGlob, inAll} {
		e.untilText("f.txt.txt")
	}
}

func TestRootThatIsReplaced(t *testing.T) {
	t.Parallel()
	top := tree(t, "above/r/f.txt")
	r := filepath.Join(top, "above", "r")
	s := newSource(t, nil, Root{Path: r})
	e := listenTo(t, s, "files://r/*")
	one := listenTo(t, s, "file://"+r+"/f.txt")
	remove(t, filepath.Join(top, "above"))
	one.until("an error", func(_ string, err error) bool { return err != nil })
	mkdir(t, r)
	write(t, filepath.Join(r, "new.txt"), "x")
	e.untilText("new.txt")
	write(t, filepath.Join(r, "f.txt"), "back")
	one.untilText("back")
	e.untilText("f.txt")
}

func TestListChangesAreAnnounced(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/a.md", "r/sub/b.md")
	r := filepath.Join(top, "r")
	s := newSource(t, nil, Root{Path: r})
	d := listenTo(t, s, "file://"+r+"/")
	g := listenTo(t, s, "files://r/**/*.md")

	write(t, filepath.Join(r, "a.md"), "123456789")
	d.untilText(`"size":9`)
	g.untilText(`"size":9`)

	write(t, filepath.Join(r, "sub", "c.md"), "")
	g.untilText("sub/c.md")

	if err := os.Chmod(filepath.Join(r, "a.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.untilText(`"mode":"0600"`)
	g.untilText(`"mode":"0600"`)

	rename(t, filepath.Join(r, "sub"), filepath.Join(r, "other"))
	g.untilText("other/c.md")
	d.untilText(`"other"`)
	write(t, filepath.Join(r, "other", "d.md"), "")
	g.untilText("other/d.md")

	mkdir(t, filepath.Join(r, "fresh", "deep"))
	d.untilText(`"fresh"`)
	write(t, filepath.Join(r, "fresh", "deep", "e.md"), "")
	g.untilText("fresh/deep/e.md")

	remove(t, filepath.Join(r, "fresh"))
	remove(t, filepath.Join(r, "other"))
	// What was read may be newer than what the watches go by: then another
	// announcement follows.
	g.until("all gone, and only the root watched", func(text string, err error) bool {
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		watched := s.watcher.fs.WatchList()
		t.Logf("%v, watched: %q", err, watched)
		return err == nil && !strings.Contains(text, "other") && !strings.Contains(text, "fresh") && len(watched) == 1 && len(s.watcher.dirs) == 1
	})
}

// A directory that is mounted by Kubernetes is updated by swapping a link.
func TestSwappedLinkIsAChange(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/..v1/f", "r/..v2/f")
	r := filepath.Join(top, "r")
	for link, to := range map[string]string{"..data": "..v1", "f": "..data/f"} {
		if err := os.Symlink(to, filepath.Join(r, link)); err != nil {
			t.Fatal(err)
		}
	}
	s := newSource(t, nil, Root{Path: r})
	e := listenTo(t, s, "file://"+r+"/f")
	if err := os.Symlink("..v2", filepath.Join(r, "..tmp")); err != nil {
		t.Fatal(err)
	}
	rename(t, filepath.Join(r, "..tmp"), filepath.Join(r, "..data"))
	e.untilText("r/..v2/f")
	write(t, filepath.Join(r, "..v2", "f"), "in the target")
	e.untilText("in the target")
}

func TestLinksOutOfTheRootAreNotWatched(t *testing.T) {
	t.Parallel()
	top := tree(t, "secret/s.txt", "r/ok")
	r := filepath.Join(top, "r")
	if err := os.Symlink("../secret", filepath.Join(r, "out")); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, nil, Root{Path: r})
	outside := listenTo(t, s, "file://"+r+"/out/s.txt")
	all := listenTo(t, s, "files://r/**")
	for d := range s.watcher.dirs {
		if strings.HasPrefix(d, filepath.Join(top, "secret")) {
			t.Errorf("%s is watched", d)
		}
	}
	write(t, filepath.Join(top, "secret", "s.txt"), "changed")
	write(t, filepath.Join(r, "ok"), "changed")
	all.untilText(`"size":7`)
	if n := outside.n.Load(); n != 0 {
		t.Errorf("%d announcements of a file outside", n)
	}
}

// W-015: n changes, at least one announcement after the last, and not one each.
func TestStormsCoalesce(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/f")
	s := newSource(t, &Options{Settle: 50 * time.Millisecond}, Root{Path: filepath.Join(top, "r")})
	e := listenTo(t, s, "file://"+top+"/r/f")
	started := time.Now()
	for i := range 2000 {
		write(t, filepath.Join(top, "r", "f"), fmt.Sprint("v", i, "."))
	}
	e.untilText("v1999.")
	if n, most := e.n.Load(), int64(time.Since(started)/(50*time.Millisecond))+1; n > most {
		t.Errorf("%d announcements of 2000 writes, want at most %d", n, most)
	}
}

func TestLostEventsAnnounceEverything(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/a", "r/b/c")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	ears := []*ear{listenTo(t, s, "file://"+top+"/r/a"), listenTo(t, s, "files://r/**"), listenTo(t, s, "file://"+top+"/r/b/")}
	s.watcher.fs.Errors <- fsnotify.ErrEventOverflow
	for _, e := range ears {
		e.until("a read", func(_ string, err error) bool { return err == nil })
	}
}

func TestNothingIsAnnouncedAfterStop(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/f", "r/g")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	a, b := listenTo(t, s, "file://"+top+"/r/f"), listenTo(t, s, "files://r/*")
	a.stop()
	a.stop()
	write(t, filepath.Join(top, "r", "f"), "after")
	b.untilText(`"size":5`)
	if n := a.n.Load(); n != 0 {
		t.Errorf("%d announcements after stop", n)
	}
	b.stop()
	if n := len(s.watcher.dirs) + len(s.watcher.fs.WatchList()); n != 0 {
		t.Errorf("%d directories are still watched", n)
	}
}

// Two watches of one file are announced one after the other. Whichever is
// first ends the second, which must then stay silent.
func TestStopDuringAnAnnouncementSilences(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/f")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	var stops [2]atomic.Pointer[func()]
	var calls [2]atomic.Int64
	for i := range stops {
		stop, err := s.Watch(t.Context(), "file://"+top+"/r/f", func() {
			calls[i].Add(1)
			(*stops[1-i].Load())()
		})
		if err != nil {
			t.Fatal(err)
		}
		stops[i].Store(&stop)
		defer stop()
	}
	e := listenTo(t, s, "files://r/*")
	write(t, filepath.Join(top, "r", "f"), "x")
	e.untilText(`"size":1`)
	write(t, filepath.Join(top, "r", "f"), "xy") // by now both have had their turn
	e.untilText(`"size":2`)
	if a, b := calls[0].Load(), calls[1].Load(); (a == 0) == (b == 0) {
		t.Errorf("%d and %d calls, want those of one only", a, b)
	}
}

func TestWatchLimitsAreReadable(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/a/", "r/b/", "r/c/f")
	s := newSource(t, &Options{MaxDirs: 3}, Root{Path: filepath.Join(top, "r")})
	_, err := s.Watch(t.Context(), "files://r/**", func() {})
	if !errors.Is(err, ErrWatchLimit) || !strings.Contains(err.Error(), "more than 3 directories: use a narrower glob, or a server for each part") {
		t.Errorf("Watch = %v, want ErrWatchLimit", err)
	}
	if n := len(s.watcher.dirs); n != 0 {
		t.Errorf("%d directories are watched after a refused watch", n)
	}
	e := listenTo(t, s, "files://r/c/**") // r and r/c
	write(t, filepath.Join(top, "r", "c", "f"), "x")
	e.untilText(`"size":1`)
}

func TestClosedSourceRefusesWatches(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/f")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	listenTo(t, s, "file://"+top+"/r/f")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Watch(t.Context(), "file://"+top+"/r/f", func() {}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Watch after Close = %v", err)
	}
	read(t, s, "file://"+top+"/r/f")
}
