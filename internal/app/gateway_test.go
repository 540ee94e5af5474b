package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/worker"
)

// boxes are sandboxes of which nothing is real but their workers, which run in this
// process and speak the channel over the gateway's socket.
type boxes struct {
	g     *WorkerGateway
	made  atomic.Int64
	fails atomic.Int64 // this many times

	work sync.WaitGroup
	mu   sync.Mutex
	stop map[string]context.CancelFunc
}

// quickBoxes is a kind of sandbox whose waits are short.
func quickBoxes() config.Sandbox {
	p := worker.Light()
	p.Name = "quick"
	p.Budgets.Handshake, p.Dial = 20*time.Second, 60*time.Second
	p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace = 100*time.Millisecond, 10*time.Second
	p.Budgets.Idle = 300 * time.Millisecond
	return config.Sandbox{Profile: p, Driver: config.DriverLocal}
}

// testGateway is a gateway on a directory, whose sandboxes are fake.
func testGateway(t *testing.T, dir string, change func(*config.Config)) (*WorkerGateway, *boxes) {
	t.Helper()
	c := config.Default()
	c.Home = dir
	quick := quickBoxes()
	slow := quick
	slow.Name, slow.Budgets.Idle = "slow", worker.DefaultBudgets().Idle
	c.Sandboxes = map[string]config.Sandbox{quick.Name: quick, slow.Name: slow}
	if change != nil {
		change(c)
	}
	g, err := OpenDaemonGateway(t.Context(), c, &GatewayOptions{Data: dir}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &boxes{g: g, stop: map[string]context.CancelFunc{}}
	for name, p := range c.Sandboxes {
		g.drivers[name] = &boxDriver{tier: "fake", control: "unix://" + g.socket, create: b.create, remove: b.remove, kill: b.remove, close: b.close}
		_ = p
	}
	t.Cleanup(func() {
		if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		b.work.Wait()
	})
	return g, b
}

func (b *boxes) create(_ context.Context, s boxSpec) error {
	if b.fails.Add(-1) >= 0 {
		return fmt.Errorf("no more of them")
	}
	b.made.Add(1)
	env, err := worker.ReadEnvironment(func(name string) (string, bool) {
		if name == worker.EnvToken {
			return s.token, true
		}
		v, ok := s.env[name]
		return v, ok
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	b.mu.Lock()
	b.stop[s.session] = stop
	b.mu.Unlock()
	b.work.Go(func() {
		exit := worker.New(boxTools(s.session), env, nil).Run(ctx)
		b.g.exited(s.session, fmt.Sprintf("exit code %d", exit.Code))
	})
	return nil
}

func (b *boxes) remove(_ context.Context, session string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if stop := b.stop[session]; stop != nil {
		stop()
	}
	return nil
}

func (b *boxes) close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, stop := range b.stop {
		stop()
	}
	return nil
}

// boxTools are exec, which says where it ran, and file, which fails.
func boxTools(session string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1"}, nil)
	type args struct {
		Command string `json:"command,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "exec", Description: "Run a command."}, func(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: a.Command + " in " + session}},
			StructuredContent: json.RawMessage(`{"exit_code":0,"session":"` + session + `"}`),
		}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "file"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		return nil, nil, fmt.Errorf("no such file")
	})
	return server
}

func mustStart(t *testing.T, g *WorkerGateway, id, profile string) *worker.Session {
	t.Helper()
	s, err := g.Start(t.Context(), id, profile, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Running(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// What the API answers to requests that are wrong, or about sandboxes that cannot
// be had.
func TestSandboxAPIErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, fake := testGateway(t, dir, func(c *config.Config) { c.Gateway.Sandboxes = 2 })
	a := testAgents(t, dir)
	s := serveWith(t, a, dir, g)
	mustStart(t, g, "one", "slow")
	over := mustStart(t, g, "over", "slow")
	if _, err := over.Release(t.Context(), worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	// It reported an artifact that has been removed since.
	const swept = "art_aaaaaaaaaaaaaaaaaaaaaaaaab"
	rec, err := g.store.Load(t.Context(), "over")
	if err != nil {
		t.Fatal(err)
	}
	rec.Outputs = []worker.Output{{URI: "store://" + swept, Name: "report", Size: 1}}
	if err := g.store.Save(t.Context(), rec, rec.Epoch); err != nil {
		t.Fatal(err)
	}
	fake.fails.Store(1)
	if status, body := s.ask("POST", "/v1/sandboxes", `{"id":"broken","profile":"slow"}`); status != http.StatusUnprocessableEntity || !strings.Contains(body, "no more of them") {
		t.Errorf("a driver that fails: %d %s", status, body)
	}
	if status, body := s.ask("GET", "/v1/sandboxes/broken", ""); status != http.StatusOK || !strings.Contains(body, `"state":"failed"`) || !strings.Contains(body, "no more of them") {
		t.Errorf("its record: %d %s", status, body)
	}
	mustStart(t, g, "two", "slow")
	for _, tc := range []struct {
		method, path, body string
		status             int
		detail             string
	}{
		{"POST", "", `{"id":"more"}`, http.StatusTooManyRequests, "as many sandboxes as there may be: 2"},
		{"POST", "", `{"ID":"x"}`, http.StatusBadRequest, `\"ID\" is no field; there are id, profile, wait`},
		{"POST", "", strings.Repeat(" ", maxRequest+1), http.StatusRequestEntityTooLarge, "too large"},
		{"POST", "", `{"id":"../x"}`, http.StatusBadRequest, "use up to 63"},
		{"POST", "", `{"id":"x","profile":"heavy"}`, http.StatusBadRequest, "there are light, quick, slow"},
		{"GET", "/nobody", "", http.StatusNotFound, `find sandbox \"nobody\": there is none`},
		{"POST", "/nobody/exec", `{"command":"x"}`, http.StatusNotFound, `find sandbox \"nobody\": there is none`},
		{"POST", "/over/exec", `{"command":"x"}`, http.StatusConflict, "is over: released (explicit)"},
		{"POST", "/over/release", ``, http.StatusConflict, "is over"},
		{"POST", "/over/kill", ``, http.StatusConflict, "is over"},
		{"POST", "/one/exec", `{}`, http.StatusBadRequest, "give command or args"},
		{"POST", "/one/exec", `{"command":"x","args":["x"]}`, http.StatusBadRequest, "and not both"},
		{"POST", "/one/exec", `{"command":"x","timeout_ms":600001}`, http.StatusBadRequest, "timeout_ms"},
		{"POST", "/one/exec", `{"command":"x","detach":true,"timeout_ms":1}`, http.StatusBadRequest, "detached"},
		{"POST", "/one/exec", `{"args":["a\u0000b"]}`, http.StatusBadRequest, "NUL"},
		{"POST", "/one/release", `{"reason":"tired"}`, http.StatusBadRequest, "use explicit"},
		{"GET", "?al=true", "", http.StatusBadRequest, `there is no parameter \"al\"; there are all`},
		{"GET", "?all=yes", "", http.StatusBadRequest, `all=\"yes\": use true or false`},
		{"GET", "/one?audit=true", "", http.StatusBadRequest, `there is no parameter \"audit\"`},
		{"GET", "/one/tail", "", http.StatusBadRequest, "name a job"},
		{"GET", "/one/tail?job=j&offset=-1", "", http.StatusBadRequest, "use numbers"},
		{"GET", "/one/tail?job=j&wait_ms=99999", "", http.StatusBadRequest, "use numbers"},
		{"GET", "/one/tail?job=j&stream=both", "", http.StatusBadRequest, "use stdout or stderr"},
		{"GET", "/one/artifacts/art_aaaaaaaaaaaaaaaaaaaaaaaaaa", "", http.StatusNotFound, "has reported no artifact"},
		{"GET", "/over/artifacts/" + swept, "", http.StatusGone, "is gone: artifacts are kept for 30 days, and as long as all have at most 10737418240 bytes"},
		{"GET", "/one/artifacts/..%2f..%2ftoken", "", http.StatusNotFound, "has reported no artifact"},
	} {
		if status, body := s.ask(tc.method, "/v1/sandboxes"+tc.path, tc.body); status != tc.status || !strings.Contains(body, tc.detail) {
			t.Errorf("%s %s %s: %d %s, want %d and %q", tc.method, tc.path, tc.body, status, body, tc.status, tc.detail)
		}
	}
	s.token = "wrong-token-wrong-token"
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/one", "/v1/sandboxes/one/tail?job=j"} {
		if status, _ := s.ask("GET", path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a good token: %d", path, status)
		}
	}
	// The way in of workers is on the same address, and knows worker tokens alone.
	if status, body := s.ask("GET", "/v1/worker", ""); status != http.StatusUnauthorized || strings.Contains(body, "problem") {
		t.Errorf("an upgrade without a worker's token: %d %s", status, body)
	}
}

// A daemon without a gateway says what to start.
func TestNoGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/x/exec"} {
		if status, body := s.ask("POST", path, "{}"); status != http.StatusNotFound || !strings.Contains(body, "--worker-gateway") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "light"}); err == nil || !strings.Contains(err.Error(), "--worker-gateway") {
		t.Errorf("an agent that wants a sandbox: %v", err)
	}
}

// What an earlier process left is taken up: sandboxes that ended with it are failed
// with the reason, what has been over stays as it was, and the keys are those of
// before.
func TestGatewayAfterDeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, _ := testGateway(t, dir, nil)
	mustStart(t, g, "lost", "slow")
	done := mustStart(t, g, "done", "slow")
	if _, err := done.Release(t.Context(), worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDaemonGateway(t.Context(), g.config, &GatewayOptions{Data: dir}, "", nil); err == nil || !strings.Contains(err.Error(), "another process has the gateway") {
		t.Fatalf("two gateways of one directory: %v", err)
	}
	copied := t.TempDir()
	for _, name := range []string{DataFile, DataFile + "-wal", DataFile + "-shm", "gateway/owner", "gateway/keys.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // a store that has written all has no second file
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(copied, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next, _ := testGateway(t, copied, nil) // as after a kill: nothing was ended
	lost, err := next.Show(t.Context(), "lost")
	if err != nil || lost.State != worker.StateFailed || lost.Failure != worker.FailureExited || !strings.Contains(lost.Detail, "the process that had made it") {
		t.Errorf("%+v, %v", lost, err)
	}
	if info, err := next.Show(t.Context(), "done"); err != nil || info.State != worker.StateReleased {
		t.Errorf("%+v, %v", info, err)
	}
	token, err := g.tokens.Tokens().Issue("done", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := next.tokens.Authenticate(t.Context(), token); err != nil || id != "done" || next.owner != g.owner {
		t.Errorf("the next process is another host, or has other keys: %q, %v", id, err)
	}
	if list, err := next.List(t.Context(), false); err != nil || len(list) != 0 {
		t.Errorf("live: %+v, %v", list, err)
	}
}

// A gateway that ends releases what ends with it.
func TestGatewayReleasesAtItsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, _ := testGateway(t, dir, nil)
	s := mustStart(t, g, "one", "slow")
	if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rec := s.Record(); rec.State != worker.StateReleased || rec.Release != worker.ReasonExplicit || !rec.Reported {
		t.Errorf("%+v", rec)
	}
	if _, err := g.Start(t.Context(), "late", "slow", ""); err == nil {
		t.Error("a gateway that ends makes sandboxes")
	}
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("its directory stays: %v", err)
	}
}

// Whom a directory that was left behind does not belong to keeps it.
func TestOnlyOurDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	left := filepath.Join(dir, sandboxDirPrefix+"1")
	link := filepath.Join(dir, sandboxDirPrefix+"2")
	for _, d := range []string{other, left} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{other, link, left, "", "/"} {
		removeLeft(d)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("another's directory was removed")
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error("a link was taken for a directory of ours")
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("ours was not removed")
	}
}

// Workers of other machines come in at the daemon's own address, past the API's
// tokens, and are there for every caller.
func TestWorkersComeInAtTheAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, fake := testGateway(t, dir, nil)
	s := serveWith(t, testAgents(t, dir), dir, g)
	p, _ := g.config.Sandbox("slow")
	sb, err := g.gateway.Open(t.Context(), g.tokens.Tokens(), "far", strings.Replace(s.url, "http", "ws", 1)+worker.DialPath, p.Profile)
	if err != nil {
		t.Fatal(err)
	}
	if err := fake.create(t.Context(), boxSpec{session: "far", env: sb.Env, token: sb.Token}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := sb.Session.Running(ctx); err != nil {
		t.Fatal(err)
	}
	if status, body := s.ask("GET", "/v1/sandboxes/far", ""); status != http.StatusOK || !strings.Contains(body, `"state":"running"`) || !strings.Contains(body, `"tools":["exec","file"]`) {
		t.Errorf("%d %s", status, body)
	}
}
