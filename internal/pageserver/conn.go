package pageserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/logattr"
)

// conn is one connection. Its handler's goroutine reads; one writes, one asks
// whether the client is there and may stay, and up to MaxCalls do what it wants.
type conn struct {
	s     *Server
	ws    *websocket.Conn
	below net.Conn
	who   *access.Principal // nil where nobody is asked for a token
	queue *queue

	work sync.WaitGroup
	over chan struct{} // closed when the connection is to end
	stop context.CancelFunc
	once sync.Once
	code websocket.StatusCode // why, after over
	text string

	mu      sync.Mutex
	streams map[Topic]*Stream
	calls   int
}

func newConn(s *Server, ws *websocket.Conn, below net.Conn, who *access.Principal) *conn {
	c := &conn{s: s, ws: ws, below: below, who: who, over: make(chan struct{}), streams: map[Topic]*Stream{}}
	c.queue = newQueue(s.o.Messages, s.o.Bytes, func() { s.gaps.Add(1) })
	return c
}

// end asks the connection to end. The first reason counts.
func (c *conn) end(code websocket.StatusCode, text string) {
	c.once.Do(func() {
		c.code, c.text = code, text
		close(c.over)
	})
}

// serve serves the connection until it ends, and leaves nothing of it.
func (c *conn) serve(ctx context.Context) {
	ctx, c.stop = context.WithCancel(ctx)
	defer c.stop()
	c.ws.SetReadLimit(MaxMessage)
	c.work.Go(c.write)
	c.work.Go(func() { c.keep(ctx) })
	c.work.Go(func() { // what is under way ends with the connection
		<-c.over
		c.stop()
	})
	c.read(ctx)
	c.end(closeSilent, "")
	c.queue.close()
	c.mu.Lock()
	all := c.streams
	c.streams = map[Topic]*Stream{}
	c.mu.Unlock()
	for _, s := range all {
		if leave := s.finish(); leave != nil {
			leave()
		}
	}
	c.work.Wait()
	_ = c.ws.CloseNow()
}

// read takes requests until the connection ends. Its context is not that of the
// work: it would cut the connection before the close is said.
func (c *conn) read(ctx context.Context) {
	for {
		kind, text, err := c.ws.Read(context.WithoutCancel(ctx))
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			c.end(closeBinary, "messages are text")
			<-c.over
			continue // until the close is answered
		}
		select {
		case <-c.over:
			continue
		default:
		}
		c.take(ctx, text)
	}
}

// write writes what is queued, until the connection is to end.
func (c *conn) write() {
	for {
		select {
		case <-c.over:
			c.farewell()
			return
		default:
		}
		frame, lapsed := c.queue.next()
		for _, s := range lapsed {
			c.forget(s)
		}
		if frame == nil {
			select {
			case <-c.queue.bell:
			case <-c.over:
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.s.o.WriteTime)
		err := c.ws.Write(ctx, websocket.MessageText, frame.text)
		cancel()
		if err != nil {
			c.end(closeSilent, "")
		}
	}
}

// farewell closes the connection, and waits a moment for the client to agree.
func (c *conn) farewell() {
	if c.code == closeSilent {
		_ = c.ws.CloseNow()
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.ws.Close(c.code, c.text)
	}()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		c.cut()
		<-closed
	}
}

// cut ends the connection at once, whatever waits on it.
func (c *conn) cut() { _ = c.below.Close() }

// keep asks the client whether it is there, and the token whether it still
// stands.
func (c *conn) keep(ctx context.Context) {
	for {
		wait := c.s.o.Ping
		if c.who != nil && !c.who.Expires.IsZero() {
			wait = min(wait, time.Until(c.who.Expires))
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if !c.stands(ctx) {
			c.end(closeOver, "the token is good no longer")
			return
		}
		ping, cancel := context.WithTimeout(ctx, c.s.o.PingWait)
		err := c.ws.Ping(ping)
		cancel()
		if err != nil {
			c.end(closeSilent, "")
			return
		}
	}
}

// stands reports whether the token of the client is good. Where that cannot be
// told, the connection stays for now.
func (c *conn) stands(ctx context.Context) bool {
	if c.who == nil {
		return true
	}
	if !c.who.Expires.IsZero() && !time.Now().Before(c.who.Expires) {
		return false
	}
	if c.s.o.Recheck == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.o.PingWait)
	defer cancel()
	err := c.s.o.Recheck(ctx, c.who)
	if err != nil && !errors.Is(err, access.ErrInvalidToken) && ctx.Err() == nil {
		c.s.log.LogAttrs(ctx, slog.LevelWarn, "the token of a live connection cannot be checked; it stays for now", logattr.Err(err))
	}
	return !errors.Is(err, access.ErrInvalidToken)
}

// answer queues an answer. A client that does not read its answers is too slow.
func (c *conn) answer(f *Frame) {
	if !c.queue.answer(f) {
		c.end(closeSlow, "too slow: come again")
	}
}

func (c *conn) fail(id int64, err error) { c.answer(errorFrame(id, told(err))) }

// forget removes a stream that has ended of itself.
func (c *conn) forget(s *Stream) {
	c.mu.Lock()
	if c.streams[s.topic] == s {
		delete(c.streams, s.topic)
	}
	c.mu.Unlock()
	if leave := s.finish(); leave != nil {
		leave()
	}
}
