package mcpclient

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
)

// session is one live connection to a server.
type session struct {
	server *Server
	era    era
	cs     *mcp.ClientSession
	init   *mcp.InitializeResult
	found  []byte // the raw result of server/discover or initialize
	table  *taps

	mux    *listen.Mux        // pipes: opens listens of the modern era
	http   *listen.HTTPOpener // Streamable HTTP: the same
	legacy *legacyHub         // updates of the legacy era

	proc     *process.Process // pipes
	noise    *noise
	teardown func() // ends the transport at once; reads end with it

	done chan struct{} // closed when the connection is over and cleaned up

	mu      sync.Mutex
	err     error // why it is over
	closing bool
	calls   map[int]context.CancelFunc // those under way
	seq     int
}

// exitWait bounds the wait for the exit of a child whose pipes have ended. A busy
// machine takes a while to reap it.
const exitWait = 2 * time.Second

// connector makes one attempt at a session.
type connector struct {
	server *Server
	era    era // what is known; unknown probes
	bound  time.Duration
}

// clientOptions are those of every session: no capabilities, so that no server
// expects anything of us.
func clientOptions(hub *legacyHub) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			if r.Params != nil {
				hub.updated(r.Params.URI)
			}
		},
	}
}

// connect runs the handshake over a transport and returns the session, which
// nobody watches yet.
func (c connector) connect(ctx context.Context, t mcp.Transport, table *taps) (*session, error) {
	hub := newLegacyHub()
	client := mcp.NewClient(&mcp.Implementation{Name: version.Name, Version: version.Number()}, clientOptions(hub))
	opts := &mcp.ClientSessionOptions{}
	hs := newHandshake(c.bound, c.server.spec.Transport == Stdio, table)
	client.AddSendingMiddleware(uncached, hs.middleware)
	if c.era == eraLegacy {
		opts.ProtocolVersion = legacyVersion
	}
	ctx, cancel := context.WithCancel(ctx)
	cs, err := client.Connect(ctx, t, opts)
	cancel()
	hs.wait()
	if err != nil {
		if hs.verdict != nil && !errors.Is(err, hs.verdict) {
			err = hs.verdict
		}
		return nil, err
	}
	init := cs.InitializeResult()
	s := &session{
		server: c.server, era: eraOf(init.ProtocolVersion), cs: cs, init: init, found: hs.found, table: table,
		legacy: hub, done: make(chan struct{}), calls: map[int]context.CancelFunc{},
	}
	hub.cs = cs
	return s, nil
}

// stdio starts the child and connects to it.
func (c connector) stdio(ctx context.Context) (*session, error) {
	srv := c.server
	proc, err := process.Start(process.Options{
		Args: append([]string{srv.spec.Command}, srv.spec.Args...),
		Env:  srv.spec.environ(srv.o.Environ), Dir: srv.spec.Dir,
		Grace: srv.o.StopGrace,
	})
	if err != nil {
		return nil, &ConnectError{Server: srv.spec.Name, Err: err}
	}
	srv.log.LogAttrs(ctx, slog.LevelDebug, "server started", logattr.PID(proc.Pid()))
	conn := newLineConn(proc.Stdout, proc.Stdin, proc.Stop, srv.log)
	table := newTaps()
	mux := listen.NewMux(&tapTransport{Transport: conn, table: table}, &listen.MuxOptions{Logger: srv.log})
	// The deadline of the connection must end a read of a silent child too.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	s, err := c.connect(ctx, mux, table)
	stop()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if ctx.Err() == nil && broken(err) {
			if given := conn.ended(); given != nil { // by us: the child may live
				err = errors.Join(given, err)
			} else {
				err = errors.Join(err, exited(proc))
			}
		}
		_ = conn.Close()
		<-proc.Done()
		return nil, &ConnectError{Server: srv.spec.Name, Err: err, Stderr: proc.Stderr()}
	}
	s.mux, s.proc, s.noise = mux, proc, conn.noise
	s.teardown = func() { _ = conn.Close() }
	return s, nil
}

// exited returns with what status a child ended whose pipes have ended. It is nil
// for one that lives.
func exited(p *process.Process) error {
	t := time.NewTimer(exitWait)
	defer t.Stop()
	select {
	case <-p.Done():
		return p.Wait()
	case <-t.C:
		return nil
	}
}

// overHTTP connects to Streamable HTTP.
func (c connector) overHTTP(ctx context.Context) (*session, error) {
	table := newTaps()
	client, idle, err := c.server.httpClient(table)
	if err != nil {
		return nil, err
	}
	s, err := c.connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: c.server.spec.URL, HTTPClient: client,
		// Updates of the legacy era come on a stream of their own, which is a
		// standing request that only legacy watching needs.
		DisableStandaloneSSE: !c.server.o.LegacyWatch,
		MaxEventSize:         -1, // the guard bounds events
	}, table)
	if err != nil {
		idle()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &ConnectError{Server: c.server.spec.Name, Err: withoutPath(err)}
	}
	s.http = listen.NewHTTPOpener(c.server.spec.URL, &listen.HTTPOptions{Client: client, Logger: c.server.log})
	s.teardown = idle
	return s, nil
}

// overSSE connects to the transport of 2024, whose stream belongs to the
// context of the connection and so must not be bound by that of the attempt.
func (c connector) overSSE(ctx context.Context) (*session, error) {
	table := newTaps()
	client, idle, err := c.server.httpClient(table)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, end)
	c.era = eraLegacy
	s, err := c.connect(ctx, &tapTransport{table: table, Transport: transportFunc(func(context.Context) (mcp.Connection, error) {
		return (&mcp.SSEClientTransport{Endpoint: c.server.spec.URL, HTTPClient: client, MaxEventSize: -1}).Connect(life)
	})}, table)
	if !detach() {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		idle()
		return nil, &ConnectError{Server: c.server.spec.Name, Err: err}
	}
	s.teardown = func() { end(); idle() }
	return s, nil
}

type transportFunc func(context.Context) (mcp.Connection, error)

func (f transportFunc) Connect(ctx context.Context) (mcp.Connection, error) { return f(ctx) }

// httpClient returns a client of its own for one connection, and what closes
// its idle connections.
func (s *Server) httpClient(table *taps) (*http.Client, func(), error) {
	base, idle := s.o.HTTPTransport, func() {}
	if base == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = 0 // answers may take long; the calls are bounded
		base, idle = t, t.CloseIdleConnections
	}
	g, err := newGuard(s.spec, base, table, s.log)
	if err != nil {
		return nil, nil, err
	}
	g.auth = s.auth
	return &http.Client{Transport: g}, idle, nil
}

// watch waits for the end of the connection and cleans up after it.
func (s *session) watch() {
	cause := s.cs.Wait()
	s.teardown()
	_ = s.cs.Close()
	lost := &LostError{Server: s.server.spec.Name, Err: withoutPath(cause)}
	if s.proc != nil {
		<-s.proc.Done()
		if exit := s.proc.Wait(); exit != nil {
			lost.Err = errors.Join(cause, exit)
		}
		lost.Stderr = s.proc.Stderr()
	}
	if lost.Err == nil {
		lost.Err = io.EOF
	}
	s.mu.Lock()
	s.err = lost
	s.mu.Unlock()
	s.legacy.end(lost)
	close(s.done)
}

// dead reports whether the connection is over.
func (s *session) dead() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// enter notes a call that the end of the session must cut short: the SDK waits
// for every call before it closes.
func (s *session) enter(cancel context.CancelFunc) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, mcp.ErrConnectionClosed
	}
	s.seq++
	n := s.seq
	s.calls[n] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, n)
	}, nil
}

// close ends the connection; watch cleans up.
func (s *session) close() {
	s.mu.Lock()
	s.closing = true
	for _, cancel := range s.calls {
		cancel()
	}
	s.mu.Unlock()
	if s.proc != nil || s.server.spec.Transport == SSE {
		s.teardown() // first: the SDK waits for calls that are under way
	}
	_ = s.cs.Close()
}
