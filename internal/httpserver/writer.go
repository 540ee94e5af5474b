package httpserver

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// boundWriter gives each write of a handler a deadline of its own. Between
// writes there is none: on HTTP/2 one that passes resets the stream. A handler
// that sets deadlines itself, or takes the connection over, is left alone.
type boundWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	limit   time.Duration
	managed atomic.Bool
	taken   atomic.Bool // the connection was taken over
	reading atomic.Bool // the handler has a deadline for what it reads
}

func newBoundWriter(w http.ResponseWriter, limit time.Duration) *boundWriter {
	b := &boundWriter{ResponseWriter: w, rc: http.NewResponseController(w), limit: limit}
	// One that was left behind on this connection by the request before.
	_ = b.rc.SetWriteDeadline(time.Time{})
	return b
}

// Unwrap is for http.ResponseController.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (b *boundWriter) WriteHeader(status int) {
	defer b.bound()()
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *boundWriter) Write(p []byte) (int, error) {
	defer b.bound()()
	return b.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (b *boundWriter) FlushError() error {
	defer b.bound()()
	return b.rc.Flush()
}

// SetWriteDeadline is for http.ResponseController. Who calls it manages the
// deadlines from here on.
func (b *boundWriter) SetWriteDeadline(deadline time.Time) error {
	b.managed.Store(true)
	return b.rc.SetWriteDeadline(deadline)
}

// SetReadDeadline is for http.ResponseController.
func (b *boundWriter) SetReadDeadline(deadline time.Time) error {
	b.reading.Store(!deadline.IsZero())
	return b.rc.SetReadDeadline(deadline)
}

// Hijack is for http.ResponseController. The connection is no longer ours.
func (b *boundWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := b.rc.Hijack()
	if err == nil {
		b.managed.Store(true)
		b.taken.Store(true)
	}
	return conn, rw, err
}

// bound sets the deadline and returns what takes it away.
func (b *boundWriter) bound() (done func()) {
	if b.managed.Load() {
		return func() {}
	}
	_ = b.rc.SetWriteDeadline(time.Now().Add(b.limit)) // where it is not supported there is none
	return func() { _ = b.rc.SetWriteDeadline(time.Time{}) }
}

// finish bounds what the server still has to write, and to read of a body that
// the handler left, when the handler is done.
func (b *boundWriter) finish() {
	if b.taken.Load() {
		return
	}
	if !b.reading.Load() {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.limit)) // the next request has its own
	}
	if !b.managed.Load() {
		_ = b.rc.SetWriteDeadline(time.Now().Add(b.limit))
	}
}
