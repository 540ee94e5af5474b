package observe

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ossicle/ossicle/attach"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// Handler serves next and sees what passes. It changes nothing.
func (o *Observer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{
			ResponseWriter: w, o: o, c: newConn(o), began: time.Now(),
			method: r.Method, target: r.URL.RequestURI(), session: r.Header.Get(headerSession),
		}
		x.c.version = r.Header.Get(headerVersion)
		if r.Method == http.MethodPost {
			r = r.WithContext(r.Context()) // a copy: the body is replaced
			r.Body = &copied{ReadCloser: r.Body, x: x, left: r.ContentLength}
		}
		defer x.end()
		next.ServeHTTP(x, r)
	})
}

// exchange is one request and its response. Its fields up to stream belong to the
// goroutine of the request, the others to the observer's.
type exchange struct {
	http.ResponseWriter

	o               *Observer
	began           time.Time
	method          string
	target, session string
	status          int
	isStream, gap   bool
	reply           []byte // a whole response, as far as it is looked at

	bodyMu sync.Mutex // who passes a request on may read it from another goroutine
	body   []byte
	read   bool // it was queued; what comes now is too late to be of use

	c      *conn
	stream events
}

// copied is a body of which a copy is kept.
type copied struct {
	io.ReadCloser
	x    *exchange
	left int64 // bytes; negative if nobody knows
}

// Read implements io.Reader. The request is queued before its last byte is handed
// over: a response, which may come on another stream, is then behind it.
func (b *copied) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	b.x.request(p[:n], err != nil || b.left == 0)
	return n, err
}

// request keeps a piece of the request, and queues all of it at its end.
func (x *exchange) request(piece []byte, last bool) {
	x.bodyMu.Lock()
	defer x.bodyMu.Unlock()
	if x.read {
		return
	}
	if room := maxFrame - len(x.body); room > 0 {
		x.body = append(x.body, piece[:min(len(piece), room)]...)
	}
	if !last {
		return
	}
	body := x.body
	x.body, x.read = nil, true
	x.o.later(len(body), func(time.Time) {
		// A post of the older transport belongs to its stream.
		if c := x.o.streams[x.target]; c != nil && x.method == http.MethodPost {
			methods := len(c.methods)
			c.client(body)
			x.c.methods = append(x.c.methods, c.methods[methods:]...)
			c.methods = c.methods[:methods]
			return
		}
		x.c.client(body)
	})
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.begin(status)
	}
	x.ResponseWriter.WriteHeader(status)
}

// begin notes the head of the response.
func (x *exchange) begin(status int) {
	x.status = status
	kind, _, _ := mime.ParseMediaType(x.Header().Get("Content-Type"))
	x.isStream = kind == "text/event-stream"
	x.request(nil, true) // what nobody has read to its end
	if id := x.Header().Get(headerSession); id != "" {
		x.session = id
	}
	if session := x.session; session != "" {
		x.o.later(0, func(time.Time) { x.c.id = attach.ConnectionID(session) })
	}
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.begin(http.StatusOK)
	}
	n, err := x.ResponseWriter.Write(p)
	switch {
	case n == 0:
	case x.isStream:
		b := bytes.Clone(p[:n])
		gap := x.gap
		x.gap = !x.o.later(n, func(at time.Time) {
			x.stream.broken = x.stream.broken || gap
			x.stream.add(b, func(name string, data []byte) { x.event(name, data, at) })
		}) || gap
	case len(x.reply) < maxFrame:
		x.reply = append(x.reply, p[:min(n, maxFrame-len(x.reply))]...)
	}
	return n, err
}

// event takes an event of a stream. The first one of the older transport says
// where to post.
func (x *exchange) event(name string, data []byte, at time.Time) {
	if name != "endpoint" {
		x.c.server(data, at)
		return
	}
	u, err := url.Parse(string(data))
	if err != nil || x.method != http.MethodGet {
		return
	}
	x.c.id = attach.ConnectionID(u.RequestURI())
	if len(x.o.streams) < maxSessions {
		x.o.streams[u.RequestURI()] = x.c
	}
}

// end queues a response that is whole, and the end of a connection.
func (x *exchange) end() {
	if x.status == 0 {
		x.begin(http.StatusOK)
	}
	reply, took := x.reply, time.Since(x.began)
	x.o.later(len(reply), func(at time.Time) {
		if x.status < http.StatusBadRequest && !x.isStream {
			x.c.server(reply, at)
		}
		x.fail(reply, at)
		x.c.forget() // a message that was no request of its own, or an answer that was cut off
		x.over(at)
		if x.o.o.Trace != nil {
			x.o.o.Trace(Exchange{
				At: x.began, Took: took, HTTPMethod: x.method, Methods: x.c.methods, ConnectionID: x.c.id, Status: x.status,
			})
		}
	})
}

// fail tells of requests that HTTP refused.
func (x *exchange) fail(reply []byte, at time.Time) {
	if x.status < http.StatusBadRequest {
		return
	}
	x.c.faults(reply, at) // they say more
	for id := range x.c.pending {
		r := x.c.take(id)
		e := x.c.evidence(attach.RequestError, at, r)
		e.Method, e.Tool, e.Reason, e.Summary = r.method, r.tool, attach.ReasonHTTPStatus, fmt.Sprintf("HTTP status %d", x.status)
		if x.status == http.StatusUnauthorized {
			e.Reason = attach.ReasonAuthRequired
		}
		x.o.emit(e)
	}
}

// over tells of connections that have ended: a session by DELETE, the older
// transport with its stream.
func (x *exchange) over(at time.Time) {
	switch {
	case x.method == http.MethodDelete && x.session != "" && x.status < http.StatusMultipleChoices:
		x.o.emit(attach.Evidence{Kind: attach.ConnectionClosed, OccurredAt: at, Detail: attach.Detail{ConnectionID: attach.ConnectionID(x.session)}})
	case x.method == http.MethodGet && x.isStream:
		for target, c := range x.o.streams {
			if c == x.c {
				delete(x.o.streams, target)
				c.closed(at)
			}
		}
	}
}

// FlushError is for http.ResponseController.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.begin(http.StatusOK)
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Flush implements http.Flusher, which the SDK asks for.
func (x *exchange) Flush() { _ = x.FlushError() }

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }
