package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/notice"
)

// Paths and budgets of the endpoint.
const (
	ssePath = "/sse"
	// retireTime bounds the end of an attachment that a newer one replaces.
	retireTime = 3 * time.Second
)

// Endpoint is where the agents of this process reach the tools of their
// sessions over MCP: one HTTP server on a loopback address, with an unguessable
// path for each attempt of a session to attach its agent (specification N-4,
// N-23). Who knows the path is the agent: there is no other secret. It answers
// as soon as Attach has returned, whatever the agent's own session is doing.
type Endpoint struct {
	server *httpserver.Server
	inbox  *notice.Inbox // nil: nothing rides on results
	log    *slog.Logger
	bridge []string // command of a bridge; nil: agents need HTTP

	stop  context.CancelFunc
	ended chan error // gets the one result of the server

	mu      sync.Mutex
	closed  bool
	byToken map[string]*attachment
	current map[string]*attachment // by session
	retired sync.WaitGroup
}

// NewEndpoint starts to serve on a free port of the loopback interface. The
// caller closes it. What is pending in the inbox of an agent rides on the
// results of its tools; a nil inbox leaves that out.
func NewEndpoint(ctx context.Context, inbox *notice.Inbox, log *slog.Logger) (*Endpoint, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{
		inbox: inbox, log: log, ended: make(chan error, 1),
		byToken: map[string]*attachment{}, current: map[string]*attachment{},
	}
	server, err := httpserver.New(endpointRoot{e}, &httpserver.Options{
		Addr: "127.0.0.1:0", NoAuth: true, Logger: log,
		Budget: httpserver.Budget{Requests: retireTime},
		Routes: []httpserver.Route{
			{Pattern: httpserver.MCPPath + "/{token}", Handler: http.HandlerFunc(e.serveHTTP)},
			{Pattern: ssePath + "/{token}", Handler: http.HandlerFunc(e.serveSSE)},
		},
	})
	if err != nil {
		return nil, err
	}
	if err := server.Listen(ctx); err != nil {
		return nil, err
	}
	e.server = server
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	go func() { e.ended <- server.Run(run) }()
	return e, nil
}

// errEndpointClosed is returned by Attach after Close.
var errEndpointClosed = errors.New("attach agent: the endpoint is closed")

// Attach makes a new way in for the agent of a session and returns where it is.
// The one before, if any, is gone with it: its path answers 404.
func (e *Endpoint) Attach(session string, tools []agent.Tool, sources ...listen.Source) (agent.MCPServer, error) {
	token := strings.ToLower(rand.Text())
	a, err := newAttachment(e, session, tools, sources)
	if err != nil {
		return agent.MCPServer{}, fmt.Errorf("attach agent: %w", err)
	}
	a.token = token
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		a.close(context.Background())
		return agent.MCPServer{}, errEndpointClosed
	}
	old := e.dropLocked(session)
	e.byToken[token], e.current[session] = a, a
	e.mu.Unlock()
	e.retire(old)
	base := strings.TrimSuffix(e.server.URL(), httpserver.MCPPath)
	server := agent.MCPServer{
		Name: version.Name, HTTP: base + httpserver.MCPPath + "/" + token, SSE: base + ssePath + "/" + token, Command: e.bridge,
	}
	if e.bridge != nil {
		server.Env = []string{EnvBridge + "=" + server.SSE}
	}
	return server, nil
}

// AwaitListed waits until the agent of a session has been told the tools of its
// current way in. Without one it does not wait.
func (e *Endpoint) AwaitListed(ctx context.Context, session string) error {
	e.mu.Lock()
	a := e.current[session]
	e.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.listed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the agent to list its tools: %w", ctx.Err())
	}
}

// Detach ends the way in of a session.
func (e *Endpoint) Detach(session string) {
	e.mu.Lock()
	old := e.dropLocked(session)
	e.mu.Unlock()
	e.retire(old)
}

func (e *Endpoint) dropLocked(session string) *attachment {
	old := e.current[session]
	if old != nil {
		delete(e.byToken, old.token)
		delete(e.current, session)
		e.retired.Add(1)
	}
	return old
}

// retire ends an attachment that has no path any more, beside the caller.
func (e *Endpoint) retire(old *attachment) {
	if old == nil {
		return
	}
	go func() {
		defer e.retired.Done()
		ctx, cancel := context.WithTimeout(context.Background(), retireTime)
		defer cancel()
		old.close(ctx)
	}()
}

// Close ends all attachments and the server. Connections that their clients keep
// open are cut.
func (e *Endpoint) Close(context.Context) error {
	e.stop()
	err := <-e.ended
	if errors.Is(err, context.DeadlineExceeded) {
		e.log.Debug("endpoint cut connections", logattr.Err(err))
		return nil
	}
	return err
}

func (e *Endpoint) find(r *http.Request) *attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byToken[r.PathValue("token")]
}

func (e *Endpoint) serveHTTP(w http.ResponseWriter, r *http.Request) {
	a := e.find(r)
	if a == nil {
		http.NotFound(w, r)
		return
	}
	a.serveHTTP(w, r)
}

func (e *Endpoint) serveSSE(w http.ResponseWriter, r *http.Request) {
	a := e.find(r)
	if a == nil {
		http.NotFound(w, r)
		return
	}
	a.serveSSE(w, r)
}

// endpointRoot is the MCP endpoint without a token: there is none.
type endpointRoot struct{ e *Endpoint }

// Handler implements httpserver.MCP.
func (endpointRoot) Handler() http.Handler { return http.NotFoundHandler() }

// Shutdown implements httpserver.MCP.
func (r endpointRoot) Shutdown(ctx context.Context) error {
	r.e.mu.Lock()
	r.e.closed = true
	var live []*attachment
	for _, a := range r.e.current {
		live = append(live, a)
	}
	clear(r.e.byToken)
	clear(r.e.current)
	r.e.mu.Unlock()
	var ends sync.WaitGroup
	for _, a := range live {
		ends.Go(func() { a.close(ctx) })
	}
	ends.Wait()
	r.e.retired.Wait() // each is bounded
	return nil
}

// logFailure says which step of a session's attachment failed.
func (e *Endpoint) logFailure(ctx context.Context, step, session string, err error) {
	e.log.LogAttrs(ctx, slog.LevelWarn, "endpoint failed", logattr.Session(session), logattr.Reason(step), logattr.Err(err))
}
