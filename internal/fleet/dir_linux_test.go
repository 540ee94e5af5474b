package fleet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/filelock"
)

// What killed processes left beside our directory goes at the next start; who
// lives, or has just begun, keeps his, and so does whatever has another name.
func TestDirectoriesOfKilledProcessesGo(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("", "left") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	place := func(name string) string { return filepath.Join(parent, name) }
	old := time.Now().Add(-2 * leftAge)
	left, held, listening, fresh, other := place(dirPrefix+"1"), place(dirPrefix+"2"), place(dirPrefix+"3"), place(dirPrefix+"4"), place("notes")
	for _, dir := range []string{left, held, listening, fresh, other} {
		if err := os.MkdirAll(filepath.Join(dir, "boxes-light", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	release, err := filelock.HoldDir(held)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(listening, socketName))
	if err != nil {
		t.Fatal(err)
	}
	dead, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(left, socketName))
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
	_ = dead.Close()
	for _, dir := range []string{left, held, listening, other} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	there := func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	own := place(dirPrefix + "own")
	ended, end := context.WithCancel(t.Context())
	end()
	if sweepDirs(ended, own); !there(listening) {
		t.Error("one that could not be looked at was removed")
	}
	sweepDirs(t.Context(), own)
	if there(left) || !there(held) || !there(listening) || !there(fresh) || !there(other) {
		t.Errorf("left %v, held %v, listening %v, fresh %v, other %v", there(left), there(held), there(listening), there(fresh), there(other))
	}
	release()
	_ = l.Close()
	if err := os.Chtimes(listening, old, old); err != nil { // its socket has just gone
		t.Fatal(err)
	}
	sweepDirs(t.Context(), own)
	if there(held) || there(listening) || !there(fresh) {
		t.Errorf("held %v, listening %v, fresh %v", there(held), there(listening), there(fresh))
	}
}

// A gateway holds its directory for as long as it is open.
func TestTheGatewayHoldsItsDirectory(t *testing.T) {
	t.Parallel()
	g, err := Open(t.Context(), config.Default(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.HoldDir(g.dir); err == nil {
		t.Error("its directory is free")
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.dir); err == nil {
		t.Error("its directory stays")
	}
}

// A data directory that is a copy of another's speaks of the other's directory of
// sandboxes, which is in use: that stays.
func TestTheDirectoryOfAnotherGatewayStays(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	open := func(data string) *Fleet {
		t.Helper()
		g, err := Open(t.Context(), config.Default(), &Options{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close(context.WithoutCancel(t.Context())) })
		return g
	}
	g := open(first)
	note := filepath.Join(keptDir, "directory")
	text, err := os.ReadFile(filepath.Join(first, note))
	if err == nil {
		err = os.Mkdir(filepath.Join(second, keptDir), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(second, note), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	open(second)
	if _, err := os.Stat(g.socket); err != nil {
		t.Errorf("it lost its socket: %v", err)
	}
}

// Whom a directory that was left behind does not belong to keeps it.
func TestOnlyOurDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	left := filepath.Join(dir, dirPrefix+"1")
	link := filepath.Join(dir, dirPrefix+"2")
	for _, d := range []string{other, left} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{other, link, left, "", "/"} {
		removeLeft(d)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("another's directory was removed")
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error("a link was taken for a directory of ours")
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("ours was not removed")
	}
}
