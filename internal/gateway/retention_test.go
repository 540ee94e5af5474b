package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

// keep stores content as if it had been some time ago.
func keep(t *testing.T, dir *gateway.Dir, path, content string, ago time.Duration) (uri string, at time.Time) {
	t.Helper()
	uri, _, err := dir.Put(t.Context(), "s", sha256.Sum256([]byte(content)), strings.NewReader(content))
	must(t, err)
	return uri, age(t, filepath.Join(path, strings.TrimPrefix(uri, "store://")), ago)
}

func age(t *testing.T, path string, ago time.Duration) time.Time {
	t.Helper()
	at := time.Now().Add(-ago)
	must(t, os.Chtimes(path, at, at))
	return at
}

func kept(t *testing.T, dir *gateway.Dir, uri string) bool {
	t.Helper()
	r, _, err := dir.Open(uri)
	if errors.Is(err, gateway.ErrNoArtifact) {
		return false
	}
	must(t, err)
	must(t, r.Close())
	return true
}

func openDir(t *testing.T, path string, o *gateway.DirOptions) *gateway.Dir {
	t.Helper()
	dir, err := gateway.OpenDir(path, o)
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

// Artifacts go when they are as old as they may be, what a killed process left goes
// an hour later, and nothing else in the directory is touched. An upload of the
// same content counts from now on.
func TestArtifactsGrowOld(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	path := t.TempDir()
	dir := openDir(t, path, nil)
	old, _ := keep(t, dir, path, "old", 31*day)
	young, at := keep(t, dir, path, "young", 29*day)
	again, _ := keep(t, dir, path, "again", 40*day)
	if uri, _, err := dir.Put(t.Context(), "s", sha256.Sum256([]byte("again")), strings.NewReader("again")); err != nil || uri != again {
		t.Fatal(uri, err)
	}
	for name, ago := range map[string]time.Duration{".tmp-KILLED": 2 * time.Hour, ".tmp-BUSY": time.Minute, "notes.txt": 400 * day, "art_short": 400 * day} {
		must(t, os.WriteFile(filepath.Join(path, name), []byte("x"), 0o600))
		age(t, filepath.Join(path, name), ago)
	}
	s, err := dir.Sweep(time.Now())
	must(t, err)
	if s.Removed != 1 || s.Freed != 3 || s.Left != 10 || !s.Next.Equal(at.Add(30*day)) {
		t.Errorf("%+v, next in %v", s, time.Until(s.Next))
	}
	if kept(t, dir, old) || !kept(t, dir, young) || !kept(t, dir, again) {
		t.Error("others are kept than should be")
	}
	var names []string
	entries, err := os.ReadDir(path)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) != 5 || slices.Contains(names, ".tmp-KILLED") {
		t.Errorf("left: %v", names)
	}
	// The next process finds what fell due meanwhile.
	age(t, filepath.Join(path, strings.TrimPrefix(young, "store://")), 30*day)
	if next := openDir(t, path, nil); kept(t, next, young) {
		t.Error("opening the directory swept nothing")
	}
}

// An artifact that cannot be removed is told, and keeps nobody from the directory, nor
// another from room.
func TestArtifactsThatStay(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	dir := openDir(t, path, &gateway.DirOptions{Total: 1000})
	text := func(c string) string { return strings.Repeat(c, 300) }
	stuck, _ := keep(t, dir, path, text("1"), 31*24*time.Hour)
	file := filepath.Join(path, strings.TrimPrefix(stuck, "store://"))
	chattr := func(flag string) error {
		return exec.CommandContext(context.WithoutCancel(t.Context()), "chattr", flag, file).Run()
	}
	if err := chattr("+i"); err != nil {
		t.Skipf("nothing here keeps root from removing a file: %v", err)
	}
	t.Cleanup(func() { _ = chattr("-i") })
	if os.Rename(file, file+"x") == nil {
		t.Skip("nothing here keeps us from removing a file")
	}
	again := openDir(t, path, &gateway.DirOptions{Total: 1000})
	if _, err := again.Sweep(time.Now()); err == nil {
		t.Error("it is not told")
	}
	older, _ := keep(t, again, path, text("2"), 2*time.Hour)
	newer, _ := keep(t, again, path, text("3"), 0)
	last, _ := keep(t, again, path, text("4"), 0)
	if !kept(t, again, stuck) || kept(t, again, older) || !kept(t, again, newer) || !kept(t, again, last) {
		t.Error("others are kept than should be")
	}
}

// All artifacts together have at most so many bytes: the oldest go first, those of
// the last hour do not, and without room an upload is refused and leaves nothing.
func TestArtifactsFillUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, &gateway.DirOptions{Total: 1000})
	text := func(c string) string { return strings.Repeat(c, 300) }
	first, _ := keep(t, s.dir, s.path, text("1"), 3*time.Hour)
	second, _ := keep(t, s.dir, s.path, text("2"), 2*time.Hour)
	third, _ := keep(t, s.dir, s.path, text("3"), time.Minute)
	fourth, _ := keep(t, s.dir, s.path, text("4"), time.Minute)
	if kept(t, s.dir, first) || !kept(t, s.dir, second) || !kept(t, s.dir, third) || !kept(t, s.dir, fourth) {
		t.Error("not the oldest went")
	}
	fifth, _ := keep(t, s.dir, s.path, text("5"), time.Minute)
	if kept(t, s.dir, second) || !kept(t, s.dir, fifth) {
		t.Error("not the oldest went")
	}
	if _, _, err := s.dir.Put(t.Context(), "s", sha256.Sum256([]byte(text("6"))), strings.NewReader(text("6"))); !errors.Is(err, gateway.ErrFull) {
		t.Errorf("a store that is full of what is new: %v", err)
	}
	_, err := s.gw.Open(t.Context(), s.tokens, "s1", "ws://127.0.0.1/", worker.Light())
	must(t, err)
	token, err := s.tokens.Issue("s1", time.Hour)
	must(t, err)
	if status, body := s.put(t, "s1", token, sumOf(text("6")), strings.NewReader(text("6"))); status != 507 {
		t.Errorf("%d %s", status, body)
	}
	if entries, err := os.ReadDir(s.path); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
	if status, body := s.put(t, "s1", token, sumOf("small"), strings.NewReader("small")); status != 201 {
		t.Errorf("a small one still fits: %d %s", status, body)
	}
	if swept, err := s.dir.Sweep(time.Now().Add(2 * time.Hour)); err != nil || swept.Removed != 0 {
		t.Errorf("nothing is too much: %+v, %v", swept, err)
	}
}

// Uploads and sweeps of two processes at once: what was stored last is there.
func TestSweepsAtOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	dirs := []*gateway.Dir{openDir(t, path, nil), openDir(t, path, nil)}
	content := []byte("the same")
	sum := sha256.Sum256(content)
	name := filepath.Join(path, strings.TrimPrefix(gateway.ArtifactURI(sum), "store://"))
	for range 50 {
		_, _, err := dirs[0].Put(t.Context(), "s", sum, bytes.NewReader(content))
		must(t, err)
		age(t, name, 31*24*time.Hour)
		var wg sync.WaitGroup
		for i, dir := range dirs {
			wg.Go(func() {
				if _, err := dir.Sweep(time.Now()); err != nil {
					t.Error(err)
				}
				if i > 0 {
					return
				}
				if _, _, err := dir.Put(t.Context(), "s", sum, bytes.NewReader(content)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !kept(t, dirs[1], gateway.ArtifactURI(sum)) {
			t.Fatal("what was just stored is gone")
		}
	}
}

// A directory that is somebody's own keeps everything.
func TestArtifactsOfOnesOwn(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	uri, _ := keep(t, openDir(t, path, &gateway.DirOptions{Keep: -1, Total: -1}), path, "x", 4000*time.Hour)
	dir := openDir(t, path, &gateway.DirOptions{Keep: -1, Total: -1})
	if s, err := dir.Sweep(time.Now()); err != nil || s.Removed != 0 || !s.Next.IsZero() || !kept(t, dir, uri) {
		t.Errorf("%+v, %v", s, err)
	}
}
