package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/ossicle/ossicle/mailbox"
)

// Seat is the place that one connection's agent has in a collaboration session.
// Who sends is whoever sits here, and never an argument (specification S-7). It is
// safe for concurrent use.
type Seat struct {
	o SeatOptions

	mu     sync.Mutex
	member *mailbox.Member
	taken  chan struct{} // holds a token while a session is being started
}

// SeatOptions say what a seat can do. Zero fields are left out.
type SeatOptions struct {
	// Start makes the agent a member: of a new session if session is empty, under
	// an id of its own making if agent is.
	Start func(ctx context.Context, session, agent, conversation string) (*mailbox.Member, error)
	// Shown and Acked hear which signals a tool has shown to the agent, and which
	// the agent has acknowledged.
	Shown, Acked func(ctx context.Context, ids []string)
}

// NewSeat returns a seat, which is empty if member is nil.
func NewSeat(member *mailbox.Member, o *SeatOptions) *Seat {
	s := &Seat{member: member, taken: make(chan struct{}, 1)}
	if o != nil {
		s.o = *o
	}
	return s
}

// errNoSession ends a call on an empty seat.
var errNoSession = errors.New("this agent is in no session yet: call start_session first")

// Member returns who sits here. The error says what to do if nobody does.
func (s *Seat) Member() (*mailbox.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.member == nil {
		return nil, errNoSession
	}
	return s.member, nil
}

// Join seats the agent as start_session does: it is for a connection whose session
// is known from the start.
func (s *Seat) Join(ctx context.Context, session string) error {
	_, err := s.start(ctx, session, "", "")
	return err
}

// start seats the agent, once.
func (s *Seat) start(ctx context.Context, session, agent, conversation string) (*mailbox.Member, error) {
	select {
	case s.taken <- struct{}{}:
		defer func() { <-s.taken }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m, err := s.Member()
	if err == nil {
		if session != "" && session != m.Session().ID() || agent != "" && agent != m.ID() {
			return nil, fmt.Errorf("start session: this connection is agent %q in session %s; another identity needs another connection", m.ID(), m.Session().ID())
		}
		return m, nil
	}
	if s.o.Start == nil {
		return nil, errors.New("start session: this connection has no session; start it with --session")
	}
	if m, err = s.o.Start(ctx, session, agent, conversation); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.member = m
	return m, nil
}

func (s *Seat) shown(ctx context.Context, signals []mailbox.Signal) {
	if s.o.Shown == nil || len(signals) == 0 {
		return
	}
	ids := make([]string, len(signals))
	for i := range signals {
		ids[i] = signals[i].ID
	}
	s.o.Shown(ctx, ids)
}

// jsonResult is a value as the text of a result.
func jsonResult(v any) (ToolResult, error) {
	text, err := marshal(v)
	return ToolResult{Text: string(text)}, err
}

// seated is a tool that needs a member. Its arguments are read into a fresh A.
func seated[A any](s *Seat, call func(ctx context.Context, m *mailbox.Member, args *A) (any, error)) func(context.Context, json.RawMessage) (ToolResult, error) {
	return func(ctx context.Context, raw json.RawMessage) (ToolResult, error) {
		var args A
		if err := DecodeArgs(raw, &args); err != nil {
			return ToolResult{}, err
		}
		m, err := s.Member()
		if err != nil {
			return ToolResult{}, err
		}
		v, err := call(ctx, m, &args)
		if err != nil {
			return ToolResult{}, err
		}
		return jsonResult(v)
	}
}
