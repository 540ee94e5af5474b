package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/observe"
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
	probes  map[string]*attachment // by the token of a test
	current map[string]*attachment // by session
	late    map[string][]past      // by session, the newest last
	retired sync.WaitGroup
}

// past are the paths of an attempt that is over.
type past struct {
	tokens []string
	told   func() // that somebody uses one
}

// wayIn says what an agent finds at its way in, and who watches. Session is
// required.
type wayIn struct {
	session string
	tools   []agent.Tool
	sources []listen.Source
	seen    *observe.Observer       // nil: nobody watches
	late    func()                  // hears of traffic when it is over; nil: nobody does
	relays  map[string]http.Handler // to servers of others, by token
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
		byToken: map[string]*attachment{}, probes: map[string]*attachment{}, current: map[string]*attachment{}, late: map[string][]past{},
	}
	server, err := httpserver.New(endpointRoot{e}, &httpserver.Options{
		Addr: "127.0.0.1:0", NoAuth: true, Logger: log,
		Budget: httpserver.Budget{Requests: retireTime},
		Routes: []httpserver.Route{
			{Pattern: httpserver.MCPPath + "/{token}", Handler: http.HandlerFunc(e.serveHTTP)},
			{Pattern: ssePath + "/{token}", Handler: http.HandlerFunc(e.serveSSE)},
			{Pattern: relayPath + "/{token}", Handler: http.HandlerFunc(e.serveRelay)},
			{Pattern: relayPath + "/{token}/{rest...}", Handler: http.HandlerFunc(e.serveRelay)},
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
	return e.open(&wayIn{session: session, tools: tools, sources: sources})
}

func newToken() string { return strings.ToLower(rand.Text()) }

// base is the URL of the endpoint, without a path.
func (e *Endpoint) base() string { return strings.TrimSuffix(e.server.URL(), httpserver.MCPPath) }

func (e *Endpoint) open(way *wayIn) (agent.MCPServer, error) {
	a, err := newAttachment(e, way)
	if err != nil {
		return agent.MCPServer{}, fmt.Errorf("attach agent: %w", err)
	}
	a.token = newToken()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		a.close(context.Background())
		return agent.MCPServer{}, errEndpointClosed
	}
	old := e.dropLocked(way.session)
	e.current[way.session] = a
	for _, token := range a.tokens() {
		e.byToken[token] = a
	}
	e.mu.Unlock()
	e.retire(old)
	server := agent.MCPServer{
		Name: version.Name, HTTP: e.base() + httpserver.MCPPath + "/" + a.token, SSE: e.base() + ssePath + "/" + a.token, Command: e.bridge,
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

// Detach ends the way in of a session, and forgets those of before.
func (e *Endpoint) Detach(session string) {
	e.mu.Lock()
	old := e.dropLocked(session)
	delete(e.late, session)
	e.mu.Unlock()
	e.retire(old)
}

// supersede ends the way in of a session. Who comes by it is told for the attempt
// that it was made for.
func (e *Endpoint) supersede(session string) {
	e.mu.Lock()
	old := e.dropLocked(session)
	e.mu.Unlock()
	e.retire(old)
}

func (e *Endpoint) dropLocked(session string) *attachment {
	old := e.current[session]
	if old == nil {
		return nil
	}
	delete(e.current, session)
	for _, token := range old.tokens() {
		delete(e.byToken, token)
	}
	maps.DeleteFunc(e.probes, func(_ string, a *attachment) bool { return a == old })
	if old.late != nil {
		kept := append(e.late[session], past{old.tokens(), old.late})
		e.late[session] = kept[max(0, len(kept)-keptAttempts):]
	}
	e.retired.Add(1)
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

// find returns the attachment whose path it is. Traffic on a path that is over is
// told.
func (e *Endpoint) find(r *http.Request) *attachment {
	token := r.PathValue("token")
	e.mu.Lock()
	a, told := e.byToken[token], func() {}
	if a == nil {
		told = e.pastLocked(token)
	}
	e.mu.Unlock()
	told()
	return a
}

func (e *Endpoint) pastLocked(token string) func() {
	for _, all := range e.late {
		for _, p := range all {
			if slices.Contains(p.tokens, token) {
				return p.told
			}
		}
	}
	return func() {}
}

// own finds the attachment whose own path it is, not that of a relay.
func (e *Endpoint) own(r *http.Request) *attachment {
	if a := e.find(r); a != nil && a.token == r.PathValue("token") {
		return a
	}
	return nil
}

func (e *Endpoint) serveHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	probed := e.probes[r.PathValue("token")]
	e.mu.Unlock()
	if probed != nil {
		probed.serveProbe(w, r)
		return
	}
	a := e.own(r)
	if a == nil {
		http.NotFound(w, r)
		return
	}
	a.web.ServeHTTP(w, r)
}

func (e *Endpoint) serveSSE(w http.ResponseWriter, r *http.Request) {
	a := e.own(r)
	if a == nil {
		http.NotFound(w, r)
		return
	}
	a.stream.ServeHTTP(w, r)
}

// probe lets ourselves in to the endpoint of a session: what is done at the URL is
// not what an agent does. It reports false where the session has no way in.
func (e *Endpoint) probe(session string) (url string, done func(), ok bool) {
	token := newToken()
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.current[session]
	if a == nil {
		return "", nil, false
	}
	e.probes[token] = a
	return e.base() + httpserver.MCPPath + "/" + token, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.probes, token)
	}, true
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
	clear(r.e.probes)
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
