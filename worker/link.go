package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// link is one WebSocket: a reader, which its owner runs, and a writer that
// exists only while there is something to write. Nobody waits for a peer: what
// is sent goes to a bounded queue, and a peer that lets it fill is cut off.
type link struct {
	ws *websocket.Conn
	// cut ends the reads, and with them the connection, at once.
	cut  context.CancelFunc
	work *sync.WaitGroup // of the owner

	mu      sync.Mutex
	queue   [][]byte
	queued  int // bytes
	writing bool
	closing *closing // set once: what to say when the queue is empty
	dead    bool
	ping    *time.Timer
	limit   *time.Timer
}

type closing struct {
	code   CloseCode
	reason string
}

// ended says how a link ended.
type ended struct {
	code   CloseCode
	reason string
	tooBig bool // we refused a message for its size
}

// openLink wraps a connection. The returned context ends with it; read takes it.
func openLink(ws *websocket.Conn, work *sync.WaitGroup) (*link, context.Context) {
	ctx, cut := context.WithCancel(context.Background()) // no caller's context: it would close the socket without a code
	ws.SetReadLimit(MaxMessage)
	l := &link{ws: ws, cut: cut, work: work}
	l.armPing()
	return l, ctx
}

// read hands each message to take until the connection ends. It is called once.
func (l *link) read(ctx context.Context, take func(data []byte, text bool)) ended {
	defer l.finish()
	for {
		kind, data, err := l.ws.Read(ctx)
		if err != nil {
			var closed websocket.CloseError
			if errors.As(err, &closed) {
				return ended{code: CloseCode(closed.Code), reason: trimReason(closed.Reason)}
			}
			return ended{code: closeAbnormal, reason: "the transport broke", tooBig: errors.Is(err, websocket.ErrMessageTooBig)}
		}
		take(data, kind == websocket.MessageText)
	}
}

// finish ends what belongs to the connection.
func (l *link) finish() {
	l.mu.Lock()
	l.dead = true
	l.queue, l.queued = nil, 0
	if l.ping != nil && l.ping.Stop() {
		l.work.Done()
	}
	if l.limit != nil {
		l.limit.Stop()
	}
	l.mu.Unlock()
	l.cut()
	_ = l.ws.CloseNow()
}

// send queues a message. Callers keep to MaxMessage; what exceeds it all the same
// goes nowhere, because no peer may be sent it.
func (l *link) send(b []byte) {
	if len(b) > MaxMessage {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || l.closing != nil {
		return // the same as a message that the network lost
	}
	if l.queued += len(b); l.queued > maxQueued {
		l.dead = true
		l.cut()
		return
	}
	l.queue = append(l.queue, b)
	l.wake()
}

// close sends what is queued, then the code and the reason, and ends the
// connection, all within bounds. Only the first call counts.
func (l *link) close(code CloseCode, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || l.closing != nil {
		return
	}
	l.closing = &closing{code, trimReason(reason)}
	l.limit = time.AfterFunc(2*closeTimeout, l.cut)
	l.wake()
}

// wake has a writer run; the caller holds mu.
func (l *link) wake() {
	if !l.writing {
		l.writing = true
		l.work.Go(l.write)
	}
}

// next takes the next message to write, or the close, or ends the writer.
func (l *link) next() (b []byte, c *closing, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
	case len(l.queue) > 0:
		b = l.queue[0]
		l.queue = l.queue[1:]
		l.queued -= len(b)
		return b, nil, true
	case l.closing != nil:
		return nil, l.closing, true
	}
	l.writing, l.queue = false, nil
	return nil, nil, false
}

func (l *link) write() {
	for {
		b, c, more := l.next()
		if !more {
			return
		}
		if c != nil {
			_ = l.ws.Close(websocket.StatusCode(c.code), c.reason)
			l.cut()
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		err := l.ws.Write(ctx, websocket.MessageText, b)
		cancel()
		if err != nil {
			l.mu.Lock()
			l.dead, l.writing = true, false
			l.mu.Unlock()
			l.cut()
			return
		}
	}
}

// armPing has the next ping sent. The writer of a ping is counted as work from
// here on.
func (l *link) armPing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return
	}
	l.work.Add(1)
	l.ping = time.AfterFunc(pingInterval, func() {
		defer l.work.Done()
		ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
		defer cancel()
		_ = l.ws.Ping(ctx) // a missing pong decides nothing; a failed write has ended the connection
		l.armPing()
	})
}
