package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// DefaultMaxEvent is the default bound of one event, in bytes.
const DefaultMaxEvent = 16 << 20

// ErrTooLarge is returned by [Reader.Next] for an event over its limit. The
// stream cannot be read on.
var ErrTooLarge = errors.New("server-sent event over the size limit")

// Event is one server-sent event.
type Event struct {
	Type  string // "message" unless the stream named another
	ID    string // the last event id in force, as the standard defines it
	Retry string // the digits of a retry field of this event, else empty
	Data  []byte // lines joined by \n; owned by the receiver
}

// Reader reads a text/event-stream as the WHATWG standard defines it, to
// the letter: CR, LF and CRLF end a line wherever the bytes were split, a line
// without a colon is a field without a value, exactly one space is taken off a
// value, events without data are not events, and what stands after the last
// blank line at the end of the stream is dropped, because half an event must
// not look like a whole one. It is not safe for concurrent use.
type Reader struct {
	r     *bufio.Reader
	limit int

	// Comment, when set, is called for each comment line. Servers keep an idle
	// stream alive with them.
	Comment func()
	// All returns also what the standard does not dispatch for want of data: a
	// bare id or retry, which matters to who passes a stream on.
	All bool

	started  bool // the byte order mark was looked for
	skipLF   bool // the last line ended with CR: a following LF belongs to it
	line     []byte
	data     []byte
	hasData  bool
	bare     bool // an id or retry field was seen
	typ, id  string
	last     string // the id in force at the last blank line
	retry    string
	retained int // bytes of the event so far, fields without use included
}

// NewReader returns a reader of r that takes events of at most limit
// bytes; zero means [DefaultMaxEvent].
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultMaxEvent
	}
	return &Reader{r: bufio.NewReader(r), limit: limit}
}

// Next returns the next event. At the end of the stream it returns the error of
// the underlying reader, io.EOF for a clean end.
func (e *Reader) Next() (Event, error) {
	for {
		if err := e.readLine(); err != nil {
			return Event{}, err
		}
		if len(e.line) > 0 {
			e.field()
			continue
		}
		ev, ok := e.dispatch()
		if ok {
			return ev, nil
		}
	}
}

// LastID is the id to resume after: the one in force at the last blank line. An
// id of an event that was cut off does not count, and one that came without data
// does, which no event tells of.
func (e *Reader) LastID() string { return e.last }

// readLine puts the next line into e.line, without its end. An unfinished line
// at the end of the stream is no line.
func (e *Reader) readLine() error {
	e.line = e.line[:0]
	for {
		if err := e.fill(); err != nil {
			return err
		}
		chunk, _ := e.r.Peek(e.r.Buffered())
		end := lineEnd(chunk)
		n := end
		if end < 0 {
			n = len(chunk)
		}
		if e.retained += n; e.retained > e.limit {
			return fmt.Errorf("%w of %d bytes", ErrTooLarge, e.limit)
		}
		e.line = append(e.line, chunk[:n]...)
		if end < 0 {
			_, _ = e.r.Discard(n)
			continue
		}
		e.skipLF = chunk[end] == '\r'
		_, _ = e.r.Discard(end + 1)
		return nil
	}
}

// lineEnd is the index of the first CR or LF, or -1.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill makes at least one byte ready that belongs to a line. It never waits for
// the LF of a CRLF: a peer that pauses between the two has ended its line.
func (e *Reader) fill() error {
	if !e.started {
		e.started = true
		if err := e.skipBOM(); err != nil {
			return err
		}
	}
	for {
		b, err := e.r.Peek(1)
		if err != nil {
			return err
		}
		if !e.skipLF || b[0] != '\n' {
			e.skipLF = false
			return nil
		}
		e.skipLF = false
		_, _ = e.r.Discard(1)
	}
}

// skipBOM drops one leading byte order mark. It waits for a second byte only
// when the first could begin one.
func (e *Reader) skipBOM() error {
	const bom = "\xEF\xBB\xBF"
	for n := 1; n <= len(bom); n++ {
		b, err := e.r.Peek(n)
		if err != nil {
			return err
		}
		if b[n-1] != bom[n-1] {
			return nil
		}
	}
	_, _ = e.r.Discard(len(bom))
	return nil
}

func (e *Reader) field() {
	name, value, found := bytes.Cut(e.line, []byte(":"))
	if found && len(name) == 0 {
		// Comments are no part of an event and do not count against its limit.
		e.retained -= len(e.line)
		if e.Comment != nil {
			e.Comment()
		}
		return
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		e.data, e.hasData = append(append(e.data, value...), '\n'), true
	case "event":
		e.typ = text(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.id, e.bare = text(value), true
		}
	case "retry":
		if len(bytes.Trim(value, "0123456789")) == 0 {
			e.retry, e.bare = string(value), len(value) > 0
		}
	}
}

// dispatch ends the event that a blank line ends.
func (e *Reader) dispatch() (Event, bool) {
	ev := Event{Type: e.typ, ID: e.id, Retry: e.retry}
	if ev.Type == "" {
		ev.Type = "message"
	}
	ok := e.hasData || (e.All && e.bare)
	if e.hasData {
		ev.Data = e.data[:len(e.data)-1]
		if !utf8.Valid(ev.Data) {
			ev.Data = bytes.ToValidUTF8(ev.Data, []byte("\uFFFD"))
		}
	}
	e.last = e.id
	e.data, e.hasData, e.bare, e.typ, e.retry, e.retained = nil, false, false, "", "", 0
	return ev, ok
}

func text(b []byte) string {
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}
