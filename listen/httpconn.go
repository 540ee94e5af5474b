package listen

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// connSink is a connection of HTTP/1.1 that the hub has taken over from
// net/http, which then needs neither goroutine nor buffers for it.
type connSink struct {
	hub  *Hub
	conn net.Conn
	raw  syscall.RawConn // nil where one may not write past conn
}

var _ blockingSink = (*connSink)(nil)

func (s *connSink) schedule(l *listener) {
	if s.raw != nil {
		s.hub.writers.push(l)
		return
	}
	s.hub.spawn(func() { l.drain(s) })
}

func (s *connSink) append(buf []byte, l *listener, r *round) []byte {
	buf = append(buf, make([]byte, chunkHead)...)
	buf = sealChunk(appendRound(buf, l.id, r))
	if r.last {
		buf = append(buf, lastChunk...)
	}
	return buf
}

func (s *connSink) write(l *listener, r *round) error {
	return s.writeBy(s.append(nil, l, r))
}

// catchUp writes what a full buffer did not take, then all news until there is
// none, and so gives the listener back to the writers.
func (s *connSink) catchUp(l *listener, rest []byte, last bool) {
	if err := s.writeBy(rest); err != nil {
		l.cut(err)
		return
	}
	if last {
		l.leave()
		return
	}
	l.drain(s)
}

// writeBy writes within the write timeout.
func (s *connSink) writeBy(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.hub.opts.WriteTimeout)); err != nil {
		return err
	}
	if _, err := s.conn.Write(b); err != nil {
		return err
	}
	// An old deadline would fail the next write of the writers.
	return s.conn.SetWriteDeadline(time.Time{})
}

func (s *connSink) close(*listener) { _ = s.conn.Close() }

// takeOver returns the connection of an HTTP/1.1 request, or nil where it is not
// to be had.
func takeOver(w http.ResponseWriter, r *http.Request) net.Conn {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return nil
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	return conn
}

// sendBuffer is what the kernel may hold of a stream, in bytes. Left alone it
// grows to megabytes for a peer that does not read, and then the peer is found
// out late and holds news that are long stale.
const sendBuffer = 64 << 10

func (h *Hub) newConnSink(conn net.Conn) *connSink {
	s := &connSink{hub: h, conn: conn}
	// Only of these exact types is it known that nothing (TLS, a counter, a
	// limiter) stands between Write and the descriptor.
	var sys syscall.Conn
	switch c := conn.(type) {
	case *net.TCPConn:
		_ = c.SetWriteBuffer(sendBuffer)
		sys = c
	case *net.UnixConn:
		sys = c
	}
	if sys != nil && canWriteNow {
		s.raw, _ = sys.SyscallConn()
	}
	return s
}

// serveConn writes the head of the response and the ack itself, and leaves
// behind one small goroutine that waits for the peer to go.
func (h *Hub) serveConn(l *listener, conn net.Conn, header http.Header, ack []byte) {
	s := h.newConnSink(conn)
	if !l.attach(s) {
		s.close(l)
		l.abandon()
		return
	}
	if err := s.writeBy(append(appendHead(nil, header), sealChunk(append(make([]byte, chunkHead), ack...))...)); err != nil {
		l.abandon()
		return
	}
	h.begin(l)
	h.spawn(func() { awaitHangUp(conn); l.leave() })
}

func appendHead(dst []byte, header http.Header) []byte {
	header = header.Clone() // what middlewares have set stays
	setStreamHeader(header)
	header.Del("Content-Length")
	header.Set("Transfer-Encoding", "chunked")
	header.Set("Connection", "close")
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\n")
	_ = header.Write(&b) // a Builder takes everything
	b.WriteString("\r\n")
	return append(dst, b.String()...)
}

// maxTrailing is the number of bytes that a peer may send after its request,
// where nothing belongs.
const maxTrailing = 4 << 10

// awaitHangUp returns when the peer has closed the connection, or we have, or the
// peer sends what it should not.
func awaitHangUp(conn net.Conn) {
	var total int
	for buf := make([]byte, 64); total <= maxTrailing; {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		total += n
	}
}
