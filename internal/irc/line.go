package irc

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// line is one message of the protocol, without its tags, which we have no use
// for.
type line struct {
	source  string // "nick!user@host" or a server; empty in what we send
	command string // upper case
	params  []string
}

// param is a parameter, or empty if there are not so many.
func (l line) param(i int) string {
	if i >= 0 && i < len(l.params) {
		return l.params[i]
	}
	return ""
}

func (l line) last() string { return l.param(len(l.params) - 1) }

// nick is the name in the source.
func (l line) nick() string {
	name, _, _ := strings.Cut(l.source, "!")
	return name
}

func (l line) mine(nick string, m mapping) bool { return m.equal(l.nick(), nick) }

// parseLine reads a line without its end.
func parseLine(s string) (line, error) {
	var l line
	if strings.ContainsAny(s, "\x00\r\n") {
		return l, fmt.Errorf("%w: it has a NUL, CR or LF in it", errMalformed)
	}
	if s != "" && s[0] == '@' {
		tags, rest, found := strings.Cut(s, " ")
		if !found || len(tags) == 1 {
			return l, fmt.Errorf("%w: bad tags", errMalformed)
		}
		if len(tags)+1 > maxTags {
			return l, fmt.Errorf("%w: %d bytes of tags", errTooLong, len(tags)+1)
		}
		s = strings.TrimLeft(rest, " ")
	}
	if len(s) > maxBody {
		return l, fmt.Errorf("%w: %d bytes", errTooLong, len(s))
	}
	if s != "" && s[0] == ':' {
		source, rest, found := strings.Cut(s[1:], " ")
		if !found || source == "" {
			return l, fmt.Errorf("%w: bad source", errMalformed)
		}
		l.source, s = source, strings.TrimLeft(rest, " ")
	}
	command, rest, _ := strings.Cut(s, " ")
	if !isCommand(command) {
		return l, fmt.Errorf("%w: bad command", errMalformed)
	}
	l.command = strings.ToUpper(command)
	for rest = strings.TrimLeft(rest, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		if len(l.params) == maxParam {
			return l, fmt.Errorf("%w: too many parameters", errMalformed)
		}
		if rest[0] == ':' {
			l.params = append(l.params, rest[1:])
			break
		}
		var p string
		p, rest, _ = strings.Cut(rest, " ")
		l.params = append(l.params, p)
	}
	return l, nil
}

// isCommand reports whether s is letters, or three digits.
func isCommand(s string) bool {
	letters, digits := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			letters++
		case c >= '0' && c <= '9':
			digits++
		}
	}
	return s != "" && (letters == len(s) || (digits == 3 && len(s) == 3))
}

// format writes a line with its end. It is the one way out: what could be more
// than one line, or be understood otherwise than it is meant, is refused.
func (l line) format() (string, error) {
	var b strings.Builder
	b.WriteString(l.command)
	for i, p := range l.params {
		b.WriteByte(' ')
		if i == len(l.params)-1 && (p == "" || p[0] == ':' || strings.Contains(p, " ") || l.command == cmdPrivmsg) {
			b.WriteByte(':')
		} else if p == "" || p[0] == ':' || strings.Contains(p, " ") {
			return "", errUnsafe
		}
		b.WriteString(p)
	}
	s := b.String()
	if !isCommand(l.command) || l.source != "" || len(l.params) > maxParam || len(s) > maxBody || strings.ContainsAny(s, "\x00\r\n") {
		return "", errUnsafe
	}
	return s + "\r\n", nil
}

// lineReader cuts a stream into lines, within a fixed buffer. What it has of a
// line survives an error, for instance a deadline.
type lineReader struct {
	r          io.Reader
	buf        [maxTags + maxLine]byte
	start, end int
	skipping   bool // the rest of a line that was too long
}

// next returns the next line without its end, LF or CR LF, valid until the next
// call. A line that does not fit is skipped and reported as errTooLong.
func (r *lineReader) next() (string, error) {
	scanned := r.start
	for {
		for i := scanned; i < r.end; i++ {
			if r.buf[i] != '\n' {
				continue
			}
			s := strings.TrimSuffix(string(r.buf[r.start:i]), "\r")
			r.start = i + 1
			if r.skipping {
				r.skipping = false
				return "", errTooLong
			}
			return s, nil
		}
		switch {
		case r.skipping || r.start == r.end:
			r.start, r.end = 0, 0
		case r.end == len(r.buf) && r.start > 0:
			r.end = copy(r.buf[:], r.buf[r.start:r.end])
			r.start = 0
		case r.end == len(r.buf):
			r.skipping, r.start, r.end = true, 0, 0
		}
		scanned = r.end
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		if n == 0 && err == nil {
			err = io.ErrNoProgress
		}
		if n == 0 {
			if errors.Is(err, io.EOF) && (r.skipping || r.end > r.start) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
	}
}
