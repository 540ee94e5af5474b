package mcpclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

// Subscribe implements watch.Server: one listen serves all URIs of the server.
// Besides the errors of the port it returns *listen.NoListenError for a server
// that has the version and not the method.
func (s *Server) Subscribe(ctx context.Context, uri string, sub watch.Subscriber) (func(), error) {
	sess, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.watchable(sess); err != nil {
		return nil, err
	}
	cancel, err := s.listener.Add(ctx, uri, sub)
	var refused *listen.RefusedError
	switch {
	case errors.As(err, &refused):
		out := &watch.RefusedError{Server: s.spec.Name, URI: uri}
		if refused.Err != nil {
			out.Reason = refused.Err.Error()
		}
		return nil, out
	case errors.Is(err, listen.ErrClientClosed):
		return nil, ErrClosed
	case err != nil:
		return nil, fmt.Errorf("subscribe to %q at server %q: %w", uri, s.spec.Name, err)
	}
	return cancel, nil
}

// watchable refuses a server of the legacy era unless that was opted in.
func (s *Server) watchable(sess *session) error {
	if sess.era == eraModern || s.o.LegacyWatch {
		return nil
	}
	return fmt.Errorf("%w (--legacy-watch watches it by resources/subscribe, which cannot tell when the server stops announcing)",
		&watch.VersionError{Server: s.spec.Name, Version: sess.init.ProtocolVersion})
}

// open is the opener of the listen client: it connects first if need be.
func (s *Server) open(ctx context.Context, filter listen.Filter) (*listen.Stream, error) {
	sess, err := s.session(ctx)
	if err != nil {
		return nil, s.final(err)
	}
	if err := s.watchable(sess); err != nil {
		return nil, &listen.PermanentError{Err: err}
	}
	stream, err := sess.open(ctx, filter)
	var none *listen.NoListenError
	if err != nil && !errors.As(err, &none) && (sess.http != nil || broken(err)) {
		// The connection is gone, or, over HTTP where no connection could tell, the
		// server may be another one now: the next attempt finds out anew.
		s.discard(sess)
	}
	return stream, s.final(err)
}

func (s *session) open(ctx context.Context, filter listen.Filter) (*listen.Stream, error) {
	switch {
	case s.era == eraLegacy:
		return s.legacy.open(ctx, filter)
	case s.http != nil:
		return s.http.Open(ctx, filter)
	case s.mux != nil:
		return s.mux.Open(ctx, filter)
	}
	return nil, &listen.NoListenError{Err: errors.New("the HTTP+SSE transport has none")}
}

// final marks errors that trying again within the minute cannot mend.
func (s *Server) final(err error) error {
	var restart *RestartError
	var auth *AuthError
	if errors.As(err, &restart) || errors.As(err, &auth) || errors.Is(err, ErrClosed) {
		return &listen.PermanentError{Err: err}
	}
	return err
}
