package listen

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxDepth is the nesting that the SDK's decoder takes; beyond it a message
// would end the session.
const maxDepth = 1000

// lineTransport serves listens on a stream of lines, as stdio is one, in front
// of the SDK's transport for such streams: what is the hub's never reaches the
// SDK, and neither does what the SDK cannot digest.
type lineTransport struct {
	hub    *Hub
	reader io.ReadCloser
	writer io.WriteCloser
	limit  int // bytes of a line: 0 is the SDK's default, negative none
}

// Connect implements [mcp.Transport].
func (t *lineTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	limit := t.limit
	if limit == 0 {
		limit = mcp.DefaultMaxLineLength
	}
	w := &lineWriter{dst: t.writer, src: t.reader}
	w.pipe = newDuplex(t.hub, w)
	r := &lineReader{pipe: w.pipe, src: t.reader, buf: bufio.NewReader(t.reader), limit: limit}
	r.listen = func(id, params jsontext.Value) { r.pipe.listen(ctx, id, params) }
	return (&mcp.IOTransport{Reader: r, Writer: lineSide{w}, MaxLineLength: -1}).Connect(ctx)
}

// keepOpen is a writer that the end of a session does not close.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// lineReader is what the SDK reads from: the lines that are its own.
type lineReader struct {
	pipe   *duplex
	src    io.Closer
	buf    *bufio.Reader
	limit  int
	listen func(id, params jsontext.Value)

	rest []byte // of the line that the SDK is reading
	line []byte // memory for lines

	closed atomic.Bool // by us: not the peer has gone
}

// keptLine is the memory that is kept from one line to the next.
const keptLine = 64 << 10

var errLineTooLong = errors.New("listen: line is too long")

// Read implements [io.Reader]. It never returns bytes of two lines at once, so
// that the SDK reads no further than it answers.
func (r *lineReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		line, err := r.readLine()
		switch {
		case errors.Is(err, errLineTooLong):
			r.refuse("", faultLine(r.limit))
			continue
		case err != nil:
			if !r.closed.Load() {
				r.pipe.hangUp()
			}
			return 0, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && r.sift(line) {
			r.rest = append(line, '\n')
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements [io.Closer]. The SDK closes what it writes to next, and that
// ends the listens politely.
func (r *lineReader) Close() error {
	r.closed.Store(true)
	return r.src.Close()
}

// readLine returns the next line, or errLineTooLong after having skipped it. The
// line is valid until the next call.
func (r *lineReader) readLine() ([]byte, error) {
	if cap(r.line) > keptLine {
		r.line = nil
	}
	r.line = r.line[:0]
	tooLong := false
	for {
		part, err := r.buf.ReadSlice('\n')
		if tooLong = tooLong || r.limit > 0 && len(r.line)+len(part) > r.limit+1; !tooLong {
			r.line = append(r.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case tooLong && err == nil:
			return nil, errLineTooLong
		case err != nil && (len(r.line) == 0 || tooLong || !errors.Is(err, io.EOF)):
			return nil, err
		}
		return r.line, nil // also a last line without its end
	}
}

// sift serves a line that is the hub's, refuses one that is nobody's, and
// reports whether it is the SDK's.
func (r *lineReader) sift(line []byte) bool {
	if depth(line) > maxDepth {
		r.refuse("", faultDepth())
		return false
	}
	if line[0] == '[' {
		return r.siftBatch(line)
	}
	var e envelope
	if err := json.Unmarshal(line, &e); err != nil {
		r.refuse("", faultParse(err))
		return false
	}
	isCall := e.Method != "" && len(e.ID) > 0
	switch {
	case e.Method == "" && len(e.Result) == 0 && e.Error == nil:
		r.refuse("", faultNoMessage())
	case e.Method == "" && !validID(e.ID):
		// An answer to nothing. Answers are not answered.
	case isCall && !validID(e.ID):
		r.refuse("", faultID())
	case e.JSONRPC != "2.0":
		r.refuse(string(e.ID), faultVersionTag())
	case isCall && e.Method == methodListen:
		r.listen(e.ID, e.Params)
	case e.Method == notificationCancelled && !isCall && r.pipe.cancel(cancelledID(e.Params)):
	default:
		return true
	}
	return false
}

// siftBatch passes a batch on to the SDK, which serves the revision that has
// batches; a listen has no place in one.
func (r *lineReader) siftBatch(line []byte) bool {
	var batch []envelope
	if err := json.Unmarshal(line, &batch); err != nil {
		r.refuse("", faultParse(err))
		return false
	}
	ok := len(batch) > 0
	for _, e := range batch {
		ok = ok && e.JSONRPC == "2.0" && (len(e.ID) == 0 || validID(e.ID)) && (e.Method != "" || len(e.ID) > 0)
	}
	if !ok {
		r.refuse("", faultBadBatch())
	}
	return ok
}

func (r *lineReader) refuse(id string, f *fault) {
	_ = r.pipe.exclusive(func() error { return r.pipe.out.respond(id, nil, &f.wireError) })
}

// depth returns the deepest nesting of a text that may be JSON.
func depth(text []byte) int {
	var now, deepest int
	inString, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// lineWriter writes the hub's frames as lines.
type lineWriter struct {
	pipe *duplex
	dst  io.WriteCloser
	src  io.Closer
}

func (w *lineWriter) notify(method string, params []byte) error {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`), method...)
	b = append(append(b, `","params":`...), params...)
	return w.writeLine(append(b, '}'))
}

func (w *lineWriter) respond(id string, result []byte, e *wireError) error {
	if e != nil {
		return w.writeLine(appendError(nil, id, e))
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(append(b, `,"result":`...), result...)
	return w.writeLine(append(b, '}'))
}

func (w *lineWriter) writeLine(b []byte) error {
	_, err := w.write(append(b, '\n'))
	return err
}

// writePart is how much is written at a time, so that progress shows.
const writePart = 32 << 10

func (w *lineWriter) write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		var n int
		n, err = w.dst.Write(b[written:min(len(b), written+writePart)])
		written += n
		w.pipe.progress()
	}
	return written, err
}

func (w *lineWriter) abort() {
	_ = w.src.Close()
	_ = w.dst.Close()
}

// lineSide is what the SDK writes to, a message at a time.
type lineSide struct{ w *lineWriter }

// Write implements [io.Writer].
func (s lineSide) Write(b []byte) (int, error) {
	s.w.pipe.writing <- struct{}{} // everybody who holds it is bounded
	defer func() { <-s.w.pipe.writing }()
	return s.w.write(b)
}

// Close implements [io.Closer].
func (s lineSide) Close() error {
	s.w.pipe.finish()
	return s.w.dst.Close()
}
