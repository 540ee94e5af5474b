package listen

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// messageTransport serves listens on any transport, message by message.
type messageTransport struct {
	hub   *Hub
	inner mcp.Transport
}

// Connect implements [mcp.Transport].
func (t *messageTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &messageConn{Connection: inner}
	c.pipe = newDuplex(t.hub, messageWriter{inner})
	return c, nil
}

// SupportsProtocolVersion implements [mcp.ProtocolVersionSupporter] as the wrapped
// transport does.
func (t *messageTransport) SupportsProtocolVersion(version string) bool {
	s, ok := t.inner.(mcp.ProtocolVersionSupporter)
	return !ok || s.SupportsProtocolVersion(version)
}

type messageConn struct {
	mcp.Connection
	pipe *duplex
}

// Read implements [mcp.Connection].
func (c *messageConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := c.Connection.Read(ctx)
		if err != nil {
			c.pipe.hangUp()
			return nil, err
		}
		if req, ok := m.(*jsonrpc.Request); !ok || !c.take(ctx, req) {
			return m, nil
		}
	}
}

// take serves a message that belongs to the hub.
func (c *messageConn) take(ctx context.Context, req *jsonrpc.Request) bool {
	params := jsontext.Value(req.Params)
	switch {
	case req.IsCall() && req.Method == methodListen:
		c.pipe.listen(ctx, literalID(req.ID), params)
		return true
	case !req.IsCall() && req.Method == notificationCancelled:
		id, err := decodedID(string(cancelledID(params))) // as the id of the listen was decoded
		return err == nil && c.pipe.cancel(literalID(id))
	}
	return false
}

// Write implements [mcp.Connection].
func (c *messageConn) Write(ctx context.Context, m jsonrpc.Message) error {
	select {
	case c.pipe.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.pipe.writing }()
	defer c.pipe.progress()
	return c.Connection.Write(ctx, m)
}

// Close implements [mcp.Connection].
func (c *messageConn) Close() error {
	c.pipe.finish()
	return c.Connection.Close()
}

// literalID is the JSON of an id that was decoded.
func literalID(id jsonrpc.ID) jsontext.Value {
	switch v := id.Raw().(type) {
	case string:
		return appendString(nil, v)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	default:
		return jsontext.Value("null")
	}
}

// decodedID is the inverse of literalID.
func decodedID(id string) (jsonrpc.ID, error) {
	var v any
	if err := json.Unmarshal([]byte(id), &v); err != nil {
		return jsonrpc.ID{}, err
	}
	return jsonrpc.MakeID(v)
}

// messageWriter writes frames to a connection of the SDK. The pipe's own timeout
// bounds the writes: not every connection heeds a context.
type messageWriter struct{ conn mcp.Connection }

func (w messageWriter) notify(method string, params []byte) error {
	return w.conn.Write(context.Background(), &jsonrpc.Request{Method: method, Params: params})
}

func (w messageWriter) respond(id string, result []byte, e *wireError) error {
	rpcID, err := decodedID(id)
	if err != nil {
		return err
	}
	resp := &jsonrpc.Response{ID: rpcID, Result: result}
	if e != nil {
		resp.Error = &jsonrpc.Error{Code: e.Code, Message: e.Message, Data: json.RawMessage(e.Data)}
	}
	return w.conn.Write(context.Background(), resp)
}

func (w messageWriter) abort() { _ = w.conn.Close() }
