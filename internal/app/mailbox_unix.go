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
	return hold(f, unix.LOCK_EX)
}

// shareFile holds a file as one of several: none of them keeps the others out, only
// who wants it for himself.
func shareFile(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return hold(f, unix.LOCK_SH)
}

// holdDir holds a directory for itself.
func holdDir(path string) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return hold(f, unix.LOCK_EX)
}

func hold(f *os.File, how int) (release func(), err error) {
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
