//go:build !linux

package feedserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// boundSocket bounds what the kernel takes for a stream.
func boundSocket(conn net.Conn, _ time.Duration) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetWriteBuffer(sendBuffer)
	}
}

// direct is for Linux.
type direct struct{}

func newDirect(*Server) (*direct, error) { return nil, errors.ErrUnsupported }

func (*direct) serve(http.ResponseWriter, *http.Request, wanted) bool { return false }

func (*direct) shutdown(context.Context, time.Duration) error { return nil }

func (*direct) sweep() {}
