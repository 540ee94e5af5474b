package app

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/notice"
)

// exchangeHeader carries the number of an exchange from the HTTP handler to the
// tool call within it. What a client sends under this name is overwritten.
const exchangeHeader = "Ossicle-Exchange"

// methodListTools is how an agent asks for its tools.
const methodListTools = "tools/list"

// settleTime bounds the note of what a result has shown.
const settleTime = 5 * time.Second

// attachment is one attempt of a session to give its agent tools.
type attachment struct {
	e       *Endpoint
	session string
	token   string
	server  *mcpserver.Server
	sources *listen.Registry
	sse     http.Handler
	web     http.Handler            // what agents find, watched where somebody watches
	stream  http.Handler            // the same, by the transport of 2024
	relays  map[string]http.Handler // to servers of others, by token
	late    func()                  // nil: nobody hears
	gone    context.Context         //nolint:containedctx // ends the streams of the older transport
	leave   context.CancelFunc
	listed  chan struct{} // closed when the agent has been told its tools
	once    sync.Once     // of listed

	mu        sync.Mutex
	exchanges uint64
	pulls     map[string][]*notice.Pull // by exchange, as long as it lasts
}

func newAttachment(e *Endpoint, way *wayIn) (*attachment, error) {
	sources := listen.NewRegistry(&listen.RegistryOptions{Logger: e.log})
	for _, s := range way.sources {
		if err := sources.Mount(s); err != nil {
			return nil, err
		}
	}
	hub := listen.NewHub(sources, &listen.HubOptions{Logger: e.log})
	a := &attachment{e: e, session: way.session, relays: way.relays, late: way.late, sources: sources, listed: make(chan struct{}), pulls: map[string][]*notice.Pull{}}
	a.gone, a.leave = context.WithCancel(context.Background())
	var mounted []mcpserver.Tool
	for _, t := range way.tools {
		mounted = append(mounted, mount(t))
	}
	server, err := mcpserver.New(sources, hub, mounted, &mcpserver.Options{Name: version.Name, Logger: e.log})
	if err != nil {
		sources.Close()
		a.leave()
		return nil, err
	}
	server.SDK().AddReceivingMiddleware(a.piggyback)
	a.server = server
	a.sse = mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server.SDK() }, &mcp.SSEOptions{
		DisableLocalhostProtection: true, // the server in front checks Host and Origin
		MaxRequestBodyBytes:        mcpserver.DefaultMaxBody,
	})
	a.web, a.stream = http.HandlerFunc(a.serveHTTP), http.HandlerFunc(a.serveSSE)
	if way.seen != nil {
		a.web, a.stream = way.seen.Handler(a.web), way.seen.Handler(a.stream)
	}
	return a, nil
}

// tokens are those of all its paths.
func (a *attachment) tokens() []string {
	return append(slices.Collect(maps.Keys(a.relays)), a.token)
}

// probing is the exchange of ourselves: nothing rides on it, and it says nothing
// about the agent.
const probing = "probe"

// serveProbe serves ourselves.
func (a *attachment) serveProbe(w http.ResponseWriter, r *http.Request) {
	r.Header.Set(exchangeHeader, probing)
	a.server.Handler().ServeHTTP(w, r)
}

// mount makes a tool of a session one of an MCP server.
func mount(t agent.Tool) mcpserver.Tool {
	return mcpserver.Tool{
		Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, ReadOnly: t.ReadOnly,
		Call: func(ctx context.Context, args json.RawMessage) (mcpserver.ToolResult, error) {
			r, err := t.Call(ctx, args)
			return mcpserver.ToolResult{Text: r.Text, IsError: r.IsError}, err
		},
	}
}

func (a *attachment) close(ctx context.Context) {
	a.leave()
	if err := a.server.Shutdown(ctx); err != nil {
		a.e.logFailure(ctx, "end an attachment", a.session, err)
	}
	a.sources.Close()
}

// serveHTTP serves Streamable HTTP. What rode on results of the exchange counts
// as shown once they were written without an error, and not before.
func (a *attachment) serveHTTP(w http.ResponseWriter, r *http.Request) {
	r.Header.Del(exchangeHeader)
	if a.e.inbox == nil || r.Method != http.MethodPost {
		a.server.Handler().ServeHTTP(w, r)
		return
	}
	a.mu.Lock()
	a.exchanges++
	id := strconv.FormatUint(a.exchanges, 10)
	a.pulls[id] = nil
	a.mu.Unlock()
	r.Header.Set(exchangeHeader, id)
	watched := &watchedWriter{ResponseWriter: w}
	defer func() { a.settle(context.WithoutCancel(r.Context()), id, watched) }()
	a.server.Handler().ServeHTTP(watched, r)
}

// serveSSE serves the transport of 2024, for agents that take nothing newer.
// Nothing rides on its results: they leave on another connection, unseen here.
func (a *attachment) serveSSE(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.gone, cancel)()
	a.sse.ServeHTTP(w, r.WithContext(ctx))
}

// piggyback ends the result of every tool with what is pending for the agent
// (specification D-11), and notes that the agent has asked for its tools.
func (a *attachment) piggyback(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		id := ""
		if extra := req.GetExtra(); extra != nil {
			id = extra.Header.Get(exchangeHeader)
		}
		if method == methodListTools && err == nil && id != probing {
			a.once.Do(func() { close(a.listed) })
		}
		result, ok := res.(*mcp.CallToolResult)
		if err != nil || !ok || a.e.inbox == nil {
			return res, err
		}
		if !a.open(id) {
			return res, nil
		}
		pull, perr := wake.Append(ctx, a.e.inbox, a.session, result)
		switch {
		case perr != nil:
			a.e.logFailure(ctx, "read the inbox for a result", a.session, perr)
		case !a.ride(id, pull): // the client went away meanwhile
			a.note(context.WithoutCancel(ctx), pull.Release)
		}
		return res, nil
	}
}

// open reports whether somebody still waits for the response of an exchange.
func (a *attachment) open(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.pulls[id]
	return ok
}

// ride adds a pull to an exchange that lasts.
func (a *attachment) ride(id string, pull *notice.Pull) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	pulls, ok := a.pulls[id]
	if ok {
		a.pulls[id] = append(pulls, pull)
	}
	return ok
}

func (a *attachment) note(ctx context.Context, note func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := note(ctx); err != nil {
		a.e.logFailure(ctx, "note what a result showed", a.session, err)
	}
}

// settle notes what became of the notices that rode on an exchange.
func (a *attachment) settle(ctx context.Context, id string, w *watchedWriter) {
	a.mu.Lock()
	pulls := a.pulls[id]
	delete(a.pulls, id)
	a.mu.Unlock()
	for _, p := range pulls {
		if w.err != nil || w.written == 0 {
			a.note(ctx, p.Release)
		} else {
			a.note(ctx, p.Seen)
		}
	}
}

// watchedWriter knows whether the response was written.
type watchedWriter struct {
	http.ResponseWriter

	written int64
	err     error
}

// Write implements http.ResponseWriter.
func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.written += int64(n)
	if err != nil {
		w.err = err
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (w *watchedWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err != nil {
		w.err = err
	}
	return err
}

// Flush implements http.Flusher, which the SDK asks for.
func (w *watchedWriter) Flush() { _ = w.FlushError() }

// Unwrap is for http.ResponseController.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
