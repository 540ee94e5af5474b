package listen

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Handler returns a handler that serves subscriptions/listen from the hub and
// passes every other request to next untouched. It belongs behind whatever
// checks the caller: its Authorize sees the request's context.
//
// A listen is a POST with the header Mcp-Method: subscriptions/listen. Requests
// that lie about their method in the header are for next to refuse; [Hub.Attach]
// sees to it that the SDK's own listen never answers one.
//
// On HTTP/1.1 the hub takes the connection over from net/http, so that an open
// listen costs neither a handler's goroutine nor its buffers. On HTTP/2, and
// where the ResponseWriter does not allow that, it writes through the
// ResponseWriter, whatever the server's ReadTimeout and WriteTimeout. There a
// peer that does not take what is written can be cut off only if the
// ResponseWriter supports deadlines, as those of net/http do.
func (h *Hub) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get(headerMethod) != methodListen {
			next.ServeHTTP(w, r)
			return
		}
		req, id, f := h.readListen(w, r)
		if f != nil {
			writeFault(w, id, f)
			return
		}
		h.serveListen(w, r, req)
	})
}

// readListen reads and checks a request. The id is set as soon as it is known.
func (h *Hub) readListen(w http.ResponseWriter, r *http.Request) (req *request, id string, f *fault) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != mimeJSON {
		return nil, "", faultContentType()
	}
	if !accepts(r.Header.Values("Accept"), mimeJSON) || !accepts(r.Header.Values("Accept"), mimeEventStream) {
		return nil, "", faultAccept()
	}
	body, f := h.readBody(w, r)
	if f != nil {
		return nil, "", f
	}
	e, f := parseEnvelope(body)
	if e != nil {
		id = string(e.ID)
	}
	if f != nil {
		return nil, id, f
	}
	if e.Method != methodListen {
		return nil, id, faultHeaderMismatch(headerMethod, methodListen, e.Method)
	}
	version := r.Header.Get(headerProtocolVersion)
	if version == "" {
		return nil, id, faultHeaderMissing(headerProtocolVersion)
	}
	p, f := parseListen(e.Params)
	if f != nil {
		return nil, id, f
	}
	if p.Meta.ProtocolVersion == "" {
		return nil, id, faultMeta(metaProtocolVersion)
	}
	if version != p.Meta.ProtocolVersion {
		return nil, id, faultHeaderMismatch(headerProtocolVersion, version, p.Meta.ProtocolVersion)
	}
	if f := p.check(h.opts.MaxURIs); f != nil {
		return nil, id, f
	}
	return &request{id: id, asked: *p.Notifications}, id, nil
}

func (h *Hub) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *fault) {
	rc := http.NewResponseController(w) // where deadlines are not supported there are none
	_ = rc.SetReadDeadline(time.Now().Add(h.opts.OpenTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	_ = rc.SetReadDeadline(time.Time{}) // net/http clears it itself on HTTP/1.1
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, faultBodyTooLarge(tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close") // or net/http waits for the rest
		return nil, faultSlowBody()
	case err != nil:
		return nil, faultUnread(err)
	}
	return body, nil
}

// accepts reports whether an Accept header names the media type, or a range that
// holds it.
func accepts(values []string, want string) bool {
	major, _, _ := strings.Cut(want, "/")
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			t, _, _ := strings.Cut(part, ";")
			t = strings.ToLower(strings.TrimSpace(t))
			if t == want || t == "*/*" || t == major+"/*" {
				return true
			}
		}
	}
	return false
}

func writeFault(w http.ResponseWriter, id string, f *fault) {
	w.Header().Set("Content-Type", mimeJSON)
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(appendError(nil, id, &f.wireError))
}

// serveListen opens the listen and, where the connection can be taken over,
// returns while it is open.
func (h *Hub) serveListen(w http.ResponseWriter, r *http.Request, req *request) {
	l := &listener{hub: h, id: req.id, sink: noSink{}}
	if f := h.admit(l); f != nil {
		writeFault(w, req.id, f)
		return
	}
	honoured, refused := h.subscribe(r.Context(), l, req.asked)
	if r.Context().Err() != nil {
		l.abandon()
		return
	}
	if gone, ending := l.state(); gone || ending {
		l.abandon()
		writeFault(w, req.id, faultShuttingDown())
		return
	}
	ack := appendAcknowledgement([]byte(eventStart), l.id, &honoured, refused)
	ack = append(ack, eventEnd...)
	if conn := takeOver(w, r); conn != nil {
		h.serveConn(l, conn, w.Header(), ack)
		return
	}
	if !canFlush(w) {
		l.abandon()
		h.opts.Logger.Error("response writer cannot stream")
		writeFault(w, req.id, faultNoStream())
		return
	}
	h.serveWriter(l, w, r, ack)
}

// begin makes the listen live after its acknowledgement was written.
func (h *Hub) begin(l *listener) {
	h.opts.Logger.Debug("listen opened", idAttr(l.id))
	l.activate(&h.beats)
}

// setStreamHeader sets the header fields of an event stream.
func setStreamHeader(header http.Header) {
	header.Set("Content-Type", mimeEventStream)
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no") // nginx and its kin hold streams back otherwise
}

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

// writerSink is a stream behind a ResponseWriter.
type writerSink struct {
	hub  *Hub
	w    http.ResponseWriter
	rc   *http.ResponseController
	done chan struct{} // closed by close

	mu sync.Mutex // one write at a time, and none after the handler has returned
}

var _ blockingSink = (*writerSink)(nil)

// serveWriter streams until the listen ends or the peer goes.
func (h *Hub) serveWriter(l *listener, w http.ResponseWriter, r *http.Request, ack []byte) {
	s := &writerSink{hub: h, w: w, rc: http.NewResponseController(w), done: make(chan struct{})}
	if !l.attach(s) {
		l.abandon()
		return
	}
	setStreamHeader(w.Header())
	if err := s.writeBy(ack); err != nil {
		l.abandon()
		return
	}
	h.begin(l)
	select {
	case <-r.Context().Done():
		l.leave()
	case <-s.done:
	}
	s.mu.Lock() // a write under way ends within the write timeout
	defer s.mu.Unlock()
	s.w = nil
}

func (s *writerSink) schedule(l *listener) {
	s.hub.spawn(func() { l.drain(s) })
}

func (s *writerSink) write(l *listener, r *round) error {
	return s.writeBy(appendRound(nil, l.id, r))
}

func (s *writerSink) writeBy(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return net.ErrClosed
	}
	deadline := time.Now().Add(s.hub.opts.WriteTimeout)
	_ = s.rc.SetWriteDeadline(deadline)
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	if err != nil && !time.Now().Before(deadline) { // HTTP/2 has other words for it
		return fmt.Errorf("%w: %w", errStuck, err)
	}
	// On HTTP/2 a deadline that passes between two writes resets the stream.
	_ = s.rc.SetWriteDeadline(time.Time{})
	return err
}

func (s *writerSink) close(*listener) { close(s.done) }

// canFlush reports whether a ResponseWriter passes on what it gets, by the same
// search that [http.ResponseController] does. Asking for a flush would send the
// status line.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// noSink stands in until the way to the peer is known.
type noSink struct{}

func (noSink) schedule(*listener) {}
func (noSink) close(*listener)    {}
