// Package filelock holds files for a process: a lock that is gone with its holder,
// however that went.
package filelock

import "errors"

// ErrHeld says that another process holds a file.
var ErrHeld = errors.New("another process holds it")
