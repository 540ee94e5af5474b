package app

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/memo"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// memoryNet is a network in memory, for time that is not real. It counts what
// the dialling side sends.
type memoryNet struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	writes atomic.Int64
}

func (n *memoryNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *memoryNet) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *memoryNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (n *memoryNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return &countedConn{Conn: ours, writes: &n.writes}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// An idle watch sends not one byte in a minute, nor in an hour: over real HTTP,
// through the real client and the real server, on a network that counts. A
// change after that is heard as ever.
//
// W-001, W-052, W-240.
func TestIdleWatchIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := memo.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		host, err := NewHost(store, mcpserver.MemoTools(store), nil)
		if err != nil {
			t.Fatal(err)
		}
		network := &memoryNet{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: host.MCP.Handler()}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(network) }()
		transport := &http.Transport{DialContext: network.dial}
		pool, err := mcpclient.NewPool([]mcpclient.Spec{{Name: "memo", URL: "http://127.0.0.1/mcp"}}, &mcpclient.Options{HTTPTransport: transport})
		if err != nil {
			t.Fatal(err)
		}
		sink := watchtest.NewSink()
		m := watch.NewManager(ports(pool), nil, sink, nil)
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: "notes", URI: "memo://notes"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, window := range []time.Duration{time.Minute, time.Hour} {
			before := network.writes.Load()
			time.Sleep(window)
			synctest.Wait()
			if sent := network.writes.Load() - before; sent != 0 {
				t.Errorf("%d writes in an idle window of %s", sent, window)
			}
		}
		if err := store.Set("todo", json.RawMessage(`"tea"`)); err != nil {
			t.Fatal(err)
		}
		if got := sink.Next(t).Text(); got != "ADDED todo" {
			t.Errorf("got %q", got)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		pool.Close()
		if err := host.Close(t.Context()); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
}
