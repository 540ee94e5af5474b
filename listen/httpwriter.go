package listen

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

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
