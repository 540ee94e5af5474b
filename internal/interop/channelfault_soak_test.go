package interop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

// unsteady is a listener whose connections a test can cut.
type unsteady struct {
	net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
}

type unsteadyConn struct {
	net.Conn

	of *unsteady
}

func (u *unsteady) Accept() (net.Conn, error) {
	c, err := u.Listener.Accept()
	if err != nil {
		return nil, err
	}
	out := &unsteadyConn{c, u}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conns[out] = true
	return out, nil
}

func (c *unsteadyConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// cut resets every connection and returns how many there were.
func (u *unsteady) cut() int {
	u.mu.Lock()
	var all []net.Conn
	for c := range u.conns {
		all = append(all, c)
	}
	u.mu.Unlock()
	for _, c := range all {
		if tcp, ok := c.(*unsteadyConn).Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	return len(all)
}

// use is what a process holds when nothing is under way.
type use struct {
	goroutines, files int
	heap              uint64
}

func useNow(t *testing.T) use {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return use{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// Sessions come and go, calls run, connections are cut under them: what gateway
// and workers hold does not grow. Both ends are in this process, so both are
// measured.
func TestChannelSoak(t *testing.T) { // alone: it counts what the process holds
	f := newFaulty(t, faultProfile())
	tokens, err := f.c.tokens()
	if err != nil {
		t.Fatal(err)
	}
	host := worker.NewHost(tokens, nil, &worker.HostOptions{HandshakeRate: 1e6})
	mux := http.NewServeMux()
	gateway.New(host, tokens, nil, nil).Mount(mux)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", f.c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	u := &unsteady{Listener: l, conns: map[net.Conn]bool{}}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(u) }()
	defer server.Close()
	defer host.Close()
	total := faultTime(6*time.Second, 10*time.Minute)
	const most = 16 // sessions in a round
	var before use
	rounds, calls, cuts := 0, 0, 0
	for begun := time.Now(); time.Since(begun) < total || rounds < 4; rounds++ {
		if rounds == 2 { // what is made once has been made
			before = useNow(t)
		}
		var all, fault sync.WaitGroup
		over := make(chan struct{}) // the sessions
		for i := range most {
			id := fmt.Sprintf("r%d-%d", rounds, i)
			all.Go(func() { soakSession(t, host, tokens, f.c, id) })
		}
		fault.Go(func() {
			for n := 0; n == 0; cuts += n { // a busy machine takes its time to connect
				select {
				case <-time.After(30 * time.Millisecond): // calls are under way
				case <-over:
					return
				}
				n = u.cut()
			}
		})
		all.Wait()
		close(over)
		fault.Wait()
		calls += most * soakCalls
		if t.Failed() {
			return
		}
	}
	after := settle(t, before)
	t.Logf("%d rounds of %d sessions, %d calls, %d connections cut: %+v, then %+v", rounds, most, calls, cuts, before, after)
	if cuts < rounds {
		t.Errorf("%d connections were cut in %d rounds", cuts, rounds)
	}
	if after.goroutines > before.goroutines+4 || after.files > before.files+4 {
		t.Errorf("grew from %+v to %+v", before, after)
	}
	// A store in memory remembers the last thousand sessions.
	if grown := int64(after.heap) - int64(before.heap); grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// settle gives what ends by itself a moment: sockets that the other end closes.
func settle(t *testing.T, want use) (now use) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if now = useNow(t); (now.goroutines <= want.goroutines && now.files <= want.files) || time.Now().After(deadline) {
			return now
		}
	}
}

const soakCalls = 20

type soakArgs struct {
	Say string `json:"say"`
}

// soakSession is the life of one session, whose calls all have their result.
func soakSession(t *testing.T, host *worker.Host, tokens *gateway.Tokens, c faultConfig, id string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	s, err := host.Create(ctx, id, c.Profile)
	if err != nil {
		t.Error(err)
		return
	}
	token, err := tokens.Issue(id, time.Hour)
	if err != nil {
		t.Error(err)
		return
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "soak", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "exec"}, func(_ context.Context, _ *mcp.CallToolRequest, in soakArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Say}}}, nil, nil
	})
	ended := make(chan worker.Exit, 1)
	go func() {
		ended <- worker.New(server, worker.Environment{
			SessionID: id, ControlURL: "ws://" + c.Addr + gateway.WorkerPath, Token: func() (string, error) { return token, nil },
		}, nil).Run(ctx)
	}()
	for i := range soakCalls {
		want := fmt.Sprintf("%s call %d", id, i)
		res, err := s.CallTool(ctx, "exec", jsontext.Value(fmt.Sprintf(`{"say":%q}`, want)), nil)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			return
		}
		if got := res.Content[0].(*mcp.TextContent).Text; got != want {
			t.Errorf("%s: %s", want, got)
		}
	}
	if _, err := s.Release(ctx, worker.ReasonExplicit); err != nil {
		t.Errorf("%s: %v", id, err)
	}
	if exit := <-ended; exit.Code != worker.ExitReleased && !strings.Contains(exit.Reason, "released") {
		t.Errorf("%s: %+v", id, exit)
	}
}
