// Package scripted is a model server that follows a script: for tests of
// agents and of our own model loop, without a network and without a model.
//
// It speaks four wire protocols on one address: OpenAI chat completions and
// responses, Anthropic messages, Gemini generateContent. What it answers is
// decided from the last user text of the request by [Words], or by a function
// of the test.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Defaults and bounds.
const (
	DefaultModel = "scripted"
	// DefaultKept is the number of records that a server keeps.
	DefaultKept = 4096
	// maxBody bounds a request, maxKeptBody what a record keeps of it.
	maxBody     = 64 << 20
	maxKeptBody = 1 << 20
	// headerTime bounds the wait for a request's header.
	headerTime = 10 * time.Second
)

// ErrClosed is returned to those who await a request of a closed server.
var ErrClosed = errors.New("scripted model server closed")

// API is a wire protocol.
type API string

// The wire protocols.
const (
	Chat      API = "chat"      // POST /v1/chat/completions
	Responses API = "responses" // POST /v1/responses
	Anthropic API = "anthropic" // POST /v1/messages
	Gemini    API = "gemini"    // POST /v1beta/models/M:generateContent
)

// Made is a tool call that the conversation already holds.
type Made struct {
	Tool string
	Args string // JSON
}

// Turn is what a request asks for, in the terms that the protocols share.
type Turn struct {
	N       int // number of the request, from 1
	API     API
	Model   string
	Stream  bool
	User    string   // the last user text
	Users   int      // user texts in all
	Calls   []Made   // tool calls after User
	Results []string // texts of tool results after User
	Tools   []string // offered tools; one in a namespace is "namespace.tool"
	Body    []byte   // the request, at most its first MiB
}

// Call is a tool call to make.
type Call struct {
	Tool string // as in Turn.Tools
	Args string // JSON
}

// Reply is what the model says: calls if there are any, otherwise text.
type Reply struct {
	Text  string
	Calls []Call
	// Delay passes before the first byte; it ends early when the client goes.
	Delay time.Duration
	// Status other than 0 and 200 answers with that HTTP status and an error.
	Status int
}

// Record is a request with its reply.
type Record struct {
	Turn

	Reply   Reply
	Aborted bool // the client went away during Reply.Delay
}

// Options change a server. The zero value is the default.
type Options struct {
	// Reply decides what to say; nil is [Words]. It is called from one
	// goroutine for each request.
	Reply func(Turn) Reply
	// Kept bounds the number of records; older ones are dropped.
	Kept int
	// Model is the name in the list of models.
	Model string
}

// Server is a scripted model. It is an http.Handler; [Start] also listens.
type Server struct {
	o   Options
	mux *http.ServeMux

	listener net.Listener // nil unless started
	http     *http.Server
	served   chan struct{}

	mu      sync.Mutex
	n       int
	records []Record
	grown   chan struct{} // closed and replaced with every new record
	closed  bool
}

// New returns a server that listens nowhere.
func New(o *Options) *Server {
	s := &Server{grown: make(chan struct{})}
	if o != nil {
		s.o = *o
	}
	if s.o.Reply == nil {
		s.o.Reply = Words
	}
	if s.o.Kept <= 0 {
		s.o.Kept = DefaultKept
	}
	if s.o.Model == "" {
		s.o.Model = DefaultModel
	}
	s.mux = s.routes()
	return s
}

// Start returns a server that listens on a free port of the loopback
// interface. Close it.
func Start(ctx context.Context, o *Options) (*Server, error) {
	s := New(o)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for model requests: %w", err)
	}
	s.listener, s.served = l, make(chan struct{})
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: headerTime}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l)
	}()
	return s, nil
}

// URL is the address of a started server without a path, for instance
// "http://127.0.0.1:40123". OpenAI clients want "/v1" after it.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends the server and cuts what it is sending.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.grown)
	}
	s.mu.Unlock()
	if s.http != nil {
		_ = s.http.Close()
		<-s.served
	}
}

// ServeHTTP answers model requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Records returns the requests so far, oldest first.
func (s *Server) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records)
}

// Await returns the first record that matches, now or later, or why it stopped
// waiting.
func (s *Server) Await(ctx context.Context, match func(Record) bool) (Record, error) {
	for {
		s.mu.Lock()
		i := slices.IndexFunc(s.records, match)
		var found Record
		if i >= 0 {
			found = s.records[i]
		}
		grown, closed := s.grown, s.closed
		s.mu.Unlock()
		switch {
		case i >= 0:
			return found, nil
		case closed:
			return Record{}, ErrClosed
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return Record{}, fmt.Errorf("await model request: %w", context.Cause(ctx))
		}
	}
}

// UserContains matches records whose last user text contains s.
func UserContains(s string) func(Record) bool {
	return func(r Record) bool { return strings.Contains(r.User, s) }
}

func (s *Server) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return s.n
}

func (s *Server) keep(r Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.records) >= s.o.Kept {
		s.records = slices.Delete(s.records, 0, 1)
	}
	s.records = append(s.records, r)
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *Server) aborted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.records {
		if s.records[i].N == n {
			s.records[i].Aborted = true
		}
	}
	if !s.closed {
		close(s.grown)
		s.grown = make(chan struct{})
	}
}
