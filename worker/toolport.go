package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/jsonx"
)

const (
	// keepResults and keepBytes bound results that are kept for a host that repeats
	// a call after a reconnect; the oldest go first. Of those that went, keepGone ids
	// are remembered, so that a repetition is not taken for a new call.
	keepResults = 64
	keepBytes   = 16 << 20
	keepTime    = 5 * time.Minute
	keepGone    = 4096
	// portQueue is how many messages may wait for the MCP server.
	portQueue = 256
)

// port is the connection that the MCP server of a worker sees. It lives as long
// as the process: channels come and go behind it, so no tool is cancelled
// because a socket broke.
type port struct {
	session string
	in      chan jsonrpc.Message
	out     func(jsonrpc.Message) // hands a message of the server to the worker
	done    chan struct{}
	once    sync.Once
}

func newPort(session string, out func(jsonrpc.Message)) *port {
	return &port{session: session, in: make(chan jsonrpc.Message, portQueue), out: out, done: make(chan struct{})}
}

// Connect implements mcp.Transport.
func (p *port) Connect(context.Context) (mcp.Connection, error) { return p, nil }

// Read implements mcp.Connection.
func (p *port) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements mcp.Connection. It does not fail: an error would end the
// server's session.
func (p *port) Write(_ context.Context, m jsonrpc.Message) error {
	p.out(m)
	return nil
}

// Close implements mcp.Connection.
func (p *port) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// SessionID implements mcp.Connection: the one id of the channel is that of MCP
// too.
func (p *port) SessionID() string { return p.session }

// push gives the server a message, unless its queue is full.
func (p *port) push(m jsonrpc.Message) bool {
	select {
	case p.in <- m:
		return true
	default:
		return false
	}
}

func portID(n int64) jsonrpc.ID {
	id, _ := jsonrpc.MakeID(float64(n)) // an integer below 2^53 is an id
	return id
}

// waiter is who asked, on the wire.
type waiter struct {
	ch channelID
	id jsontext.Value
}

// inflight is a request that the server works on, or whose result is kept.
type inflight struct {
	id      int64
	method  string
	callID  string
	digest  [sha256.Size]byte
	waiters []waiter
	probe   func(ok bool) // set for requests of our own
	answer  func(id jsontext.Value) []byte
	size    int
	ended   time.Time
}

// desk keeps requests of the wire and requests of the server apart: ids of a
// connection die with it, the work does not.
type desk struct {
	port   *port
	nextID int64
	open   map[int64]*inflight
	calls  map[string]*inflight // by call id, open or kept
	kept   []*inflight          // oldest first
	bytes  int
	gone   map[string]bool // ids of calls whose results were kept
	buried []string        // the same, oldest first
}

func newDesk(p *port) *desk {
	return &desk{port: p, open: map[int64]*inflight{}, calls: map[string]*inflight{}, gone: map[string]bool{}}
}

// callID reads the call id of a tools/call, and the digest of what it asks for. That
// is the tool and its arguments: whether whoever repeats it wants progress is no
// part of it.
func callID(params jsontext.Value) (string, [sha256.Size]byte) {
	var p struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
		Meta      struct {
			Agentfy callTag `json:"agentfy"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || len(p.Meta.Agentfy.CallID) > maxID {
		return "", [sha256.Size]byte{}
	}
	return p.Meta.Agentfy.CallID, sha256.Sum256(append([]byte(p.Name+"\x00"), p.Arguments...))
}

// outcome of a request that came from the wire.
type admission int

const (
	admitted admission = iota
	joined             // a repeated call; its first run answers
	replayed           // a repeated call whose result is in the reply
	mismatched
	forgotten // a repeated call whose result is gone
	overloaded
)

// request passes a request of the wire on.
func (d *desk) request(w waiter, f frame, now time.Time) (admission, []byte) {
	call := ""
	var digest [sha256.Size]byte
	if f.method == methodToolsCall {
		call, digest = callID(f.params)
	}
	d.expire(now)
	if old := d.calls[call]; call != "" && old != nil {
		switch {
		case old.digest != digest:
			return mismatched, nil
		case old.answer != nil:
			return replayed, old.answer(w.id)
		}
		old.waiters = append(old.waiters, w)
		return joined, nil
	}
	if d.gone[call] {
		return forgotten, nil
	}
	r := d.send(f.method, f.params)
	if r == nil {
		return overloaded, nil
	}
	r.waiters = []waiter{w}
	if call != "" {
		r.callID, r.digest = call, digest
		d.calls[call] = r
	}
	return admitted, nil
}

// send gives the server a request.
func (d *desk) send(method string, params jsontext.Value) *inflight {
	d.nextID++
	r := &inflight{id: d.nextID, method: method}
	if !d.port.push(&jsonrpc.Request{ID: portID(r.id), Method: method, Params: []byte(params.Clone())}) {
		return nil
	}
	d.open[r.id] = r
	return r
}

// notify gives the server a notification.
func (d *desk) notify(method string, params jsontext.Value) {
	d.port.push(&jsonrpc.Request{Method: method, Params: []byte(params.Clone())})
}

// cancel tells the server that a request of the wire is not wanted any more.
func (d *desk) cancel(w waiter) {
	for _, r := range d.open {
		for _, have := range r.waiters {
			if have.ch == w.ch && string(have.id) == string(w.id) {
				d.stop(r)
			}
		}
	}
}

func (d *desk) stop(r *inflight) {
	d.notify(methodCancelled, mustJSON(struct {
		RequestID int64 `json:"requestId"`
	}{r.id}))
}

// stopCalls cancels every call.
func (d *desk) stopCalls() {
	for _, r := range d.open {
		if r.method == methodToolsCall {
			d.stop(r)
		}
	}
}

// answered takes a response of the server. It returns the request, or nil if
// there is none.
func (d *desk) answered(m *jsonrpc.Response, now time.Time) *inflight {
	n, ok := m.ID.Raw().(int64)
	r := d.open[n]
	if !ok || r == nil {
		return nil
	}
	delete(d.open, n)
	r.ended = now
	if m.Error != nil {
		e := toWireError(m.Error)
		r.answer = func(id jsontext.Value) []byte { return errorFrame(id, e) }
		r.size = len(e.Message) + len(e.Data)
	} else {
		result := jsontext.Value(m.Result)
		if r.method == methodToolsList {
			result = stripUnpromised(result)
		}
		r.answer = func(id jsontext.Value) []byte { return resultFrame(id, result) }
		r.size = len(result)
	}
	if r.size > MaxMessage-1024 {
		e := &wireError{Code: codeInternal, Message: "the result is larger than a message may be"}
		r.answer, r.size = func(id jsontext.Value) []byte { return errorFrame(id, e) }, 0
	}
	d.keep(r, now)
	return r
}

// keep holds the result of a call for a host that repeats it.
func (d *desk) keep(r *inflight, now time.Time) {
	if r.callID == "" {
		return
	}
	d.kept = append(d.kept, r)
	d.bytes += r.size
	d.expire(now)
}

func (d *desk) expire(now time.Time) {
	for len(d.kept) > 0 {
		r := d.kept[0]
		if len(d.kept) <= keepResults && d.bytes <= keepBytes && now.Sub(r.ended) < keepTime {
			return
		}
		d.kept = d.kept[1:]
		d.bury(r)
	}
}

// bury forgets a result that was kept, but not that there was one.
func (d *desk) bury(r *inflight) {
	d.bytes -= r.size
	delete(d.calls, r.callID)
	d.gone[r.callID] = true
	d.buried = append(d.buried, r.callID)
	if len(d.buried) > keepGone {
		delete(d.gone, d.buried[0])
		d.buried = d.buried[1:]
	}
}

// received forgets results that their callers have. A call that still runs is not
// one of them, whatever the host says.
func (d *desk) received(ids []string) {
	for _, id := range ids {
		r := d.calls[id]
		if r == nil || r.answer == nil {
			continue
		}
		d.kept = slices.DeleteFunc(d.kept, func(k *inflight) bool { return k == r })
		d.bury(r)
	}
}

func toWireError(err error) *wireError {
	var w *jsonrpc.Error
	if errors.As(err, &w) {
		return &wireError{w.Code, err.Error(), jsontext.Value(w.Data)}
	}
	return &wireError{Code: codeInternal, Message: err.Error()}
}

// stripUnpromised takes members out of a result that the SDK adds whatever the
// version: neither side sends a field that the other has not promised.
func stripUnpromised(result jsontext.Value) jsontext.Value {
	out := []byte{'{'}
	object, err := jsonx.ScanObject(result, func(name string, at jsonx.Span) {
		switch name {
		case "ttlMs", "cacheScope", "resultType":
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = jsonx.AppendString(out, name)
		out = append(out, ':')
		out = append(out, at.Of(result)...)
	})
	if err != nil || !object {
		return result
	}
	return append(out, '}')
}

// mayLeave reports whether a notification of the server is part of the channel.
func mayLeave(method string) bool {
	switch method {
	case methodProgress, methodMessage, methodToolsChanged:
		return true
	}
	return strings.HasPrefix(method, ownNoticePrefix)
}
