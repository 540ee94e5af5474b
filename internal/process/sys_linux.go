package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the child has ended and has not been reaped, so that
// its process id and group id cannot belong to anybody else yet.
func awaitExit(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killSession kills what is left of a session, whose leader is a zombie: jobs of a
// shell have groups of their own. What begins while this looks is missed.
func killSession(leader int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended just now
		}
		// pid (name) state parent group session
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && pid != leader && len(fields) > 3 && string(fields[3]) == strconv.Itoa(leader) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
