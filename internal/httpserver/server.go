package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of [Options].
const (
	DefaultAddr = "127.0.0.1:7718"
	MCPPath     = "/mcp"

	headerTime = 10 * time.Second // reading the head of a request
	idleTime   = 2 * time.Minute  // of a connection between two requests
	writeTime  = 10 * time.Second // one write
	readyTime  = 2 * time.Second  // one readiness check
	maxHeader  = 64 << 10         // bytes of the head of a request
	maxStreams = 1000             // of one HTTP/2 connection
	pingTime   = 15 * time.Second // of silence on an HTTP/2 connection before it is asked
)

// MCP is the endpoint at MCPPath; *mcpserver.Server is one.
type MCP interface {
	Handler() http.Handler
	// Shutdown ends streams politely and waits for the requests under way.
	Shutdown(ctx context.Context) error
}

// Options configure a [Server].
type Options struct {
	// Addr is where to listen. Empty means [DefaultAddr].
	Addr string
	// TLS serves HTTPS.
	TLS *tls.Config
	// Auth lets in who has a good token. Without one NoAuth must say so, and the
	// address must be a loopback one.
	Auth   Authenticator
	NoAuth bool
	// Tickets verifies the tickets with which browsers may come to the routes that
	// take them. Nil takes none.
	Tickets *access.Tickets
	// OAuth makes the server a resource server that tells its clients where to
	// get tokens (RFC 9728). Auth verifies them.
	OAuth *OAuth
	// Hosts are names beside the loopback ones under which the server is known.
	Hosts []string
	// Origins are the web origins, scheme://host[:port], whose pages may call it.
	Origins []string
	// Routes are added to the mux, behind the token.
	Routes []Route
	// Ready tells whether the server can serve. Nil means always.
	Ready func(ctx context.Context) error
	// Shutdown ends the long answers of Routes, as MCP.Shutdown ends its own; the
	// two run at the same time.
	Shutdown func(ctx context.Context) error
	// Budget bounds the shutdown. Its zero fields mean [DefaultBudget].
	Budget Budget
	// Logger gets what goes wrong. Nil discards.
	Logger *slog.Logger
}

// Route is a handler of the application.
type Route struct {
	Pattern string // of http.ServeMux
	Handler http.Handler
	// Tickets: a GET may come with ?ticket= in place of a token.
	Tickets bool
	// Open: nobody is asked for a token. The handler itself knows whom to believe.
	Open bool
}

// OAuth describes the resource server to its clients.
type OAuth struct {
	// Resource is the URL of the MCP endpoint as clients know it; tokens are for
	// this audience.
	Resource string
	// AuthorizationServers are the issuers of tokens.
	AuthorizationServers []string
	// Scopes are those that a client should ask for.
	Scopes []string
}

// Server is an HTTP server, from New until Run returns.
type Server struct {
	opts  Options
	mcp   MCP
	log   *slog.Logger
	hosts []string // in lower case
	// ticketed are the patterns of the routes that take tickets.
	ticketed map[string]bool
	http     *http.Server

	ln       net.Listener
	draining atomic.Bool
}

// OptionsError says which of the options cannot be served with.
type OptionsError struct{ Err error }

func (e *OptionsError) Error() string { return "make HTTP server: " + e.Err.Error() }
func (e *OptionsError) Unwrap() error { return e.Err }

// New makes a server. It fails for a configuration that would let everybody in, with an
// *OptionsError.
func New(mcp MCP, opts *Options) (*Server, error) {
	s := &Server{mcp: mcp, ticketed: map[string]bool{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Addr == "" {
		s.opts.Addr = DefaultAddr
	}
	s.log = s.opts.Logger
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, h := range s.opts.Hosts {
		s.hosts = append(s.hosts, hostname(h))
	}
	s.opts.Budget = s.opts.Budget.withDefaults()
	if err := s.check(); err != nil {
		return nil, &OptionsError{err}
	}
	s.http = &http.Server{
		Handler:           s.handler(),
		TLSConfig:         s.opts.TLS,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingTime, PingTimeout: pingTime},
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // mostly what peers do wrong
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s, nil
}

func (s *Server) check() error {
	host, port, err := net.SplitHostPort(s.opts.Addr)
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if n, err := strconv.Atoi(port); err == nil && (n < 0 || n > math.MaxUint16) {
		return fmt.Errorf("address %s: ports go from 0 to %d", s.opts.Addr, math.MaxUint16)
	}
	switch {
	case s.mcp == nil:
		return errors.New("no MCP endpoint is given")
	case s.opts.Auth != nil && s.opts.NoAuth:
		return errors.New("authentication is both given and switched off")
	case s.opts.Auth == nil && !s.opts.NoAuth:
		return errors.New("no authentication is given: use a token file on loopback, and tokens or OAuth elsewhere")
	case s.opts.NoAuth && !isLoopbackName(host):
		return fmt.Errorf("address %s can be reached by others: it needs tokens or OAuth", s.opts.Addr)
	}
	for _, o := range s.opts.Origins {
		if u, err := url.Parse(o); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
			return fmt.Errorf("origin %q: the form is scheme://host[:port]", o)
		}
	}
	if o := s.opts.OAuth; o != nil {
		if u, err := url.Parse(o.Resource); err != nil || u.Host == "" || u.Fragment != "" || len(o.AuthorizationServers) == 0 {
			return errors.New("OAuth needs the URL of the MCP endpoint and an authorization server")
		}
	}
	return nil
}

// handler is the way of every request.
func (s *Server) handler() http.Handler {
	inner, behind := http.NewServeMux(), http.NewServeMux() // with and without a catch-all
	outer, open := http.NewServeMux(), http.NewServeMux()
	none := http.NotFoundHandler()
	inner.Handle(MCPPath, s.mcp.Handler())
	behind.Handle(MCPPath, none)
	for _, r := range s.opts.Routes {
		if r.Open {
			outer.Handle(r.Pattern, s.guard(r.Handler))
			open.Handle(r.Pattern, none)
			continue
		}
		inner.Handle(r.Pattern, r.Handler)
		behind.Handle(r.Pattern, none)
		if r.Tickets {
			s.ticketed[r.Pattern] = true
		}
	}
	inner.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if methods := otherMethods(behind, r); methods != nil {
			notAllowed(w, methods)
			return
		}
		WriteProblem(w, http.StatusNotFound, "there is nothing here; MCP is served at "+MCPPath)
	})
	// Probes come by address and without a token.
	outer.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") })
	outer.HandleFunc("GET /readyz", s.serveReady)
	open.Handle("GET /healthz", none)
	open.Handle("GET /readyz", none)
	if s.opts.OAuth != nil {
		meta := s.guard(auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
			Resource: s.opts.OAuth.Resource, AuthorizationServers: s.opts.OAuth.AuthorizationServers,
			ScopesSupported: s.opts.OAuth.Scopes, BearerMethodsSupported: []string{"header"},
		}))
		outer.Handle(metadataPath, meta)
		outer.Handle(metadataPath+MCPPath, meta)
	}
	asked := s.authenticate(inner)
	outer.Handle("/", s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Nobody needs a token to be told the methods of what is open.
		if methods := otherMethods(open, r); methods != nil {
			if _, pattern := behind.Handler(r); pattern == "" {
				notAllowed(w, append(methods, otherMethods(behind, r)...))
				return
			}
		}
		asked.ServeHTTP(w, r)
	})))
	return s.outermost(outer)
}

// metadataPath is where RFC 9728 puts the description of a resource, with the
// resource's own path behind it.
const metadataPath = "/.well-known/oauth-protected-resource"

func (s *Server) metadataURL() string {
	u, err := url.Parse(s.opts.OAuth.Resource)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + metadataPath + strings.TrimSuffix(u.Path, "/")
}

// outermost bounds writes and survives panics.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := newBoundWriter(w, writeTime)
		defer b.finish()
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			s.log.Error("handler panicked", logattr.Reason(fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			panic(http.ErrAbortHandler) // what was written is no whole response
		}()
		next.ServeHTTP(b, r)
	})
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		WriteProblem(w, http.StatusServiceUnavailable, "the server is shutting down")
		return
	}
	if s.opts.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		if err := s.opts.Ready(ctx); err != nil {
			WriteProblem(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	}
	writeText(w, "ready\n")
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(text))
}
