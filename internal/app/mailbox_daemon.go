package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/mailbox"
)

// signalsPath is where the daemon serves an agent of a session over MCP.
const signalsPath = "/mcp/signals/{session}/{agent}"

const (
	// maxSeats bounds the agents that the daemon serves at a time.
	maxSeats = 256
	// seatIdle is how long one is kept without a request and without a listen.
	seatIdle = 10 * time.Minute
)

// signalHost serves agents in collaboration sessions over HTTP, each at a path of
// its own. Who an agent is, the token says that comes with each request.
type signalHost struct {
	agents *Agents
	log    *slog.Logger

	mu     sync.Mutex
	closed bool
	seats  map[[2]string]*httpSeat
	ending sync.WaitGroup
}

func newSignalHost(a *Agents, log *slog.Logger) *signalHost {
	return &signalHost{agents: a, log: log, seats: map[[2]string]*httpSeat{}}
}

func (h *signalHost) route() httpserver.Route {
	return httpserver.Route{Pattern: signalsPath, Handler: http.HandlerFunc(h.serveHTTP)}
}

// httpSeat is one agent that is served.
type httpSeat struct {
	*seat

	ready   chan struct{} // closed when it is served, or err says why not
	err     error
	server  *mcpserver.Server
	hub     *listen.Hub
	sources *listen.Registry
	uses    int
	timer   *time.Timer // nil while it is used
}

// mayBe checks that a principal is the agent: its token has the agent's name or one
// above it, or is for all sessions, as that of the person whose daemon this is.
func mayBe(p *access.Principal, session, agent string) error {
	named := p.Name == agent || strings.HasPrefix(agent, p.Name+".")
	if p.Rights.Session(session) && (named || p.Rights.Session("*")) {
		return nil
	}
	return fmt.Errorf("%s may not be agent %q in session %s: that takes a token of the agent's name with a right to the session", p.Name, agent, session)
}

func (h *signalHost) serveHTTP(w http.ResponseWriter, r *http.Request) {
	session, agent := r.PathValue("session"), r.PathValue("agent")
	if err := errors.Join(mailbox.CheckSession(session), mailbox.CheckAgent(agent)); err != nil {
		httpserver.WriteProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	if p, known := httpserver.PrincipalOf(r.Context()); known {
		if err := mayBe(p, session, agent); err != nil {
			httpserver.WriteProblem(w, http.StatusForbidden, err.Error())
			return
		}
	}
	s, err := h.take(r.Context(), session, agent)
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.As(err, new(*mailbox.ConflictError)) {
			status = http.StatusConflict
		}
		httpserver.WriteProblem(w, status, err.Error())
		return
	}
	defer h.release([2]string{session, agent}, s)
	s.server.Handler().ServeHTTP(w, r)
}

var errTooManySeats = fmt.Errorf("%d agents are served, and no more are: try again later", maxSeats)

// take returns the seat of an agent, which it makes if there is none; release must
// follow.
func (h *signalHost) take(ctx context.Context, session, agent string) (*httpSeat, error) {
	key := [2]string{session, agent}
	h.mu.Lock()
	s := h.seats[key]
	switch {
	case h.closed:
		h.mu.Unlock()
		return nil, errAgentsClosed
	case s == nil && len(h.seats) >= maxSeats:
		h.mu.Unlock()
		return nil, errTooManySeats
	case s == nil:
		s = &httpSeat{ready: make(chan struct{}), uses: 1}
		h.seats[key] = s
		h.mu.Unlock()
		s.err = h.open(context.WithoutCancel(ctx), s, session, agent)
		close(s.ready)
	default:
		s.uses++
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
		h.mu.Unlock()
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		h.release(key, s)
		return nil, ctx.Err()
	}
	if s.err != nil {
		h.release(key, s)
		return nil, s.err
	}
	return s, nil
}

// release gives a seat back; after a while the last one to do so closes it.
func (h *signalHost) release(key [2]string, s *httpSeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch s.uses--; {
	case s.uses > 0 || h.closed:
	case s.err != nil:
		delete(h.seats, key)
	default:
		s.timer = time.AfterFunc(seatIdle, func() { h.expire(key, s) })
	}
}

func (h *signalHost) expire(key [2]string, s *httpSeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.seats[key] != s || s.uses > 0 {
		return
	}
	if s.hub.Stats().Listens > 0 {
		s.timer.Reset(seatIdle)
		return
	}
	delete(h.seats, key)
	h.ending.Go(func() { s.end(context.Background(), h.log) })
}

// open makes the agent a member and its server.
func (h *signalHost) open(ctx context.Context, s *httpSeat, session, agent string) (err error) {
	a := h.agents
	if err := a.Inbox.Register(ctx, agent); err != nil {
		return err
	}
	s.seat = newSeat(ctx, a.signals, a.Inbox, h.log, seatOptions{
		agent: agent, harness: "http", turn: mailbox.TurnTime,
		escalator: func(session string) mailbox.Escalator { return s.server.Sampling(session) },
	})
	s.sources = listen.NewRegistry(&listen.RegistryOptions{Logger: h.log})
	s.hub = listen.NewHub(s.sources, &listen.HubOptions{Logger: h.log})
	defer func() {
		if err != nil {
			s.end(ctx, h.log)
		}
	}()
	if err := s.sources.Mount(mcpserver.SignalSource(s.Seat)); err != nil {
		return err
	}
	s.server, err = mcpserver.New(s.sources, s.hub, mcpserver.SignalTools(s.Seat), &mcpserver.Options{Name: version.Name, Instructions: signalsBriefing, Logger: h.log})
	if err != nil {
		return err
	}
	s.server.SDK().AddReceivingMiddleware(piggyback(s.inbox, s.o.agent, s.log))
	return s.join(ctx, session)
}

// end closes a seat, also one that was only half made.
func (s *httpSeat) end(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mailboxBudget)
	defer cancel()
	var err error
	if s.server != nil {
		err = s.server.Shutdown(ctx)
	}
	err = errors.Join(err, s.close(ctx))
	s.sources.Close()
	if err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(s.o.agent), logattr.Reason("end"), logattr.Err(err))
	}
}

// shutdown ends all of them.
func (h *signalHost) shutdown(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	all := h.seats
	h.seats = map[[2]string]*httpSeat{}
	for _, s := range all {
		if s.timer != nil {
			s.timer.Stop()
		}
	}
	h.mu.Unlock()
	for _, s := range all {
		h.ending.Go(func() {
			<-s.ready
			if s.err == nil {
				s.end(ctx, h.log)
			}
		})
	}
	h.ending.Wait()
}
