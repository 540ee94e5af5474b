package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileHome names the file at path among all that ever were there: a copy has
// another number or another time of birth. Where the file system tells no time of
// birth it is empty, because numbers alone are given again. The device counts for
// nothing; its number may change when the machine starts.
func fileHome(path string) (string, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return "", fmt.Errorf("look at %s: %w", path, err)
	}
	if s.Mask&unix.STATX_BTIME == 0 || s.Btime.Sec == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d/%d.%09d", s.Ino, s.Btime.Sec, s.Btime.Nsec), nil
}
