//go:build unix

package filelock

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is released is free, also while a child of this process has the file: one that
// is being forked has every file.
func TestReleasedWhileAChildHasIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(child) }()
	release, err := hold(f, unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if Held(path) {
		t.Error("it is held")
	}
}
