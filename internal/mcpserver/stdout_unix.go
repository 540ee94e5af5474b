//go:build unix

package mcpserver

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// GuardStdout keeps standard output for frames. It returns the real one, and
// makes descriptor 1 another name of standard error, so that nothing which
// prints, be it a library, the runtime or a child process, can come between two
// frames. Children do not inherit the real one either, so it ends with us.
func GuardStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("guard standard output: %w", err)
	}
	if err := dup2(2, 1); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("guard standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
