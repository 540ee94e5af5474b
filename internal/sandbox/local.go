//go:build linux

package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/worker"
)

const (
	stderrTail = 8 << 10 // bytes of a worker's standard error that are kept
	killTime   = 5 * time.Second
	// exitGrace is how long a worker that has said goodbye may take to exit.
	exitGrace = 3 * time.Second
	// closeGrace is the same when the driver ends, for all sandboxes at once.
	closeGrace = 500 * time.Millisecond
	// firstUser and users are the ids of sandboxes that have their own: nobody else
	// has those.
	firstUser = 1_900_000_000
	users     = 1 << 20
)

// Local makes sandboxes on this machine. It implements worker.Sandboxes and is
// safe for concurrent use.
type Local struct {
	dir    string
	socket string
	worker []string
	o      LocalOptions
	probe  Probe

	mu     sync.Mutex
	boxes  map[string]*box
	closed bool
}

// box is a sandbox that runs.
type box struct {
	session string
	dir     string
	cmd     *exec.Cmd
	user    *syscall.Credential // nil is us
	groups  *groups
	guard   *guard // with Landlock
	memory  bool   // it ran out of it; before done is closed
	stderr  *tail
	done    chan struct{} // closed when the process was reaped
}

// NewLocal returns a driver that keeps its files below dir, which it makes, and
// runs program, an absolute path, with its arguments as the worker. socket is
// the Unix socket of the gateway. The error of a machine that cannot keep a
// sandbox wraps ErrNoSandbox and says why.
func NewLocal(ctx context.Context, dir, socket string, program []string, o *LocalOptions) (*Local, error) {
	l := &Local{dir: dir, socket: socket, worker: program, boxes: map[string]*box{}}
	if o != nil {
		l.o = *o
	}
	if l.o.Logger == nil {
		l.o.Logger = slog.New(slog.DiscardHandler)
	}
	l.o.Workspace = cmp.Or(l.o.Workspace, DefaultWorkspace)
	l.o.Memory = cmp.Or(l.o.Memory, DefaultMemory)
	l.o.Processes = cmp.Or(l.o.Processes, DefaultProcesses)
	if len(program) == 0 || !filepath.IsAbs(program[0]) || !filepath.IsAbs(socket) || !filepath.IsAbs(dir) {
		return nil, errors.New("make sandbox driver: the directory, the socket and the worker's program must be absolute paths")
	}
	// Sandboxes run as somebody else, who must pass through to what is theirs.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make sandbox driver: %w", err)
	}
	switch l.o.Tier {
	case "", Bubblewrap, Landlock:
	case Plain:
		if !l.o.AllowPlain {
			return nil, fmt.Errorf("%w: the tier %s is none, and is not allowed", ErrNoSandbox, Plain)
		}
	default:
		return nil, fmt.Errorf("%w: there is no tier %.40q", ErrNoSandbox, l.o.Tier)
	}
	l.probe = l.tryAll(ctx)
	if l.probe.Tier == Plain && (!l.o.AllowPlain || (l.o.Tier != "" && l.o.Tier != Plain)) {
		return nil, fmt.Errorf("%w: %s", ErrNoSandbox, l.probe.Reason)
	}
	return l, nil
}

// Probe is what the driver found.
func (l *Local) Probe() Probe { return l.probe }

// credential is who a sandbox of a tier with this directory runs as; nil is us.
func (l *Local) credential(t Tier, dir string) *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	id := uint32(l.o.User)
	switch {
	case id != 0:
	case t == Bubblewrap:
		id = DefaultUser
	default:
		sum := sha256.Sum256([]byte(dir))
		id = firstUser + binary.BigEndian.Uint32(sum[:])%users
	}
	return &syscall.Credential{Uid: id, Gid: id}
}

// pathOf is the directory of a session. Ids come from elsewhere, so they are no
// names of files.
func (l *Local) pathOf(session string) string {
	sum := sha256.Sum256([]byte(session))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:12]))
}

// Create starts the sandbox of a session. It returns when its process runs; that
// the worker calls home is the gateway's to see.
func (l *Local) Create(_ context.Context, s Spec) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errors.New("create sandbox: the driver is closed")
	case l.boxes[s.Session] != nil:
		return fmt.Errorf("create sandbox: the session %q has one", s.Session)
	}
	b := &box{session: s.Session, dir: l.pathOf(s.Session), stderr: &tail{limit: stderrTail}, done: make(chan struct{})}
	b.user = l.credential(l.probe.Tier, b.dir)
	if err := l.prepare(b, s); err != nil {
		_ = os.RemoveAll(b.dir)
		return fmt.Errorf("create sandbox: %w", err)
	}
	started := make(chan error, 1)
	alone(func() { l.run(b, started) })
	if err := <-started; err != nil {
		_ = os.RemoveAll(b.dir)
		return fmt.Errorf("create sandbox: %w", err)
	}
	l.boxes[s.Session] = b
	if l.o.Audit != nil {
		l.o.Audit.Audit(worker.AuditEntry{Time: time.Now(), Session: s.Session, Event: "sandbox", Detail: l.probe.String()})
	}
	return nil
}

// prepare writes the token and builds the command.
func (l *Local) prepare(b *box, s Spec) error {
	if err := os.MkdirAll(b.dir, 0o711); err != nil {
		return err
	}
	token := filepath.Join(b.dir, "token")
	if err := os.WriteFile(token, []byte(s.Token+"\n"), 0o400); err != nil {
		return err
	}
	if err := l.give(b, token); err != nil {
		return err
	}
	args, env, err := l.command(b, s, token)
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	b.cmd = &exec.Cmd{
		Path: program, Args: args, Env: env, Dir: b.dir, Stderr: b.stderr, WaitDelay: killTime,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: b.user},
	}
	return nil
}

func (b *box) workspace() string { return filepath.Join(b.dir, "workspace") }
func (b *box) temp() string      { return filepath.Join(b.dir, "tmp") }

// give lets the sandbox's user read the token. Where commands see this user's
// files, it is by the group: what is not theirs they cannot open up to others.
func (l *Local) give(b *box, token string) error {
	if b.user == nil || l.probe.Tier == Bubblewrap {
		return b.own(token)
	}
	return errors.Join(os.Chown(token, 0, int(b.user.Gid)), os.Chmod(token, 0o440), os.Chown(b.dir, 0, int(b.user.Gid)), os.Chmod(b.dir, 0o710))
}

// own gives a file to the sandbox's user.
func (b *box) own(path string) error {
	if b.user == nil {
		return nil
	}
	return os.Chown(path, int(b.user.Uid), int(b.user.Gid))
}

// command is what is run: the worker in its sandbox, or the worker alone.
func (l *Local) command(b *box, s Spec, token string) (args, env []string, err error) {
	vars := map[string]string{}
	for name, v := range s.Env {
		if name == "" || strings.ContainsAny(name+v, "\x00") || strings.Contains(name, "=") {
			return nil, nil, fmt.Errorf("the variable %q cannot be set", name)
		}
		vars[name] = v
	}
	limits := []string{"prlimit", "--core=0", "--nofile=1024"}
	if l.probe.Memory == "rlimit" {
		vars[EnvMemory] = strconv.FormatInt(l.o.Memory, 10)
	}
	if l.probe.Tier == Bubblewrap {
		vars[EnvProcesses] = strconv.Itoa(l.o.Processes)
		limits = append(limits, fmt.Sprintf("--nproc=%d", l.o.Processes+spare), "--", insideWorker)
		return append(bubblewrap(l, vars, token), append(limits, l.worker[1:]...)...), []string{"PATH=/usr/bin:/bin"}, nil
	}
	processes := l.o.Processes
	if b.user != nil && l.o.User == 0 {
		limits = append(limits, fmt.Sprintf("--nproc=%d", processes+spare))
	} else {
		// The kernel counts all of a user's, also those of others: a worker must not be
		// without threads because of them.
		processes += threadsOf(b.user)
	}
	workspace, temp := b.workspace(), b.temp()
	for _, dir := range []string{workspace, temp} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, nil, err
		}
		if err := b.own(dir); err != nil {
			return nil, nil, err
		}
	}
	vars[envTokenFile], vars[envControlURL] = token, "unix://"+l.socket
	vars[EnvWorkspace], vars[EnvTier], vars["TMPDIR"] = workspace, string(l.probe.Tier), temp
	vars[EnvProcesses] = strconv.Itoa(processes)
	env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	limits = append(limits, fmt.Sprintf("--fsize=%d", l.o.Workspace), "--")
	return append(limits, l.worker...), env, nil
}

// threadsOf counts the threads of a user; nil is us.
func threadsOf(user *syscall.Credential) (n int) {
	uid := uint32(os.Getuid())
	if user != nil {
		uid = user.Uid
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it has ended
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != uid {
			continue
		}
		if tasks, err := os.ReadDir(filepath.Join("/proc", e.Name(), "task")); err == nil {
			n += len(tasks)
		}
	}
	return n
}

// run starts the process, waits for it and reaps it. It has a thread of its own:
// the kernel ends the process when the thread that started it ends, and what the
// thread is put into, the process is in.
func (l *Local) run(b *box, started chan<- error) {
	if err := l.launch(b); err != nil {
		started <- err
		return
	}
	started <- nil
	_ = b.cmd.Wait()
	switch l.probe.Tier {
	case Bubblewrap: // nothing outlives it
	case Landlock:
		killDomain()
		b.guard.wait()
	case Plain:
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	}
	b.memory = b.groups.outOfMemory()
	b.groups.remove()
	if l.probe.mounts { // in the view of this thread
		_, _ = unix.Unmount(b.workspace(), unix.MNT_DETACH), unix.Unmount(b.temp(), unix.MNT_DETACH)
	}
	if err := removeAll(b.dir); err != nil {
		l.o.Logger.Warn("files of a sandbox were left behind", logattr.Session(b.session), logattr.Err(err))
	}
	l.mu.Lock()
	if l.boxes[b.session] == b {
		delete(l.boxes, b.session)
	}
	l.mu.Unlock()
	close(b.done)
	if f := l.o.Exited; f != nil {
		f(b.session, exitOf(b))
	}
}

// removeAll removes a directory that dying processes may still write to.
func removeAll(dir string) (err error) {
	for range removeTries {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(removePause)
	}
	return err
}

// launch starts the process within its limits, on the calling thread. With
// Landlock the worker is in a domain that keeps nothing but signals, so that all
// that it leaves behind can be ended.
func (l *Local) launch(b *box) (err error) {
	if l.probe.mounts {
		sizes := map[string]int64{b.workspace(): l.o.Workspace, b.temp(): tmpSize}
		if err := mountSpaces(int(b.user.Uid), int(b.user.Gid), sizes); err != nil {
			return err
		}
	}
	if l.probe.Tier == Landlock {
		signals, err := newSignals()
		if err != nil {
			return err
		}
		defer signals.close()
		if err := signals.enter(); err != nil {
			return err
		}
		if b.guard, err = startGuard(b.user); err != nil {
			return err
		}
	}
	b.groups, err = l.probe.groups.enter(groupName(b.dir), l.o.Memory, l.o.Processes+spare, b.cmd.SysProcAttr)
	if err == nil {
		err = b.cmd.Start()
	}
	b.groups.leave()
	if err != nil {
		b.groups.remove()
		b.guard.end()
	}
	return err
}

// groupName is a name that no other driver on this machine gives.
func groupName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(sum[:8]))
}

func exitOf(b *box) Exit {
	e := Exit{Code: b.cmd.ProcessState.ExitCode(), OutOfMemory: b.memory, Stderr: b.stderr.String()}
	if ws, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	return e
}

// Delete ends the sandbox of a session with all that is in it, and returns when
// nothing of it is left. A worker that was released gets a moment to exit by
// itself. A sandbox that is not there is no error.
func (l *Local) Delete(ctx context.Context, session string) error {
	return l.end(ctx, session, exitGrace)
}

// Kill is Delete of a sandbox whose worker has nothing to say, for instance
// because it never called home: it does not wait for it.
func (l *Local) Kill(ctx context.Context, session string) error {
	return l.end(ctx, session, 0)
}

func (l *Local) end(ctx context.Context, session string, wait time.Duration) error {
	l.mu.Lock()
	b := l.boxes[session]
	l.mu.Unlock()
	if b == nil {
		return os.RemoveAll(l.pathOf(session))
	}
	grace := time.NewTimer(wait)
	defer grace.Stop()
	select {
	case <-b.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	b.kill()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("delete sandbox of %q: %w", session, context.Cause(ctx))
	}
}

// kill ends the processes of a sandbox, unless they have been reaped: their
// numbers may be others' by then.
func (b *box) kill() {
	select {
	case <-b.done:
		return
	default:
	}
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	b.groups.kill()
}

// Close ends all sandboxes, at once, and waits for them.
func (l *Local) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	var sessions []string
	for s := range l.boxes {
		sessions = append(sessions, s)
	}
	l.mu.Unlock()
	errs := make([]error, len(sessions))
	var ends sync.WaitGroup
	for i, s := range sessions {
		ends.Go(func() { errs[i] = l.end(ctx, s, closeGrace) })
	}
	ends.Wait()
	return errors.Join(errs...)
}

// Sessions lists the sessions whose sandbox runs.
func (l *Local) Sessions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.boxes))
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	b     []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*t.limit {
		t.b = append(t.b[:0], t.b[len(t.b)-t.limit:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	if len(b) > t.limit {
		b = b[len(b)-t.limit:]
	}
	return strings.ToValidUTF8(string(b), "�")
}
