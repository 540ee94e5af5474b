package feedserver

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundSocket bounds what the kernel takes for a stream. What it did not take
// yet is what a policy can decide on (specification F-13). A socket that has no
// such options goes without.
func boundSocket(conn net.Conn) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { boundFD(int(fd)) })
}

func boundFD(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
}
