package listen

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Attach makes the hub serve resources/subscribe and resources/unsubscribe for
// the legacy sessions of a server, and keeps the SDK's own listen from ever
// answering. The server has to declare the capability itself:
// Resources.Subscribe in its options' Capabilities, and no SubscribeHandler.
func (h *Hub) Attach(s *mcp.Server) {
	receiving, sending := h.Middleware()
	s.AddSendingMiddleware(sending)
	s.AddReceivingMiddleware(receiving)
}

// Middleware returns what [Hub.Attach] installs, for a caller who needs it at
// another place in the chain. The two belong together, on one server: the
// sending one changes nothing, it learns how to reach a session.
func (h *Hub) Middleware() (receiving, sending mcp.Middleware) {
	s := &legacyServer{hub: h, sessions: make(map[*mcp.ServerSession]*legacySession)}
	return s.receiving, s.sending
}

// legacyServer holds the legacy sessions of one server that have subscriptions.
type legacyServer struct {
	hub *Hub

	mu       sync.Mutex
	send     mcp.MethodHandler
	sessions map[*mcp.ServerSession]*legacySession
}

// emptyResult is the result {}.
type emptyResult struct{ mcp.ResultBase }

func (s *legacyServer) sending(next mcp.MethodHandler) mcp.MethodHandler {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send = next
	return next
}

func (s *legacyServer) receiving(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		var err error
		switch r := req.(type) {
		case *mcp.SubscribeRequest:
			err = s.subscribe(ctx, r)
		case *mcp.UnsubscribeRequest:
			s.unsubscribe(r)
		case *mcp.SubscriptionsListenRequest:
			err = faultLegacyListen().rpcError()
		default:
			return next(ctx, method, req)
		}
		if err != nil {
			return nil, err
		}
		return &emptyResult{}, nil
	}
}

func (s *legacyServer) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	session, err := s.session(req.Session)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.hub.opts.OpenTimeout)
	defer cancel()
	return session.add(ctx, req.Params.URI)
}

func (s *legacyServer) unsubscribe(req *mcp.UnsubscribeRequest) {
	s.mu.Lock()
	session := s.sessions[req.Session]
	s.mu.Unlock()
	if session != nil {
		session.remove(req.Params.URI)
	}
}

// session returns the record of a session, which lives as long as the session.
func (s *legacyServer) session(ss *mcp.ServerSession) (*legacySession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.sessions[ss]; session != nil {
		return session, nil
	}
	session := &legacySession{server: s, ss: ss, watchers: make(map[string]*watcher)}
	session.l = &listener{hub: s.hub, sink: session, phase: phaseLive}
	if f := s.hub.admit(session.l); f != nil {
		return nil, f.rpcError()
	}
	s.sessions[ss] = session
	// Not a task that Shutdown waits for: it ends with the session, which may
	// outlive the hub.
	go func() {
		_ = ss.Wait()
		session.l.leave()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, ss)
	}()
	return session, nil
}

// legacySession is a sink for all subscriptions of one session: what it is slow
// to take is pending for it alone.
type legacySession struct {
	server *legacyServer
	ss     *mcp.ServerSession
	l      *listener

	mu       sync.Mutex // before topic.mu
	watchers map[string]*watcher
	closed   bool
}

var _ blockingSink = (*legacySession)(nil)

func (s *legacySession) add(ctx context.Context, uri string) error {
	if err := s.room(uri); err != nil {
		return err
	}
	w := &watcher{to: s.l}
	if err := s.server.hub.watch(ctx, uri, w); err != nil {
		return faultRefused(refuse(uri, err)).rpcError()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		w.stop()
		return faultShuttingDown().rpcError()
	case s.watchers[uri] != nil: // asked for twice at once
		w.stop()
	default:
		s.watchers[uri] = w
	}
	return nil
}

// room is the fault where no subscription more may be added.
func (s *legacySession) room(uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.server.hub.opts.MaxURIs
	switch {
	case s.closed:
		return faultShuttingDown().rpcError()
	case len(s.watchers) >= limit && s.watchers[uri] == nil:
		return faultTooManySubscriptions(limit).rpcError()
	}
	return nil
}

func (s *legacySession) remove(uri string) {
	s.mu.Lock()
	w := s.watchers[uri]
	delete(s.watchers, uri)
	s.mu.Unlock()
	if w != nil {
		w.stop()
		s.l.forget(w)
	}
}

func (s *legacySession) schedule(l *listener) {
	s.server.hub.spawn(func() { l.drain(s) })
}

// write sends the notifications to exactly this session, past the SDK's list of
// subscribers, which is empty. That a session cannot be reached now (its client
// has no stream open) is no reason to forget it: it is released when it ends.
func (s *legacySession) write(_ *listener, r *round) error {
	s.server.mu.Lock()
	send := s.server.send
	s.server.mu.Unlock()
	for _, t := range r.topics {
		ctx, cancel := context.WithTimeout(context.Background(), s.server.hub.opts.WriteTimeout)
		_, err := send(ctx, t.method, &mcp.ServerRequest[*mcp.ResourceUpdatedNotificationParams]{
			Session: s.ss, Params: &mcp.ResourceUpdatedNotificationParams{URI: t.uri},
		})
		cancel()
		if err != nil {
			s.server.hub.opts.Logger.Debug("legacy session not reached", logattr.Session(s.ss.ID()), logattr.Err(err))
		}
	}
	return nil
}

func (s *legacySession) close(*listener) {
	s.mu.Lock()
	s.closed = true
	all := s.watchers
	s.watchers = nil
	s.mu.Unlock()
	for _, w := range all {
		w.stop()
	}
}

// rpcError is the fault as the SDK sends it.
func (f *fault) rpcError() error {
	return &jsonrpc.Error{Code: f.Code, Message: f.Message, Data: []byte(f.Data)}
}
