package mcpserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
)

// lineReader reads lines of bounded length and stays in step: what is too long
// is skipped to its end, and of it are kept the two ends where its id may be.
type lineReader struct {
	buf   *bufio.Reader
	limit int
}

// Bytes of a skipped line that are kept.
const (
	keptHead = 4 << 10
	keptTail = 1 << 10
)

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{buf: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// tooLongError is a line that was skipped.
type tooLongError struct {
	head, tail []byte
	size       int
}

func (e *tooLongError) Error() string { return "line too long" }

// next returns the next line without its end, in memory of its own. Empty lines
// are left out. A last line without an end is a line. Errors: *tooLongError,
// after which next goes on with the line behind; those of the reader.
func (r *lineReader) next() ([]byte, error) {
	for {
		line, err := r.read()
		if line = bytes.TrimSpace(line); len(line) > 0 || err != nil {
			return line, err
		}
	}
}

func (r *lineReader) read() ([]byte, error) {
	var line []byte
	var long *tooLongError
	for {
		part, err := r.buf.ReadSlice('\n')
		// The line end does not count.
		if long == nil && len(line)+len(bytes.TrimRight(part, "\r\n")) > r.limit {
			long = &tooLongError{head: bytes.Clone(line[:min(len(line), keptHead)]), tail: bytes.Clone(line[max(0, len(line)-keptTail):]), size: len(line)}
			line = nil
		}
		if long != nil {
			long.add(part)
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case err != nil && (long == nil || !errors.Is(err, io.EOF)):
			return nil, err
		case long != nil:
			return nil, long
		default:
			return line, nil
		}
	}
}

func (e *tooLongError) add(part []byte) {
	e.size += len(part)
	e.head = append(e.head, part[:min(len(part), keptHead-len(e.head))]...)
	e.tail = append(e.tail, part...)
	if over := len(e.tail) - keptTail; over > 0 {
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
}

// lastMember is the id as the last member of the outermost object: exactly one
// brace follows it. (In a text that is JSON, nothing else can look like that.)
var lastMember = regexp.MustCompile(`[,{]\s*"id"\s*:\s*(-?\d{1,16}|"(?:[^"\\]|\\.){0,256}")\s*\}\s*$`)

// id finds the id of the request that was skipped, if it stands before all large
// members or behind them, as it does with every client we know.
func (e *tooLongError) id() jsontext.Value {
	if id := firstID(e.head); id != nil {
		return id
	}
	if m := lastMember.FindSubmatch(e.tail); m != nil && validID(m[1]) {
		return bytes.Clone(m[1])
	}
	return nil
}

// firstID reads members from the head until one is the id.
func firstID(head []byte) jsontext.Value {
	dec := jsontext.NewDecoder(bytes.NewReader(head))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil
	}
	for {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return nil
		}
		isID := name.String() == "id"
		value, err := dec.ReadValue()
		if err != nil {
			return nil // cut off within a large member
		}
		if isID {
			if !validID(value) {
				return nil
			}
			return bytes.Clone(value)
		}
	}
}
