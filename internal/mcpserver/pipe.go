package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// pipe is one stream of lines with two sessions of the SDK behind it, one for
// each era. A session of the SDK cannot be both: after server/discover it
// refuses initialize, and after initialize it takes modern requests for legacy
// ones. Each request goes to the session of its era, and what the sessions
// write goes to the one peer.
//
// The pipe also knows which requests are under way. So it can bound them, leave
// a cancelled one without an answer, gather the answers of a batch, and see
// when everything is answered.
type pipe struct {
	s      *Server
	lines  *lineReader
	out    *pipeWriter
	modern *side
	legacy *side

	ended chan struct{} // closed when the pipe is over

	mu            sync.Mutex
	calls         map[jsonrpc.ID]*call
	open          int           // calls that are no listens
	idle          chan struct{} // closed when refusing and open is zero
	refusing      bool
	legacyVersion string
	err           error // why the pipe ended; nil for its end of input
}

// call is a request under way.
type call struct {
	isListen  bool
	cancelled bool
	batch     *batch
}

var errStuck = errors.New("the peer does not read")

func newPipe(s *Server, in io.Reader, out io.Writer) *pipe {
	p := &pipe{
		s: s, lines: newLineReader(in, s.opts.MaxLine), out: newPipeWriter(out),
		ended: make(chan struct{}), calls: map[jsonrpc.ID]*call{}, idle: make(chan struct{}),
	}
	p.modern, p.legacy = newSide(p), newSide(p)
	return p
}

// read takes lines until there are no more.
func (p *pipe) read() {
	for {
		line, err := p.lines.next()
		var long *tooLongError
		switch {
		case errors.As(err, &long):
			p.refuse(long.id(), newError(codeInvalidRequest, fmt.Sprintf(
				"the message has %d bytes and was skipped: the limit is %d", long.size, p.s.opts.MaxLine), map[string]any{"limit": p.s.opts.MaxLine}))
		case errors.Is(err, io.EOF):
			p.stop()
			p.awaitIdle(drainTime)
			p.end(nil)
			return
		case err != nil:
			p.end(fmt.Errorf("read message: %w", err))
			return
		case jsontext.Value(line).Kind() == '[':
			p.takeBatch(line)
		default:
			p.take(line, nil)
		}
	}
}

// take routes one message.
func (p *pipe) take(line []byte, in *batch) {
	f, fault := parseFrame(line)
	switch {
	case fault != nil:
		p.answerNow(f.ID, fault, in)
	case f.Method == nil:
		p.takeResponse(line)
	case f.isCall():
		p.takeCall(&f, in)
	case f.method() == notificationCancelled:
		p.takeCancel(&f)
	default:
		p.deliver(p.legacy, &f, jsonrpc.ID{}) // the modern era has none but cancellation
	}
}

// takeResponse passes on an answer to a request of ours: only a legacy session
// sends any.
func (p *pipe) takeResponse(line []byte) {
	if msg, err := jsonrpc.DecodeMessage(line); err == nil {
		p.legacy.deliver(msg)
	}
}

func (p *pipe) takeCall(f *frame, in *batch) {
	id, err := rpcID(f.ID)
	if err != nil {
		p.answerNow(nil, newError(codeInvalidRequest, err.Error(), nil), in)
		return
	}
	modern := f.modern()
	switch {
	case modern && in != nil:
		p.answerNow(f.ID, newError(codeInvalidRequest, "revision "+modernVersion+" has no batches: send one message a line", nil), in)
		return
	case f.method() == methodDiscover && !modern:
		p.answerNow(f.ID, newError(codeInvalidParams, methodDiscover+" is of revision "+modernVersion+": send it with _meta", nil), in)
		return
	}
	if fault := p.enter(id, &call{isListen: modern && f.method() == methodListen, batch: in}); fault != nil {
		p.answerNow(f.ID, fault, in)
		return
	}
	if in != nil {
		in.expect()
	}
	to := p.legacy
	if modern {
		to = p.modern
	} else if f.method() == methodInitialize {
		params, version := pinLegacy(f.Params)
		f.Params = params
		p.mu.Lock()
		p.legacyVersion = version
		p.mu.Unlock()
	}
	p.deliver(to, f, id)
}

// enter counts a call in.
func (p *pipe) enter(id jsonrpc.ID, c *call) *jsonrpc.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch limit := p.s.opts.MaxInFlight; {
	case p.refusing:
		return newError(CodeShuttingDown, "the server is shutting down: start it again", nil)
	case p.calls[id] != nil:
		return newError(codeInvalidRequest, "the id is that of a request under way: use each id once", nil)
	case !c.isListen && p.open >= limit:
		return newError(CodeTooManyRequests, fmt.Sprintf("%d requests are under way: wait for answers first", limit), map[string]any{"limit": limit})
	}
	p.calls[id] = c
	if !c.isListen {
		p.open++
	}
	return nil
}

// leave counts a call out and returns it.
func (p *pipe) leave(id jsonrpc.ID) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	if c == nil {
		return nil
	}
	p.removeLocked(id, c)
	return c
}

func (p *pipe) removeLocked(id jsonrpc.ID, c *call) {
	delete(p.calls, id)
	if !c.isListen {
		p.open--
		p.checkIdleLocked()
	}
}

// takeCancel notes that an id wants no answer, and tells both sessions: one of
// them has the request.
func (p *pipe) takeCancel(f *frame) {
	var params struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	if jsonv2.Unmarshal(f.Params, &params) != nil || !validID(params.RequestID) {
		return
	}
	id, err := rpcID(params.RequestID)
	if err != nil {
		return
	}
	p.mu.Lock()
	switch c := p.calls[id]; {
	case c == nil:
		p.mu.Unlock()
		return
	case c.isListen:
		p.removeLocked(id, c) // the hub answers nothing
	default:
		c.cancelled = true
	}
	p.mu.Unlock()
	p.deliver(p.modern, f, jsonrpc.ID{})
	p.deliver(p.legacy, f, jsonrpc.ID{})
}

func (p *pipe) deliver(to *side, f *frame, id jsonrpc.ID) {
	to.deliver(&jsonrpc.Request{ID: id, Method: f.method(), Params: json.RawMessage(f.Params)})
}

// send writes what a session has to say.
func (p *pipe) send(msg jsonrpc.Message, abort <-chan struct{}) error {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return p.write(msg, abort)
	}
	return p.answer(resp, abort)
}

// answer writes the answer to a call, if it still wants one.
func (p *pipe) answer(resp *jsonrpc.Response, abort <-chan struct{}) error {
	if resp.Error != nil {
		resp.Error = wireOf(resp.Error)
	}
	c := p.leave(resp.ID)
	switch {
	case c == nil:
		return nil // a cancelled listen, or an answer to what was no request
	case c.cancelled && c.batch == nil:
		return nil
	case c.batch != nil:
		return p.fill(c, resp, abort)
	}
	return p.write(resp, abort)
}

func (p *pipe) write(msg jsonrpc.Message, abort <-chan struct{}) error {
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if resp, ok := msg.(*jsonrpc.Response); ok && len(b) > p.s.opts.MaxLine {
		b, err = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: resp.ID, Error: newError(codeInternal, fmt.Sprintf(
			"the result has %d bytes, over the limit of %d: ask for less", len(b), p.s.opts.MaxLine), nil)})
		if err != nil {
			return err
		}
	}
	return p.out.write(append(b, '\n'), abort)
}

// refuse answers what was no request.
func (p *pipe) refuse(id jsontext.Value, e *jsonrpc.Error) { p.answerNow(id, e, nil) }

func (p *pipe) answerNow(id jsontext.Value, e *jsonrpc.Error, in *batch) {
	b := appendErrorFrame(nil, id, e)
	if in != nil {
		in.add(b)
		return
	}
	_ = p.out.write(append(b, '\n'), p.ended) // a broken pipe ends by itself
}

// stop takes no more requests.
func (p *pipe) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	p.checkIdleLocked()
}

func (p *pipe) checkIdleLocked() {
	if !p.refusing || p.open > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// awaitIdle waits until everything that was asked is answered.
func (p *pipe) awaitIdle(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.idle:
	case <-p.ended:
	case <-t.C:
	}
}

// end ends the pipe; the first reason counts.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
	default:
		p.err = err
		close(p.ended)
	}
}

func (p *pipe) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// rpcID is the id as the SDK has it.
func rpcID(literal jsontext.Value) (jsonrpc.ID, error) {
	var v any
	if err := json.Unmarshal(literal, &v); err != nil {
		return jsonrpc.ID{}, err
	}
	return jsonrpc.MakeID(v)
}

// side is the connection of one of the two sessions.
type side struct {
	p        *pipe
	incoming chan jsonrpc.Message
	closed   chan struct{}
	once     sync.Once
}

var (
	_ mcp.Transport  = (*side)(nil)
	_ mcp.Connection = (*side)(nil)
)

func newSide(p *pipe) *side {
	return &side{p: p, incoming: make(chan jsonrpc.Message), closed: make(chan struct{})}
}

// Connect implements [mcp.Transport].
func (d *side) Connect(context.Context) (mcp.Connection, error) { return d, nil }

func (d *side) deliver(msg jsonrpc.Message) {
	select {
	case d.incoming <- msg:
	case <-d.closed:
	case <-d.p.ended:
	}
}

// Read implements [mcp.Connection].
func (d *side) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-d.incoming:
		return msg, nil
	case <-d.closed:
		return nil, io.EOF
	case <-d.p.ended:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements [mcp.Connection].
func (d *side) Write(_ context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok && !d.wants(req) {
		return nil
	}
	return d.p.send(msg, d.closed)
}

// wants reports whether the peer may be sent a notification on this side. The
// SDK announces lists to every session that has not said who it is: not wanted
// before initialize, and in the modern era by the hub alone, whose news bear the
// id of a listen.
func (d *side) wants(req *jsonrpc.Request) bool {
	if d == d.p.legacy {
		d.p.mu.Lock()
		defer d.p.mu.Unlock()
		return d.p.legacyVersion != ""
	}
	return !strings.HasSuffix(req.Method, "/list_changed") || bytes.Contains(req.Params, []byte(`"`+mcp.MetaKeySubscriptionID+`"`))
}

// Close implements [mcp.Connection]. A session that closes by itself has given
// up its peer, and the other session has the same one.
func (d *side) Close() error {
	d.once.Do(func() { close(d.closed) })
	d.p.end(fmt.Errorf("close session: %w", errStuck))
	return nil
}

// SessionID implements [mcp.Connection].
func (d *side) SessionID() string { return "" }
