package feedserver

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// boundSocket bounds what the kernel takes for a stream. What it did not take
// yet is what a policy can decide on (specification F-13). A peer that vanished
// is noticed by what it does not confirm for so long. A socket that has no such
// options goes without.
func boundSocket(conn net.Conn, lost time.Duration) {
	if raw, err := rawConn(conn); err == nil {
		_ = raw.Control(func(fd uintptr) { boundFD(int(fd), lost) })
	}
}

func boundFD(fd int, lost time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(lost.Milliseconds()))
}

func rawConn(conn net.Conn) (syscall.RawConn, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("socket of %T: %w", conn, errors.ErrUnsupported)
	}
	return c.SyscallConn()
}

// takeFD takes a socket out of the runtime's poller, which would keep buffers
// and addresses for it. The connection is closed in any case; the descriptor that
// is returned is another one of the same socket, which does not block.
func takeFD(conn net.Conn, lost time.Duration) (fd int, err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	raw, err := rawConn(conn)
	if err != nil {
		return -1, fmt.Errorf("take connection: %w", err)
	}
	var dupErr error
	if err := raw.Control(func(old uintptr) {
		if fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); dupErr == nil {
			boundFD(fd, lost)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		}
	}); err != nil {
		return -1, fmt.Errorf("take connection: %w", err)
	}
	if dupErr != nil {
		return -1, fmt.Errorf("take connection: %w", dupErr)
	}
	return fd, nil
}
