package postgres

import (
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between us and a server. It counts what we send, and can cut what
// goes through it.
type proxy struct {
	dsn  string
	sent atomic.Int64 // bytes, from us to the server

	mu    sync.Mutex
	conns map[net.Conn]struct{}

	life   atomic.Int64 // of connections made from now on
	frozen atomic.Int64 // those of earlier lives hang
	over   chan struct{}
}

func newProxy(tb testing.TB, dsn string) *proxy {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	server := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	u.Host = l.Addr().String()
	p := &proxy{dsn: u.String(), conns: map[net.Conn]struct{}{}, over: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c, server) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		close(p.over)
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) serve(c net.Conn, server string) {
	s, err := net.Dial("tcp", server)
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = struct{}{}, struct{}{}
	p.mu.Unlock()
	life := p.life.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(valve{c, p, life}, s)
		_ = c.Close()
	}()
	_, _ = io.Copy(valve{s, p, life}, io.TeeReader(c, counter{&p.sent}))
	_, _ = s.Close(), c.Close()
	<-done
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// freeze has the connections of now hang, as if the other side had vanished. New
// ones work.
func (p *proxy) freeze() { p.frozen.Store(p.life.Add(1)) }

type valve struct {
	io.Writer
	p    *proxy
	life int64
}

func (v valve) Write(b []byte) (int, error) {
	if v.life < v.p.frozen.Load() {
		<-v.p.over
	}
	return v.Writer.Write(b)
}
