package mailbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Member is one agent in a session. It is safe for concurrent use. Every call
// renews its last-seen time; a *LostError says that another run has taken its id
// over.
type Member struct {
	s   *Session
	who Identity

	mu      sync.Mutex
	turn    string // escalation that an Await has returned with, or that Forward passes on
	putting bool   // Forward has not put all of it into the inbox yet
}

// Join makes an agent a member. Errors: *InvalidError, *ConflictError.
func (s *Session) Join(ctx context.Context, r Registration) (*Member, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if _, err := s.store.Register(ctx, r, time.Now()); err != nil {
		return nil, err
	}
	s.changed(ctx)
	s.log.LogAttrs(ctx, slog.LevelInfo, "mailbox.joined", logattr.Session(s.id), agentAttr(r.Agent))
	return &Member{s: s, who: Identity{Agent: r.Agent, Run: r.Run}}, nil
}

// ID returns the id of the agent.
func (m *Member) ID() string { return m.who.Agent }

// Session returns the session that it is a member of.
func (m *Member) Session() *Session { return m.s }

// Receipt is a signal that was sent.
type Receipt struct {
	Signal
	// Recipients are the members that it reaches now. Others may join later and
	// find it.
	Recipients []string `json:"recipients"`
}

// Send sends a signal. Errors: *InvalidError, *RateError, *EscalatedError,
// *LostError, *FullError.
func (m *Member) Send(ctx context.Context, d Draft) (Receipt, error) {
	if err := d.check(); err != nil {
		return Receipt{}, err
	}
	now := time.Now()
	sent, err := m.s.store.Send(ctx, m.who, d.signal(newSignalID(), m.who.Agent, now), m.s.o.Limits, now)
	if err != nil {
		m.refused(ctx, d.Type, err)
		return Receipt{}, err
	}
	m.s.changed(ctx)
	m.s.count.add(func(t *Stats) { t.Sent[sent.Type]++ })
	m.s.log.LogAttrs(ctx, slog.LevelInfo, "mailbox.sent", logattr.Session(m.s.id), signalAttr(&sent))
	r := Receipt{Signal: sent, Recipients: []string{}}
	agents, err := m.s.store.Agents(ctx)
	if err != nil {
		return r, nil //nolint:nilerr // it is sent; who gets it now is an extra
	}
	for _, a := range agents {
		if Reaches(sent.Recipient, sent.Sender, a.ID) {
			r.Recipients = append(r.Recipients, a.ID)
		}
	}
	return r, nil
}

// refused logs what was not sent for a reason of the room's.
func (m *Member) refused(ctx context.Context, t Type, err error) {
	var reason string
	switch {
	case errors.As(err, new(*RateError)):
		reason = "rate"
	case errors.As(err, new(*EscalatedError)):
		reason = "escalated turn"
	case errors.As(err, new(*FullError)):
		reason = "full"
	default:
		return
	}
	m.s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.not_sent", logattr.Session(m.s.id), agentAttr(m.who.Agent), typeAttr(t), logattr.Reason(reason))
}

// Read returns a page of the agent's signals; q.Agent is set by it. It marks
// nothing.
func (m *Member) Read(ctx context.Context, q Selection) (Page, error) {
	if err := m.touch(ctx); err != nil {
		return Page{}, err
	}
	return m.peek(ctx, q)
}

func (m *Member) peek(ctx context.Context, q Selection) (Page, error) {
	q.Agent = m.who.Agent
	p, err := m.s.store.Read(ctx, q)
	if p.Signals == nil {
		p.Signals = []Signal{}
	}
	return p, err
}

// Ack marks signals as read, all or none, and returns those that were not before.
// Errors: *IDsError, *LostError.
func (m *Member) Ack(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 || len(ids) > MaxPage {
		return nil, &InvalidError{Field: "ids", Problem: "name 1 to 500 signals"}
	}
	acked, err := m.s.store.Ack(ctx, m.who, ids, time.Now())
	if err != nil {
		return nil, err
	}
	if acked == nil {
		acked = []string{}
	}
	return acked, nil
}

// Agents lists the members with the status that they have now.
func (m *Member) Agents(ctx context.Context) ([]Agent, error) {
	if err := m.touch(ctx); err != nil {
		return nil, err
	}
	return m.s.Agents(ctx)
}

// Agents lists the members with the status that they have now.
func (s *Session) Agents(ctx context.Context) ([]Agent, error) {
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for i := range agents {
		agents[i].Status = StatusAt(agents[i].Status, agents[i].LastSeen, now)
	}
	return agents, nil
}

// Note appends to the log that all share.
func (m *Member) Note(ctx context.Context, text string) (Note, error) {
	if text == "" {
		return Note{}, &InvalidError{Field: "text", Problem: "it is empty"}
	}
	if err := checkText("text", text, MaxContent); err != nil {
		return Note{}, err
	}
	n, err := m.s.store.AddNote(ctx, m.who, text, time.Now())
	if err == nil {
		m.s.changed(ctx)
	}
	return n, err
}

// Notes returns notes with greater sequences, and where the next page begins, 0 at
// the end.
func (m *Member) Notes(ctx context.Context, after int64, limit int) ([]Note, int64, error) {
	if err := m.touch(ctx); err != nil {
		return nil, 0, err
	}
	return m.s.Notes(ctx, after, limit)
}

// Write sets a value of the whiteboard.
func (m *Member) Write(ctx context.Context, key, value string) (Entry, error) {
	if err := checkEntry(key, value); err != nil {
		return Entry{}, err
	}
	e, err := m.s.store.SetEntry(ctx, m.who, key, value, time.Now())
	if err == nil {
		m.s.changed(ctx)
	}
	return e, err
}

// Whiteboard returns the values by key, or the one of a key if there is any.
func (m *Member) Whiteboard(ctx context.Context, key string) ([]Entry, error) {
	if err := m.touch(ctx); err != nil {
		return nil, err
	}
	return m.s.Whiteboard(ctx, key)
}

// SetStatus says how the agent is: Active, Idle or Sleeping.
func (m *Member) SetStatus(ctx context.Context, status Status) error {
	if err := m.s.store.SetStatus(ctx, m.who, status, time.Now()); err != nil {
		return err
	}
	m.s.changed(ctx)
	return nil
}

// Leave says that the agent's process has ended: its id is free. A member that
// has lost its id has nothing to leave.
func (m *Member) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	err := m.SetStatus(ctx, Sleeping)
	if errors.As(err, new(*LostError)) {
		return nil
	}
	return err
}

func (m *Member) touch(ctx context.Context) error {
	changed, err := m.s.store.Touch(ctx, m.who, time.Now())
	if changed {
		m.s.changed(ctx)
	}
	return err
}

// Wait returns the unread signals after a sequence as soon as there are any; when
// ctx ends first it returns an empty page and ctx's error. It needs the session
// to Run.
func (m *Member) Wait(ctx context.Context, after int64) (Page, error) {
	arrived := make(chan struct{}, 1)
	defer m.s.Watch(PartSignals, m.who.Agent, func() { signalOne(arrived) })()
	if err := m.touch(ctx); err != nil {
		return Page{Signals: []Signal{}}, err
	}
	for {
		p, err := m.peek(ctx, Selection{After: after})
		if err != nil || len(p.Signals) > 0 {
			return p, err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
}

func signalOne(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func signalAttr(s *Signal) slog.Attr { return slog.Any("signal", *s) }

func typeAttr(t Type) slog.Attr { return slog.String("type", string(t)) }

func agentAttr(id string) slog.Attr { return slog.String("agent", id) }
