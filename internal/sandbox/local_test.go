//go:build linux

package sandbox_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/tools"
)

// TestMain is a worker when a sandbox has started it.
func TestMain(m *testing.M) {
	if tier, ok := os.LookupEnv(sandbox.EnvTier); ok {
		os.Exit(runWorker(sandbox.Tier(tier)))
	}
	goleak.VerifyTestMain(m)
}

func runWorker(tier sandbox.Tier) int {
	if os.Getenv("OSSICLE_TEST_DEAF") != "" { // one that never calls home
		time.Sleep(time.Minute)
		return 1
	}
	env, err := worker.ReadEnvironment(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(worker.ExitConfig)
	}
	dir := os.Getenv(sandbox.EnvWorkspace)
	limits, err := sandbox.ReadLimits(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(worker.ExitConfig)
	}
	commands, err := sandbox.ShellOptions(tier, dir, os.Getenv("TMPDIR"), limits)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(worker.ExitConfig)
	}
	shell, err := tools.NewShell(dir, &commands)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(worker.ExitConfig)
	}
	files, err := tools.OpenFiles(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(worker.ExitConfig)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	tools.AddExec(server, shell)
	tools.AddFile(server, files)
	exit := worker.New(server, env, &worker.Options{Workspace: dir, Executors: worker.Executors{
		Pulse: shell.Pulse,
		Flush: func(ctx context.Context) (worker.Report, error) {
			return worker.Report{OutputsFlushed: true}, shell.Stop(ctx)
		},
	}}).Run(context.Background())
	fmt.Fprintln(os.Stderr, exit.Reason)
	return int(exit.Code)
}

type oneToken struct{ token, id string }

func (o oneToken) Authenticate(_ context.Context, token string) (string, error) {
	if token != o.token {
		return "", errors.New("no")
	}
	return o.id, nil
}

// place is a host with a driver.
type place struct {
	host   *worker.Host
	driver *sandbox.Local
	dir    string
	token  string
	exits  chan sandbox.Exit
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open makes a place in a directory that everybody can pass through, because
// sandboxes run as somebody else.
func open(t *testing.T, want sandbox.Tier, o sandbox.LocalOptions) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandbox") //nolint:usetesting // the socket's path must be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "worker")
	copyProgram(t, program)
	socket := filepath.Join(dir, "gw.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	must(t, os.Chmod(socket, 0o666))
	p := &place{dir: filepath.Join(dir, "boxes"), token: rand.Text(), exits: make(chan sandbox.Exit, 16)}
	o.Exited = func(_ string, e sandbox.Exit) { p.exits <- e }
	o.Tier, o.AllowPlain = want, want == sandbox.Plain
	p.driver, err = sandbox.NewLocal(t.Context(), p.dir, socket, []string{program}, &o)
	if errors.Is(err, sandbox.ErrNoSandbox) {
		_ = l.Close()
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatalf("%v", err)
		}
		t.Skipf("this machine has no %s: %v", want, err)
	}
	must(t, err)
	if got := p.driver.Probe().Tier; got != want {
		t.Fatalf("asked for %s, got %s", want, got)
	}
	p.host = worker.NewHost(oneToken{p.token, "s1"}, nil, &worker.HostOptions{Sandboxes: p.driver})
	server := &http.Server{Handler: p.host}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := p.driver.Close(ctx); err != nil {
			t.Error(err)
		}
		p.host.Close()
		_ = server.Close()
	})
	return p
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	in, err := os.Open(self)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
	must(t, os.Chmod(to, 0o755))
}

// start brings the session s1 to running.
func (p *place) start(t *testing.T) *worker.Session {
	t.Helper()
	s, err := p.host.Create(t.Context(), "s1", worker.Light())
	must(t, err)
	must(t, p.driver.Create(t.Context(), sandbox.Spec{Session: "s1", Env: map[string]string{worker.EnvSessionID: "s1", "SECRET_OF_WORKER": "s3cret"}, Token: p.token}))
	if err := s.Running(within(t)); err != nil {
		select {
		case e := <-p.exits:
			t.Fatalf("%v: %s %s", err, e, e.Stderr)
		default:
			t.Fatal(err)
		}
	}
	return s
}

// run runs a command in the sandbox and returns what it says.
func run(t *testing.T, s *worker.Session, command string, timeoutMS int) string {
	t.Helper()
	args, err := jsontext.AppendQuote(nil, command)
	must(t, err)
	res, err := s.CallTool(within(t), "exec", jsontext.Value(fmt.Sprintf(`{"command":%s,"timeout_ms":%d}`, args, timeoutMS)), nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// background starts a job and returns its id; kill ends it.
func background(t *testing.T, s *worker.Session, command string) (job string) {
	t.Helper()
	args, err := jsontext.AppendQuote(nil, command)
	must(t, err)
	res, err := s.CallTool(within(t), "exec", jsontext.Value(fmt.Sprintf(`{"command":%s,"background":true}`, args)), nil)
	must(t, err)
	if _, err := fmt.Sscanf(res.Content[0].(*mcp.TextContent).Text, "Started as %s", &job); err != nil {
		t.Fatalf("%+v", res.Content[0])
	}
	return strings.TrimSuffix(job, ".")
}

func kill(t *testing.T, s *worker.Session, job string) {
	t.Helper()
	if _, err := s.CallTool(within(t), "exec", jsontext.Value(fmt.Sprintf(`{"job":%q,"action":"kill"}`, job)), nil); err != nil {
		t.Fatal(err)
	}
}

// each runs a test in every tier that is a sandbox.
func each(t *testing.T, f func(t *testing.T, tier sandbox.Tier)) {
	t.Parallel()
	for _, tier := range []sandbox.Tier{sandbox.Bubblewrap, sandbox.Landlock} {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			f(t, tier)
		})
	}
}

// A command in a sandbox has its workspace and the machine's programs, and runs
// without capabilities; after a release nothing of the sandbox is left.
func TestCommandsAreKept(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		p := open(t, tier, sandbox.LocalOptions{})
		s := p.start(t)
		got := run(t, s, "id -u; echo hello > f; cat f; (echo piped | cat); cat <(echo substituted); mktemp >/dev/null && echo temp; echo x | dd of=/dev/null 2>/dev/null && echo null; pwd", 10000)
		user, rest, _ := strings.Cut(got, "\n")
		if !strings.HasPrefix(rest, "hello\npiped\nsubstituted\ntemp\nnull\n/") {
			t.Errorf("%s", got)
		}
		if tier == sandbox.Bubblewrap && !strings.Contains(rest, "\n/workspace\n") {
			t.Errorf("%s", got)
		}
		if os.Geteuid() == 0 && ((tier == sandbox.Bubblewrap) != (user == "65534") || user == "0") {
			t.Errorf("commands run as %s", user)
		}
		out := run(t, s, `
ls -A /run 2>/dev/null
cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
for f in /proc/[0-9]*/mem; do head -c 1 $f 2>/dev/null; done
cat /etc/shadow /etc/passwd 2>/dev/null
ls /root /home /tmp/sandbox* 2>/dev/null
(exec 3<>/dev/tcp/127.0.0.1/80) 2>/dev/null && echo "network"
touch /usr/x /x 2>/dev/null && echo "wrote outside"
unshare -Urm sh -c 'umount /run; cat /run/secrets/agentfy/token; mount --bind / /mnt' 2>/dev/null
su -c id 2>/dev/null && echo "su"
true`, 10000)
		for _, never := range []string{p.token, "s3cret", "gw.sock", "network", "wrote outside", "SESSION_ID", "root:", "uid=0", "worker"} {
			if strings.Contains(out, never) {
				t.Errorf("a command can see %q:\n%s", never, out)
			}
		}
		rec, err := s.Release(within(t), worker.ReasonExplicit)
		if err != nil || !rec.Reported {
			t.Errorf("%+v %v", rec, err)
		}
		if e := <-p.exits; e.Code != int(worker.ExitReleased) {
			t.Errorf("%s: %s", e, e.Stderr)
		}
		if entries, err := os.ReadDir(p.dir); err != nil || len(entries) != 0 || len(p.driver.Sessions()) != 0 {
			t.Errorf("left behind: %v %v %v", entries, p.driver.Sessions(), err)
		}
	})
}

// No command gains privileges, whatever is installed.
func TestNoNewPrivileges(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		s := open(t, tier, sandbox.LocalOptions{}).start(t)
		// /proc is closed with Landlock, so the process is asked itself.
		out := run(t, s, `/usr/bin/python3 -c '
import ctypes
libc = ctypes.CDLL(None)
print("no new privileges", libc.prctl(39, 0, 0, 0, 0))
print("capabilities", sum(libc.prctl(23, n, 0, 0, 0) == 1 and libc.prctl(47, 1, n, 0, 0) == 1 for n in range(41)))
'`, 10000)
		if !strings.HasPrefix(out, "no new privileges 1\ncapabilities 0\n") {
			t.Errorf("%s", out)
		}
	})
}

// What a command does to its sandbox ends within limits, and the sandbox goes on:
// fork bombs, full disks, escaped daemons, endless output, memory.
func TestLimits(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		p := open(t, tier, sandbox.LocalOptions{Workspace: 16 << 20, Memory: 256 << 20, Processes: 64})
		s := p.start(t)
		if got := run(t, s, "trap '' XFSZ; dd if=/dev/zero of=big bs=1M count=64 2>&1 | tail -1; stat -c %s big; rm big", 20000); !strings.Contains(got, "\n16777216\n") {
			t.Errorf("a full disk: %s", got)
		}
		if !strings.Contains(strings.Join(p.driver.Probe().Gaps, "\n"), "their sum is not") {
			if got := run(t, s, "for i in 1 2 3; do head -c 8000000 /dev/zero >part$i; done 2>/dev/null; cat part* | wc -c; rm part*; df -P . | tail -1 | wc -l", 20000); !strings.HasPrefix(got, "16") {
				t.Errorf("a disk full of files: %s", got)
			}
		} else if os.Geteuid() == 0 {
			t.Errorf("%q", p.driver.Probe().Gaps)
		}
		run(t, s, ":(){ :|:& };:; sleep 1", 3000)
		if got := run(t, s, "echo alive", 20000); !strings.HasPrefix(got, "alive\n") {
			t.Errorf("after a fork bomb: %s", got)
		}
		nap := napOf(t)
		run(t, s, "setsid nohup env -i "+nap+" >/dev/null 2>&1 & disown; (setsid env -i "+nap+" &)", 5000)
		if pids := marked(t, nap); len(pids) != 0 {
			t.Errorf("daemons outlived their command: %v", pids)
		}
		if got := run(t, s, "yes | head -c 100000000", 30000); !strings.Contains(got, "bytes omitted") || len(got) > 40_000 {
			t.Errorf("endless output: %d bytes", len(got))
		}
		if got := run(t, s, "tail /dev/zero; echo rc=$?", 60000); !strings.Contains(got, "rc=137") && !strings.Contains(got, "rc=1\n") {
			t.Errorf("memory is not bounded: %s", got)
		}
		if got := run(t, s, "echo alive", 20000); !strings.HasPrefix(got, "alive\n") {
			t.Errorf("after memory ran out: %s", got)
		}
	})
}

// Commands that use up the sandbox's processes, and go on, leave the worker
// the threads that it needs: other commands may fail, the worker does not.
func TestProcessesUsedUp(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		s := open(t, tier, sandbox.LocalOptions{Processes: 64}).start(t)
		const up = "for i in $(seq 200); do sleep 20 & done 2>/dev/null; wait"
		one, two := background(t, s, up), background(t, s, up)
		time.Sleep(500 * time.Millisecond) // it begins to fail within that, or the test proves less
		for range 15 {
			if _, err := s.CallTool(within(t), "exec", jsontext.Value(`{"command":"exec sleep 1","background":true}`), nil); err != nil {
				t.Fatal(err)
			}
		}
		kill(t, s, one)
		kill(t, s, two)
		if got := run(t, s, "echo alive", 20000); !strings.HasPrefix(got, "alive\n") {
			t.Errorf("%s", got)
		}
		if rec := s.Record(); rec.Attempt != 0 || rec.State != worker.StateRunning {
			t.Errorf("the worker began anew: %s, attempt %d", rec.State, rec.Attempt)
		}
	})
}

// A command that runs out of time dies with what it started, wherever that went.
func TestTimeoutEndsTheTree(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		s := open(t, tier, sandbox.LocalOptions{}).start(t)
		nap := napOf(t)
		begun := time.Now()
		out := run(t, s, "setsid env -i "+nap+" & (setsid env -i "+nap+" &) ; echo up; "+nap, 5000)
		if !strings.HasPrefix(out, "up\n") || !strings.Contains(out, "killed with its whole tree when its time was over") || strings.Contains(out, "exit code") {
			t.Errorf("%s", out)
		}
		if pids := marked(t, nap); len(pids) != 0 || time.Since(begun) > time.Minute {
			t.Errorf("left after %v: %v", time.Since(begun), pids)
		}
	})
}

// napOf is a command that sleeps as nobody else does.
func napOf(t *testing.T) string {
	t.Helper()
	naps.mu.Lock()
	defer naps.mu.Unlock()
	naps.n++
	return fmt.Sprintf("sleep %d.%d", 4000+naps.n, os.Getpid())
}

var naps struct {
	mu sync.Mutex
	n  int
}

// marked finds processes of this machine by their command line. What was killed a
// moment ago may still be taken apart, so it looks for a while.
func marked(t *testing.T, command string) (pids []string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if pids = running(t, command); len(pids) == 0 || time.Now().After(deadline) {
			return pids
		}
	}
}

func running(t *testing.T, command string) (pids []string) {
	t.Helper()
	cmdline := strings.ReplaceAll(command, " ", "\x00") + "\x00"
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && string(text) == cmdline {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// Deleting ends everything, whatever runs, and can be repeated; so can the
// deletion of what never was.
func TestDelete(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		p := open(t, tier, sandbox.LocalOptions{})
		s := p.start(t)
		nap := napOf(t)
		call := make(chan error, 1)
		go func() {
			_, err := s.CallTool(context.WithoutCancel(t.Context()), "exec", jsontext.Value(fmt.Sprintf(`{"command":"setsid env -i %s & %s"}`, nap, nap)), nil)
			call <- err
		}()
		for deadline := time.Now().Add(20 * time.Second); len(running(t, nap)) < 2 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // the kernel starts them when it likes
		}
		for range 2 {
			must(t, p.driver.Delete(within(t), "s1"))
		}
		must(t, p.driver.Delete(within(t), "never/was/../there"))
		if pids := marked(t, nap); len(pids) != 0 {
			t.Errorf("processes outlived their sandbox: %v", pids)
		}
		if e := <-p.exits; e.Signal == "" {
			t.Errorf("%+v", e)
		}
		s.Exited("deleted")
		if err := <-call; !errors.Is(err, worker.ErrOver) {
			t.Errorf("the call: %v", err)
		}
		if rec := s.Record(); rec.Failure != worker.FailureExited {
			t.Errorf("%+v", rec)
		}
	})
}

// A sandbox whose worker never called home is gone at once when its session fails:
// nobody waits for it to say goodbye. A machine that is busy with something else has
// a few tries.
func TestNeverCalled(t *testing.T) {
	t.Parallel()
	var took time.Duration
	for range 5 {
		if took = endOfDeaf(t); took < 2500*time.Millisecond {
			return
		}
	}
	t.Errorf("it took %v", took)
}

// endOfDeaf is how long the end of a sandbox takes whose worker says nothing.
func endOfDeaf(t *testing.T) time.Duration {
	t.Helper()
	p := open(t, sandbox.Plain, sandbox.LocalOptions{})
	s, err := p.host.Create(t.Context(), "s1", worker.Light())
	must(t, err)
	must(t, p.driver.Create(t.Context(), sandbox.Spec{Session: "s1", Env: map[string]string{"OSSICLE_TEST_DEAF": "1", worker.EnvSessionID: "s1"}, Token: "x"}))
	begun := time.Now()
	if _, err := s.Release(within(t), worker.ReasonFailed); err != nil {
		t.Error(err)
	}
	e := <-p.exits
	took := time.Since(begun)
	if e.Signal == "" {
		t.Errorf("%s after %v", e, took)
	}
	return took
}

// Where no control group can be written, limits of processes hold what they can,
// and still nothing outlives its command or its sandbox. The driver says what is
// not kept.
func TestWithoutGroups(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		p := open(t, tier, sandbox.LocalOptions{Memory: 256 << 20, Processes: 64})
		p.driver.WithoutGroups()
		if gaps := strings.Join(p.driver.Probe().Gaps, "\n"); !strings.Contains(gaps, "memory is bounded for each process") {
			t.Errorf("%s", gaps)
		}
		s := p.start(t)
		nap := napOf(t)
		run(t, s, ":(){ :|:& };:; setsid env -i "+nap+" & sleep 1", 3000)
		if got := run(t, s, "echo alive", 20000); !strings.HasPrefix(got, "alive\n") {
			t.Errorf("after a fork bomb: %s", got)
		}
		if got := run(t, s, "tail /dev/zero; echo rc=$?", 60000); !strings.Contains(got, "rc=1\n") {
			t.Errorf("memory is not bounded: %s", got)
		}
		if pids := marked(t, nap); len(pids) != 0 {
			t.Errorf("daemons outlived their command: %v", pids)
		}
		go func() {
			_, _ = s.CallTool(context.WithoutCancel(t.Context()), "exec", jsontext.Value(fmt.Sprintf(`{"command":"setsid env -i %s & %s"}`, nap, nap)), nil)
		}()
		for deadline := time.Now().Add(20 * time.Second); len(running(t, nap)) < 2 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // the kernel starts them when it likes
		}
		must(t, syscall.Kill(workerOf(t, p), syscall.SIGKILL))
		if e := <-p.exits; e.Code == 0 {
			t.Errorf("%+v", e)
		}
		if pids := marked(t, nap); len(pids) != 0 {
			t.Errorf("daemons outlived their worker: %v", pids)
		}
	})
}

// driverEnv makes the test binary a host with a driver and one sandbox, which is
// killed: tier, directory.
const driverEnv = "OSSICLE_TEST_DRIVER"

// TestDriverProcess is no test: it is the driver of the test below.
func TestDriverProcess(t *testing.T) {
	tier, nap, ok := strings.Cut(os.Getenv(driverEnv), ":")
	if !ok {
		t.Skip("only as a child of another test")
	}
	s := open(t, sandbox.Tier(tier), sandbox.LocalOptions{}).start(t)
	_, _ = s.CallTool(within(t), "exec", jsontext.Value(fmt.Sprintf(`{"command":"setsid env -i %s & (setsid env -i %s &); %s"}`, nap, nap, nap)), nil)
}

// A driver that is killed takes its sandboxes with it, and all that commands in
// them have started.
func TestKilledDriver(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		open(t, tier, sandbox.LocalOptions{}) // or skips
		nap := napOf(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestDriverProcess$")
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o755))
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
		cmd.Env = append(os.Environ(), driverEnv+"="+string(tier)+":"+nap, "TMPDIR="+dir)
		must(t, cmd.Start())
		for deadline := time.Now().Add(time.Minute); len(running(t, nap)) < 3 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // the kernel starts them when it likes
		}
		if n := len(running(t, nap)); n != 3 {
			t.Errorf("%d run", n)
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		if pids := marked(t, nap); len(pids) != 0 {
			t.Errorf("processes outlived their driver: %v", pids)
		}
	})
}

// A driver that cannot keep a sandbox says why and is none, unless that is asked
// for.
func TestFailsClosed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := sandbox.NewLocal(t.Context(), t.TempDir(), "/x/gw.sock", []string{"/bin/true"}, nil)
	if !errors.Is(err, sandbox.ErrNoSandbox) || !strings.Contains(err.Error(), "bwrap is not installed") {
		t.Errorf("%v", err)
	}
	l, err := sandbox.NewLocal(t.Context(), t.TempDir(), "/x/gw.sock", []string{"/bin/true"}, &sandbox.LocalOptions{AllowPlain: true})
	if err != nil || l.Probe().Tier != sandbox.Plain || l.Probe().Reason == "" {
		t.Errorf("%v %+v", err, l.Probe())
	}
	for _, bad := range []struct{ dir, socket, program string }{{"rel", "/s", "/p"}, {"/d", "s", "/p"}, {"/d", "/s", "p"}} {
		if _, err := sandbox.NewLocal(t.Context(), bad.dir, bad.socket, []string{bad.program}, &sandbox.LocalOptions{AllowPlain: true}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// Limits that are none are no reason to go without.
func TestReadLimits(t *testing.T) {
	t.Parallel()
	read := func(processes, memory string) (sandbox.Limits, error) {
		return sandbox.ReadLimits(func(name string) (string, bool) {
			v := map[string]string{sandbox.EnvProcesses: processes, sandbox.EnvMemory: memory}[name]
			return v, v != ""
		})
	}
	if got, err := read("64", "1073741824"); err != nil || got != (sandbox.Limits{Processes: 64, Memory: 1 << 30}) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := read("", ""); err != nil || got != (sandbox.Limits{}) {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"0", "-1", "many", "1e3", "99999999999999999999"} {
		if _, err := read(bad, ""); err == nil {
			t.Errorf("%s processes", bad)
		}
		if _, err := read("", bad); err == nil {
			t.Errorf("%s bytes", bad)
		}
	}
}
