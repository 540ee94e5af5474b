package monty

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// confine takes from a child what it never needs: core dumps, writing files,
// and more than a few open files. Threads and processes are not limited here,
// because that limit counts all processes of the user.
func confine(pid int) error {
	for _, l := range []struct {
		resource int
		max      uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_NOFILE, 16}} {
		if err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: l.max, Max: l.max}, nil); err != nil {
			return fmt.Errorf("limit resource %d: %w", l.resource, err)
		}
	}
	return nil
}

// boundAddressSpace is the second line behind the interpreter's own accounting:
// what that does not see (parsing, conversion) still has an end. Only the soft
// limit is set, so that a run with a larger limit can raise it.
func boundAddressSpace(pid int, bytes uint64) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		return fmt.Errorf("limit address space: %w", err)
	}
	return nil
}

// residentBytes is the physical memory of a process, or 0 if unknown.
func residentBytes(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		n, _ := strconv.Atoi(f[1])
		return n * os.Getpagesize()
	}
	return 0
}
