// Package watchtest has stand-ins for what a watch engine works with: a server,
// a Python engine and a sink, all in memory and without a clock of their own.
// It is for tests of programs that import watch, and for watch's own.
package watchtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/watch"
)

// Server is a watch.Server in memory. It counts every request, so that a test
// can show that nothing polls. Its methods are safe for concurrent use.
type Server struct {
	name string

	mu       sync.Mutex
	info     watch.ServerInfo
	entries  []watch.Entry
	tools    []watch.Tool
	bodies   map[string]watch.Body
	subs     map[string][]*subscription
	requests map[string]int
	order    []string
	faults   map[string]error
	silent   map[string]bool
	onRead   func(ctx context.Context, uri string, after *int64) (watch.Body, error)
	onCall   func(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)
}

type subscription struct{ to watch.Subscriber }

// NewServer makes a server that can be watched and offers nothing.
func NewServer(name string) *Server {
	return &Server{
		name: name, info: watch.ServerInfo{ProtocolVersion: watch.RequiredVersion, Subscribable: true, Listens: true},
		bodies: map[string]watch.Body{}, subs: map[string][]*subscription{}, requests: map[string]int{}, faults: map[string]error{}, silent: map[string]bool{},
	}
}

// SetInfo says what the server can do.
func (s *Server) SetInfo(info watch.ServerInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
}

// AddEntry adds a line to what the server lists.
func (s *Server) AddEntry(e watch.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
}

// AddTool adds a tool.
func (s *Server) AddTool(t watch.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = append(s.tools, t)
}

// Add lists a resource with its first body.
func (s *Server) Add(uri, mimeType, text string) {
	s.AddEntry(watch.Entry{URI: uri, Name: uri, MIMEType: mimeType})
	s.Put(uri, mimeType, text)
}

// Put sets the body of a resource and tells nobody.
func (s *Server) Put(uri, mimeType, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies[uri] = watch.Body{Text: text, MIMEType: mimeType}
}

// Change sets the text of a resource and tells its subscribers.
func (s *Server) Change(uri, text string) {
	s.mu.Lock()
	body := s.bodies[uri]
	body.Text = text
	s.bodies[uri] = body
	s.mu.Unlock()
	s.Notify(uri)
}

// Notify tells the subscribers of a resource that it changed.
func (s *Server) Notify(uri string) {
	s.each(uri, func(to watch.Subscriber) { to.Updated() })
}

// Interrupt tells the subscribers of a resource that the listen ended.
func (s *Server) Interrupt(uri string, cause error, attempt int, delay time.Duration) {
	s.each(uri, func(to watch.Subscriber) { to.Interrupted(cause, attempt, delay) })
}

// Restore tells the subscribers of a resource that the listen is up again.
func (s *Server) Restore(uri string) {
	s.each(uri, func(to watch.Subscriber) { to.Restored() })
}

// Fail tells the subscribers of a resource that the subscription is over, and
// ends it.
func (s *Server) Fail(uri string, cause error) {
	s.each(uri, func(to watch.Subscriber) { to.Failed(cause) })
}

func (s *Server) each(uri string, f func(watch.Subscriber)) {
	s.mu.Lock()
	subs := slices.Clone(s.subs[uri])
	s.mu.Unlock()
	for _, sub := range subs {
		f(sub.to)
	}
}

// Refuse makes a kind of request fail: "info", "entries", "read", "subscribe",
// "tools" or "call". A nil error ends that.
func (s *Server) Refuse(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[kind] = err
}

// Silence makes a kind of request wait until its context ends.
func (s *Server) Silence(kind string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[kind] = on
}

// OnRead replaces how resources are read; nil restores it.
func (s *Server) OnRead(f func(ctx context.Context, uri string, after *int64) (watch.Body, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRead = f
}

// OnCall says what tools do.
func (s *Server) OnCall(f func(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onCall = f
}

// Subscribers counts the subscriptions of a resource.
func (s *Server) Subscribers(uri string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs[uri])
}

// Requests counts the requests of each kind so far.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// Order lists the kinds of all requests so far, "unsubscribe" included.
func (s *Server) Order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

func (s *Server) request(ctx context.Context, kind string) error {
	s.mu.Lock()
	s.requests[kind]++
	s.order = append(s.order, kind)
	fault, silent := s.faults[kind], s.silent[kind]
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fault
}

// Name implements watch.Server.
func (s *Server) Name() string { return s.name }

// Info implements watch.Server.
func (s *Server) Info(ctx context.Context) (watch.ServerInfo, error) {
	if err := s.request(ctx, "info"); err != nil {
		return watch.ServerInfo{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info, nil
}

// Entries implements watch.Server.
func (s *Server) Entries(ctx context.Context) ([]watch.Entry, error) {
	if err := s.request(ctx, "entries"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries), nil
}

// Read implements watch.Server.
func (s *Server) Read(ctx context.Context, uri string, after *int64) (watch.Body, error) {
	if err := s.request(ctx, "read"); err != nil {
		return watch.Body{}, err
	}
	s.mu.Lock()
	onRead := s.onRead
	body, ok := s.bodies[uri]
	s.mu.Unlock()
	if onRead != nil {
		return onRead(ctx, uri, after)
	}
	if !ok {
		return watch.Body{}, fmt.Errorf("resource %q not found", uri)
	}
	return body, nil
}

// Subscribe implements watch.Server.
func (s *Server) Subscribe(ctx context.Context, uri string, to watch.Subscriber) (func(), error) {
	if err := s.request(ctx, "subscribe"); err != nil {
		return nil, err
	}
	sub := &subscription{to}
	s.mu.Lock()
	s.subs[uri] = append(s.subs[uri], sub)
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.order = append(s.order, "unsubscribe")
		s.subs[uri] = slices.DeleteFunc(s.subs[uri], func(other *subscription) bool { return other == sub })
	}, nil
}

// Tools implements watch.Server.
func (s *Server) Tools(ctx context.Context) ([]watch.Tool, error) {
	if err := s.request(ctx, "tools"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools), nil
}

// CallTool implements watch.Server.
func (s *Server) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	if err := s.request(ctx, "call"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	onCall := s.onCall
	s.mu.Unlock()
	if onCall == nil {
		return json.RawMessage("null"), nil
	}
	return onCall(ctx, name, args)
}
