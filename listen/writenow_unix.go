//go:build unix

package listen

import (
	"errors"
	"syscall"
)

// canWriteNow says that [writeNow] works here.
const canWriteNow = true

// writeNow writes to a non-blocking descriptor what its buffer takes.
func writeNow(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), b)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, errWouldBlock
		default:
			return 0, err
		}
	}
}
