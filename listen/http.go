package listen

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
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

// noSink stands in until the way to the peer is known.
type noSink struct{}

func (noSink) schedule(*listener) {}
func (noSink) close(*listener)    {}
