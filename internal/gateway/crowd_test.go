package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/worker"
)

// crowdEnv makes the test binary a process full of workers; it holds a crowd.
const crowdEnv = "GATEWAY_TEST_CROWD"

type crowd struct {
	Control string
	Tokens  map[string]string // by session
}

// crowdLife runs the workers until its standard input ends.
func crowdLife() error {
	var c crowd
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for id, token := range c.Tokens {
		server := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
		mcp.AddTool(server, &mcp.Tool{Name: "exec"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: id}}}, nil, nil
		})
		env := worker.Environment{SessionID: id, ControlURL: c.Control, Token: func() (string, error) { return token, nil }}
		running.Go(func() {
			if exit := worker.New(server, env, nil).Run(ctx); ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, id, exit.Code, exit.Reason)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	running.Wait()
	return nil
}

// book counts what happened to sessions.
type book struct {
	mu     sync.Mutex
	events map[string]int
	ran    []time.Time
	last   []string
}

func (b *book) Audit(e worker.AuditEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[e.Event]++
	switch e.Event {
	case "running":
		b.ran = append(b.ran, time.Now())
	case "refused", "failed", "stalled":
		b.last = append(b.last, e.Session+" "+e.Event+" "+e.Detail)
	}
}

// runs waits until so many sessions began to run, and forgets them.
func (b *book) runs(t *testing.T, n int) (last time.Time) {
	t.Helper()
	for deadline := time.Now().Add(rollingPatience); ; time.Sleep(10 * time.Millisecond) { // nothing tells
		b.mu.Lock()
		ran := len(b.ran)
		if ran >= n {
			slices.SortFunc(b.ran, time.Time.Compare)
			last, b.ran = b.ran[n-1], nil
			b.mu.Unlock()
			return last
		}
		events := fmt.Sprint(b.events, b.last)
		b.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d run: %.2000s", ran, n, events)
		}
	}
}

// DL-2, DL-3, AMB-16: hundreds of workers, or two thousand in the long variant, that
// lose their connections at one moment all come back through real sockets, at a gateway with its default limits
// and PostgreSQL behind it, and none of them or of their host loses patience in a
// handshake.
func TestManyRedialsOnPostgreSQL(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of connections")
	}
	workers := 200
	if os.Getenv(faultsEnv) != "" {
		workers = 2000
	}
	pg := testserver.PostgreSQL(t)
	db, err := postgres.Open(t.Context(), pg.Database(t), nil)
	must(t, err)
	t.Cleanup(db.Close)
	tokens, _ := newTokens(t)
	events := &book{events: map[string]int{}}
	host := worker.NewHost(tokens, db.Workers(), &worker.HostOptions{Audit: events})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: host}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		host.Close()
		_ = server.Close()
		serving.Wait()
	})
	front := newBalancer(t)
	front.add(listener.Addr().String())

	c := crowd{Control: "ws://" + front.addr + gateway.WorkerPath, Tokens: map[string]string{}}
	profile := worker.Light()
	profile.Tools = []string{"exec"}
	for i := range workers {
		id := fmt.Sprintf("s%04d", i)
		c.Tokens[id], err = tokens.Issue(id, time.Hour)
		must(t, err)
		_, err = host.Create(t.Context(), id, profile)
		must(t, err)
	}
	text, err := json.Marshal(c)
	must(t, err)
	begun := time.Now()
	p, err := process.Start(process.Options{Args: []string{os.Args[0]}, Env: append(os.Environ(), crowdEnv+"=1", "GORACE=atexit_sleep_ms=0"), Grace: rollingPatience})
	must(t, err)
	t.Cleanup(p.Kill)
	_, err = p.Stdin.Write(text)
	must(t, err)
	first := events.runs(t, workers).Sub(begun)

	cut := time.Now()
	front.cut()
	last := events.runs(t, workers)
	all, most, rate := front.herd(cut)
	t.Logf("%d workers run %v after their process began; cut off, all run again after %v, with %d dials, at most %d in 100 ms, in each second %v",
		workers, first.Round(10*time.Millisecond), last.Sub(cut).Round(10*time.Millisecond), all, most, rate)
	events.mu.Lock()
	defer events.mu.Unlock()
	for event, want := range map[string]int{"lost": workers, "refused": 0, "failed": 0} {
		if got := events.events[event]; got != want {
			t.Errorf("%d sessions %s, want %d: %.1000v", got, event, want, events.last)
		}
	}
	if said := p.Stderr(); said != "" {
		t.Errorf("workers ended: %s", said)
	}
}
