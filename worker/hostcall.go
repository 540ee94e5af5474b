package worker

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/jsonx"
)

const (
	// maxTools and maxPages bound what a worker can make us register.
	maxTools = 1000
	maxPages = 20
	// maxProgress bounds updates that wait for a slow caller; the oldest is dropped.
	maxProgress = 64
)

// Progress is one update of a running call.
type Progress struct {
	Progress, Total float64
	Message         string // text from the sandbox
}

// CallOptions configure a call. The zero value is usable.
type CallOptions struct {
	// Progress is called in the goroutine of the caller, in order, before the call
	// returns. Updates that come faster than it takes them are dropped, oldest
	// first.
	Progress func(Progress)
	// ID names the call, so that it can be repeated: by this host after a reconnect,
	// which it does by itself, or by another host that takes the session over. A
	// worker runs a call of one id once and answers each repetition with its result;
	// the tool and the arguments must be the same. Empty is a new id.
	ID string
}

// RemoteError is an error that the worker answered.
type RemoteError struct {
	Code    int64
	Message string // from the sandbox
	Data    jsontext.Value
}

// Error implements error.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("the worker refused: %.200s (%d)", e.Message, e.Code)
}

// call is a tools/call under way, across connections.
type call struct {
	id       string
	name     string
	args     jsontext.Value
	reports  bool
	ch       channelID // where it was sent; 0 is nowhere yet
	wire     int64
	progress chan Progress
	done     chan struct{}
	result   jsontext.Value
	err      error
}

func (c *call) end(result jsontext.Value, err error) {
	select {
	case <-c.done:
	default:
		c.result, c.err = result, err
		close(c.done)
	}
}

// Tools returns what the worker offers and the profile allows, as registered
// last. Schemas are raw JSON.
func (s *Session) Tools() []*mcp.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools)
}

// CallTool calls a tool and waits for its result. Before the session runs, and
// while its worker is away, the call waits; a call that was sent before a
// connection was lost is sent again with the same id, which the worker joins to
// the first. Numbers in StructuredContent are raw JSON. Errors: RemoteError,
// ErrOver, ErrReleasing, ErrDraining, ErrConflict, ErrBusy, ErrUnknownTool,
// ErrUnknownOutcome, or that of ctx, which also cancels the call in the worker.
// After ErrDraining, and ErrConflict, which says that the worker went to another
// host, a call with an ID can be repeated at the host that has the session.
func (s *Session) CallTool(ctx context.Context, name string, arguments jsontext.Value, o *CallOptions) (*mcp.CallToolResult, error) {
	raw, err := s.CallRaw(ctx, name, arguments, o)
	if err != nil {
		return nil, err
	}
	return ReadResult(name, raw)
}

// ReadResult decodes the result of a tool as CallTool does.
func ReadResult(name string, raw jsontext.Value) (*mcp.CallToolResult, error) {
	var res mcp.CallToolResult
	if err := stdjson.Unmarshal(raw, &res); err != nil {
		return nil, fmt.Errorf("read result of %q: %w", name, err)
	}
	_, err := jsonx.ScanObject(raw, func(member string, at jsonx.Span) {
		if member == "structuredContent" {
			res.StructuredContent = stdjson.RawMessage(at.Of(raw))
		}
	})
	return &res, err
}

// CallRaw is CallTool with the result as the worker wrote it.
func (s *Session) CallRaw(ctx context.Context, name string, arguments jsontext.Value, o *CallOptions) (jsontext.Value, error) {
	c, err := s.begin(name, arguments, o)
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	ours := o == nil || o.ID == ""
	defer s.feed(hostCallEnded{})
	for {
		select {
		case p := <-c.progress:
			o.Progress(p)
		case <-c.done:
			for len(c.progress) > 0 {
				o.Progress(<-c.progress)
			}
			s.drop(c)
			if c.err != nil {
				return nil, fmt.Errorf("call %q: %w", name, c.err)
			}
			if ours { // nobody else knows the id
				s.Received(c.id)
			}
			return c.result, nil
		case <-ctx.Done():
			s.cancel(c)
			return nil, fmt.Errorf("call %q: %w", name, context.Cause(ctx))
		}
	}
}

// Received tells the worker that the results of these calls (CallOptions.ID) have
// reached their callers: it need not keep them for a repetition. For calls without
// an id of the caller's that is done by itself.
func (s *Session) Received(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := ParseVersion(s.m.rec.Versions.Effective)
	if s.m.bound == 0 || len(ids) == 0 || err != nil || !v.hasReceipts() {
		return // it is kept as long as the bounds allow
	}
	s.write(s.m.bound, receivedFrame(ids...))
}

// begin admits a call and sends it if the session runs.
func (s *Session) begin(name string, arguments jsontext.Value, o *CallOptions) (*call, error) {
	if len(arguments) == 0 {
		arguments = jsontext.Value("{}")
	}
	if len(arguments)+len(name) > MaxMessage-4096 {
		return nil, errors.New("the arguments are larger than a message may be")
	}
	if arguments.Kind() != '{' || !arguments.IsValid() {
		return nil, errors.New("the arguments are not a JSON object")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.m.rec.State == StateRunning
	switch {
	case s.gone != nil:
		return nil, s.gone
	case s.m.rec.State == StateReleasing, s.m.pending != "":
		return nil, ErrReleasing
	case s.m.draining:
		return nil, ErrDraining
	case len(s.calls) >= s.host.o.MaxCalls:
		return nil, ErrBusy
	case running && !slices.Contains(s.m.rec.Tools, name):
		return nil, ErrUnknownTool
	}
	s.callSeq++
	id := fmt.Sprintf("c%d-%s-%d", s.callSeq, s.host.o.Owner, s.m.rec.Epoch)
	if o != nil && o.ID != "" {
		id = o.ID
	}
	if s.calls[id] != nil || len(id) > maxID {
		return nil, fmt.Errorf("the call id %.40q is too long or that of a call under way", id)
	}
	c := &call{id: id, name: name, args: arguments, done: make(chan struct{})}
	if o != nil && o.Progress != nil {
		c.reports, c.progress = true, make(chan Progress, maxProgress)
	}
	s.calls[c.id] = c
	s.feedLocked(hostCallBegan{})
	if running {
		s.dispatch(s.m.bound, c)
	}
	return c, nil
}

// callMeta is _meta of a call.
type callMeta struct {
	ProgressToken string   `json:"progressToken,omitzero"`
	Agentfy       *callTag `json:"agentfy,omitzero"`
}

type callTag struct {
	CallID string `json:"callId"`
}

type callParams struct {
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Meta      *callMeta      `json:"_meta,omitzero"`
}

// joins reports whether the worker joins repeated calls.
func (s *Session) joins() bool { return s.m.rec.Joins() }

// Joins reports whether the worker runs a call that is repeated under its id once.
// Without that, whether a call ran is unknown once its connection is lost.
func (r Record) Joins() bool {
	v, err := ParseVersion(r.Versions.Effective)
	return err == nil && v.hasCallIDs()
}

// dispatch sends a call over a connection.
func (s *Session) dispatch(ch channelID, c *call) {
	p := callParams{Name: c.name, Arguments: c.args}
	meta := callMeta{}
	if c.reports {
		meta.ProgressToken = c.id
	}
	if s.joins() {
		meta.Agentfy = &callTag{c.id}
	}
	if meta != (callMeta{}) {
		p.Meta = &meta
	}
	id, ok := s.request(ch, func(id jsontext.Value) []byte {
		return requestFrame(id, methodToolsCall, mustJSON(p))
	}, func(f frame) { s.callAnswered(c, f) })
	if !ok {
		c.end(nil, errors.New("the call is larger than a message may be"))
		return
	}
	c.ch, c.wire = ch, id
}

func (s *Session) callAnswered(c *call, f frame) {
	switch {
	case f.kind == kindError && f.err.Code == CodeResultGone:
		c.end(nil, ErrUnknownOutcome)
	case f.kind == kindError:
		c.end(nil, &RemoteError{f.err.Code, f.err.Message, f.err.Data.Clone()})
	case smuggles(f.result):
		s.audit("sampling_blocked", "the result of a call asks for input")
		c.end(nil, &RemoteError{Code: CodeSamplingDisabled, Message: "the result asks for input"})
	default:
		c.end(f.result.Clone(), nil)
	}
}

// orphan has the calls wait for the worker to come back; without call ids their
// outcome is unknown and nobody repeats them.
func (s *Session) orphan() {
	joins := s.joins()
	for _, c := range s.calls {
		if c.ch == 0 {
			continue
		}
		delete(s.pending, c.wire)
		c.ch = 0
		if !joins {
			c.end(nil, ErrUnknownOutcome)
		}
	}
}

// drop forgets a call that ended.
func (s *Session) drop(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c.id)
}

// cancel gives a call up, here and in the worker.
func (s *Session) cancel(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c.id)
	if c.ch == 0 {
		return
	}
	delete(s.pending, c.wire)
	s.pending[c.wire] = pendingAnswer{c.ch, func(frame) {}} // its answer is no surprise
	s.write(c.ch, noticeFrame(methodCancelled, mustJSON(struct {
		RequestID int64  `json:"requestId"`
		Reason    string `json:"reason"`
	}{c.wire, "the caller gave up"})))
}

func (s *Session) progressed(ch channelID, params jsontext.Value) {
	var p struct {
		Token    jsontext.Value `json:"progressToken"`
		Progress float64        `json:"progress"`
		Total    float64        `json:"total"`
		Message  string         `json:"message"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.Token.Kind() != '"' {
		return
	}
	token, err := jsontext.AppendUnquote(nil, p.Token)
	c := s.calls[string(token)]
	if err != nil || c == nil || c.ch != ch || !c.reports {
		return
	}
	for {
		select {
		case c.progress <- Progress{p.Progress, p.Total, p.Message}:
			return
		default:
		}
		select {
		case <-c.progress:
		default:
		}
	}
}

// listing is a tools/list under way.
type listing struct {
	ch    channelID
	again bool
	tools []*mcp.Tool
	pages int
}

// relist asks for the tools anew, after the listing under way if there is one.
func (s *Session) relist(ch channelID) {
	switch {
	case ch != s.m.bound || s.m.rec.State != StateRunning:
	case s.listing != nil && s.listing.ch == ch:
		s.listing.again = true
	default:
		s.list(ch)
	}
}

func (s *Session) list(ch channelID) {
	s.listing = &listing{ch: ch}
	s.page(s.listing, "")
}

func (s *Session) page(l *listing, cursor string) {
	s.request(l.ch, func(id jsontext.Value) []byte { return listFrame(id, cursor) }, func(f frame) { s.listed(l, f) })
}

// listed takes a page. An answer that is no list is none, and the wait for
// running goes on.
func (s *Session) listed(l *listing, f frame) {
	if s.listing != l || f.kind != kindResult {
		return
	}
	var page struct {
		Tools []jsontext.Value `json:"tools"`
		Next  string           `json:"nextCursor"`
	}
	if err := json.Unmarshal(f.result, &page); err != nil {
		return
	}
	for _, raw := range page.Tools {
		if t, err := readTool(raw); err == nil && len(l.tools) < maxTools {
			l.tools = append(l.tools, t)
		}
	}
	if l.pages++; page.Next != "" && l.pages < maxPages && len(l.tools) < maxTools {
		s.page(l, page.Next)
		return
	}
	if l.again {
		s.list(l.ch)
		return
	}
	names := make([]string, len(l.tools))
	for i, t := range l.tools {
		names[i] = t.Name
	}
	s.feedLocked(hostListed{l.ch, names})
}

// readTool keeps schemas as the worker wrote them.
func readTool(raw jsontext.Value) (*mcp.Tool, error) {
	t := &mcp.Tool{}
	if err := stdjson.Unmarshal(raw, t); err != nil {
		return nil, err
	}
	if t.Name == "" {
		return nil, errMissing
	}
	_, err := jsonx.ScanObject(raw, func(name string, at jsonx.Span) {
		switch name {
		case "inputSchema":
			t.InputSchema = stdjson.RawMessage(slices.Clone(at.Of(raw)))
		case "outputSchema":
			t.OutputSchema = stdjson.RawMessage(slices.Clone(at.Of(raw)))
		}
	})
	return t, err
}

// register replaces the tool set, and sends the calls that wait.
func (s *Session) register(ch channelID, names []string) {
	if s.listing == nil || s.listing.ch != ch {
		return
	}
	s.tools = slices.DeleteFunc(s.listing.tools, func(t *mcp.Tool) bool { return !slices.Contains(names, t.Name) })
	s.listing = nil
	for _, c := range s.calls {
		switch {
		case c.ch != 0:
		case !slices.Contains(names, c.name):
			c.end(nil, ErrUnknownTool)
		default:
			s.dispatch(ch, c)
		}
	}
}
