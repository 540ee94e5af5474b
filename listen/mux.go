package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// muxPrefix begins the request ids of a Mux. The SDK numbers its requests, so
// no id of ours is one of its.
const muxPrefix = "ossicle-listen-"

const (
	// cancelTimeout bounds the write of notifications/cancelled, which may stand
	// behind a peer that does not read.
	cancelTimeout = 2 * time.Second
	// answerTimeout bounds the wait for the answer to a cancelled listen on a
	// server that is known to give one.
	answerTimeout = time.Second
)

// errSilenced ends the streams of a server whose answer to a cancelled listen
// shows that it keeps one listen a URI for the whole session.
var errSilenced = errors.New("server ties a URI to one listen of the session")

// MuxOptions refine a [Mux]. Zero fields take the defaults.
type MuxOptions struct {
	ClientInfo ClientInfo
	// AckTimeout bounds an opening; [DefaultAckTimeout] when zero.
	AckTimeout time.Duration
	// Logger hears of frames that are skipped; nil is none.
	Logger *slog.Logger
}

// Mux opens listens on a connection that an SDK session uses too: a child's
// pipes, an in-memory transport, everything but the SDK's Streamable HTTP,
// which must not be wrapped. It is an [mcp.Transport]: connect the SDK's client
// through it, then open listens. It takes its frames out of what is read,
// passes the rest on unchanged, and never waits for a reader of a stream.
//
// Servers on the Go SDK 1.8 and older keep one listen per URI and session:
// when one of two listens for a URI ends, the other falls silent for good
// (known fault B-012). They can be told by another fault, they answer a listen
// that was cancelled. The first such answer ends the remaining streams in a way
// that a [Client] mends at once, and from then on it closes a stream before it
// opens the next.
type Mux struct {
	inner mcp.Transport
	o     MuxOptions
	seq   atomic.Int64
	write chan struct{} // capacity 1: held while writing

	mu      sync.Mutex
	conn    mcp.Connection // nil before Connect
	streams map[string]*muxStream
	dead    error // set when nothing can be read any more
	serial  bool  // see the type's comment
}

// muxStream is a listen by its id. A closed one stays, without a stream, until
// its answer is in sight, because a server may still send one.
type muxStream struct {
	s        *Stream // nil after Close
	answered chan struct{}
}

// maxClosed bounds how many cancelled listens are remembered: conforming servers
// never answer them. What is forgotten is skipped all the same, by its prefix.
const maxClosed = 64

// NewMux wraps a transport that is not yet connected.
func NewMux(inner mcp.Transport, o *MuxOptions) *Mux {
	m := &Mux{inner: inner, write: make(chan struct{}, 1), streams: map[string]*muxStream{}}
	if o != nil {
		m.o = *o
	}
	if m.o.AckTimeout == 0 {
		m.o.AckTimeout = DefaultAckTimeout
	}
	if m.o.Logger == nil {
		m.o.Logger = slog.New(slog.DiscardHandler)
	}
	return m
}

// Connect implements [mcp.Transport].
func (m *Mux) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := m.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.conn = conn
	m.mu.Unlock()
	return &muxConn{m: m, inner: conn}, nil
}

// Open sends subscriptions/listen and waits for the acknowledgement, which
// needs somebody to read the connection: the SDK's session does.
func (m *Mux) Open(ctx context.Context, f Filter) (*Stream, error) {
	params, err := listenFrame(m.o.ClientInfo, f)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.o.AckTimeout, ErrNoAck)
	defer cancel()
	for {
		s, err := m.open(ctx, f, params)
		if !errors.Is(err, errSilenced) || ctx.Err() != nil {
			return s, err
		}
	}
}

func (m *Mux) open(ctx context.Context, f Filter, params jsontext.Value) (*Stream, error) {
	m.cancelSilenced()
	id := muxPrefix + strconv.FormatInt(m.seq.Add(1), 10)
	s := newStream(f, func() { m.cancel(id) })
	s.conflict = m.isSerial
	if err := m.add(id, s); err != nil {
		return nil, err
	}
	if err := m.send(ctx, id, methodListen, params); err != nil {
		m.drop(id)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("open listen: %w", err)
	}
	if err := s.awaitAck(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// cancelSilenced cancels at the server what [Mux.answer] ended here.
func (m *Mux) cancelSilenced() {
	m.mu.Lock()
	var ids []string
	for id, ms := range m.streams {
		if ms.s != nil {
			if end := ms.s.Err(); end != nil && end.reopen {
				ids = append(ids, id)
			}
		}
	}
	m.mu.Unlock()
	for _, id := range ids {
		m.cancel(id)
	}
}

func (m *Mux) isSerial() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.serial
}

func (m *Mux) add(id string, s *Stream) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.dead != nil:
		return fmt.Errorf("open listen: %w", &EndError{Reason: EndLost, Err: m.dead})
	case m.conn == nil:
		return errors.New("open listen: transport is not connected")
	}
	m.streams[id] = &muxStream{s: s, answered: make(chan struct{})}
	return nil
}

func (m *Mux) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, id)
}

// send writes one message: a request when id is set, else a notification.
// Writes are serialised with those of the session.
func (m *Mux) send(ctx context.Context, id, method string, params jsontext.Value) error {
	req := &jsonrpc.Request{Method: method, Params: []byte(params)}
	if id != "" {
		rid, err := jsonrpc.MakeID(id)
		if err != nil {
			return err
		}
		req.ID = rid
	}
	m.mu.Lock()
	conn := m.conn
	m.mu.Unlock()
	return m.writeTo(ctx, conn, req)
}

func (m *Mux) writeTo(ctx context.Context, conn mcp.Connection, msg jsonrpc.Message) error {
	select {
	case m.write <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.write }()
	return conn.Write(ctx, msg)
}

// cancel tells the server that a listen is over. On a server that answers, the
// answer is awaited: what it does to our other listens is done then.
func (m *Mux) cancel(id string) {
	m.mu.Lock()
	ms := m.streams[id]
	if ms == nil || m.dead != nil {
		m.mu.Unlock()
		return
	}
	ms.s = nil
	m.forgetLocked()
	serial := m.serial
	m.mu.Unlock()

	ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
	defer stop()
	params, err := json.Marshal(cancelledParams{RequestID: jsontext.Value(strconv.Quote(id))})
	if err == nil {
		err = m.send(ctx, "", notificationCancelled, params)
	}
	if err != nil || !serial {
		return
	}
	t := time.NewTimer(answerTimeout)
	defer t.Stop()
	select {
	case <-ms.answered:
	case <-t.C:
	}
}

// forgetLocked bounds what is remembered of cancelled listens.
func (m *Mux) forgetLocked() {
	closed := 0
	for _, ms := range m.streams {
		if ms.s == nil {
			closed++
		}
	}
	for id, ms := range m.streams {
		if closed <= maxClosed {
			return
		}
		if ms.s == nil {
			delete(m.streams, id)
			closed--
		}
	}
}

// end ends all streams because the connection did.
func (m *Mux) end(reason EndReason, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead == nil {
		m.dead = err
	}
	for id, ms := range m.streams {
		if ms.s != nil {
			ms.s.finish(&EndError{Reason: reason, Err: err})
		} else {
			close(ms.answered) // nothing can come any more
		}
		delete(m.streams, id)
	}
}

// take handles a message that was read and reports whether it was ours.
func (m *Mux) take(msg jsonrpc.Message) bool {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		id, ok := msg.ID.Raw().(string)
		if !ok || !strings.HasPrefix(id, muxPrefix) {
			return false
		}
		m.answer(id, msg.Error)
		return true
	case *jsonrpc.Request:
		return !msg.IsCall() && m.takeNotification(msg)
	}
	return false
}

// answer ends the listen that the server answered.
func (m *Mux) answer(id string, failure error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms := m.streams[id]
	if ms == nil {
		return
	}
	delete(m.streams, id)
	switch {
	case ms.s == nil:
		close(ms.answered)
		m.answeredLateLocked(failure)
	case failure != nil:
		ms.s.finish(&EndError{Reason: EndFailed, Err: failure})
	default:
		ms.s.finish(&EndError{Reason: EndGraceful})
	}
}

// answeredLateLocked takes the answer to a cancelled listen for what it shows.
// An error is no sign: it may have crossed our cancellation.
func (m *Mux) answeredLateLocked(failure error) {
	if failure != nil || m.serial {
		return
	}
	m.serial = true
	for _, ms := range m.streams {
		if ms.s != nil {
			ms.s.finish(&EndError{Reason: EndLost, Err: errSilenced, reopen: true})
		}
	}
}

// notificationFrame finds out whose a notification is.
type notificationFrame struct {
	notificationParams
	RequestID jsontext.Value `json:"requestId,omitempty"`
}

func (m *Mux) takeNotification(msg *jsonrpc.Request) bool {
	switch msg.Method {
	case notificationAcknowledged, notificationResourceUpdated, notificationCancelled,
		notificationToolsListChanged, notificationPromptsListChanged, notificationResourcesListChanged:
	default:
		return false
	}
	if len(msg.Params) == 0 {
		return false
	}
	var p notificationFrame
	if err := json.Unmarshal([]byte(msg.Params), &p); err != nil {
		m.o.Logger.Warn("skipped a malformed notification")
		return true
	}
	raw := p.Meta.SubscriptionID
	if msg.Method == notificationCancelled {
		raw = p.RequestID
	}
	var id string
	if len(raw) == 0 {
		return m.takeUnsigned(msg.Method, p.URI)
	}
	if json.Unmarshal(raw, &id) != nil || !strings.HasPrefix(id, muxPrefix) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ms := m.streams[id]; ms != nil && ms.s != nil {
		ms.s.notification(msg.Method, &p.notificationParams)
		if msg.Method == notificationCancelled {
			delete(m.streams, id) // a result may follow; its prefix is enough to skip it
		}
	}
	return true
}

// takeUnsigned gives an update without a subscription id to every stream that it
// concerns. Servers must sign their updates; some do not. The message is passed
// on as well, since without an id it may be the session's.
func (m *Mux) takeUnsigned(method, uri string) bool {
	if method != notificationResourceUpdated {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ms := range m.streams {
		if ms.s != nil {
			ms.s.updated(uri)
		}
	}
	return false
}

// muxConn is the connection that the SDK's session sees.
type muxConn struct {
	m      *Mux
	inner  mcp.Connection
	closed atomic.Bool
}

func (c *muxConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.inner.Read(ctx)
		if err != nil {
			reason := EndLost
			if c.closed.Load() {
				reason = EndLocal
			}
			c.m.end(reason, err)
			return nil, err
		}
		if !c.m.take(msg) {
			return msg, nil
		}
	}
}

func (c *muxConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	return c.m.writeTo(ctx, c.inner, msg)
}

func (c *muxConn) Close() error {
	c.closed.Store(true)
	err := c.inner.Close()
	c.m.end(EndLocal, io.ErrClosedPipe)
	return err
}

func (c *muxConn) SessionID() string { return c.inner.SessionID() }
