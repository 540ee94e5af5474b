package gateway_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/worker"
)

const (
	// gatewayEnv makes the test binary a gateway process; it holds a gatewayConfig.
	gatewayEnv = "GATEWAY_TEST_PROCESS"
	// rollingPatience bounds every wait of these tests.
	rollingPatience = 90 * time.Second
)

// gatewayConfig is what a gateway process is told.
type gatewayConfig struct {
	Name, KeyID, Key, Artifacts string

	DSN      string   // of PostgreSQL, or else
	File     string   // of SQLite
	Sessions []string // to create
	Doomed   []string // likewise, with a short window
	Lease    time.Duration
	Drain    time.Duration
}

// rollingProfile is the profile light, with heartbeats that a test can await unless
// this is the long variant.
func rollingProfile() worker.Profile {
	p := worker.Light()
	if os.Getenv(faultsEnv) != "" {
		return p
	}
	p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace = 2*time.Second, 20*time.Second
	p.ActiveDeadline, p.TerminationGrace = 0, 0
	return p
}

func doomedProfile() worker.Profile {
	p := rollingProfile()
	p.ActiveDeadline, p.TerminationGrace = 0, 0
	p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace, p.Budgets.ReconnectWindow = time.Second, 3*time.Second, 4*time.Second
	return p
}

// gatewayLife is a gateway: it says its address and serves until SIGTERM, which
// drains it.
func gatewayLife() (err error) {
	var c gatewayConfig
	if err := json.Unmarshal([]byte(os.Getenv(gatewayEnv)), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, auditing, done, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	private, err := hex.DecodeString(c.Key)
	if err != nil {
		return err
	}
	tokens, err := gateway.NewTokens(issuer, gateway.Key{ID: c.KeyID, Private: private})
	if err != nil {
		return err
	}
	artifacts, err := gateway.OpenDir(c.Artifacts, nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := listener.Addr().String()
	trail := worker.NewAuditTrail(auditing, nil)
	host := worker.NewHost(tokens, store, &worker.HostOptions{
		Owner: c.Name, Image: "gateway:" + c.Name, Addr: "http://" + addr, Audit: trail, Lease: c.Lease, DrainBudget: c.Drain,
	})
	gw, calls := gateway.New(host, tokens, artifacts, nil), gateway.NewCalls(host, store, tokens, nil)
	mux := http.NewServeMux()
	gw.Mount(mux)
	calls.Mount(mux)
	server := &http.Server{Handler: mux}
	life, end := context.WithCancel(context.Background())
	defer end()
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { _ = host.Run(life) })
	audit, endAudit := context.WithCancel(context.Background())
	defer endAudit()
	var writing sync.WaitGroup
	writing.Go(func() { _ = trail.Run(audit) })
	for i, ids := range [][]string{c.Sessions, c.Doomed} {
		for _, id := range ids {
			if _, err := host.Create(ctx, id, []func() worker.Profile{rollingProfile, doomedProfile}[i]()); err != nil {
				return err
			}
		}
	}
	fmt.Println("ready", addr)
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.Background(), rollingPatience)
	defer cancel()
	err = gw.Shutdown(last)
	err = errors.Join(err, server.Shutdown(last))
	end()
	running.Wait()
	calls.Close()
	endAudit()
	writing.Wait()
	return errors.Join(err, artifacts.Close())
}

// open opens the records that the gateways share.
func (c gatewayConfig) open(ctx context.Context) (worker.Store, worker.AuditStore, func(), error) {
	if c.File != "" {
		db, err := sqlite.Open(ctx, c.File, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		return db.Workers(), db.WorkerAudit(nil), func() { _ = db.Close() }, nil
	}
	db, err := postgres.Open(ctx, c.DSN, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	return db.Workers(), db.WorkerAudit(nil), db.Close, nil
}

// theater is gateways and workers as processes, on one store behind one address.
type theater struct {
	dir, worker string

	config   gatewayConfig
	tokens   *gateway.Tokens
	store    worker.Store
	audit    worker.AuditStore
	balancer *balancer
	calls    *gateway.Calls // of the test, which is no gateway
	gateways []*gatewayProcess
	workers  map[string]*process.Process
}

func newTheater(t *testing.T, records gatewayConfig) *theater {
	t.Helper()
	if testing.Short() {
		t.Skip("hundreds of processes")
	}
	th := &theater{dir: t.TempDir(), workers: map[string]*process.Process{}}
	th.worker = filepath.Join(th.dir, "worker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", th.worker, "./testdata/worker").CombinedOutput(); err != nil {
		t.Fatalf("build worker: %v\n%s", err, out)
	}
	key, err := gateway.NewKey()
	must(t, err)
	th.tokens, err = gateway.NewTokens(issuer, key)
	must(t, err)
	th.config = gatewayConfig{
		DSN: records.DSN, File: records.File, KeyID: key.ID, Key: hex.EncodeToString(key.Private), Artifacts: filepath.Join(th.dir, "artifacts"),
		Lease: 3 * time.Second, Drain: 4 * time.Second,
	}
	if os.Getenv(faultsEnv) != "" {
		th.config.Lease, th.config.Drain = 0, 0 // as by default
	}
	store, audit, done, err := records.open(t.Context())
	must(t, err)
	t.Cleanup(done)
	th.store, th.audit = store, audit
	th.calls = gateway.NewCalls(nil, store, th.tokens, nil)
	t.Cleanup(th.calls.Close)
	th.balancer = newBalancer(t)
	t.Cleanup(func() {
		for _, w := range th.workers {
			w.Kill()
		}
	})
	return th
}

type gatewayProcess struct {
	*process.Process

	name, addr string
}

// start starts a gateway that creates sessions, and has the address lead to it too.
func (th *theater) start(t *testing.T, name string, sessions, doomed []string) *gatewayProcess {
	t.Helper()
	c := th.config
	c.Name, c.Sessions, c.Doomed = name, sessions, doomed
	text, err := json.Marshal(c)
	must(t, err)
	p, err := process.Start(process.Options{Args: []string{os.Args[0]}, Env: append(os.Environ(), gatewayEnv+"="+string(text), "GORACE=atexit_sleep_ms=0"), Grace: rollingPatience})
	must(t, err)
	g := &gatewayProcess{Process: p, name: name}
	ready := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		in := bufio.NewReader(p.Stdout)
		line, _ := in.ReadString('\n')
		ready <- line
		_, _ = io.Copy(io.Discard, in)
	})
	t.Cleanup(func() { p.Kill(); reading.Wait() })
	select {
	case line := <-ready:
		if _, err := fmt.Sscanf(line, "ready %s", &g.addr); err != nil {
			t.Fatalf("gateway %s said %q: %s", name, line, p.Stderr())
		}
	case <-time.After(rollingPatience):
		t.Fatalf("gateway %s does not start: %s", name, p.Stderr())
	}
	th.gateways = append(th.gateways, g)
	th.balancer.add(g.addr)
	return g
}

// term ends a gateway with SIGTERM.
func (th *theater) term(t *testing.T, g *gatewayProcess) {
	t.Helper()
	must(t, syscall.Kill(g.Pid(), syscall.SIGTERM))
	select {
	case <-g.Done():
	case <-time.After(rollingPatience):
		t.Fatalf("gateway %s does not end: %s", g.name, g.Stderr())
	}
	th.balancer.remove(g.addr)
	if err := g.Wait(); err != nil {
		t.Errorf("gateway %s: %v: %s", g.name, err, g.Stderr())
	}
}

// kill is kill -9.
func (th *theater) kill(t *testing.T, g *gatewayProcess) {
	t.Helper()
	must(t, syscall.Kill(g.Pid(), syscall.SIGKILL))
	<-g.Done()
	th.balancer.remove(g.addr)
}

// hire starts the worker process of a session.
func (th *theater) hire(t *testing.T, id string, p worker.Profile) {
	t.Helper()
	dir := filepath.Join(th.dir, "w-"+id)
	must(t, os.MkdirAll(filepath.Join(dir, "out"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "out", "who"), []byte(id), 0o600))
	token, err := th.tokens.Issue(id, time.Hour)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(th.dir, "t-"+id), []byte(token), 0o600))
	budgets, err := json.Marshal(p.Budgets)
	must(t, err)
	w, err := process.Start(process.Options{Args: []string{th.worker}, Dir: dir, Env: []string{
		"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=1", "WORKSPACE=" + dir, worker.EnvSessionID + "=" + id,
		worker.EnvControlURL + "=ws://" + th.balancer.addr + gateway.WorkerPath, worker.EnvTokenFile + "=" + filepath.Join(th.dir, "t-"+id),
		worker.EnvToolAllowlist + "=exec,file", worker.EnvBudgets + "=" + string(budgets),
	}})
	must(t, err)
	th.workers[id] = w
}

// records are all sessions as the store has them.
func (th *theater) records(t *testing.T) []worker.Record {
	t.Helper()
	recs, err := th.store.List(t.Context(), worker.Filter{})
	must(t, err)
	return recs
}

// await waits for sessions to be as they should. The store tells nobody of changes.
func (th *theater) await(t *testing.T, what string, ok func(worker.Record) bool, ids ...string) {
	t.Helper()
	for deadline := time.Now().Add(rollingPatience); ; time.Sleep(50 * time.Millisecond) {
		missing := []string{}
		for _, rec := range th.records(t) {
			if slices.Contains(ids, rec.ID) && !ok(rec) {
				missing = append(missing, fmt.Sprintf("%s: %s %s %s of %s", rec.ID, rec.State, rec.Failure, rec.Detail, rec.Owner))
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			id, _, _ := strings.Cut(missing[0], ":")
			t.Fatalf("%d sessions are not %s:\n%s\n%s", len(missing), what, strings.Join(missing[:min(5, len(missing))], "\n"), th.tell(t, id))
		}
	}
}

// tell is what is known of a session, for whoever reads a failure.
func (th *theater) tell(t *testing.T, id string) string {
	t.Helper()
	var text strings.Builder
	entries, err := th.audit.Read(t.Context(), id, 0, 1000)
	must(t, err)
	for _, e := range entries {
		fmt.Fprintf(&text, "%s %s %s: %s>%s %d %s %s\n", e.Time.Format("05.000"), e.Host, e.Event, e.From, e.To, e.Close, e.Reason, e.Detail)
	}
	w := th.workers[id]
	select {
	case <-w.Done():
		fmt.Fprintf(&text, "the worker ended: %v: ", w.Wait())
	default:
	}
	return text.String() + w.Stderr()
}

// away returns how long each session was without a connection, by its audit: from
// each loss to the next time it ran.
func (th *theater) away(t *testing.T, ids []string) (times []time.Duration) {
	t.Helper()
	for _, id := range ids {
		entries, err := th.audit.Read(t.Context(), id, 0, 1000)
		must(t, err)
		slices.SortStableFunc(entries, func(a, b worker.AuditEntry) int { return a.Time.Compare(b.Time) }) // hosts write their own
		var lost time.Time
		for _, e := range entries {
			switch e.Event {
			case "lost", "drained":
				lost = e.Time
			case "taken_over":
				if lost.IsZero() {
					lost = e.Time
				}
			case "running":
				if !lost.IsZero() {
					times = append(times, e.Time.Sub(lost))
				}
				lost = time.Time{}
			}
		}
	}
	slices.Sort(times)
	return times
}

// balancer spreads connections over gateways, each to the next that answers, and
// remembers when they came.
type balancer struct {
	addr     string
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	backs []string
	next  int
	dials []time.Time
	still []time.Time // when this process had stood still
	open  map[net.Conn]bool
}

// standstill is the time without a look at the clock after which this process counts
// as having stood still: what came meanwhile is seen at once.
const standstill = 50 * time.Millisecond

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{addr: l.Addr().String(), listener: l, open: map[net.Conn]bool{}}
	ended := make(chan struct{})
	b.work.Go(func() { b.look(ended) })
	b.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.work.Go(func() { b.carry(conn) })
		}
	})
	t.Cleanup(func() {
		close(ended)
		_ = l.Close()
		b.cut()
		b.work.Wait()
	})
	return b
}

// look notes when this process stood still.
func (b *balancer) look(ended <-chan struct{}) {
	tick := time.NewTicker(standstill / 5)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ended:
			return
		}
		now := time.Now()
		if now.Sub(last) > standstill {
			b.mu.Lock()
			b.still = append(b.still, now)
			b.mu.Unlock()
		}
		last = now
	}
}

// blurred reports whether a dial may have come before it was seen. mu is held.
func (b *balancer) blurred(at time.Time) bool {
	return slices.ContainsFunc(b.still, func(still time.Time) bool { return at.Sub(still).Abs() < standstill })
}

func (b *balancer) add(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backs = append(b.backs, addr)
}

func (b *balancer) remove(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backs = slices.DeleteFunc(b.backs, func(a string) bool { return a == addr })
}

// only leads new connections to one gateway while f runs.
func (b *balancer) only(addr string, f func()) {
	b.mu.Lock()
	backs := b.backs
	b.backs = []string{addr}
	b.mu.Unlock()
	f()
	b.mu.Lock()
	b.backs = backs
	b.mu.Unlock()
}

// cut breaks all connections.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.open {
		_ = conn.Close()
	}
}

func (b *balancer) carry(conn net.Conn) {
	defer conn.Close()
	b.mu.Lock()
	b.dials = append(b.dials, time.Now())
	backs := slices.Clone(b.backs)
	b.next++
	first := b.next
	b.mu.Unlock()
	for i := range backs {
		to, err := net.DialTimeout("tcp", backs[(first+i)%len(backs)], time.Second)
		if err != nil {
			continue
		}
		b.pipe(conn, to)
		return
	}
}

func (b *balancer) pipe(conn, to net.Conn) {
	b.mu.Lock()
	b.open[conn], b.open[to] = true, true
	b.mu.Unlock()
	var both sync.WaitGroup
	one := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_ = dst.Close() // a close of one way is a close of both: it is WebSockets
		_ = src.Close()
	}
	both.Go(func() { one(conn, to) })
	one(to, conn)
	both.Wait()
	b.mu.Lock()
	delete(b.open, conn)
	delete(b.open, to)
	b.mu.Unlock()
}

// herd returns the number of dials since a moment, the largest in 100 ms in which this
// process did not stand still, and that of each second.
func (b *balancer) herd(since time.Time) (all, most int, rate []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var dials []time.Time
	for _, at := range b.dials {
		if at.Before(since) {
			continue
		}
		all++
		if !b.blurred(at) {
			dials = append(dials, at)
		}
		for second := int(at.Sub(since) / time.Second); len(rate) <= second; {
			rate = append(rate, 0)
		}
		rate[at.Sub(since)/time.Second]++
	}
	slices.SortFunc(dials, time.Time.Compare)
	for i, j := 0, 0; j < len(dials); j++ {
		for dials[j].Sub(dials[i]) > 100*time.Millisecond {
			i++
		}
		most = max(most, j-i+1)
	}
	return all, most, rate
}
