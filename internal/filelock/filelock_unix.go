//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Hold holds a file, which it makes if there is none, until release is called or the
// process is gone, however it went. It does not wait: ErrHeld.
func Hold(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return hold(f, unix.LOCK_EX)
}

// Share holds a file as one of several: none of them keeps the others out, only who
// wants it for himself.
func Share(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return hold(f, unix.LOCK_SH)
}

// HoldDir holds a directory for itself.
func HoldDir(path string) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return hold(f, unix.LOCK_EX)
}

func hold(f *os.File, how int) (release func(), err error) {
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
