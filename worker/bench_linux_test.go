package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// peersEnv makes the test binary a process full of scripted workers, so that
// their memory is not counted as the host's.
const peersEnv = "OSSICLE_BENCH_PEERS"

// TestBenchPeers is no test: it is the other process of the benchmarks.
func TestBenchPeers(t *testing.T) {
	url := os.Getenv(peersEnv)
	if url == "" {
		t.Skip("only as a child of a benchmark")
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var from, n int
		if _, err := fmt.Sscan(in.Text(), &from, &n); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var wg sync.WaitGroup
		var retries atomic.Int64
		for i := range n {
			wg.Go(func() {
				id := fmt.Sprintf("s%d", from+i)
				for {
					p, err := dialTCP(url, "t-"+id)
					if err != nil {
						retries.Add(1)
						time.Sleep(time.Second)
						continue
					}
					if err := p.Serve(id, "1.0.0", "i", 0, "exec", "file"); err != nil {
						retries.Add(1)
						continue
					}
					go beatForEver(p, id)
					return
				}
			})
		}
		wg.Wait()
		fmt.Fprintf(os.Stderr, "connected %d %d %d\n", n, time.Since(begun).Milliseconds(), retries.Load())
	}
}

func dialTCP(url, token string) (*workertest.Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{worker.Subprotocol},
	})
	if err != nil {
		return nil, err
	}
	return &workertest.Peer{WS: ws}, nil
}

func beatForEver(p *workertest.Peer, id string) {
	go func() {
		for {
			if _, err := p.Read(); err != nil {
				return
			}
		}
	}()
	for n := 0; ; n++ {
		if p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"agentfy/heartbeat","params":{"sessionId":%q,"idleSeconds":0,"execSeconds":1,"activeToolCalls":1,"workspaceBytes":1,"channelVersion":"1.0.0"}}`, n, id)) != nil {
			return
		}
		time.Sleep(10 * time.Second)
	}
}

// field is a host on loopback with scripted workers in another process.
type field struct {
	host   *worker.Host
	server *http.Server
	in     *os.File
	out    *bufio.Scanner
	cmd    *exec.Cmd
	n      int
}

func newField(b *testing.B, o *worker.HostOptions) *field {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	f := &field{host: worker.NewHost(tokens{}, nil, o)}
	f.server = &http.Server{Handler: f.host}
	go func() { _ = f.server.Serve(l) }()
	f.cmd = exec.Command(os.Args[0], "-test.run", "^TestBenchPeers$")
	f.cmd.Env = append(os.Environ(), peersEnv+"=ws://"+l.Addr().String()+"/")
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	f.cmd.Stdin, f.in = r, w
	stderr, err := f.cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_ = r.Close()
	f.out = bufio.NewScanner(stderr)
	b.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
		_ = w.Close()
		f.host.Close()
		_ = f.server.Close()
	})
	return f
}

// connect brings n more workers to running and returns how long it took.
func (f *field) connect(b *testing.B, n int) (took time.Duration, retries int) {
	b.Helper()
	p := worker.Light()
	p.Budgets.MaxExec, p.ActiveDeadline = 24*time.Hour, 0
	for i := range n {
		if _, err := f.host.Create(b.Context(), fmt.Sprintf("s%d", f.n+i), p); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Fprintln(f.in, f.n, n)
	f.n += n
	for f.out.Scan() {
		var got, ms int
		if _, err := fmt.Sscanf(f.out.Text(), "connected %d %d %d", &got, &ms, &retries); err == nil {
			for _, s := range f.host.Sessions() {
				if err := s.Running(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			return time.Duration(ms) * time.Millisecond, retries
		}
	}
	b.Fatal("the workers' process ended")
	return 0, 0
}

// resident is the memory of this process that is in use, in bytes.
func resident(b *testing.B) float64 {
	b.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	var total, rss float64
	if _, err := fmt.Sscan(string(text), &total, &rss); err != nil {
		b.Fatal(err)
	}
	return rss * float64(os.Getpagesize())
}

// BenchmarkIdleWorkers measures the memory of a host per worker that is
// connected and does nothing but send heartbeats.
func BenchmarkIdleWorkers(b *testing.B) {
	const workers = 5000
	for b.Loop() {
		f := newField(b, &worker.HostOptions{MaxHandshakes: 512, HandshakeRate: 1e6})
		f.connect(b, 100) // what the first connections cost once
		before := resident(b)
		took, _ := f.connect(b, workers)
		time.Sleep(11 * time.Second) // each has sent a heartbeat and is at rest
		var m runtime.MemStats
		after := resident(b)
		runtime.ReadMemStats(&m)
		b.ReportMetric((after-before)/workers/1024, "KiB/worker")
		b.ReportMetric(float64(m.StackInuse)/(workers+100)/1024, "stack-KiB/worker")
		b.ReportMetric(float64(m.HeapInuse)/(workers+100)/1024, "heap-KiB/worker")
		b.ReportMetric(workers/took.Seconds(), "handshakes/s")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkRedial has 2,000 workers dial at once with the limits that a host has
// by default.
func BenchmarkRedial(b *testing.B) {
	for b.Loop() {
		f := newField(b, nil)
		took, retries := f.connect(b, 2000)
		b.ReportMetric(took.Seconds(), "s-until-all-run")
		b.ReportMetric(float64(retries), "retries")
		b.ReportMetric(2000/took.Seconds(), "handshakes/s")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkToolCall is the round trip of tools/call: over the channel, and over
// the streamable HTTP of the Go SDK, with the same tool on the same loopback.
func BenchmarkToolCall(b *testing.B) {
	b.Run("channel", func(b *testing.B) {
		host := worker.NewHost(tokens{}, nil, nil)
		server := httptest.NewServer(host)
		s, err := host.Create(b.Context(), "s1", worker.Light())
		if err != nil {
			b.Fatal(err)
		}
		e := env("s1")
		e.ControlURL = strings.Replace(server.URL, "http", "ws", 1)
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { worker.New(newToolbox().server, e, nil).Run(ctx); close(done) }()
		if err := s.Running(b.Context()); err != nil {
			b.Fatal(err)
		}
		args := jsontext.Value(`{"say":"hello"}`)
		b.ReportAllocs()
		for b.Loop() {
			if res, err := s.CallTool(b.Context(), "exec", args, nil); err != nil || textOf(res) != "hello" {
				b.Fatal(res, err)
			}
		}
		b.StopTimer()
		stop()
		<-done
		host.Close()
		server.Close()
	})
	b.Run("streamable", func(b *testing.B) {
		box := newToolbox()
		server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return box.server }, nil))
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
		cs, err := client.Connect(b.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL}, &mcp.ClientSessionOptions{ProtocolVersion: worker.MCPVersion})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			res, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "exec", Arguments: map[string]any{"say": "hello"}})
			if err != nil || textOf(res) != "hello" {
				b.Fatal(res, err)
			}
		}
		b.StopTimer()
		_ = cs.Close()
		server.Close()
	})
}
