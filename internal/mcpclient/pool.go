package mcpclient

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/listen"
)

// Defaults of Options.
const (
	DefaultConnectTimeout   = 10 * time.Second
	DefaultProbeTimeout     = 2 * time.Second
	DefaultHTTPProbeTimeout = 5 * time.Second
	DefaultRequestTimeout   = 60 * time.Second
	DefaultCallTimeout      = 10 * time.Minute
	DefaultRestartBudget    = 5
	DefaultRestartWindow    = time.Minute
)

// Options refine a [Pool]. Zero fields take the defaults.
type Options struct {
	// LegacyWatch lets servers before 2026-07-28 be watched by
	// resources/subscribe (specification W-014).
	LegacyWatch bool

	ConnectTimeout   time.Duration // of one attempt, the start of a child and its handshake included
	ProbeTimeout     time.Duration // for the answer to server/discover over pipes
	HTTPProbeTimeout time.Duration // the same over HTTP
	RequestTimeout   time.Duration // of reads and lists
	CallTimeout      time.Duration // of tool calls

	// RestartBudget is how many times a stdio server is started again within
	// RestartWindow; negative means never.
	RestartBudget int
	RestartWindow time.Duration
	// StopGrace is the time that a child has for each step of its end.
	StopGrace time.Duration
	// Environ is the environment that children get; nil is ours.
	Environ []string

	// OAuth returns the authorization of a remote server, nil for none. See
	// [NewOAuth].
	OAuth func(Spec) (auth.OAuthHandler, error)
	// HTTPTransport makes the requests of all connections; nil gives each
	// connection a transport of its own.
	HTTPTransport http.RoundTripper

	Listen listen.ClientOptions
	Logger *slog.Logger // nil is none
}

func (o *Options) withDefaults() Options {
	out := Options{}
	if o != nil {
		out = *o
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&out.ConnectTimeout, DefaultConnectTimeout)
	def(&out.ProbeTimeout, DefaultProbeTimeout)
	def(&out.HTTPProbeTimeout, DefaultHTTPProbeTimeout)
	def(&out.RequestTimeout, DefaultRequestTimeout)
	def(&out.CallTimeout, DefaultCallTimeout)
	def(&out.RestartWindow, DefaultRestartWindow)
	def(&out.StopGrace, process.DefaultGrace)
	if out.RestartBudget == 0 {
		out.RestartBudget = DefaultRestartBudget
	}
	out.RestartBudget = max(out.RestartBudget, 0)
	if out.Environ == nil {
		out.Environ = os.Environ()
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// Pool holds the connections of a process to its configured servers, one each,
// shared by everybody (specification M-11).
type Pool struct {
	servers []*Server
}

// NewPool returns a pool of the servers, none of which is connected yet. Names
// must be unique. The pool must be closed.
func NewPool(specs []Spec, o *Options) (*Pool, error) {
	opts := o.withDefaults()
	p := &Pool{}
	seen := map[string]bool{}
	for _, spec := range specs {
		spec, err := spec.Normalize()
		if err != nil {
			return nil, err
		}
		if seen[spec.Name] {
			return nil, fmt.Errorf("server %q is configured twice", spec.Name)
		}
		seen[spec.Name] = true
		s, err := newServer(spec, opts)
		if err != nil {
			return nil, err
		}
		p.servers = append(p.servers, s)
	}
	return p, nil
}

func newServer(spec Spec, o Options) (*Server, error) {
	s := &Server{spec: spec, o: o, log: o.Logger.With(logattr.Server(spec.Name))}
	if o.OAuth != nil && spec.Transport != Stdio {
		handler, err := o.OAuth(spec)
		if err != nil {
			return nil, fmt.Errorf("server %q: authorization: %w", spec.Name, err)
		}
		if handler != nil {
			s.auth = newAuthorizer(spec.Name, handler)
		}
	}
	lo := o.Listen
	if lo.Logger == nil {
		lo.Logger = s.log
	}
	s.listener = listen.NewClient(listen.OpenerFunc(s.open), &lo)
	return s, nil
}

// Servers returns the servers in the order of the configuration.
func (p *Pool) Servers() []*Server { return append([]*Server(nil), p.servers...) }

// Server returns the server of that name, or nil.
func (p *Pool) Server(name string) *Server {
	for _, s := range p.servers {
		if s.spec.Name == name {
			return s
		}
	}
	return nil
}

// Close cancels all subscriptions and calls, ends all connections and children
// and waits for that: a little over twice Options.StopGrace at most.
func (p *Pool) Close() {
	var wg sync.WaitGroup
	for _, s := range p.servers {
		wg.Go(s.close)
	}
	wg.Wait()
}
