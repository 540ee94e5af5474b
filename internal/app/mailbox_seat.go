package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
)

// seat is one agent of this process in a collaboration session, or the place
// where it will be: its tools, and what brings its signals to it.
type seat struct {
	*mcpserver.Seat

	all   *Collaborations
	inbox *notice.Inbox
	log   *slog.Logger
	o     seatOptions

	run  context.Context //nolint:containedctx // ends what runs for the agent
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	signals *signalInbox // nil as long as the seat is empty
	leave   func(context.Context)
	session *Collaboration
	idle    chan struct{} // the agent is in no turn, or was in none; holds one
}

// seatOptions say how signals reach the agent.
type seatOptions struct {
	agent   string // of its inbox, and its id
	harness string
	limits  mailbox.Limits
	// means reports whether the inbox can begin a turn; nil is never.
	means func() bool
	// idle reports whether the agent is in no turn; nil if nobody calls turnOver.
	idle func() bool
	// turn is how long a turn of the inbox may take.
	turn time.Duration
	// escalator is another means, made for the session. Nil is none.
	escalator func(session string) mailbox.Escalator
}

// newSeat returns an empty seat, which the agent takes by the tool start_session,
// or join. The caller closes it.
func newSeat(ctx context.Context, all *Collaborations, inbox *notice.Inbox, log *slog.Logger, o seatOptions) *seat {
	s := &seat{all: all, inbox: inbox, log: log, o: o, idle: make(chan struct{}, 1)}
	s.run, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.Seat = mcpserver.NewSeat(nil, &mcpserver.SeatOptions{
		Start: func(ctx context.Context, session, agent, _ string) (*mailbox.Member, error) {
			return s.sit(ctx, session, agent)
		},
		Shown: s.shown, Acked: s.acked,
	})
	return s
}

// join seats the agent.
func (s *seat) join(ctx context.Context, session string) error {
	return s.Join(ctx, session)
}

// sit makes the agent a member and begins to bring it its signals.
func (s *seat) sit(ctx context.Context, session, agent string) (*mailbox.Member, error) {
	if agent != "" && agent != s.o.agent {
		return nil, &mailbox.InvalidError{Field: "agent", Problem: "this connection is that of agent \"" + s.o.agent + "\", and of no other"}
	}
	x, err := s.all.Open(ctx, session)
	if err != nil {
		return nil, err
	}
	m, leave, err := x.Join(ctx, mailbox.Registration{Agent: s.o.agent, Harness: s.o.harness, Limits: s.o.limits})
	if err != nil {
		_ = x.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	in := &signalInbox{inbox: s.inbox, session: x.ID(), agent: s.o.agent, means: s.o.means, log: s.log}
	s.mu.Lock()
	s.signals, s.leave, s.session = in, leave, x
	s.mu.Unlock()
	s.work.Go(func() { _ = m.Forward(s.run, in, s.o.turn) })
	s.work.Go(func() { s.rest(m, in) })
	if s.o.escalator != nil {
		escalate := m.Escalate(s.o.escalator(x.ID()), 0)
		s.work.Go(func() { escalate(s.run) })
	}
	return m, nil
}

// tools are those of the agent; without a seat there are none.
func (s *seat) tools() (tools []agent.Tool) {
	if s == nil {
		return nil
	}
	for _, t := range mcpserver.SignalTools(s.Seat) {
		tools = append(tools, agent.Tool{
			Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, ReadOnly: t.ReadOnly,
			Call: func(ctx context.Context, args json.RawMessage) (agent.ToolResult, error) {
				r, err := t.Call(ctx, args)
				if err != nil && ctx.Err() == nil {
					r, err = mcpserver.ToolResult{Text: err.Error(), IsError: true}, nil
				}
				return agent.ToolResult{Text: r.Text, IsError: r.IsError}, err
			},
		})
	}
	return tools
}

// sources are the resources of the agent's session.
func (s *seat) sources() []listen.Source {
	if s == nil {
		return nil
	}
	return []listen.Source{mcpserver.SignalSource(s.Seat)}
}

// turnOver says that the agent's turn is over, or that it is in none. It does not
// block.
func (s *seat) turnOver() {
	if s == nil {
		return
	}
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

// rest notes when turns are over. What it is told may be old: the agent may be in the
// next turn by now. So it looks in this order: which turn there is, whether all that
// was to begin it has, and whether the agent is in none.
func (s *seat) rest(m *mailbox.Member, in *signalInbox) {
	for {
		select {
		case <-s.idle:
		case <-s.run.Done():
			return
		}
		turn := m.Turn()
		if !in.begun(s.run) || s.o.idle == nil || !s.o.idle() {
			continue
		}
		m.EndTurn(s.run, turn)
		if err := m.SetStatus(s.run, mailbox.Idle); err != nil && s.run.Err() == nil {
			s.log.LogAttrs(s.run, slog.LevelWarn, "mailbox.failed", logattr.Session(s.o.agent), logattr.Reason("idle"), logattr.Err(err))
		}
	}
}

func (s *seat) shown(ctx context.Context, ids []string) {
	if in := s.filled(); in != nil {
		in.shown(ctx, ids)
	}
}

func (s *seat) acked(ctx context.Context, ids []string) {
	if in := s.filled(); in != nil {
		in.acked(ctx, ids)
	}
}

func (s *seat) filled() *signalInbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signals
}

// close leaves the session.
func (s *seat) close(ctx context.Context) error {
	s.stop()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return nil
	}
	s.leave(ctx)
	return s.session.Close(ctx)
}
