//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// ask runs the filter as the kernel would.
func ask(t *testing.T, arch, call uint32, args ...uint32) unix.Errno {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[0:], call)
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint32(data[16+8*i:], a)
	}
	code, acc := filter(), uint32(0)
	for at := 0; at < len(code); at++ {
		in := code[at]
		yes := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			if in.K == unix.SECCOMP_RET_ALLOW {
				return 0
			}
			return unix.Errno(in.K & unix.SECCOMP_RET_DATA)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			yes = acc == in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			yes = acc >= in.K
		default:
			t.Fatalf("instruction %d: %+v", at, in)
		}
		if yes {
			at += int(in.Jt)
		} else {
			at += int(in.Jf)
		}
	}
	t.Fatal("the filter does not end")
	return 0
}

// Every way to a socket but a pair of streams is refused, also by the numbers of
// other conventions, and so is what else Landlock does not see. What programs live
// on is not.
func TestFilter(t *testing.T) {
	t.Parallel()
	const cloexec = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	for _, c := range []struct {
		name string
		arch uint32
		call uint32
		args []uint32
		want unix.Errno
	}{
		{"inet", auditArch, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM}, unix.EACCES},
		{"unix", auditArch, unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_STREAM}, unix.EACCES},
		{"pair of streams", auditArch, unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_STREAM | cloexec}, 0},
		{"pair of packets", auditArch, unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_SEQPACKET}, 0},
		{"pair of datagrams", auditArch, unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_DGRAM | cloexec}, unix.EACCES},
		{"pair of raw", auditArch, unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_RAW}, unix.EACCES},
		{"pair of another family", auditArch, unix.SYS_SOCKETPAIR, []uint32{unix.AF_TIPC, unix.SOCK_STREAM}, unix.EACCES},
		{"ring", auditArch, unix.SYS_IO_URING_SETUP, nil, unix.ENOSYS},
		{"shared memory", auditArch, unix.SYS_SHMGET, nil, unix.EACCES},
		{"queue", auditArch, unix.SYS_MQ_OPEN, nil, unix.EACCES},
		{"keys", auditArch, unix.SYS_KEYCTL, nil, unix.EACCES},
		{"own limits", auditArch, unix.SYS_PRLIMIT64, []uint32{0, 7}, 0},
		{"limits of another", auditArch, unix.SYS_PRLIMIT64, []uint32{4242, 7}, unix.EPERM},
		{"read", auditArch, unix.SYS_READ, []uint32{unix.AF_UNIX}, 0},
		{"exec", auditArch, unix.SYS_EXECVE, nil, 0},
		{"clone", auditArch, unix.SYS_CLONE3, nil, 0},
		{"other machine", unix.AUDIT_ARCH_I386, unix.SYS_READ, nil, unix.ENOSYS},
		{"other convention", auditArch, callLimit + unix.SYS_SOCKET, nil, unix.ENOSYS},
	} {
		if got := ask(t, c.arch, c.call, c.args...); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
