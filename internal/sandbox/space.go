//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountSpaces gives the calling thread, which must be locked and never unlocked,
// and all that it starts, a view of files in which each of the directories is a
// file system of its own, in memory and of a bounded size. They end with those who
// see them: nothing is left to unmount, also when we are killed.
func mountSpaces(uid, gid int, sizes map[string]int64) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	for dir, size := range sizes {
		o := fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", size, uid, gid)
		if err := unix.Mount("sandbox", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, o); err != nil {
			return fmt.Errorf("mount %s: %w", filepath.Base(dir), err)
		}
	}
	return nil
}

// canMount reports whether directories can be made file systems of their own.
func canMount(parent string) bool {
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp(parent, "probe")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(dir) }()
	result := make(chan error, 1)
	alone(func() { result <- mountSpaces(0, 0, map[string]int64{dir: 1 << 20}) })
	return <-result == nil
}
