package mcpclient

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tap catches the raw result of one call. The SDK decodes results into Go values
// that round integers over 2^53 (known fault B-051); what we hand on comes from
// the tap, digit by digit.
type tap struct {
	table *taps
	mu    sync.Mutex
	ids   []string
	raw   jsontext.Value
	err   error
	// status is the HTTP status of the last reply; 0 before one, and elsewhere.
	status int
}

// taps are the taps of one connection by request id.
type taps struct {
	mu sync.Mutex
	m  map[string]*tap
}

type tapKey struct{}

func newTaps() *taps { return &taps{m: map[string]*tap{}} }

// begin returns a context for one call and its tap, which end must release.
func (ts *taps) begin(ctx context.Context) (context.Context, *tap) {
	t := &tap{table: ts}
	return context.WithValue(ctx, tapKey{}, t), t
}

func tapOf(ctx context.Context) *tap {
	t, _ := ctx.Value(tapKey{}).(*tap)
	return t
}

// register ties the request that is being written to the tap of its context.
func (t *tap) register(id string) {
	if t == nil || id == "" {
		return
	}
	t.mu.Lock()
	t.ids = append(t.ids, id)
	t.mu.Unlock()
	t.table.mu.Lock()
	defer t.table.mu.Unlock()
	t.table.m[id] = t
}

func (t *tap) end() {
	t.mu.Lock()
	ids := t.ids
	t.mu.Unlock()
	t.table.mu.Lock()
	defer t.table.mu.Unlock()
	for _, id := range ids {
		delete(t.table.m, id)
	}
}

// result returns what was caught: the raw result, or the error of a message
// that was skipped.
func (t *tap) result() (jsontext.Value, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.raw, t.err
}

func (t *tap) noteStatus(status int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = status
}

func (t *tap) httpStatus() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// observe hands a response to its tap. Ids are compared as JSON.
func (ts *taps) observe(id string, result jsontext.Value, err error) {
	ts.mu.Lock()
	t := ts.m[id]
	ts.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw, t.err = result, err
}

// idText is a request id as JSON.
func idText(id jsonrpc.ID) string {
	msg, err := jsonrpc.EncodeMessage(&jsonrpc.Request{ID: id})
	if err != nil || !id.IsValid() {
		return ""
	}
	h, _, _ := checkFrame(msg)
	return string(h.ID)
}

// tapTransport taps a transport that may be wrapped.
type tapTransport struct {
	mcp.Transport
	table *taps
}

func (t *tapTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &tapConn{Connection: conn, table: t.table}, nil
}

type tapConn struct {
	mcp.Connection
	table *taps
}

func (c *tapConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		if t := tapOf(ctx); t != nil {
			t.register(idText(req.ID))
		}
	}
	return c.Connection.Write(ctx, msg)
}

func (c *tapConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if resp, ok := msg.(*jsonrpc.Response); ok && err == nil {
		if resp.Error == nil {
			c.table.observe(idText(resp.ID), jsontext.Value(resp.Result), nil)
		}
	}
	return msg, err
}
