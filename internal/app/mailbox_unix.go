//go:build unix

package app

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// holdFile holds a file until release is called or the process is gone, however it
// went.
func holdFile(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
