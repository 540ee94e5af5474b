package interop

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/worker"
)

// faultEnv makes the test binary a gateway; it holds a faultConfig.
const faultEnv = "OSSICLE_TEST_FAULT_GATEWAY"

// faultsWanted is whether waits are as long as in life: minutes for each test.
func faultsWanted() bool { return os.Getenv("OSSICLE_FAULTS") != "" }

// faultConfig is what a gateway process is told.
type faultConfig struct {
	DB, Addr string
	Key      string // seed of the key that signs tokens
	Session  string // to create, or to take up
	Profile  worker.Profile
}

func (c faultConfig) tokens() (*gateway.Tokens, error) {
	seed, err := hex.DecodeString(c.Key)
	if err != nil {
		return nil, err
	}
	return gateway.NewTokens("https://gw.example", gateway.Key{ID: "k", Private: ed25519.NewKeyFromSeed(seed)})
}

// faultGateway is the life of a gateway process: it says that it is ready, and
// does what it is told line by line until it dies.
func faultGateway(text string) error {
	var c faultConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, c.DB, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	tokens, err := c.tokens()
	if err != nil {
		return err
	}
	host := worker.NewHost(tokens, db.Workers(), &worker.HostOptions{Owner: "gw"})
	defer host.Close()
	if err := host.Restore(ctx); err != nil {
		return err
	}
	s, err := host.Session(c.Session)
	if err != nil {
		if s, err = host.Create(ctx, c.Session, c.Profile); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	gateway.New(host, tokens, nil, nil).Mount(mux)
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	var out sync.Mutex
	say := func(line string, args ...any) {
		out.Lock()
		defer out.Unlock()
		_, _ = fmt.Fprintf(os.Stdout, line+"\n", args...)
	}
	say("ready")
	var calls sync.WaitGroup
	defer calls.Wait()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "call":
			calls.Go(func() { say("%s", faultCall(ctx, s, rest)) })
		case "running":
			calls.Go(func() { say("running %v", s.Running(ctx)) })
		case "record":
			rec := s.Record()
			say("record %s %d %q %q", rec.State, rec.Attempt, string(rec.Failure), rec.Detail)
		case "eat":
			eat()
		}
	}
	return nil
}

func faultCall(ctx context.Context, s *worker.Session, args string) string {
	res, err := s.CallTool(ctx, "exec", jsontext.Value(args), nil)
	if err != nil {
		return fmt.Sprintf("lost %v", err)
	}
	return fmt.Sprintf("result %q", res.Content[0].(*mcp.TextContent).Text)
}

// eat uses all memory up, page by page.
func eat() {
	type page struct {
		next *page
		text [8 << 20]byte
	}
	for all := (*page)(nil); ; {
		p := &page{next: all}
		for i := 0; i < len(p.text); i += 4096 {
			p.text[i] = 1
		}
		all = p
	}
}

// faultProfile is the profile light with waits that a test can await, and as they
// are in life if that is asked for.
func faultProfile() worker.Profile {
	p := worker.Light()
	p.Tools = []string{"exec"}
	p.ActiveDeadline, p.TerminationGrace = 0, 0
	if !faultsWanted() {
		p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace = 500*time.Millisecond, 4*time.Second // a busy machine takes its time
		p.Budgets.ReconnectWindow = 16 * time.Second
	}
	return p
}

// faulty is a gateway process and a worker process.
type faulty struct {
	c      faultConfig
	dir    string
	prefix []string // of the worker's command
}

func newFaulty(t *testing.T, p worker.Profile) *faulty {
	t.Helper()
	dir := t.TempDir()
	return &faulty{dir: dir, c: faultConfig{
		DB: filepath.Join(dir, "gw.db"), Addr: testserver.Addr(t), Key: strings.Repeat("5a", ed25519.SeedSize), Session: "s1", Profile: p,
	}}
}

// gateway starts the gateway's process, the first or one after it.
func (f *faulty) gateway(t *testing.T) *child {
	t.Helper()
	text, err := json.Marshal(f.c)
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, []string{faultEnv + "=" + string(text)}, os.Args[0])
	c.await("ready")
	return c
}

// startWorker starts a worker's process: ours, without a sandbox around it.
func (f *faulty) startWorker(t *testing.T, control string, env ...string) *child {
	t.Helper()
	tokens, err := f.c.tokens()
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Issue(f.c.Session, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	file, space := filepath.Join(f.dir, "token"), filepath.Join(f.dir, "workspace")
	if err := errors.Join(os.WriteFile(file, []byte(token), 0o600), os.MkdirAll(space, 0o700)); err != nil {
		t.Fatal(err)
	}
	return start(t, append([]string{
		worker.EnvSessionID + "=" + f.c.Session, worker.EnvControlURL + "=" + control, worker.EnvTokenFile + "=" + file,
		worker.EnvToolAllowlist + "=exec", "OSSICLE_WORKSPACE=" + space,
	}, env...), append(slices.Clone(f.prefix), program, "worker")...)
}

// both starts the two and waits until tools can be called.
func (f *faulty) both(t *testing.T) (gw, w *child) {
	t.Helper()
	gw = f.gateway(t)
	w = f.startWorker(t, "ws://"+f.c.Addr+gateway.WorkerPath)
	gw.say("running")
	if got := gw.await("running"); got != "running <nil>" {
		t.Fatal(got)
	}
	return gw, w
}

// code waits for the end of a process and returns its exit code, -1 for a signal.
func (c *child) code() int {
	c.t.Helper()
	select {
	case <-c.over:
	case <-time.After(2 * patience):
		c.t.Fatalf("does not end; it said:\n%s", c.output())
	}
	err := c.p.Wait()
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
