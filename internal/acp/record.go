package acp

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// recorder writes every line of a conversation as it was on the wire, one JSON
// object a line:
//
//	{"time":"…","dir":"sent","bytes":N,"raw":{…}}
//	{"time":"…","dir":"received","bytes":N,"raw":{…}}
//	{"time":"…","dir":"received","bytes":N,"text":"not a frame"}
//	{"time":"…","dir":"stderr","bytes":N,"text":"…"}
//
// raw is the line itself, unchanged. After an error of the writer it stops.
type recorder struct {
	mu     sync.Mutex
	w      io.Writer // nil: off
	stderr []byte    // the beginning of a line
}

// maxStderrLine bounds a recorded line of standard error; a longer one is
// recorded in pieces.
const maxStderrLine = 64 << 10

func (r *recorder) frame(dir string, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(dir, line, jsontext.Value(line).IsValid())
}

// Write records standard error.
func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil {
		return len(b), nil
	}
	r.stderr = append(r.stderr, b...)
	for len(r.stderr) > 0 {
		i := bytes.IndexByte(r.stderr, '\n')
		switch {
		case i >= 0:
			r.write("stderr", trimEnd(r.stderr[:i]), false)
			r.stderr = r.stderr[i+1:]
		case len(r.stderr) > maxStderrLine:
			r.write("stderr", r.stderr, false)
			r.stderr = nil
		default:
			return len(b), nil
		}
	}
	return len(b), nil
}

func (r *recorder) write(dir string, line []byte, valid bool) {
	if r.w == nil {
		return
	}
	b := append([]byte(`{"time":"`), time.Now().UTC().Format(time.RFC3339Nano)...)
	b = append(b, `","dir":"`...)
	b = append(b, dir...)
	b = append(b, `","bytes":`...)
	b = appendInt(b, len(line))
	if valid {
		b = append(append(b, `,"raw":`...), line...)
	} else {
		b = append(b, `,"text":`...)
		b, _ = jsontext.AppendQuote(b, line) // bad UTF-8 becomes U+FFFD
	}
	if _, err := r.w.Write(append(b, "}\n"...)); err != nil {
		r.w = nil
	}
}
