package pageserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of [Options].
const (
	DefaultConnections = 2048
	DefaultPing        = 30 * time.Second
	DefaultPingWait    = 15 * time.Second
	DefaultWriteTime   = 10 * time.Second
	DefaultMessages    = 4096
	DefaultBytes       = 8 << 20
)

// Options adjust a [Server]. Zero fields take the defaults.
type Options struct {
	// Connections bounds those that are open at a time.
	Connections int
	// Ping is how often a client is asked whether it is there, and its token whether
	// it stands; PingWait is the time for the answer.
	Ping, PingWait time.Duration
	// WriteTime is how long a client may take for one message.
	WriteTime time.Duration
	// Messages and Bytes bound what waits for one client.
	Messages, Bytes int
	// Recheck asks whether the token of a principal still stands. An error that wraps
	// access.ErrInvalidToken ends its connections. Nil means that tokens are not
	// revoked.
	Recheck func(ctx context.Context, p *access.Principal) error
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	fill(&out.Connections, DefaultConnections)
	fill(&out.Ping, DefaultPing)
	fill(&out.PingWait, DefaultPingWait)
	fill(&out.WriteTime, DefaultWriteTime)
	fill(&out.Messages, DefaultMessages)
	fill(&out.Bytes, DefaultBytes)
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func fill[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Server serves live connections, from New until Shutdown.
type Server struct {
	backend Backend
	o       Options
	log     *slog.Logger
	tickets tickets
	gaps    atomic.Int64

	mu       sync.Mutex
	draining bool
	active   int // connections, also those that are being upgraded
	conns    map[*conn]struct{}
	work     sync.WaitGroup
}

// New makes a server of what the backend has to show. Who calls it calls Shutdown.
func New(backend Backend, o *Options) *Server {
	s := &Server{backend: backend, o: o.orDefaults(), conns: map[*conn]struct{}{}}
	s.log = s.o.Logger
	return s
}

// Routes are those of the live connection, for httpserver.Options, whose server
// checks Host and Origin. That of the connection asks for no token: the ticket
// says who comes.
func (s *Server) Routes() []httpserver.Route {
	return []httpserver.Route{
		{Pattern: "POST " + TicketsPath, Handler: http.HandlerFunc(s.serveTicket)},
		{Pattern: "GET " + Path, Handler: http.HandlerFunc(s.serveLive), Open: true},
	}
}

// Stats is what a server does at a moment.
type Stats struct {
	Connections, Subscriptions int
	Gaps                       int64 // since the start
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Stats{Connections: len(s.conns), Gaps: s.gaps.Load()}
	for c := range s.conns {
		c.mu.Lock()
		all.Subscriptions += len(c.streams)
		c.mu.Unlock()
	}
	return all
}

// Shutdown closes the connections, politely until ctx ends, and refuses new ones.
// It returns when nothing is left of them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for c := range s.conns {
		c.end(closeGone, "the server ends: come again")
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("shut down live connections: %w", ctx.Err())
}

func (s *Server) serveTicket(w http.ResponseWriter, r *http.Request) {
	who, _ := httpserver.PrincipalOf(r.Context())
	ticket, until, err := s.tickets.issue(who, time.Now())
	if err != nil {
		s.later(w, err.Error())
		return
	}
	b, err := json.Marshal(struct {
		Ticket  string    `json:"ticket"`
		Expires time.Time `json:"expires"`
	}{ticket, until})
	if err != nil {
		httpserver.WriteProblem(w, http.StatusInternalServerError, "the ticket cannot be encoded")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(b, '\n'))
}

// later answers that another time is better.
func (s *Server) later(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	httpserver.WriteProblem(w, http.StatusServiceUnavailable, detail)
}

func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	who, ok := s.tickets.redeem(r.URL.Query().Get("ticket"), time.Now())
	if !ok {
		httpserver.WriteProblem(w, http.StatusUnauthorized, "the ticket is not good, or was used: get one of POST "+TicketsPath)
		return
	}
	if !offers(r) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Sec-WebSocket-Protocol", Subprotocol)
		httpserver.WriteProblem(w, http.StatusUpgradeRequired, "this is a WebSocket of the subprotocol "+Subprotocol)
		return
	}
	if !s.enter() {
		s.later(w, "no connection can begin now; try again in a moment")
		return
	}
	defer s.exit()
	below := &taken{ResponseWriter: w}
	ws, err := websocket.Accept(below, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		InsecureSkipVerify: true, // the guard of httpserver knows which origins are ours
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		s.log.LogAttrs(r.Context(), slog.LevelDebug, "an upgrade failed", logattr.Err(err))
		return
	}
	c := newConn(s, ws, below.conn, who)
	if !s.install(c) {
		c.end(closeGone, "the server ends: come again")
	}
	defer s.remove(c)
	c.serve(context.WithoutCancel(r.Context()))
}

// offers reports whether a request offers the subprotocol.
func offers(r *http.Request) bool {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		if slices.ContainsFunc(strings.Split(line, ","), func(p string) bool { return strings.TrimSpace(p) == Subprotocol }) {
			return true
		}
	}
	return false
}

// enter counts a connection in that Shutdown waits for.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.active >= s.o.Connections {
		return false
	}
	s.active++
	s.work.Add(1)
	return true
}

func (s *Server) exit() {
	s.mu.Lock()
	s.active--
	s.mu.Unlock()
	s.work.Done()
}

// install makes a connection known. It fails when the server ends.
func (s *Server) install(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	return !s.draining
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}
