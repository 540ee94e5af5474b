package filelock

import (
	"errors"
	"path/filepath"
	"runtime"
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
