package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of LocalOptions.
const (
	DefaultWorkspace = 512 << 20 // bytes
	DefaultMemory    = 1 << 30   // bytes
	DefaultProcesses = 256
	// DefaultUser runs sandboxes when we are root: nobody, on every Linux.
	DefaultUser = 65534

	stderrTail = 8 << 10 // bytes of a worker's standard error that are kept
	killTime   = 5 * time.Second
	// exitGrace is how long a worker that has said goodbye may take to exit.
	exitGrace = 3 * time.Second
	// fileSize bounds one file of a sandbox without a bounded workspace.
	fileSize = 1 << 30
)

// Tier is how well a sandbox keeps what is in it.
type Tier string

// Tiers, best first.
const (
	Bubblewrap Tier = "bubblewrap"
	// Plain is no sandbox: a process of this machine with limits. It is for tests
	// and for machines that are sandboxes themselves.
	Plain Tier = "plain"
)

// ErrNoSandbox is wrapped by the error of a machine that cannot keep a sandbox.
var ErrNoSandbox = errors.New("this machine cannot keep a sandbox")

// LocalOptions configure a [Local]. The zero value is usable.
type LocalOptions struct {
	Logger *slog.Logger // nil discards
	// AllowPlain runs workers without a sandbox where there can be none.
	AllowPlain bool
	// Workspace bounds /workspace, in bytes. It is in memory, and counts as such.
	Workspace int64
	// Memory bounds a sandbox, in bytes, where the machine has control groups.
	Memory int64
	// Processes bounds the processes of a sandbox.
	Processes int
	// User is the user and group id of sandboxes when we are root; as anybody else
	// they are ours.
	User int
	// Exited is told when a worker's process has ended. It must not block.
	Exited func(session string, e Exit)
}

// Exit is how a worker's process ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // that ended it
	Stderr string // the end of its standard error; from the sandbox
}

// String is one line.
func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Spec is a sandbox to make.
type Spec struct {
	Session string
	// Env is the worker's environment without the token and the control URL, which
	// the driver knows.
	Env map[string]string
	// Token becomes a file that only the worker reads.
	Token string
}

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
	groups  *groups
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
	l.o.User = cmp.Or(l.o.User, DefaultUser)
	if len(program) == 0 || !filepath.IsAbs(program[0]) || !filepath.IsAbs(socket) || !filepath.IsAbs(dir) {
		return nil, errors.New("make sandbox driver: the directory, the socket and the worker's program must be absolute paths")
	}
	// Sandboxes run as somebody else, who must pass through to what is theirs.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make sandbox driver: %w", err)
	}
	l.probe = probe(ctx, l.credential())
	if l.probe.Tier == Plain && !l.o.AllowPlain {
		return nil, fmt.Errorf("%w: %s", ErrNoSandbox, l.probe.Reason)
	}
	return l, nil
}

// Probe is what the driver found.
func (l *Local) Probe() Probe { return l.probe }

// credential is who sandboxes run as; nil is us.
func (l *Local) credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	id := uint32(l.o.User)
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
	if err := l.prepare(b, s); err != nil {
		_ = os.RemoveAll(b.dir)
		return fmt.Errorf("create sandbox: %w", err)
	}
	started := make(chan error, 1)
	go l.run(b, started)
	if err := <-started; err != nil {
		_ = os.RemoveAll(b.dir)
		return fmt.Errorf("create sandbox: %w", err)
	}
	l.boxes[s.Session] = b
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
	if c := l.credential(); c != nil {
		if err := os.Chown(token, int(c.Uid), int(c.Gid)); err != nil {
			return err
		}
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
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: l.credential()},
	}
	return nil
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
	limits := []string{"prlimit", "--core=0", fmt.Sprintf("--nproc=%d", l.o.Processes), "--nofile=1024", "--"}
	if l.probe.Tier == Bubblewrap {
		return append(bubblewrap(l, vars, token), append(limits, append([]string{insideWorker}, l.worker[1:]...)...)...), []string{"PATH=/usr/bin:/bin"}, nil
	}
	workspace := filepath.Join(b.dir, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, nil, err
	}
	if c := l.credential(); c != nil {
		if err := os.Chown(workspace, int(c.Uid), int(c.Gid)); err != nil {
			return nil, nil, err
		}
	}
	vars[envTokenFile], vars[envControlURL], vars[EnvWorkspace], vars[EnvTier] = token, "unix://"+l.socket, workspace, string(Plain)
	env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	for _, name := range slices.Sorted(keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	limits = slices.Insert(limits, len(limits)-1, fmt.Sprintf("--fsize=%d", fileSize))
	return append(limits, l.worker...), env, nil
}

// run starts the process, waits for it and reaps it. It keeps its thread: the
// kernel ends the process when the thread that started it ends.
func (l *Local) run(b *box, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	if b.groups, err = l.probe.groups.enter(groupName(b.dir), l.o.Memory, l.o.Processes); err != nil {
		l.o.Logger.Warn("a sandbox has no control group", logattr.Session(b.session), logattr.Err(err))
	}
	err = b.cmd.Start()
	b.groups.leave()
	if err != nil {
		b.groups.remove()
		started <- err
		return
	}
	started <- nil
	_ = b.cmd.Wait()
	if l.probe.Tier == Plain { // in a sandbox nothing outlives it
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	}
	b.groups.remove()
	_ = os.RemoveAll(b.dir)
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

// groupName is a name that no other driver on this machine gives.
func groupName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(sum[:8]))
}

func exitOf(b *box) Exit {
	e := Exit{Code: b.cmd.ProcessState.ExitCode(), Stderr: b.stderr.String()}
	if ws, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	return e
}

// Delete ends the sandbox of a session with all that is in it, and returns when
// nothing of it is left. One that is not there is no error.
func (l *Local) Delete(ctx context.Context, session string) error {
	l.mu.Lock()
	b := l.boxes[session]
	l.mu.Unlock()
	if b == nil {
		return os.RemoveAll(l.pathOf(session))
	}
	grace := time.NewTimer(exitGrace)
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

// Close ends all sandboxes and waits for them.
func (l *Local) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	var sessions []string
	for s := range l.boxes {
		sessions = append(sessions, s)
	}
	l.mu.Unlock()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, l.Delete(ctx, s))
	}
	return errors.Join(errs...)
}

// Sessions lists the sessions whose sandbox runs.
func (l *Local) Sessions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(keys(l.boxes))
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
