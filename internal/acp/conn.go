package acp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// outgoing bounds the lines that wait to be written. An agent that does
	// not read while so many wait is given up.
	outgoing = 256
	// maxNoise is how many lines in a row may be no frames: agents greet and
	// log on standard output, but one that does nothing else is no agent.
	maxNoise = 100
)

// Errors of the connection.
var (
	ErrNoise   = errors.New("agent writes something else than frames")
	ErrStalled = errors.New("agent does not read")
)

// handler takes what the agent sends, in order, from the goroutine that reads.
// It must not wait for the agent.
type handler interface {
	notification(f frame)
	request(ctx context.Context, f frame)
	// stray is a line that is no frame; line is nil if it was too long.
	stray(line []byte, size int)
}

// conn is a JSON-RPC connection over two byte streams.
type conn struct {
	log *slog.Logger
	rec *recorder
	out chan line

	mu      sync.Mutex
	last    int64
	pending map[int64]chan response

	once sync.Once
	err  error // set before done is closed
	done chan struct{}
}

type line struct {
	b       []byte
	written chan struct{} // closed once it is written; may be nil
}

type response struct {
	result jsontext.Value
	err    error
}

func newConn(log *slog.Logger, rec *recorder) *conn {
	return &conn{log: log, rec: rec, out: make(chan line, outgoing), pending: map[int64]chan response{}, done: make(chan struct{})}
}

// fail ends the connection: calls return err. The first reason counts.
func (c *conn) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
	})
}

// write sends lines until the connection ends.
func (c *conn) write(w io.Writer) {
	for {
		select {
		case l := <-c.out:
			c.rec.frame("sent", l.b[:len(l.b)-1])
			if _, err := w.Write(l.b); err != nil {
				c.fail(fmt.Errorf("write to agent: %w", err))
				return
			}
			if l.written != nil {
				close(l.written)
			}
		case <-c.done:
			return
		}
	}
}

// read hands on lines until the stream ends, and then ends the connection.
func (c *conn) read(ctx context.Context, r io.Reader, h handler) {
	in := newLines(r, maxLine)
	noise := 0
	for {
		b, size, err := in.next()
		if err != nil {
			c.fail(fmt.Errorf("read from agent: %w", err))
			return
		}
		if b != nil && len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		if b == nil {
			c.log.WarnContext(ctx, "agent line too long", logattr.Size(int64(size)))
			h.stray(nil, size)
			continue
		}
		c.rec.frame("received", b)
		f, err := parseFrame(b)
		if err != nil {
			c.log.DebugContext(ctx, "agent line is no frame", logattr.Err(err), logattr.Size(int64(size)))
			h.stray(b, size)
			if noise++; noise >= maxNoise {
				c.fail(fmt.Errorf("read from agent: %w: %d lines in a row", ErrNoise, noise))
				return
			}
			continue
		}
		noise = 0
		c.dispatch(ctx, f, h)
	}
}

func (c *conn) dispatch(ctx context.Context, f frame, h handler) {
	switch {
	case f.isRequest():
		h.request(ctx, f)
	case !f.isResponse():
		h.notification(f)
	default:
		c.answered(f)
	}
}

func (c *conn) answered(f frame) {
	n, ok := f.call()
	c.mu.Lock()
	ch := c.pending[n]
	delete(c.pending, n)
	c.mu.Unlock()
	if !ok || ch == nil {
		c.log.Debug("agent answered what nobody asked", logattr.Reason(clip(string(f.id))))
		return
	}
	r := response{result: f.result}
	if f.err != nil {
		r = response{err: rpcError(f.err)}
	}
	ch <- r // buffered for the only answer
}

// pendingCall is a request that waits for its answer.
type pendingCall struct {
	c      *conn
	n      int64
	answer chan response
}

// forget gives up on the answer.
func (p pendingCall) forget() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	delete(p.c.pending, p.n)
}

// start sends a request.
func (c *conn) start(ctx context.Context, method string, params any) (pendingCall, error) {
	raw, err := encode(params)
	if err != nil {
		return pendingCall{}, err
	}
	p := pendingCall{c: c, answer: make(chan response, 1)}
	c.mu.Lock()
	c.last++
	p.n = c.last
	c.pending[p.n] = p.answer
	c.mu.Unlock()
	b := appendInt([]byte(`{"jsonrpc":"2.0","id":`), int(p.n))
	if err := c.send(ctx, line{b: finish(b, method, raw)}); err != nil {
		p.forget()
		return pendingCall{}, err
	}
	return p, nil
}

// call sends a request and waits for its answer, which it reads into result.
func (c *conn) call(ctx context.Context, method string, params, result any) error {
	p, err := c.start(ctx, method, params)
	if err != nil {
		return err
	}
	select {
	case r := <-p.answer:
		return r.into(result)
	case <-ctx.Done():
		p.forget()
		return fmt.Errorf("call %s: %w", method, context.Cause(ctx))
	case <-c.done:
		return c.err
	}
}

func (r response) into(result any) error {
	if r.err != nil {
		return r.err
	}
	if r.result.Kind() == 'n' {
		return nil
	}
	return decode(r.result, result)
}

// notify sends a notification and waits until it is written.
func (c *conn) notify(ctx context.Context, method string, params any) error {
	raw, err := encode(params)
	if err != nil {
		return err
	}
	l := line{b: finish([]byte(`{"jsonrpc":"2.0"`), method, raw), written: make(chan struct{})}
	if err := c.send(ctx, l); err != nil {
		return err
	}
	return c.await(ctx, l)
}

func (c *conn) send(ctx context.Context, l line) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case c.out <- l:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write to agent: %w", context.Cause(ctx))
	case <-c.done:
		return c.err
	}
}

func (c *conn) await(ctx context.Context, l line) error {
	select {
	case <-l.written:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write to agent: %w", context.Cause(ctx))
	case <-c.done:
		return c.err
	}
}

// reply answers a request without waiting. An agent that does not read while
// the queue is full is given up, for nothing can be said to it any more.
func (c *conn) reply(id jsontext.Value, result any) { c.answer(id, result, nil) }

// replyWait answers a request and waits, at most within, until it is written.
func (c *conn) replyWait(id jsontext.Value, result any, within time.Duration) error {
	l := c.answer(id, result, make(chan struct{}))
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-l.written:
		return nil
	case <-t.C:
		return fmt.Errorf("answer agent: %w", ErrStalled)
	case <-c.done:
		return c.err
	}
}

func (c *conn) answer(id jsontext.Value, result any, written chan struct{}) line {
	raw, err := encode(result)
	if err != nil {
		c.refuse(id, codeInternal, err.Error(), nil)
		return line{written: written}
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(append(b, `,"result":`...), raw...)
	l := line{b: append(b, "}\n"...), written: written}
	c.push(l)
	return l
}

// refuse answers a request with an error.
func (c *conn) refuse(id jsontext.Value, code int, message string, data any) {
	e := struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitzero"`
	}{code, message, data}
	raw, err := encode(e)
	if err != nil {
		raw = jsontext.Value(`{"code":-32603,"message":"unprintable error"}`)
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(append(b, `,"error":`...), raw...)
	c.push(line{b: append(b, "}\n"...)})
}

func (c *conn) push(l line) {
	select {
	case c.out <- l:
	case <-c.done:
	default:
		c.fail(fmt.Errorf("write to agent: %w: %d lines wait", ErrStalled, outgoing))
	}
}

// finish appends method and params to the beginning of a frame.
func finish(b []byte, method string, params jsontext.Value) []byte {
	b = append(b, `,"method":`...)
	b, _ = jsontext.AppendQuote(b, method)
	b = append(append(b, `,"params":`...), params...)
	return append(b, "}\n"...)
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
