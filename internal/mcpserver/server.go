package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
)

// Defaults of [Options].
const (
	DefaultPageSize    = 200
	DefaultReadTimeout = 35 * time.Second // above the 30 s in which a source may start
	DefaultCallTimeout = 10 * time.Minute
	DefaultMaxBody     = 4 << 20          // bytes of an HTTP request
	DefaultMaxLine     = 16 << 20         // bytes of a line on a pipe, both ways
	DefaultMaxInFlight = 256              // requests of one pipe
	DefaultMaxSessions = 1000             // legacy HTTP sessions
	DefaultSessionIdle = 10 * time.Minute // until an unused legacy session ends
	DefaultKeepAlive   = 15 * time.Second
	DefaultWriteTime   = 10 * time.Second // one write on HTTP
	DefaultPipeTime    = 30 * time.Second // one write on a pipe
	DefaultBodyTime    = 30 * time.Second // reading one HTTP request
)

// Verb is what a caller asks to do.
type Verb string

// The verbs of [Access].
const (
	Read Verb = "read" // a resource; Target is its URI
	Call Verb = "call" // a tool; Target is its name
)

// Access is what an [Options.Authorize] decides on.
type Access struct {
	Verb   Verb
	Target string
}

// Options tune a [Server]. The zero value, and nil, mean the defaults.
type Options struct {
	// Name and Version identify the server to its clients; Title is for people.
	// Empty means those of the program.
	Name, Title, Version string
	// Instructions tell a model how to use the server.
	Instructions string
	// Authorize decides whether the caller, see [Caller], may read a resource or
	// call a tool. Its error is told to the client, best a *ForbiddenError; what
	// is refused is not listed either. Nil permits all. Listening is decided by
	// the hub's own Authorize.
	Authorize func(ctx context.Context, a Access) error
	// EventLogMIME is the media type under which event logs are served, unless a
	// read asks for the other by [MetaEventLogMIME]. Empty means
	// listen.EventLogMIME.
	EventLogMIME string
	// Lists are the lists whose changes are announced: those of the hub's own
	// options. Legacy sessions hear of tools and prompts only.
	Lists []listen.List
	// PageSize bounds the entries of one page of a list.
	PageSize int
	// ReadTimeout and CallTimeout bound one read and one call of a tool.
	ReadTimeout, CallTimeout time.Duration
	// MaxBody bounds an HTTP request, MaxLine a line on a pipe, in bytes.
	MaxBody int64
	MaxLine int
	// MaxInFlight bounds the unanswered requests of a pipe; over it a request is
	// answered with CodeTooManyRequests.
	MaxInFlight int
	// MaxSessions bounds the legacy sessions over HTTP; over it initialize is
	// answered with HTTP status 503. SessionIdle is how long one lives without a
	// request and without a stream.
	MaxSessions int
	SessionIdle time.Duration
	// KeepAlive is the interval of comment lines on the streams of the SDK; a
	// negative value is none. The hub has its own for listens.
	KeepAlive time.Duration
	// Logger gets what goes wrong. Nil discards.
	Logger *slog.Logger
	// Configure changes the SDK's options for what this package does not model,
	// such as completion or logging.
	Configure func(*mcp.ServerOptions)
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	orElse(&out.Name, version.Name)
	orElse(&out.Version, version.Number())
	orElse(&out.EventLogMIME, listen.EventLogMIME)
	orElse(&out.PageSize, DefaultPageSize)
	orElse(&out.ReadTimeout, DefaultReadTimeout)
	orElse(&out.CallTimeout, DefaultCallTimeout)
	orElse(&out.MaxBody, DefaultMaxBody)
	orElse(&out.MaxLine, DefaultMaxLine)
	orElse(&out.MaxInFlight, DefaultMaxInFlight)
	orElse(&out.MaxSessions, DefaultMaxSessions)
	orElse(&out.SessionIdle, DefaultSessionIdle)
	orElse(&out.KeepAlive, DefaultKeepAlive)
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Server is one MCP server, on any number of pipes and at any number of URLs.
// It is safe for concurrent use.
type Server struct {
	reg  *listen.Registry
	hub  *listen.Hub
	opts Options
	log  *slog.Logger
	mcp  *mcp.Server
	http *httpHandler
}

// New makes a server of the sources of reg and of tools. The hub stands over
// the same registry. It fails for a tool that is not well formed.
func New(reg *listen.Registry, hub *listen.Hub, tools []Tool, opts *Options) (*Server, error) {
	if reg == nil || hub == nil {
		return nil, errors.New("make server: registry or hub is nil")
	}
	s := &Server{reg: reg, hub: hub, opts: opts.withDefaults()}
	s.log = s.opts.Logger
	sdk := &mcp.ServerOptions{
		Instructions: s.opts.Instructions,
		PageSize:     s.opts.PageSize,
		Capabilities: s.capabilities(),
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { *c = uncached },
	}
	if s.opts.Configure != nil {
		s.opts.Configure(sdk)
	}
	impl := &mcp.Implementation{Name: s.opts.Name, Title: s.opts.Title, Version: s.opts.Version}
	s.mcp = mcp.NewServer(impl, sdk)
	hub.Attach(s.mcp)
	s.mcp.AddReceivingMiddleware(s.middleware()...)
	s.http = newHTTPHandler(s)
	for i := range tools {
		if err := tools[i].check(); err != nil {
			return nil, fmt.Errorf("make server: %w", err)
		}
	}
	s.AddTools(tools...)
	return s, nil
}

func (s *Server) capabilities() *mcp.ServerCapabilities {
	has := func(list listen.List) bool { return slices.Contains(s.opts.Lists, list) }
	c := &mcp.ServerCapabilities{
		Resources: &mcp.ResourceCapabilities{Subscribe: true, ListChanged: has(listen.ResourcesList)},
		Tools:     &mcp.ToolCapabilities{ListChanged: has(listen.ToolsList)},
	}
	if has(listen.PromptsList) {
		c.Prompts = &mcp.PromptCapabilities{ListChanged: true}
	}
	return c
}

// AddTools adds tools, or replaces those of the same names, and announces that
// the list changed. The tools must be well formed.
func (s *Server) AddTools(tools ...Tool) {
	for i := range tools {
		s.mcp.AddTool(tools[i].mcp(), tools[i].handle)
	}
	s.hub.ListChanged(listen.ToolsList)
}

// RemoveTools removes tools and announces that the list changed.
func (s *Server) RemoveTools(names ...string) {
	s.mcp.RemoveTools(names...)
	s.hub.ListChanged(listen.ToolsList)
}

// SDK returns the SDK's server, for features that this package does not model,
// such as prompts. Its resources are not served: sources are.
func (s *Server) SDK() *mcp.Server { return s.mcp }

// Shutdown ends all listens politely, lets the requests that are under way on
// HTTP finish, and ends the legacy sessions. New requests are refused from
// here on. When ctx ends first, what is left is cut off and ctx's error
// returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.http.refuse()
	err := s.hub.Shutdown(ctx)
	return errors.Join(err, s.http.shutdown(ctx))
}

// callerKey is the key of the context value that [Caller] reads.
type callerKey struct{}

// Caller returns who sends the request of ctx, as an HTTP surface has verified
// it: the token of this very request, also in a legacy session. Nil means that
// nobody was asked to say who they are, as on a pipe.
func Caller(ctx context.Context) *auth.TokenInfo {
	if info, ok := ctx.Value(callerKey{}).(*auth.TokenInfo); ok {
		return info
	}
	return auth.TokenInfoFromContext(ctx)
}
