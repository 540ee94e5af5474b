//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Hold holds a file, which it makes if there is none, until release is called or the
// process is gone, however it went. It does not wait: ErrHeld.
func Hold(path string) (release func(), err error) { return file(path, unix.LOCK_EX) }

// Share holds a file as one of several: none of them keeps the others out, only who
// wants it for himself.
func Share(path string) (release func(), err error) { return file(path, unix.LOCK_SH) }

// Held reports whether somebody holds a file for himself. It is to tell of it: who
// wants the file calls Hold. While it looks it shares the file, a moment in which Hold
// is refused.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	release, err := hold(f, unix.LOCK_SH)
	if err == nil {
		release()
	}
	return errors.Is(err, ErrHeld)
}

// Remove removes a file that nobody holds, and that nobody can have got hold of
// meanwhile. ErrHeld if somebody does; none is none.
func Remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	release, err := Hold(path)
	if err != nil {
		return err
	}
	defer release()
	return os.Remove(path)
}

// tries bounds how often a file is opened that others remove meanwhile.
const tries = 10

func file(path string, how int) (release func(), err error) {
	for range tries {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		release, err := hold(f, how)
		if err != nil {
			return nil, err
		}
		if there(f, path) {
			return release, nil
		}
		release() // it was removed between the two, and another may be there
	}
	return nil, ErrHeld
}

// there reports whether a path still is that of an open file.
func there(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(opened, now)
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
	return func() {
		// A child that is being forked has the file, too, until it is another program: the
		// lock would be gone only then.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}
