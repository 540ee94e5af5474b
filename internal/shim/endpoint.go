package shim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// maxEndpoint bounds the event of the older transport that names the endpoint, in
// bytes. What is longer is none.
const maxEndpoint = 16 << 10

// place has the client post to us, where a server of the older transport names its
// endpoint in the first event of its stream.
func (p *Proxy) place(r *http.Response) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if p.o.Prefix == "" || r.Request.Method != http.MethodGet || kind != "text/event-stream" {
		return nil
	}
	r.Body = &firstEvent{Closer: r.Body, r: bufio.NewReaderSize(r.Body, maxEndpoint), endpoint: p.here}
	return nil
}

// here is where an endpoint of the server is found here. One of another server is
// left alone.
func (p *Proxy) here(endpoint string) string {
	u, err := p.target.Parse(endpoint)
	if err != nil || u.Scheme != p.target.Scheme || u.Host != p.target.Host {
		return endpoint
	}
	u.Scheme, u.Host, u.User = "", "", nil
	return p.o.Prefix + u.String()
}

// firstEvent is a stream whose first event may name an endpoint. All else passes
// as it is.
type firstEvent struct {
	io.Closer

	r        *bufio.Reader
	endpoint func(string) string
	ahead    []byte // read, and not yet handed out
	named    bool   // the event is one of an endpoint
	done     bool
	err      error
}

// Read implements io.Reader.
func (s *firstEvent) Read(p []byte) (int, error) {
	for len(s.ahead) == 0 && !s.done {
		line, err := s.r.ReadSlice('\n')
		s.ahead, s.err = s.line(line), err
		// A line that is too long, or not whole, is handed out as it is.
		s.done = s.done || err != nil
		if errors.Is(err, bufio.ErrBufferFull) {
			s.err = nil
		}
	}
	if len(s.ahead) > 0 {
		n := copy(p, s.ahead)
		s.ahead = s.ahead[n:]
		return n, nil
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.r.Read(p)
}

// line returns a line as it goes on. What ReadSlice has returned is copied: it is
// handed out in pieces.
func (s *firstEvent) line(line []byte) []byte {
	text := bytes.TrimRight(line, "\r\n")
	end := line[len(text):]
	name, value, _ := strings.Cut(string(text), ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case len(end) == 0: // not whole
	case len(text) == 0 && s.named:
		s.done = true
	case name == "event":
		s.named = value == "endpoint"
		s.done = !s.named
	case name == "data" && s.named:
		return append([]byte("data: "+s.endpoint(value)), end...)
	case name == "data":
		s.done = true
	}
	return bytes.Clone(line)
}

// into sends a request to where the server has what is asked for here.
func (p *Proxy) into(out *http.Request) {
	rest := strings.TrimPrefix(out.URL.EscapedPath(), p.o.Prefix)
	if rest == "" {
		out.URL.Path, out.URL.RawPath, out.URL.RawQuery = p.target.Path, p.target.RawPath, p.target.RawQuery
		return
	}
	path, err := url.PathUnescape(rest)
	if err != nil {
		path = rest
	}
	out.URL.Path, out.URL.RawPath = path, rest
}
