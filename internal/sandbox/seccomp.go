//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Landlock does not see, a filter of system calls refuses: sockets other
// than pairs, which leaves no network and no way to the sockets of this machine,
// whatever their family; the ways around the filter; memory and keys that all
// processes of a user share; and limits set on other processes, which can end
// them.
var refused = []struct {
	call  uint32
	errno unix.Errno
}{
	{unix.SYS_SOCKET, unix.EACCES},
	{unix.SYS_IO_URING_SETUP, unix.ENOSYS}, // opens sockets without the call; programs do without
	{unix.SYS_SHMGET, unix.EACCES},
	{unix.SYS_SEMGET, unix.EACCES},
	{unix.SYS_MSGGET, unix.EACCES},
	{unix.SYS_MQ_OPEN, unix.EACCES},
	{unix.SYS_ADD_KEY, unix.EACCES},
	{unix.SYS_REQUEST_KEY, unix.EACCES},
	{unix.SYS_KEYCTL, unix.EACCES},
}

// Offsets in struct seccomp_data; arguments are little-endian on both machines.
const (
	dataCall = 0
	dataArch = 4
	dataArg0 = 16
	dataArg1 = 24
)

// filter is the program for one machine.
func filter() []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// jump goes on after yes or no further instructions.
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	deny := func(e unix.Errno) unix.SockFilter { return answer(unix.SECCOMP_RET_ERRNO | uint32(e)) }
	allow := answer(unix.SECCOMP_RET_ALLOW)

	p := []unix.SockFilter{
		// Calls by another convention have other numbers: none of them.
		load(dataArch), jump(unix.BPF_JEQ, auditArch, 1, 0), deny(unix.ENOSYS),
		load(dataCall), jump(unix.BPF_JGE, callLimit, 0, 1), deny(unix.ENOSYS),
	}
	for _, r := range refused {
		p = append(p, jump(unix.BPF_JEQ, r.call, 0, 1), deny(r.errno))
	}
	return append(p,
		// A pair of datagram sockets can send to any name; one of streams cannot.
		jump(unix.BPF_JEQ, unix.SYS_SOCKETPAIR, 0, 7),
		load(dataArg0), jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 4),
		load(dataArg1), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf},
		jump(unix.BPF_JEQ, unix.SOCK_STREAM, 2, 0), jump(unix.BPF_JEQ, unix.SOCK_SEQPACKET, 1, 0), deny(unix.EACCES),
		load(dataCall), jump(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 0, 3),
		load(dataArg0), jump(unix.BPF_JEQ, 0, 1, 0), deny(unix.EPERM),
		allow,
	)
}

// filterThread refuses the system calls to the calling thread and all that it
// starts, for good. The thread must have no_new_privs.
func filterThread() error {
	code := filter()
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

// canFilter reports why system calls cannot be filtered; nil is that they can.
func canFilter() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errors.New("this kernel filters no system calls (seccomp): " + errno.Error())
	}
	return nil
}
