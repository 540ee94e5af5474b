//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leastABI is the version of Landlock that keeps signals and abstract sockets
// within a domain: Linux 6.12. With less a command could end its worker.
const leastABI = 6

// Rights of files and directories, and all rights there are in leastABI.
const (
	rightsRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsAll = rightsFile | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	rightsOwn = rightsAll &^ (unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
	rightsNet = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopes    = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
)

// What a command may read of the machine beside its programs: the same of /etc as
// with bubblewrap, and of /proc nothing that is about processes.
var (
	etcFiles  = []string{"alternatives", "ssl", "ca-certificates", "localtime", "ld.so.cache"}
	procFiles = []string{"cpuinfo", "meminfo", "version", "loadavg", "uptime", "filesystems"}
	devices   = []string{"null", "zero", "full", "random", "urandom"}
)

// landlockABI is the kernel's version of Landlock; 0 is none.
func landlockABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// ruleset is what a domain may do. It holds the files of its rules open: those
// of /proc are others when they are looked up again.
type ruleset struct {
	fd   *os.File
	pins []*os.File
}

func newRuleset(files, net, scoped uint64) (*ruleset, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: files, Handled_access_net: net, Scoped: scoped}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make Landlock rules: %w", errno)
	}
	return &ruleset{fd: os.NewFile(fd, "landlock")}, nil
}

// newSignals is a ruleset that keeps signals within, and nothing else.
func newSignals() (*ruleset, error) { return newRuleset(0, 0, unix.LANDLOCK_SCOPE_SIGNAL) }

// newCommands is the ruleset of commands: they change what is below own, read
// the machine's programs, and reach nothing else.
func newCommands(own ...string) (*ruleset, error) {
	r, err := newRuleset(rightsAll, rightsNet, scopes)
	if err != nil {
		return nil, err
	}
	for _, dir := range own {
		err = errors.Join(err, r.allow(dir, rightsOwn))
	}
	err = errors.Join(err, r.allow("/usr", rightsRead))
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		err = errors.Join(err, r.allowIfThere(dir, rightsRead))
	}
	for _, name := range etcFiles {
		err = errors.Join(err, r.allowIfThere(filepath.Join("/etc", name), rightsRead))
	}
	for _, name := range procFiles {
		err = errors.Join(err, r.allowIfThere(filepath.Join("/proc", name), unix.LANDLOCK_ACCESS_FS_READ_FILE))
	}
	for _, name := range devices {
		err = errors.Join(err, r.allowIfThere(filepath.Join("/dev", name), unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_WRITE_FILE))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// allow grants rights to a file, or to a directory and all below.
func (r *ruleset) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, r.fd.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		_ = f.Close()
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	r.pins = append(r.pins, f)
	return nil
}

func (r *ruleset) allowIfThere(path string, rights uint64) error {
	if _, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // what is not there, or not ours to see, needs no right
	}
	return r.allow(path, rights)
}

// enter puts the calling thread, which must be locked and never unlocked, into a
// new domain with all that it starts.
func (r *ruleset) enter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, r.fd.Fd(), 0, 0)
	if errno != 0 {
		return fmt.Errorf("enter Landlock domain: %w", errno)
	}
	return nil
}

func (r *ruleset) close() {
	_ = r.fd.Close()
	for _, f := range r.pins {
		_ = f.Close()
	}
}

// alone runs f on a thread of its own, which ends with f. It is never the main
// thread: /proc shows a process as its main thread is, so with that one in a
// domain the domain's own processes could read our memory and environment.
func alone(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f() // and never unlocked: what was done to the thread ends with it
			return
		}
		defer runtime.UnlockOSThread()
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another: this one is held until we have it
			close(taken)
			f()
		}()
		<-taken
	}()
}

// killDomain kills everything in the domain of the calling thread, at once and
// whatever it did to its groups, sessions and environment: to the kernel nobody
// else is there. It does nothing where that is not so, for then it would be
// everybody that we may signal.
func killDomain() {
	if os.Getpid() != 1 && !errors.Is(unix.Kill(1, 0), unix.EPERM) {
		return
	}
	_ = unix.Kill(-1, unix.SIGKILL)
}
