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
	p := &proxy{dsn: u.String(), conns: map[net.Conn]struct{}{}}
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(c, s)
		_ = c.Close()
	}()
	_, _ = io.Copy(s, io.TeeReader(c, counter{&p.sent}))
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
