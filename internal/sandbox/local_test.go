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
	"path/filepath"
	"strings"
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
	env, err := worker.ReadEnvironment(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(worker.ExitConfig)
	}
	dir := os.Getenv(sandbox.EnvWorkspace)
	commands, err := sandbox.ShellOptions(tier, dir, os.Getenv("TMPDIR"))
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
	p := &place{dir: filepath.Join(dir, "boxes"), token: rand.Text(), exits: make(chan sandbox.Exit, 8)}
	o.Exited = func(_ string, e sandbox.Exit) { p.exits <- e }
	p.driver, err = sandbox.NewLocal(t.Context(), p.dir, socket, []string{program}, &o)
	if errors.Is(err, sandbox.ErrNoSandbox) || (err == nil && p.driver.Probe().Tier != want) {
		_ = l.Close()
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatalf("%v", err)
		}
		t.Skipf("this machine has no %s: %v", want, err)
	}
	must(t, err)
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

// A command in a sandbox reaches nothing but its workspace: not the network, not
// the token, not the worker's environment or memory, not the gateway, not other
// processes, not the machine's files.
func TestCommandsAreKept(t *testing.T) {
	t.Parallel()
	p := open(t, sandbox.Bubblewrap, sandbox.LocalOptions{})
	s := p.start(t)
	if got := run(t, s, "id -u; pwd; echo hello > f; cat f", 5000); !strings.HasPrefix(got, "65534\n/workspace\nhello\n") && os.Geteuid() == 0 {
		t.Errorf("%s", got)
	}
	out := run(t, s, `
cat /run/secrets/agentfy/token /run/agentfy/* 2>/dev/null
ls -A /run
cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
echo "processes $(ls -d /proc/[0-9]* | wc -l)"
for f in /proc/[0-9]*/mem; do head -c 1 $f 2>/dev/null; done
ls /root /home /etc/shadow /tmp/sandbox* 2>/dev/null
(exec 3<>/dev/tcp/127.0.0.1/80) 2>/dev/null && echo "network"
(exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3) 2>/dev/null && echo "network"
cat /proc/net/dev | grep -v lo: | tail -n +3
touch /usr/x /x 2>/dev/null && echo "wrote outside"
grep -E '^(CapEff|NoNewPrivs)' /proc/self/status
`, 10000)
	for _, never := range []string{p.token, "s3cret", "gw.sock", "network", "wrote outside", "SESSION_ID"} {
		if strings.Contains(out, never) {
			t.Errorf("a command can see %q:\n%s", never, out)
		}
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(out, want) {
			t.Errorf("not %q:\n%s", want, out)
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
}

// What a command does to its sandbox ends within limits, and the sandbox goes on:
// fork bombs, full disks, escaped daemons, endless output, memory.
func TestLimits(t *testing.T) {
	t.Parallel()
	p := open(t, sandbox.Bubblewrap, sandbox.LocalOptions{Workspace: 16 << 20, Memory: 256 << 20, Processes: 64})
	s := p.start(t)
	if got := run(t, s, "dd if=/dev/zero of=big bs=1M count=64 2>&1 | tail -1; stat -c %s big; rm big", 20000); !strings.Contains(got, "\n16777216\n") {
		t.Errorf("a full disk: %s", got)
	}
	run(t, s, ":(){ :|:& };:; sleep 1", 3000)
	if got := run(t, s, "echo alive", 20000); !strings.HasPrefix(got, "alive\n") {
		t.Errorf("after a fork bomb: %s", got)
	}
	run(t, s, "setsid nohup env -i sleep 4242 >/dev/null 2>&1 & disown; (setsid sleep 4242 &)", 5000)
	if got := run(t, s, "echo $(ls -d /proc/[0-9]* | wc -l) left", 5000); strings.Contains(got, "4242") {
		t.Errorf("a daemon escaped: %s", got)
	}
	if pids := marked(t, "sleep\x004242\x00"); len(pids) != 0 {
		t.Errorf("daemons outlived their command: %v", pids)
	}
	if got := run(t, s, "yes | head -c 100000000", 30000); !strings.Contains(got, "bytes omitted") || len(got) > 40_000 {
		t.Errorf("endless output: %d bytes", len(got))
	}
	if p.driver.Probe().Memory == "" {
		t.Log("no control group bounds memory here")
		return
	}
	if got := run(t, s, "tail /dev/zero; echo rc=$?", 60000); !strings.Contains(got, "rc=137") {
		t.Errorf("memory is not bounded: %s", got)
	}
	if got := run(t, s, "echo alive", 20000); !strings.HasPrefix(got, "alive\n") {
		t.Errorf("after memory ran out: %s", got)
	}
}

// marked finds processes of this machine by their command line.
func marked(t *testing.T, cmdline string) (pids []string) {
	t.Helper()
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
	t.Parallel()
	p := open(t, sandbox.Bubblewrap, sandbox.LocalOptions{})
	s := p.start(t)
	call := make(chan error, 1)
	go func() {
		_, err := s.CallTool(context.WithoutCancel(t.Context()), "exec", jsontext.Value(`{"command":"setsid sleep 4343 & sleep 4343"}`), nil)
		call <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); len(marked(t, "sleep\x004343\x00")) < 2 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // the kernel starts them when it likes
	}
	for range 2 {
		must(t, p.driver.Delete(within(t), "s1"))
	}
	must(t, p.driver.Delete(within(t), "never/was/../there"))
	if pids := marked(t, "sleep\x004343\x00"); len(pids) != 0 {
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
