package fleet

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ossicle/ossicle/internal/filelock"
)

// dirPrefix begins the name of a process's directory of sandboxes.
const dirPrefix = "ossicle-sandbox-"

// makeDir makes a directory that the user of sandboxes can pass through: when
// we are root that is another, and a TMPDIR of our own is no place for it.
func makeDir() (string, error) {
	parent := os.TempDir()
	if os.Geteuid() == 0 && !passable(parent) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, dirPrefix) // a socket's path must be short
	if err != nil || os.Geteuid() != 0 {
		return dir, err
	}
	return dir, os.Chmod(dir, 0o711)
}

// passable reports whether everybody can pass through a directory and all above.
func passable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return true
	}
}

const (
	// leftAge is how old a directory must be to have been left behind: a process that
	// makes one does not hold it yet.
	leftAge = time.Minute
	// leftMost bounds the directories that one process removes at its start.
	leftMost = 64
)

// sweepDirs removes the directories beside ours that processes left behind
// which were killed. Who lives holds his; who is older than that custom listens.
func sweepDirs(ctx context.Context, ours string) {
	parent, err := os.Open(filepath.Dir(ours))
	if err != nil {
		return // they are only in the way
	}
	defer func() { _ = parent.Close() }()
	names, _ := parent.Readdirnames(-1)
	removed := 0
	for _, name := range names {
		dir := filepath.Join(filepath.Dir(ours), name)
		if !strings.HasPrefix(name, dirPrefix) || dir == ours || !leftBehind(ctx, dir) {
			continue
		}
		removeLeft(dir)
		if removed++; removed == leftMost {
			return
		}
	}
}

// leftBehind reports whether nobody uses a directory of sandboxes any more.
func leftBehind(ctx context.Context, dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && ours(info) && time.Since(info.ModTime()) >= leftAge && abandoned(ctx, dir)
}

// abandoned reports whether nobody holds a directory of sandboxes, nor listens in
// it. What cannot be found out counts as somebody.
func abandoned(ctx context.Context, dir string) bool {
	release, err := filelock.HoldDir(dir)
	if err != nil {
		return false
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// removeLeft removes a directory of ours that a process left behind, and nothing
// that only bears its name.
func removeLeft(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || !strings.HasPrefix(filepath.Base(dir), dirPrefix) || !ours(info) {
		return
	}
	_ = os.RemoveAll(dir) // it is only in the way
}
