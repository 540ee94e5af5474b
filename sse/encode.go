package sse

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FieldError says that a value cannot be sent in a field: it would end the line
// or, with a NUL in an id, be ignored by the receiver.
type FieldError struct {
	Field, Value string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("encode event: field %s cannot carry %q", e.Field, e.Value)
}

// Append appends the frame of e to dst. Every line of the data gets its own data
// line, whichever of CR, LF and CRLF ends it; the receiver sees LF. Nil data
// makes a frame that moves the last id, or sets the time to reconnect, without
// an event. An empty ID leaves the last one in force. Errors: *FieldError, with
// dst as it was.
func Append(dst []byte, e Event) ([]byte, error) {
	if strings.ContainsAny(e.ID, "\r\n\x00") {
		return dst, &FieldError{"id", e.ID}
	}
	if strings.ContainsAny(e.Type, "\r\n") {
		return dst, &FieldError{"event", e.Type}
	}
	if strings.Trim(e.Retry, "0123456789") != "" {
		return dst, &FieldError{"retry", e.Retry}
	}
	dst = appendField(dst, "id", e.ID)
	if e.Type != "message" && e.Data != nil {
		dst = appendField(dst, "event", e.Type)
	}
	dst = appendField(dst, "retry", e.Retry)
	if e.Data != nil {
		dst = appendData(dst, e.Data)
	}
	return append(dst, '\n'), nil
}

// AppendComment appends a comment, which receivers ignore: a sign of life. Line
// ends in the text begin further comments.
func AppendComment(dst []byte, text string) []byte {
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n") {
		dst = append(append(append(dst, ": "...), line...), '\n')
	}
	return append(dst, '\n')
}

// AppendRetry appends the time after which clients shall reconnect.
func AppendRetry(dst []byte, d time.Duration) []byte {
	return append(appendField(dst, "retry", strconv.FormatInt(max(d, 0).Milliseconds(), 10)), '\n')
}

func appendField(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), '\n')
}

func appendData(dst, data []byte) []byte {
	for {
		dst = append(dst, "data: "...)
		end := lineEnd(data)
		if end < 0 {
			return append(append(dst, data...), '\n')
		}
		dst = append(append(dst, data[:end]...), '\n')
		rest := data[end+1:]
		if data[end] == '\r' {
			rest = bytes.TrimPrefix(rest, []byte("\n"))
		}
		data = rest
	}
}
