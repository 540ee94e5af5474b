//go:build linux

package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is the unit of processor time in /proc: USER_HZ, the same on every
// architecture that Linux has now.
const ticks = 10 * time.Millisecond

// usage is what a process has used so far.
type usage struct {
	resident int64 // bytes
	cpu      time.Duration
}

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The second field is a name in parentheses that may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const user, system, pages = 11, 12, 21
	for _, k := range []int{user, system} {
		n, err := strconv.ParseInt(fields[k], 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * ticks
	}
	n, err := strconv.ParseInt(fields[pages], 10, 64)
	u.resident = n * int64(os.Getpagesize())
	return u, err
}

// socket is a row of /proc/net/tcp.
type socket struct {
	open bool
	held int64 // bytes that the kernel has taken and the peer has not
}

// socketOf finds the connection from local to remote. One that is not there, or
// not established any more, is not open.
func socketOf(local, remote netip.AddrPort) (socket, error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return socket{}, err
	}
	defer func() { _ = f.Close() }()
	want, other := kernelAddr(local), kernelAddr(remote)
	const established = "01"
	for in := bufio.NewScanner(f); in.Scan(); {
		fields := strings.Fields(in.Text())
		if len(fields) < 5 || fields[1] != want || fields[2] != other {
			continue
		}
		queue, _, _ := strings.Cut(fields[4], ":")
		held, err := strconv.ParseInt(queue, 16, 64)
		return socket{fields[3] == established, held}, err
	}
	return socket{}, nil
}

// kernelAddr spells an IPv4 address as /proc/net/tcp does: as a number of the
// machine, little-endian wherever this runs.
func kernelAddr(a netip.AddrPort) string {
	b := a.Addr().As4()
	b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	return strings.ToUpper(hex.EncodeToString(b[:])) + fmt.Sprintf(":%04X", a.Port())
}

// raiseFiles allows this process, and the servers that it starts, n descriptors.
func raiseFiles(n uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	// Set also when it is enough: only what is set explicitly is inherited.
	limit.Cur, limit.Max = max(limit.Cur, n), max(limit.Max, n)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("allow %d open files (run as root, or with ulimit -n %d): %w", n, n, err)
	}
	return nil
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
