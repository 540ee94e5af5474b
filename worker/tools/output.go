package tools

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// spool keeps what a command writes, within bounds: how it began, and how it
// ends. It is safe for concurrent use.
type spool struct {
	mu    sync.Mutex
	limit int // bytes of the head, and of the tail
	head  []byte
	tail  []byte // the last bytes after the head, at most twice the limit
	total int64
}

func newSpool(limit int) *spool { return &spool{limit: limit} }

// Write implements io.Writer and does not fail.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	s.total += int64(n)
	if room := s.limit - len(s.head); room > 0 {
		k := min(room, len(p))
		s.head = append(s.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > s.limit { // nothing older is next to what is kept
		p = p[len(p)-s.limit:]
		s.tail = s.tail[:0]
	}
	s.tail = append(s.tail, p...)
	if len(s.tail) > 2*s.limit {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-s.limit:]...)
	}
	return n, nil
}

// size is how much was written, in bytes.
func (s *spool) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// text returns what is kept, and how many bytes were left out between head and
// tail.
func (s *spool) text() (head, tail string, omitted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tail
	if len(t) > s.limit {
		t = t[len(t)-s.limit:]
	}
	return string(s.head), string(t), s.total - int64(len(s.head)) - int64(len(t))
}

// after returns what was written from an offset on, at most limit bytes, and
// where that begins: later than asked if the part is not kept any more.
func (s *spool) after(offset int64, limit int) (part string, from int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offset = max(0, min(offset, s.total))
	if offset < int64(len(s.head)) {
		whole := s.total <= int64(len(s.head)+len(s.tail))
		b := s.head[offset:]
		if whole {
			b = append(append([]byte{}, b...), s.tail...)
		}
		return cutText(b, limit), offset
	}
	kept := s.total - int64(len(s.tail))
	from = max(offset, kept)
	return cutText(s.tail[from-kept:], limit), from
}

// cutText cuts at a rune.
func cutText(b []byte, limit int) string {
	if len(b) > limit {
		b = b[:limit]
	}
	for cut := 1; cut < utf8.UTFMax && cut <= len(b); cut++ {
		if c := b[len(b)-cut]; c >= utf8.RuneSelf {
			if utf8.RuneStart(c) && !utf8.FullRune(b[len(b)-cut:]) {
				b = b[:len(b)-cut]
				break
			}
			continue
		}
		break
	}
	return string(b)
}

// clean makes output text: what is not UTF-8 is replaced, the rest is as it was,
// escapes of terminals too.
func clean(s string) string { return strings.ToValidUTF8(s, "�") }
