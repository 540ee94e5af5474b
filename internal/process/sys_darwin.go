package process

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit returns when the child has ended and has not been reaped, so that
// its process id and group id cannot belong to anybody else yet.
func awaitExit(cmd *exec.Cmd) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(kq) }()
	watch := unix.Kevent_t{
		Ident: uint64(cmd.Process.Pid), Filter: unix.EVFILT_PROC,
		Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT,
	}
	events := make([]unix.Kevent_t, 1)
	for {
		_, err := unix.Kevent(kq, []unix.Kevent_t{watch}, events, nil)
		if err != unix.EINTR { //nolint:errorlint // a bare errno
			return
		}
	}
}

// killSession does nothing: the system hangs up the terminal's foreground group,
// and there is no cheap way to find the others.
func killSession(int) {}
