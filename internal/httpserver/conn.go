package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection of a server, below TLS where there is TLS. Whoever has
// taken a request's connection over can take its socket too, and keep only TLS.
type Conn struct {
	net.Conn
	diverted atomic.Pointer[func([]byte) (int, error)]
}

// Divert sends to write what is written from here on, as TLS does, and returns
// the connection that it went to before, which is now the caller's.
func (c *Conn) Divert(write func([]byte) (int, error)) net.Conn {
	old := c.Conn
	c.diverted.Store(&write)
	c.Conn = gone{}
	return old
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if write := c.diverted.Load(); write != nil {
		return (*write)(b)
	}
	return c.Conn.Write(b)
}

// CloseWrite is for net/http, which ends so what the other side did not read.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, fmt.Errorf("socket of %T: %w", c.Conn, errors.ErrUnsupported)
}

// gone is what is left of a connection whose socket was taken.
type gone struct{}

func (gone) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (gone) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (gone) Close() error                     { return nil }
func (gone) LocalAddr() net.Addr              { return nil }
func (gone) RemoteAddr() net.Addr             { return nil }
func (gone) SetDeadline(time.Time) error      { return nil }
func (gone) SetReadDeadline(time.Time) error  { return nil }
func (gone) SetWriteDeadline(time.Time) error { return nil }

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// ConnOf returns the connection that a request came by, or nil.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if own, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, own)
	}
	return ctx
}

// listener makes connections of this kind.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c}, nil
}
