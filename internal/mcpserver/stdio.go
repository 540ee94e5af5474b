package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Bounds of the end of a pipe.
const (
	drainTime  = time.Second            // for answers to what came before the end of input
	stopTime   = 2 * time.Second        // the same, when we are told to stop
	closeTime  = time.Second            // for sessions to end
	politeTime = 3 * time.Second        // for listens to be ended politely
	readerTime = 100 * time.Millisecond // for a blocked read to notice that its reader is closed
)

// ServeStdio serves one peer over a pipe, both eras, until its input ends: then
// it returns nil, at once also while listens are open; what was asked before
// that is answered first, within a second. When ctx ends, listens are ended
// politely and ctx's error is returned.
//
// Frames are lines of at most Options.MaxLine bytes. In is closed on return if
// it is an io.Closer. A goroutine that is blocked in a read that no close
// interrupts, as one of standard input, is left to the end of the process.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	p := newPipe(s, in, out)
	defer p.out.close()
	sessions, err := p.connect(ctx)
	if err != nil {
		return fmt.Errorf("serve pipe: %w", err)
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		p.read()
	}()
	select {
	case <-p.ended:
		err = p.reason()
	case <-p.out.broken:
		err = p.out.err
	case <-ctx.Done():
		err = context.Cause(ctx)
		p.stop()
		p.awaitIdle(stopTime)
		closePolitely(sessions)
	}
	p.end(err)
	s.awaitSessions(sessions)
	if c, ok := in.(io.Closer); ok {
		_ = c.Close()
	}
	await(reading, readerTime)
	return err
}

// connect begins the two sessions.
func (p *pipe) connect(ctx context.Context) ([]*mcp.ServerSession, error) {
	legacy, err := p.s.mcp.Connect(ctx, p.legacy, nil)
	if err != nil {
		return nil, err
	}
	modern, err := p.s.mcp.Connect(ctx, p.s.hub.Transport(p.modern), nil)
	if err != nil {
		_ = legacy.Close()
		return nil, err
	}
	return []*mcp.ServerSession{modern, legacy}, nil
}

// closePolitely closes the sessions, by which the hub ends the listens on them.
func closePolitely(sessions []*mcp.ServerSession) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ss := range sessions {
			_ = ss.Close()
		}
	}()
	await(done, politeTime)
}

// awaitSessions waits for the handlers, which have been cancelled.
func (s *Server) awaitSessions(sessions []*mcp.ServerSession) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ss := range sessions {
			_ = ss.Wait()
		}
	}()
	if !await(done, closeTime) {
		s.log.Warn("a request does not heed its cancellation", logattr.Duration(closeTime))
	}
}

func await(done <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// pipeWriter writes lines, one at a time, from a goroutine of its own: a write
// to a pipe whose reader stands still cannot be interrupted, but those who wait
// for it can.
type pipeWriter struct {
	out    io.Writer
	queue  chan *pipeWrite
	closed chan struct{}
	broken chan struct{} // closed after err is set
	err    error
	once   sync.Once
}

type pipeWrite struct {
	line []byte
	done chan error
}

func newPipeWriter(out io.Writer) *pipeWriter {
	w := &pipeWriter{out: out, queue: make(chan *pipeWrite), closed: make(chan struct{}), broken: make(chan struct{})}
	go w.run()
	return w
}

func (w *pipeWriter) run() {
	for {
		select {
		case next := <-w.queue:
			_, err := w.out.Write(next.line)
			next.done <- err
		case <-w.closed:
			return
		}
	}
}

func (w *pipeWriter) close() { close(w.closed) }

// fail ends all writing.
func (w *pipeWriter) fail(err error) error {
	w.once.Do(func() {
		w.err = err
		close(w.broken)
	})
	return err
}

// write returns when the line is written, or abort is closed, or the peer has
// not read for too long, which breaks the pipe.
func (w *pipeWriter) write(line []byte, abort <-chan struct{}) error {
	overdue := time.NewTimer(DefaultPipeTime)
	defer overdue.Stop()
	next := &pipeWrite{line: line, done: make(chan error, 1)}
	queue := w.queue
	for {
		select {
		case queue <- next:
			queue = nil // now it is being written
		case err := <-next.done:
			if err != nil {
				return w.fail(fmt.Errorf("write message: %w", err))
			}
			return nil
		case <-overdue.C:
			return w.fail(fmt.Errorf("write message: %w for %v", errStuck, DefaultPipeTime))
		case <-w.broken:
			return w.err
		case <-w.closed:
			return io.ErrClosedPipe
		case <-abort:
			return errors.New("write message: the session was closed")
		}
	}
}
