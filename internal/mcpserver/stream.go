package mcpserver

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// streamWriter stands between the SDK and the response. It gives every write a
// deadline, keeps event streams alive with comment lines, tells proxies not to
// hold them back, and puts errors right: plain text becomes JSON-RPC, and codes
// that no revision has become those that it has.
type streamWriter struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	id        jsontext.Value // of the request, if it has one
	keepAlive time.Duration
	// header is what the SDK sets. It is not that of w: a comment line may
	// begin the response while the SDK is about to change the header.
	header http.Header
	// patient says that the answer is an event stream, so that comment lines
	// may begin it: of a call other than initialize, whose answer needs a
	// header of its own.
	patient bool
	onBegin func(http.Header) // sees the SDK's header before it is written; may be nil

	mu       sync.Mutex
	status   int          // of the response, once it is written
	events   bool         // the response is an event stream
	late     bool         // the SDK has begun an error after the stream had begun
	plain    bytes.Buffer // a plain text error, to be written as JSON-RPC
	isPlain  bool
	timer    *time.Timer
	finished bool
}

const eventStream = "text/event-stream"

func newStreamWriter(w http.ResponseWriter, f *frame, keepAlive time.Duration) *streamWriter {
	s := &streamWriter{w: w, rc: http.NewResponseController(w), keepAlive: keepAlive, header: http.Header{}}
	if f != nil {
		s.id, s.patient = f.ID, f.isCall() && f.method() != methodInitialize
	}
	if keepAlive > 0 {
		s.mu.Lock() // for remind, which may be first
		defer s.mu.Unlock()
		s.timer = time.AfterFunc(keepAlive, s.remind)
	}
	return s
}

// Unwrap is for http.ResponseController.
func (s *streamWriter) Unwrap() http.ResponseWriter { return s.w }

// Header implements http.ResponseWriter.
func (s *streamWriter) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *streamWriter) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(status)
}

// begin writes the head of the response, unless it has been. The SDK calls it,
// by a write, and does not touch its header meanwhile. mu is held.
func (s *streamWriter) begin(status int) {
	contentType := s.header.Get("Content-Type")
	switch {
	case s.status != 0:
		// A comment line has begun the stream, and now the SDK answers with an
		// error that wants a status of its own: it has to be an event.
		s.late = s.events && status >= http.StatusBadRequest
		return
	case status >= http.StatusBadRequest && strings.HasPrefix(contentType, "text/plain"):
		s.status, s.isPlain = status, true
		return
	}
	if s.onBegin != nil {
		s.onBegin(s.header)
	}
	maps.Copy(s.w.Header(), s.header)
	s.writeHead(status, contentType == eventStream)
}

func (s *streamWriter) writeHead(status int, events bool) {
	s.status, s.events = status, events
	if events {
		s.w.Header().Set("X-Accel-Buffering", "no") // nginx and its kin hold streams back otherwise
	}
	s.arm()
	s.w.WriteHeader(status)
	s.disarm()
}

// Write implements http.ResponseWriter. The SDK writes whole events.
func (s *streamWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == 0 {
		s.begin(http.StatusOK)
	}
	if s.isPlain {
		const most = 4 << 10
		s.plain.Write(b[:min(len(b), max(0, most-s.plain.Len()))])
		return len(b), nil
	}
	out := repairFrame(b)
	if s.late {
		out = append(append([]byte("event: message\ndata: "), out...), "\n\n"...)
	}
	if s.timer != nil && !s.finished {
		s.timer.Reset(s.keepAlive)
	}
	s.arm()
	defer s.disarm()
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// FlushError is for http.ResponseController.
func (s *streamWriter) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isPlain {
		return nil
	}
	return s.flush()
}

func (s *streamWriter) flush() error {
	s.arm()
	defer s.disarm()
	return s.rc.Flush()
}

// arm gives the next write a deadline; where that is not supported there is
// none. disarm takes it away: on HTTP/2 a deadline that passes between two
// writes resets the stream.
func (s *streamWriter) arm()    { _ = s.rc.SetWriteDeadline(time.Now().Add(DefaultWriteTime)) }
func (s *streamWriter) disarm() { _ = s.rc.SetWriteDeadline(time.Time{}) }

// remind writes a comment line. Its error is for the next write to find.
func (s *streamWriter) remind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return
	}
	s.timer.Reset(s.keepAlive)
	if s.status == 0 && s.patient {
		s.w.Header().Set("Content-Type", eventStream)
		s.w.Header().Set("Cache-Control", "no-cache, no-transform")
		s.writeHead(http.StatusOK, true)
	}
	if !s.events {
		return
	}
	s.arm()
	_, err := s.w.Write([]byte(": keep-alive\n\n"))
	s.disarm()
	if err == nil {
		_ = s.flush()
	}
}

// finish ends the response. Nothing writes to it afterwards.
func (s *streamWriter) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if !s.isPlain {
		return
	}
	code := int64(codeInvalidRequest)
	text := strings.TrimSpace(s.plain.String())
	switch {
	case s.status >= http.StatusInternalServerError:
		code = codeInternal
	case s.status == http.StatusNotFound:
		text += ": send initialize again, without " + headerSession
	case s.id != nil && strings.HasPrefix(text, "JSON RPC not handled"):
		// Of legacy revisions; an answer as any other.
		s.status, code, text = http.StatusOK, codeMethodNotFound, "method"+strings.TrimPrefix(text, "JSON RPC not handled:")
	}
	s.arm()
	defer s.disarm()
	writeError(s.w, s.status, s.id, newError(code, text, nil))
}

// repairFrame puts the code of an error right in a frame, which is an event or
// the whole body.
func repairFrame(b []byte) []byte {
	if !bytes.Contains(b, []byte(`"error":{"code":`)) {
		return b
	}
	head, data, tail := []byte(nil), b, []byte(nil)
	if i := bytes.Index(b, []byte("data: ")); i >= 0 && b[0] != '{' {
		i += len("data: ")
		head, data = b[:i], b[i:]
		if j := bytes.IndexByte(data, '\n'); j >= 0 {
			data, tail = data[:j], data[j:]
		}
	}
	var f struct {
		frame
		Error *struct {
			Code    int64          `json:"code"`
			Message string         `json:"message"`
			Data    jsontext.Value `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &f) != nil || f.Error == nil {
		return b
	}
	was := &jsonrpc.Error{Code: f.Error.Code, Message: f.Error.Message, Data: []byte(f.Error.Data)}
	now := repair(was, was.Message)
	if now.Code == was.Code {
		return b
	}
	out := append([]byte(nil), head...)
	return append(appendErrorFrame(out, f.ID, now), tail...)
}
