// Package workertest helps to test both ends of the tool channel: a network in
// memory that runs in virtual time and can break in every way, and the suite
// that every store of sessions must pass.
package workertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// pipeBuffer is what one direction of a connection holds, in bytes. It must hold
// something: two peers that ping each other at once would block for ever.
const pipeBuffer = 64 << 10

// Net is a network in memory. It works in a testing/synctest bubble.
type Net struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	down  bool
	conns []*conn
	dials int
}

// NewNet returns a network with one listener.
func NewNet() *Net { return &Net{accept: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (n *Net) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Net) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *Net) Addr() net.Addr { return addr{} }

// Dial connects to the listener.
func (n *Net) Dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	down := n.down
	n.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: os.ErrDeadlineExceeded}
	}
	a, b := newPipe()
	select {
	case n.accept <- b:
	case <-n.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, a, b)
	return a, nil
}

// Transport dials the network whatever the URL says.
func (n *Net) Transport() *http.Transport {
	return &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx) },
		DisableKeepAlives: true,
	}
}

// Dials is how often somebody dialed.
func (n *Net) Dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// SetDown makes dials fail, or succeed again. Open connections stay.
func (n *Net) SetDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// Reset ends every open connection at once, for both ends.
func (n *Net) Reset() {
	for _, c := range n.take() {
		_ = c.Close()
	}
}

// Swallow makes every open connection half-open: both ends believe in it, and
// nothing that they write arrives.
func (n *Net) Swallow() {
	for _, c := range n.take() {
		c.out.mu.Lock()
		c.out.hole = true
		c.out.mu.Unlock()
	}
}

func (n *Net) take() []*conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.conns
	n.conns = nil
	return out
}

// half is one direction.
type half struct {
	mu             sync.Mutex
	cond           *sync.Cond
	buf            []byte
	writerGone     bool
	readerGone     bool
	hole           bool
	readBy, sendBy deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

type conn struct{ in, out *half }

func newPipe() (*conn, *conn) {
	a, b := &half{}, &half{}
	a.cond, b.cond = sync.NewCond(&a.mu), sync.NewCond(&b.mu)
	return &conn{a, b}, &conn{b, a}
}

func (d deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (c *conn) Read(p []byte) (int, error) {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.buf) == 0 {
		switch {
		case h.readerGone:
			return 0, net.ErrClosed
		case h.writerGone:
			return 0, io.EOF
		case h.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		}
		h.cond.Wait()
	}
	n := copy(p, h.buf)
	h.buf = h.buf[n:]
	h.cond.Broadcast()
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	done := 0
	for done < len(p) {
		switch {
		case h.hole:
			return len(p), nil
		case h.writerGone:
			return done, net.ErrClosed
		case h.readerGone:
			return done, io.ErrClosedPipe
		case h.sendBy.passed():
			return done, os.ErrDeadlineExceeded
		}
		if free := pipeBuffer - len(h.buf); free > 0 {
			n := min(free, len(p)-done)
			h.buf = append(h.buf, p[done:done+n]...)
			done += n
			h.cond.Broadcast()
			continue
		}
		h.cond.Wait()
	}
	return done, nil
}

// Close implements net.Conn. The other end of a half-open connection does not
// learn of it.
func (c *conn) Close() error {
	c.out.mu.Lock()
	if !c.out.hole {
		c.out.writerGone = true
	}
	c.out.cond.Broadcast()
	c.out.mu.Unlock()
	c.in.mu.Lock()
	c.in.readerGone = true
	c.in.cond.Broadcast()
	c.in.mu.Unlock()
	return nil
}

func (h *half) arm(d *deadline, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
	}
	// One that has passed needs no timer, and net/http sets many: in a bubble of
	// testing/synctest Go 1.26 runs a timer that is due on the goroutine that makes it,
	// and where two do so at once its race detector breaks down.
	if left := time.Until(t); !t.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, func() {
			h.mu.Lock()
			h.cond.Broadcast()
			h.mu.Unlock()
		})
	}
	h.cond.Broadcast()
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { c.in.arm(&c.in.readBy, t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.arm(&c.out.sendBy, t); return nil }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "memory" }
