package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/attach"
)

// modernVersion is the first revision without initialize. Revisions are ISO
// dates: they sort as text.
const modernVersion = "2026-07-28"

// Methods that are evidence.
const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
	methodListTools  = "tools/list"
	methodCallTool   = "tools/call"
	methodListen     = "subscriptions/listen"
	methodNotFound   = -32601
)

// conn is one connection, or one exchange of HTTP. It belongs to the goroutine of
// its observer.
type conn struct {
	o       *Observer
	id      string // opaque; empty until there is one
	version string // of the request header, where there are headers
	pending map[string]request
	methods []string
	opened  bool // an initialize has succeeded
}

// request is one that waits for its response.
type request struct {
	method, tool string
	page         bool // of a list, not the first
	version      string
	client       implementation
	slow         *time.Timer // nil: nobody waits for it
}

// take removes a request that nobody waits for any more.
func (c *conn) take(id string) request {
	r := c.pending[id]
	if r.slow != nil {
		r.slow.Stop()
	}
	delete(c.pending, id)
	return r
}

// await tells when the answer is late.
func (c *conn) await(r *request) {
	if o := c.o.o; o.Slow != nil && r.method != methodListen {
		r.slow = time.AfterFunc(o.SlowAfter, o.Slow)
	}
}

func newConn(o *Observer) *conn { return &conn{o: o, pending: map[string]request{}} }

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// params are those of any request, as far as they are evidence.
type params struct {
	Name            string         `json:"name"`   // of a tool
	Cursor          jsontext.Value `json:"cursor"` // of a page
	ProtocolVersion string         `json:"protocolVersion"`
	ClientInfo      implementation `json:"clientInfo"`
	Meta            struct {
		Version    string         `json:"io.modelcontextprotocol/protocolVersion"`
		ClientInfo implementation `json:"io.modelcontextprotocol/clientInfo"`
	} `json:"_meta"`
}

// client takes what the client says.
func (c *conn) client(b []byte) {
	for _, m := range messages(b) {
		if m.method == "" || m.id == "" {
			continue
		}
		if len(c.methods) < maxPending {
			c.methods = append(c.methods, m.method)
		}
		if len(c.pending) >= maxPending {
			continue // nobody answers
		}
		var p params
		decode(m.params, &p)
		r := request{method: m.method, page: p.Cursor.Kind() == '"', client: p.Meta.ClientInfo, version: p.Meta.Version}
		if r.version == "" && c.version >= modernVersion {
			r.version = c.version
		}
		switch m.method {
		case methodCallTool:
			r.tool = p.Name
		case methodInitialize:
			r.client, r.version = p.ClientInfo, p.ProtocolVersion
		}
		c.take(m.id) // an id that is used again
		c.await(&r)
		c.pending[m.id] = r
	}
}

// server takes what the server says.
func (c *conn) server(b []byte, at time.Time) {
	if len(c.pending) == 0 {
		return
	}
	for _, m := range messages(b) {
		_, ok := c.pending[m.id]
		switch {
		case ok && m.answered:
			r := c.take(m.id)
			c.answered(r, m, at)
		case m.method == "notifications/subscriptions/acknowledged":
			// A listen is answered at its end; this says that it stands.
			for _, r := range c.pending {
				if r.method == methodListen {
					c.modern(r, at)
				}
			}
		}
	}
}

// faults takes the errors in a response that HTTP marks as one: nothing in it is a
// success.
func (c *conn) faults(b []byte, at time.Time) {
	for _, m := range messages(b) {
		if _, ok := c.pending[m.id]; ok && m.failed {
			r := c.take(m.id)
			c.refused(r, m.fault, at)
		}
	}
}

func (c *conn) evidence(kind attach.Kind, at time.Time, r request) attach.Evidence {
	e := attach.Evidence{Kind: kind, OccurredAt: at}
	e.ConnectionID, e.Era = c.id, attach.EraLegacy
	if r.version >= modernVersion && r.method != methodInitialize {
		e.ConnectionID, e.Era = "", attach.EraModern
	}
	return e
}

func (c *conn) answered(r request, m message, at time.Time) {
	if m.failed {
		c.refused(r, m.fault, at)
		return
	}
	switch r.method {
	case methodDiscover:
		c.discovered(r, m.result, at)
		return
	case methodInitialize:
		c.initialized(r, m.result, at)
		return
	}
	c.modern(r, at)
	switch r.method {
	case methodListTools:
		e := c.evidence(attach.ToolsListObserved, at, r)
		e.ToolCount = c.count(r, m.result)
		c.o.emit(e)
	case methodCallTool:
		e := c.evidence(attach.ToolCallObserved, at, r)
		e.Tool = r.tool
		c.o.emit(e)
	}
}

// refused tells of an error: a method that is not there, or a tool that fails, is
// no failure of the server. The text of a tool's error may repeat its arguments.
func (c *conn) refused(r request, fault jsontext.Value, at time.Time) {
	var f struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	decode(fault, &f)
	e := c.evidence(attach.RequestError, at, r)
	e.Method, e.Tool, e.Reason = r.method, r.tool, attach.ReasonProtocolError
	if f.Code == methodNotFound {
		e.Reason = attach.ReasonMethodNotFound
	}
	e.Summary = fmt.Sprintf("error %d", f.Code)
	if f.Message != "" && r.method != methodCallTool {
		e.Summary = c.o.o.Sanitizer.Summary(e.Summary + ": " + f.Message)
	}
	c.o.emit(e)
}

func (c *conn) discovered(r request, result jsontext.Value, at time.Time) {
	var found struct {
		Versions []string `json:"supportedVersions"`
	}
	decode(result, &found)
	e := c.evidence(attach.DiscoverObserved, at, r)
	e.ConnectionID, e.Era = "", attach.EraLegacy // a probe, so far
	if slices.ContainsFunc(found.Versions, func(v string) bool { return v >= modernVersion }) {
		e.Era = attach.EraModern
	}
	e.ClientName, e.ClientVersion, e.ProtocolVersion = r.client.Name, r.client.Version, r.version
	c.o.emit(e)
}

func (c *conn) initialized(r request, result jsontext.Value, at time.Time) {
	var agreed struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	decode(result, &agreed)
	c.opened = true
	e := c.evidence(attach.InitializeObserved, at, r)
	e.ClientName, e.ClientVersion, e.ProtocolVersion = r.client.Name, r.client.Version, agreed.ProtocolVersion
	c.o.emit(e)
}

// modern tells of the first request of a client of revision 2026-07-28, which has
// no initialize and no connection.
func (c *conn) modern(r request, at time.Time) {
	if r.version < modernVersion {
		return
	}
	who := strings.Join([]string{r.client.Name, r.client.Version, r.version}, "\x00")
	if c.o.clients[who] {
		return
	}
	bounded(c.o.clients, maxClients)[who] = true
	e := c.evidence(attach.InitializeObserved, at, r)
	e.ClientName, e.ClientVersion, e.ProtocolVersion = r.client.Name, r.client.Version, r.version
	c.o.emit(e)
}

// count counts the tools of a list over its pages; nil if the page is not whole.
func (c *conn) count(r request, result jsontext.Value) *int {
	var page struct {
		Tools []jsontext.Value `json:"tools"`
	}
	key := c.id + "\x00" + r.client.Name
	if result == nil {
		delete(c.o.totals, key)
		return nil
	}
	decode(result, &page)
	n := len(page.Tools)
	if r.page {
		before, known := c.o.totals[key]
		if !known {
			return nil
		}
		n += before
	}
	bounded(c.o.totals, maxClients)[key] = n
	return &n
}

// forget ends the wait for what will not be answered.
func (c *conn) forget() {
	for id := range c.pending {
		c.take(id)
	}
}

// closed tells that the connection has ended.
func (c *conn) closed(at time.Time) {
	c.forget()
	if c.id == "" || !c.opened {
		return
	}
	c.o.emit(attach.Evidence{Kind: attach.ConnectionClosed, OccurredAt: at, Detail: attach.Detail{ConnectionID: c.id}})
	c.opened = false
}
