package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/agent"
)

// Channel keeps what is published.
type Channel struct {
	Label string
	Err   error // of Publish

	mu      sync.Mutex
	replies []agent.Reply
}

// Name implements agent.Channel.
func (c *Channel) Name() string { return c.Label }

// Publish implements agent.Channel.
func (c *Channel) Publish(_ context.Context, r agent.Reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies = append(c.replies, r)
	return c.Err
}

// Texts are the texts of all replies, errors as "error: …".
func (c *Channel) Texts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var texts []string
	for _, r := range c.replies {
		if r.Err != nil {
			texts = append(texts, "error: "+r.Err.Error())
			continue
		}
		texts = append(texts, r.Text)
	}
	return texts
}

// Acks keeps what the owners of notices hear, and complains about what may not
// happen: two last words, or a word after the last.
type Acks struct {
	mu     sync.Mutex
	states map[string][]agent.AckState
	faults []string
}

// For returns the callback of one notice.
func (a *Acks) For(id string) func(agent.Ack) {
	return func(ack agent.Ack) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.states == nil {
			a.states = map[string][]agent.AckState{}
		}
		seq := a.states[id]
		if n := len(seq); n > 0 && (seq[n-1] == agent.AckSeen || seq[n-1] == agent.AckUndelivered) {
			a.faults = append(a.faults, fmt.Sprintf("%s: %s after %s", id, ack.State, seq[n-1]))
		}
		if ack.State == agent.AckSeen && ack.Run != "" && !slices.Contains(seq, agent.AckWoken) {
			a.faults = append(a.faults, id+": seen without woken")
		}
		a.states[id] = append(seq, ack.State)
	}
}

// States are the states of one notice, in order.
func (a *Acks) States(id string) []agent.AckState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.states[id])
}

// Count counts the notices whose last word was state.
func (a *Acks) Count(state agent.AckState) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, seq := range a.states {
		if seq[len(seq)-1] == state {
			n++
		}
	}
	return n
}

// Faults are the complaints.
func (a *Acks) Faults() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.faults)
}

// Server is an MCP server in memory.
type Server struct {
	Label  string
	List   []agent.RemoteTool
	Err    error // of Tools
	OnCall func(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)

	mu    sync.Mutex
	asked int
	calls []string
}

// Name implements agent.Server.
func (s *Server) Name() string { return s.Label }

// Tools implements agent.Server.
func (s *Server) Tools(context.Context) ([]agent.RemoteTool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.List, s.Err
}

// CallTool implements agent.Server.
func (s *Server) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	s.mu.Lock()
	s.calls = append(s.calls, name+string(args))
	s.mu.Unlock()
	if s.OnCall == nil {
		return nil, errors.New("no such tool")
	}
	return s.OnCall(ctx, name, args)
}

// Asked counts the calls of Tools.
func (s *Server) Asked() int { s.mu.Lock(); defer s.mu.Unlock(); return s.asked }

// Calls are the tool calls so far, each as its name and arguments.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}
