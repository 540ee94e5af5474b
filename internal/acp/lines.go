package acp

import (
	"bufio"
	"errors"
	"io"
)

// maxLine is the longest line that is read, in bytes. Agents put whole files
// and images on one line.
const maxLine = 64 << 20

// lines reads lines of bounded length.
type lines struct {
	r   *bufio.Reader
	max int
}

func newLines(r io.Reader, limit int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), max: limit}
}

// next returns the next line without its end, in memory of its own, and its
// full length. A line over the limit is skipped: it is returned as nil. The
// last line may lack its end. At the end it returns io.EOF.
func (l *lines) next() (line []byte, size int, err error) {
	var buf []byte
	for {
		piece, err := l.r.ReadSlice('\n')
		size += len(piece)
		if size <= l.max+1 {
			buf = append(buf, piece...)
		} else {
			buf = nil
		}
		switch {
		case err == nil:
			return trimEnd(buf), size, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size > 0:
			return trimEnd(buf), size, nil
		default:
			return nil, size, err
		}
	}
}

func trimEnd(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}
