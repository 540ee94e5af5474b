package listen

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Transport wraps a transport of an SDK server, other than HTTP, so that listens
// on it are served by the hub, beside everything else that the SDK serves on it.
// It takes requests for subscriptions/listen and cancellations of them out of
// what the SDK reads, and writes its frames between those of the SDK. Requests
// that do not name revision 2026-07-28 or later are answered as a server of the
// older revisions does: there is no such method.
//
// Of an [mcp.StdioTransport] or [mcp.IOTransport] it takes the bytes over, line
// by line: ids are echoed as they came, also integers over 2^53, and a line that
// is too long or no JSON-RPC message is answered with an error and skipped, where
// the SDK would end the session. Other transports are wrapped message by message;
// there an id is what the transport's decoder made of it.
//
// A peer to which news are due and that reads nothing for the write timeout is cut
// off, by closing the transport. Closing the session ends its listens politely.
func (h *Hub) Transport(inner mcp.Transport) mcp.Transport {
	switch t := inner.(type) {
	case *mcp.StdioTransport:
		return &lineTransport{hub: h, reader: os.Stdin, writer: keepOpen{os.Stdout}, limit: t.MaxLineLength}
	case *mcp.IOTransport:
		return &lineTransport{hub: h, reader: t.Reader, writer: t.Writer, limit: t.MaxLineLength}
	default:
		return &messageTransport{hub: h, inner: inner}
	}
}

// duplex is one connection that carries listens beside other messages.
type duplex struct {
	hub *Hub
	out frameWriter
	// writing is held (filled) by whoever writes a message: the hub or the SDK.
	writing chan struct{}
	moved   atomic.Pointer[time.Time] // when the peer last took something

	mu      sync.Mutex           // after listener.mu
	listens map[string]*listener // by their ids
	unended int                  // listens whose last message is not written
	closing bool                 // no listen is taken any more
	empty   chan struct{}        // closed when closing and none is unended
}

// frameWriter writes whole messages. Its methods are called one at a time, but
// for abort.
type frameWriter interface {
	notify(method string, params []byte) error
	// respond answers a request with result, or with e if that is not nil. An
	// empty id is null.
	respond(id string, result []byte, e *wireError) error
	// abort closes the connection and so fails a write that is stuck.
	abort()
}

func newDuplex(h *Hub, out frameWriter) *duplex {
	return &duplex{
		hub: h, out: out, writing: make(chan struct{}, 1),
		listens: make(map[string]*listener), empty: make(chan struct{}),
	}
}

// idKey is an id as a key of its type and value: 1 and "1" differ, and a string
// is the same however it is escaped.
func idKey(id jsontext.Value) string {
	if id.Kind() != '"' {
		return string(id)
	}
	s, err := jsontext.AppendUnquote([]byte{'"'}, id)
	if err != nil {
		return ""
	}
	return string(s)
}

// cancelledID is the id that a cancellation names, or empty.
func cancelledID(params jsontext.Value) jsontext.Value {
	var c cancelledParams
	if json.Unmarshal(params, &c) != nil {
		return nil
	}
	return c.RequestID
}

// listen serves a request. The opening does not hold up the reader who calls.
func (d *duplex) listen(ctx context.Context, id, params jsontext.Value) {
	l := &listener{hub: d.hub, id: string(id)}
	l.sink = &duplexSink{pipe: d, key: idKey(id)}
	asked, f := d.accept(l, params)
	if f != nil {
		_ = d.exclusive(func() error { return d.out.respond(l.id, nil, &f.wireError) })
		return
	}
	d.hub.spawn(func() { d.open(context.WithoutCancel(ctx), l, *asked) })
}

// accept checks a listen and enters it.
func (d *duplex) accept(l *listener, params jsontext.Value) (*Filter, *fault) {
	lp, f := parseListen(params)
	if f != nil {
		return nil, f
	}
	if lp.Meta.ProtocolVersion < ProtocolVersion {
		return nil, faultLegacyListen()
	}
	if f := lp.check(d.hub.opts.MaxURIs); f != nil {
		return nil, f
	}
	key := l.sink.(*duplexSink).key
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return nil, faultShuttingDown()
	}
	if d.listens[key] != nil {
		return nil, faultIDInUse()
	}
	if f := d.hub.admit(l); f != nil {
		return nil, f
	}
	d.listens[key] = l
	d.unended++
	return lp.Notifications, nil
}

func (d *duplex) open(ctx context.Context, l *listener, asked Filter) {
	honoured, refused := d.hub.subscribe(ctx, l, asked)
	gone, ending := l.state()
	err := d.exclusive(func() error {
		switch {
		case l.sink.(*duplexSink).cancelled.Load():
			return nil
		case gone || ending:
			return d.out.respond(l.id, nil, &faultShuttingDown().wireError)
		default:
			return d.out.notify(notificationAcknowledged, appendAcknowledgementParams(nil, l.id, &honoured, refused))
		}
	})
	if gone || ending {
		l.abandon()
		return
	}
	if err != nil {
		l.cut(err)
	}
	d.hub.opts.Logger.DebugContext(ctx, "listen opened", idAttr(l.id))
	l.activate(nil)
}

// cancel ends a listen as its client asked. Nothing is written for the id by
// anybody who begins to write after that. It reports whether there was one.
func (d *duplex) cancel(id jsontext.Value) bool {
	d.mu.Lock()
	l := d.listens[idKey(id)]
	d.mu.Unlock()
	if l == nil {
		return false
	}
	l.sink.(*duplexSink).cancelled.Store(true)
	l.leave()
	return true
}

// exclusive runs f, which writes messages, while nobody else writes. When the
// peer takes nothing for the write timeout, be it of f's or of what f waits for,
// the connection is aborted.
func (d *duplex) exclusive(f func() error) error {
	stuck := make(chan struct{})
	stop := d.guard(func() { close(stuck); d.out.abort() })
	defer stop()
	select {
	case d.writing <- struct{}{}:
	case <-stuck:
		return errStuck
	}
	defer func() { <-d.writing }()
	err := f()
	if isClosed(stuck) {
		return errStuck
	}
	return err
}

// guard calls expired when the peer has taken nothing for the write timeout,
// unless stop is called before. A peer that is slow to take a large message of
// the SDK is not stuck.
func (d *duplex) guard(expired func()) (stop func()) {
	timeout := d.hub.opts.WriteTimeout
	began := time.Now()
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(timeout, func() {
		mu.Lock()
		defer mu.Unlock()
		since := began
		if moved := d.moved.Load(); moved != nil && moved.After(since) {
			since = *moved
		}
		if rest := timeout - time.Since(since); rest > 0 && !stopped {
			timer.Reset(rest)
		} else if !stopped {
			expired()
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// progress notes that the peer has taken something.
func (d *duplex) progress() {
	now := time.Now()
	d.moved.Store(&now)
}

// hangUp ends all listens silently: the peer has gone.
func (d *duplex) hangUp() {
	for _, l := range d.close() {
		l.leave()
	}
}

// finish ends all listens politely, within the write timeout.
func (d *duplex) finish() {
	for _, l := range d.close() {
		l.end()
	}
	timeout := time.NewTimer(d.hub.opts.WriteTimeout)
	defer timeout.Stop()
	select {
	case <-d.empty:
	case <-timeout.C:
		d.hangUp()
	}
}

// close takes no more listens and returns what is there.
func (d *duplex) close() []*listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	all := make([]*listener, 0, len(d.listens))
	for _, l := range d.listens {
		all = append(all, l)
	}
	d.checkEmptyLocked()
	return all
}

// free makes the id of a listen usable again.
func (d *duplex) free(l *listener, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listens[key] == l {
		delete(d.listens, key)
	}
}

func (d *duplex) checkEmptyLocked() {
	if d.closing && d.unended == 0 && !isClosed(d.empty) {
		close(d.empty)
	}
}

// duplexSink is one listen on a pipe.
type duplexSink struct {
	pipe *duplex
	key  string
	// cancelled: the client wants no more messages, not even an answer.
	cancelled atomic.Bool
}

var _ blockingSink = (*duplexSink)(nil)

func (s *duplexSink) schedule(l *listener) {
	s.pipe.hub.spawn(func() { l.drain(s) })
}

// write looks before each message whether the client has cancelled: the reader
// takes the next message only after that was noted, so no answer to a later
// request can be followed by a message for the cancelled id.
func (s *duplexSink) write(l *listener, r *round) error {
	out := s.pipe.out
	return s.pipe.exclusive(func() error {
		for _, t := range r.topics {
			if l.gone() {
				return nil
			}
			if err := out.notify(t.method, appendNotificationParams(nil, l.id, t)); err != nil {
				return err
			}
		}
		if !r.last || l.gone() {
			return nil
		}
		// Its client may use the id again as soon as it has the result.
		s.pipe.free(l, s.key)
		// The specification asks for a result in one place and for a cancellation
		// in another: clients get both, the result first (known fault B-020).
		if err := out.respond(l.id, appendResultValue(nil, l.id), nil); err != nil {
			return err
		}
		return out.notify(notificationCancelled, appendCancelledParams(nil, l.id))
	})
}

func (s *duplexSink) close(l *listener) {
	s.pipe.free(l, s.key)
	s.pipe.mu.Lock()
	defer s.pipe.mu.Unlock()
	s.pipe.unended--
	s.pipe.checkEmptyLocked()
}
