package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

// Server is one configured MCP server. It connects when it is needed, one
// attempt at a time for everybody, and again when the connection was lost. It
// implements watch.Server.
type Server struct {
	spec     Spec
	o        Options
	log      *slog.Logger
	auth     *authorizer // nil: none
	listener *listen.Client

	wg sync.WaitGroup

	mu     sync.Mutex
	cur    *session // nil without a connection
	dial   *dial    // nil unless an attempt is under way
	era    era      // what the last connection showed
	starts []time.Time
	stderr string // of the child that died last
	cancel context.CancelFunc
	closed bool
}

var _ watch.Server = (*Server)(nil)

// dial is an attempt that callers share.
type dial struct {
	done chan struct{}
	sess *session
	err  error
}

// Name returns the configured name.
func (s *Server) Name() string { return s.spec.Name }

// Spec returns the configuration.
func (s *Server) Spec() Spec { return s.spec }

// session returns the live connection, making one if there is none. Callers at
// the same time share one attempt, which goes on when a caller gives up.
func (s *Server) session(ctx context.Context) (*session, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	if s.cur != nil && !s.cur.dead() {
		defer s.mu.Unlock()
		return s.cur, nil
	}
	if s.dial == nil {
		s.dial = &dial{done: make(chan struct{})}
		dctx, cancel := context.WithTimeoutCause(context.Background(), s.o.ConnectTimeout, errConnectTimeout)
		s.cancel = cancel
		d := s.dial
		s.wg.Go(func() { s.connect(dctx, d) })
	}
	d := s.dial
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.sess, d.err
	case <-ctx.Done():
		return nil, &ConnectError{Server: s.spec.Name, Err: context.Cause(ctx)}
	}
}

// errConnectTimeout is a net.Error, by which callers tell it.
var errConnectTimeout error = connectTimeout{}

type connectTimeout struct{}

func (connectTimeout) Error() string { return "no connection within the time limit" }

// Timeout and Temporary are those of net.Error.
func (connectTimeout) Timeout() bool   { return true }
func (connectTimeout) Temporary() bool { return true }

// connect makes the attempt d and then watches the connection.
func (s *Server) connect(ctx context.Context, d *dial) {
	sess, err := s.attempt(ctx)
	s.mu.Lock()
	s.cancel()
	s.dial = nil
	if err == nil && s.closed {
		err = ErrClosed
	}
	if err == nil {
		s.cur, s.era = sess, sess.era
	} else {
		s.era = eraUnknown // it may have become another server
	}
	d.err = err
	if err == nil {
		d.sess = sess
	}
	s.mu.Unlock()
	close(d.done)
	if sess == nil {
		return
	}
	if err != nil {
		sess.close()
	}
	s.log.LogAttrs(ctx, slog.LevelDebug, "server connected", protocolVersion(sess.init.ProtocolVersion))
	sess.watch()
	s.mu.Lock()
	if s.cur == sess {
		s.cur = nil
	}
	if sess.proc != nil {
		s.stderr = sess.proc.Stderr()
	}
	s.mu.Unlock()
	s.log.LogAttrs(ctx, slog.LevelDebug, "server connection ended", logattr.Err(sess.cause()))
}

func protocolVersion(v string) slog.Attr { return slog.String("protocol_version", v) }

// attempt connects by the transport of the server, with what is known of its
// era. A stdio server that ended on the probe is started once more and not
// probed; one that was only slow is started once more and awaited.
func (s *Server) attempt(ctx context.Context) (*session, error) {
	s.mu.Lock()
	c := connector{server: s, era: s.era, bound: s.o.ProbeTimeout}
	s.mu.Unlock()
	switch s.spec.Transport {
	case SSE:
		return c.overSSE(ctx)
	case HTTP:
		c.bound = s.o.HTTPProbeTimeout
		sess, err := c.overHTTP(ctx)
		if errors.Is(err, errSlow) {
			c.bound = s.o.ConnectTimeout
			return c.overHTTP(ctx)
		}
		return sess, err
	case Stdio:
	}
	if err := s.mayStart(); err != nil {
		return nil, err
	}
	sess, err := c.stdio(ctx)
	switch {
	case errors.Is(err, errExited) && ctx.Err() == nil:
		c.era = eraLegacy
		sess, err = c.stdio(ctx)
	case errors.Is(err, errSlow) && ctx.Err() == nil:
		c.bound = s.o.ConnectTimeout
		sess, err = c.stdio(ctx)
	}
	s.noteStderr(err)
	return sess, err
}

// noteStderr remembers what the last child said, for [RestartError].
func (s *Server) noteStderr(err error) {
	var failed *ConnectError
	if errors.As(err, &failed) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stderr = failed.Stderr
	}
}

// mayStart keeps the restart budget: a server that dies again and again is not
// started for ever (known fault B-032).
func (s *Server) mayStart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.starts) > 0 && now.Sub(s.starts[0]) >= s.o.RestartWindow {
		s.starts = s.starts[1:]
	}
	if len(s.starts) > s.o.RestartBudget {
		return &RestartError{Server: s.spec.Name, Starts: len(s.starts), Window: s.o.RestartWindow, Stderr: s.stderr}
	}
	s.starts = append(s.starts, now)
	return nil
}

// discard ends a connection that is of no more use, so that the next caller
// makes another.
func (s *Server) discard(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != sess {
		return
	}
	s.cur = nil
	s.era = eraUnknown
	if !s.closed {
		s.wg.Go(sess.close)
	}
}

// close ends everything and waits for it.
func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	if s.cancel != nil {
		s.cancel()
	}
	cur := s.cur
	s.mu.Unlock()
	s.listener.Close()
	if cur != nil {
		cur.close()
	}
	s.wg.Wait()
}

// call runs one request on the live connection and returns its raw result. A
// request that may be repeated is, once, when the connection turns out dead.
func (s *Server) call(ctx context.Context, timeout time.Duration, again bool, f func(context.Context, *session) error) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	for {
		sess, err := s.session(ctx)
		if err != nil {
			return nil, err
		}
		raw, err := sess.call(ctx, f)
		if err == nil {
			return raw, nil
		}
		err = withoutPath(err)
		if !broken(err) {
			return nil, s.explain(ctx, err)
		}
		s.discard(sess)
		if !again || ctx.Err() != nil {
			return nil, sess.lostBy(err)
		}
		again = false
	}
}

// explain words an error of a call that did not break the connection.
func (s *Server) explain(ctx context.Context, err error) error {
	var auth *AuthError
	if errors.As(err, &auth) {
		return auth
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("server %q: %w", s.spec.Name, err)
}

// call runs f with a context that ends with the session, and returns what its
// tap caught.
func (s *session) call(ctx context.Context, f func(context.Context, *session) error) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leave, err := s.enter(cancel)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, t := s.table.begin(ctx)
	defer t.end()
	err = f(ctx, s)
	switch raw, bad := t.result(); {
	case bad != nil:
		return nil, bad
	case raw != nil:
		// The server did answer. That the SDK cannot hold the answer in its types,
		// such as a number beyond float64, is of no concern.
		return raw, nil
	}
	return nil, err
}

// lostWait bounds the wait for why a connection ended: it takes the end of a child,
// which has its time for each step.
const lostWait = 5 * time.Second

// lostBy is the error of a call that the end of the connection cut short: what
// the end's cause tells, once it is known.
func (s *session) lostBy(err error) error {
	t := time.NewTimer(lostWait)
	defer t.Stop()
	select {
	case <-s.done:
		return s.cause()
	case <-t.C:
		return &LostError{Server: s.server.spec.Name, Err: err}
	}
}
