package observe

import "bytes"

// events takes a stream of server-sent events apart as its bytes come, of which it
// keeps the beginning of each event.
type events struct {
	line   []byte
	name   string
	data   []byte
	more   bool // there was a line of data
	hasCR  bool // a CR was the last byte: an LF belongs to it
	broken bool // bytes are missing: nothing more can be read
}

// add reads bytes and calls take for each event with data.
func (s *events) add(b []byte, take func(name string, data []byte)) {
	if s.broken {
		return
	}
	for len(b) > 0 {
		if s.hasCR && b[0] == '\n' {
			b = b[1:]
		}
		s.hasCR = false
		i := bytes.IndexAny(b, "\r\n")
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if room := maxFrame - len(s.line); room > 0 {
			s.line = append(s.line, part[:min(len(part), room)]...)
		}
		if i < 0 {
			return
		}
		s.hasCR = b[i] == '\r'
		s.field(take)
		b = b[i+1:]
	}
}

func (s *events) field(take func(name string, data []byte)) {
	line := s.line
	s.line = s.line[:0]
	if len(line) == 0 {
		if len(s.data) > 0 {
			take(s.name, s.data)
		}
		s.name, s.data, s.more = "", s.data[:0], false
		if cap(s.data) > 256<<10 {
			s.data, s.line = nil, nil
		}
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		s.name = string(value)
	case "data":
		if s.more {
			s.data = append(s.data, '\n')
		}
		s.more = true
		if room := maxFrame - len(s.data); room > 0 {
			s.data = append(s.data, value[:min(len(value), room)]...)
		}
	}
}
