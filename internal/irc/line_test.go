package irc

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]line{
		"PING :a b":                            {command: "PING", params: []string{"a b"}},
		"ping":                                 {command: "PING"},
		":irc.test 001 ossi :Welcome":          {source: "irc.test", command: "001", params: []string{"ossi", "Welcome"}},
		"@time=x;a\\s=b :n!u@h PRIVMSG #a ::)": {source: "n!u@h", command: "PRIVMSG", params: []string{"#a", ":)"}},
		":n!u@h  JOIN  #a ":                    {source: "n!u@h", command: "JOIN", params: []string{"#a"}},
		":n PRIVMSG #a :":                      {source: "n", command: "PRIVMSG", params: []string{"#a", ""}},
		":n MODE 1 2 3 4 5 6 7 8 9 10 11 12 13 14 :15 16": {source: "n", command: "MODE", params: []string{
			"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15 16",
		}},
	} {
		got, err := parseLine(s)
		if err != nil || got.source != want.source || got.command != want.command || !slices.Equal(got.params, want.params) {
			t.Errorf("%q: got %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", " ", ":", ":n", ": PING", ":n ", "@a", "@ PING", "@a=b ", "12 a", "1234", "PI1NG", "P\x00NG", "PING\rQUIT", "PING\nQUIT", "PRIV-MSG a", "é",
		"PING " + strings.Repeat("a ", 16), "PING :" + strings.Repeat("a", 505), "@" + strings.Repeat("a", 8190) + " PING",
	} {
		if got, err := parseLine(s); !errors.Is(err, errMalformed) && !errors.Is(err, errTooLong) {
			t.Errorf("%.40q: got %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"PING :" + strings.Repeat("a", 504), "@" + strings.Repeat("a", 8189) + " PING"} {
		if _, err := parseLine(s); err != nil {
			t.Errorf("%.40q: %v", s, err)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add("@a=b :n!u@h PRIVMSG #a :text with  spaces")
	f.Add(":irc.test 005 ossi CASEMAPPING=ascii :are supported")
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parseLine(s)
		if err != nil {
			return
		}
		if len(l.params) > maxParam || !isCommand(l.command) || l.command != strings.ToUpper(l.command) {
			t.Fatalf("%q became %+v", s, l)
		}
		for i, p := range l.params {
			if strings.ContainsAny(p, "\x00\r\n") || (i < len(l.params)-1 && (p == "" || p[0] == ':' || strings.Contains(p, " "))) {
				t.Fatalf("%q became %+v", s, l)
			}
		}
		l.source = ""
		wire, err := l.format()
		if err != nil {
			return // another spelling of it may be a byte too long
		}
		again, err := parseLine(strings.TrimSuffix(wire, "\r\n"))
		if err != nil || again.command != l.command || !slices.Equal(again.params, l.params) {
			t.Fatalf("%q became %q became %+v, %v", s, wire, again, err)
		}
	})
}

// Nothing that is more than one line, or that would be read otherwise than it
// was meant, gets out.
func TestFormatRefuses(t *testing.T) {
	t.Parallel()
	for _, l := range []line{
		{command: "PRIVMSG", params: []string{"#a", "x\r\nQUIT"}},
		{command: "PRIVMSG", params: []string{"#a", "x\nQUIT"}},
		{command: "PRIVMSG", params: []string{"#a b", "x"}},
		{command: "PRIVMSG", params: []string{"", "x"}},
		{command: "PRIVMSG", params: []string{":a", "x"}},
		{command: "NICK x", params: nil},
		{command: ""},
		{command: "NICK", params: []string{"a\x00"}},
		{source: "n", command: "NICK"},
		{command: "PRIVMSG", params: []string{"#a", strings.Repeat("x", 510)}},
	} {
		if s, err := l.format(); !errors.Is(err, errUnsafe) {
			t.Errorf("%+v became %q, %v", l, s, err)
		}
	}
}

func lines(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lr := &lineReader{r: r}
		for {
			s, err := lr.next()
			if !yield(s, err) || (err != nil && !errors.Is(err, errTooLong) && !errors.Is(err, iotest.ErrTimeout)) {
				return
			}
		}
	}
}

func collect(r io.Reader) (found []string, long int, err error) {
	for s, e := range lines(r) {
		switch {
		case e == nil:
			found = append(found, s)
		case errors.Is(e, errTooLong):
			long++
		case !errors.Is(e, iotest.ErrTimeout):
			err = e
		}
	}
	return found, long, err
}

// Lines are the same however the stream is cut, and after a deadline in the
// middle; one that is too long is skipped, and no other.
func TestLineReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxTags+maxLine)
	stream := "one\r\ntwo\n\r\n" + long + "y\r\nthree\r\n" + strings.Repeat("z", 8000) + "\r\n" + strings.Repeat("w", 8000) + "\nlast\r\nhalf"
	want := []string{"one", "two", "", "three", strings.Repeat("z", 8000), strings.Repeat("w", 8000), "last"}
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "bytes": iotest.OneByteReader(strings.NewReader(stream)), "halves": iotest.HalfReader(strings.NewReader(stream)),
		"with the error": iotest.DataErrReader(strings.NewReader(stream)), "deadline": iotest.TimeoutReader(strings.NewReader(stream)),
		"deadline within": iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(stream))),
	} {
		got, skipped, err := collect(r)
		if !slices.Equal(got, want) || skipped != 1 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d lines, %d too long, %v", name, len(got), skipped, err)
		}
	}
	if _, err := (&lineReader{r: &stalled{}}).next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that reads nothing: %v", err)
	}
}

type stalled struct{}

func (*stalled) Read([]byte) (int, error) { return 0, nil }

func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\r\nb\nc"), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole, long, err := collect(bytes.NewReader(stream))
		cut, long2, err2 := collect(&chunks{stream, int(size)%7 + 1})
		if !slices.Equal(whole, cut) || long != long2 || !errors.Is(err2, err) {
			t.Errorf("%q, %d, %v and %q, %d, %v", whole, long, err, cut, long2, err2)
		}
	})
}

type chunks struct {
	rest []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(c.size, len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}
