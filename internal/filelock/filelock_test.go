package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestHold(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("there is no such lock")
	}
	path := filepath.Join(t.TempDir(), "lock")
	for name, hold := range map[string]struct{ first, second func(string) (func(), error) }{
		"alone":              {Hold, Hold},
		"shared, then alone": {Share, Hold},
		"alone, then shared": {Hold, Share},
	} {
		release, err := hold.first(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := hold.second(path); !errors.Is(err, ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
		release()
		again, err := hold.second(path)
		if err != nil {
			t.Fatalf("%s, released: %v", name, err)
		}
		again()
	}
	one, err1 := Share(path)
	two, err2 := Share(path)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	one()
	two()
}

// Held finds who has a file for himself, and makes none.
func TestHeld(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("there is no such lock")
	}
	path := filepath.Join(t.TempDir(), "lock")
	if Held(path) {
		t.Error("there is no file")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it was made")
	}
	for want, hold := range map[bool]func(string) (func(), error){true: Hold, false: Share} {
		release, err := hold(path)
		if err != nil {
			t.Fatal(err)
		}
		if Held(path) != want {
			t.Errorf("held: %t", !want)
		}
		release()
		if Held(path) {
			t.Error("it was released")
		}
	}
}

// However often a file is removed by those who hold it, there is one holder.
func TestRemovedWhileHeld(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("there is no such lock")
	}
	path := filepath.Join(t.TempDir(), "lock")
	if err := Remove(path); err != nil {
		t.Errorf("none: %v", err)
	}
	release, err := Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	release()
	var holders, most atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				release, err := Hold(path)
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n > most.Load() {
					most.Store(n)
				}
				runtime.Gosched()
				holders.Add(-1) // before it is removed: then another may be made, and held
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
				release()
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d held it at once", most.Load())
	}
}

func TestHoldDir(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("there is no such lock")
	}
	dir := t.TempDir()
	release, err := HoldDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := HoldDir(dir); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	release()
	if _, err := HoldDir(filepath.Join(dir, "none")); err == nil || errors.Is(err, ErrHeld) {
		t.Error(err)
	}
}
