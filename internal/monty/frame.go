package monty

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// headerSize is the length before each frame: u32, little endian.
	headerSize = 4
	// maxSkip is the largest frame that is read past when it is larger than
	// wanted. What claims to be larger is no frame.
	maxSkip = 1 << 30
	// keepBuffer is the largest read buffer that is kept between frames.
	keepBuffer = 256 << 10
	// readStep is how much a frame's buffer grows ahead of the bytes that came:
	// a length that lies costs no memory.
	readStep = 1 << 20
)

var errDesync = errors.New("interpreter sent a frame of no sensible size")

// oversizeError says that a frame was read past because it is larger than the
// reader wanted.
type oversizeError struct {
	kind int32
	size int
}

func (e *oversizeError) Error() string { return fmt.Sprintf("frame of %d bytes", e.size) }

// frameReader reads the child's frames. It assumes nothing about them.
type frameReader struct {
	r   *bufio.Reader
	buf []byte
}

// next returns the next event that is not a print; printed text goes to out,
// which may be nil. The event's body is valid until the next call. A frame
// larger than limit is read past and returned as an *oversizeError.
func (fr *frameReader) next(limit int, out *output) (event, error) {
	for {
		size, first, err := fr.header()
		if err != nil {
			return event{}, err
		}
		if first == protowire.EncodeTag(evPrint, protowire.BytesType) {
			if err := fr.print(size, out); err != nil {
				return event{}, err
			}
			continue
		}
		if size > limit {
			num, _ := protowire.DecodeTag(first)
			if _, err := fr.r.Discard(size); err != nil {
				return event{}, err
			}
			return event{}, &oversizeError{kind: int32(num), size: size}
		}
		if err := fr.read(size); err != nil {
			return event{}, err
		}
		return decodeEvent(fr.buf)
	}
}

// header reads a length and looks at the first byte after it, which is the
// whole tag of every kind of event.
func (fr *frameReader) header() (size int, first uint64, err error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(fr.r, h[:]); err != nil {
		return 0, 0, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n == 0 || n > maxSkip {
		return 0, 0, errDesync
	}
	b, err := fr.r.Peek(1)
	if err != nil {
		return 0, 0, err
	}
	return int(n), uint64(b[0]), nil
}

// read fills buf with size bytes.
func (fr *frameReader) read(size int) error {
	if cap(fr.buf) > keepBuffer {
		fr.buf = nil
	}
	fr.buf = fr.buf[:0]
	for len(fr.buf) < size {
		step := min(size-len(fr.buf), readStep)
		have := len(fr.buf)
		if cap(fr.buf) < have+step {
			fr.buf = append(make([]byte, 0, min(size, max(2*cap(fr.buf), have+step))), fr.buf...)
		}
		fr.buf = fr.buf[:have+step]
		if _, err := io.ReadFull(fr.r, fr.buf[have:]); err != nil {
			return err
		}
	}
	return nil
}

// print reads a print event. Only its beginning is kept when it is larger than
// what out still takes, and the rest is read past, so that the child can go on.
func (fr *frameReader) print(size int, out *output) error {
	keep := min(size, out.room()+printOverhead)
	if err := fr.read(keep); err != nil {
		return err
	}
	if _, err := fr.r.Discard(size - keep); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	out.add(printedText(fr.buf)) // which sets cut when there was more
	return nil
}

// printOverhead is more than a print event has besides its text.
const printOverhead = 64

// printedText finds the text in a print event that may be cut off at the end:
// Print{stream=1,text=2} within ChildEvent.print=1, each length possibly beyond
// the end of what we have.
func printedText(b []byte) []byte {
	for b = enter(b); len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			break
		}
		if num == 2 && typ == protowire.BytesType {
			return enter(b)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			break
		}
		b = b[n+m:]
	}
	return nil
}

// enter returns the content of the length-delimited field that b begins with,
// as far as it is there.
func enter(b []byte) []byte {
	_, _, n := protowire.ConsumeTag(b)
	if n < 0 {
		return nil
	}
	size, m := protowire.ConsumeVarint(b[n:])
	if m < 0 {
		return nil
	}
	b = b[n+m:]
	return b[:min(size, uint64(len(b)))]
}

// output collects printed text up to a limit. A nil output takes nothing.
type output struct {
	limit int
	buf   []byte
	cut   bool
}

func (o *output) room() int {
	if o == nil {
		return 0
	}
	return max(0, o.limit-len(o.buf))
}

func (o *output) add(text []byte) {
	if room := o.room(); len(text) > room {
		o.cut = true
		text = text[:room]
	}
	o.buf = append(o.buf, text...)
}

// String is the text, ending with a whole rune.
func (o *output) String() string {
	b := o.buf
	if o.cut {
		for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
			if c := b[len(b)-i]; utf8.RuneStart(c) {
				if !utf8.FullRune(b[len(b)-i:]) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// appendFrame appends a request of one kind with its length.
func appendFrame(b []byte, kind protowire.Number, body []byte) []byte {
	size := protowire.SizeTag(kind) + protowire.SizeBytes(len(body))
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	return appendMessage(b, kind, body)
}
