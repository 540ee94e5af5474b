package mailbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
)

// Inbox takes the signals of an agent to where everything else waits for it, too.
type Inbox interface {
	// Means reports whether the inbox can begin a turn of the agent.
	Means() bool
	// Put keeps a signal. With wake it is to begin a turn; without it waits for
	// one that begins anyway. Putting a signal again changes nothing.
	Put(ctx context.Context, s Signal, wake bool) error
}

// Forward puts every unread signal of the agent into an inbox, those that were
// there before, too, until ctx ends; then it returns nil. Those that the gate lets
// through begin a turn, and so does the answer to what the agent has asked for:
// the ack of a query, a delegate or an urgent signal of its own. A turn counts as
// escalated until EndTurn is called, or turn is over.
func (m *Member) Forward(ctx context.Context, to Inbox, turn time.Duration) error {
	arrived := make(chan struct{}, 1)
	arrived <- struct{}{} // what is there
	defer m.s.Watch(PartSignals, m.who.Agent, func() { signalOne(arrived) })()
	f := &forwarder{m: m, to: to, turn: turn, wake: map[string]bool{}}
	for {
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil
		}
		for delay := retryLeast; ; delay = min(2*delay, retryMost) {
			err := f.pass(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			m.s.log.LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(m.s.id), agentAttr(m.who.Agent),
				logattr.Reason("forward"), logattr.Delay(delay), logattr.Err(err))
			if !supervise.Sleep(ctx, delay) {
				break
			}
		}
	}
}

type forwarder struct {
	m     *Member
	to    Inbox
	turn  time.Duration
	after int64           // everything up to there is in the inbox
	wake  map[string]bool // ids that are escalated and not in the inbox yet
}

// pass forwards what there is.
func (f *forwarder) pass(ctx context.Context) error {
	for {
		waits := slices.Collect(maps.Keys(f.wake))
		// In this order: the gate has then seen all that is on the page.
		p, err := f.m.peek(ctx, Selection{After: f.after, Limit: MaxPage})
		if err != nil {
			return err
		}
		through, err := f.escalate(ctx)
		if err != nil {
			return err
		}
		for i := range p.Signals {
			s := &p.Signals[i]
			if through > 0 && s.Sequence > through {
				break
			}
			if err := f.put(ctx, s); err != nil {
				return err
			}
			f.after = s.Sequence
		}
		if p.Next == 0 && through == 0 {
			for _, id := range waits { // it was read meanwhile
				delete(f.wake, id)
			}
			f.note()
			return nil
		}
	}
}

func (f *forwarder) put(ctx context.Context, s *Signal) error {
	wake := f.wake[s.ID]
	if !wake && f.to.Means() {
		answer, err := f.m.answered(ctx, s)
		if err != nil {
			return err
		}
		wake = answer
	}
	if err := f.to.Put(ctx, *s, wake); err != nil {
		return err
	}
	delete(f.wake, s.ID)
	f.note()
	return nil
}

// note notes whether all of a turn is in the inbox.
func (f *forwarder) note() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.putting = len(f.wake) > 0
}

// escalate asks for a turn for what has arrived. If there was more than one turn
// takes, it says through which sequence to go before it asks again.
func (f *forwarder) escalate(ctx context.Context) (through int64, err error) {
	if !f.to.Means() {
		return 0, nil
	}
	s := f.m.s
	now := time.Now()
	e, err := s.store.Escalate(ctx, Escalate{
		ID: newEscalationID(), Agent: f.m.who.Agent, After: f.after, Limits: s.o.Limits, Now: now, Until: now.Add(f.turn),
	})
	if err != nil {
		return 0, err
	}
	if e.Refused != Passed {
		s.count.add(func(t *Stats) { t.Refused[e.Refused]++ })
		s.log.LogAttrs(ctx, slog.LevelInfo, "mailbox.not_escalated", logattr.Session(s.id), agentAttr(f.m.who.Agent), logattr.Reason(string(e.Refused)))
	}
	if len(e.Signals) == 0 {
		return 0, nil
	}
	for i := range e.Signals {
		f.wake[e.Signals[i].ID] = true
	}
	f.m.mu.Lock()
	f.m.turn, f.m.putting = e.ID, true
	f.m.mu.Unlock()
	s.ended(ctx, f.m.who.Agent, "inbox", &e, 0, nil, false)
	if len(e.Signals) == MaxEscalated {
		through = e.Signals[MaxEscalated-1].Sequence
	}
	return through, nil
}

// answered reports whether a signal is the answer to something that the agent has
// asked for.
func (m *Member) answered(ctx context.Context, s *Signal) (bool, error) {
	if s.Type != Ack || s.ReplyTo == "" {
		return false, nil
	}
	asked, found, err := m.s.store.Find(ctx, s.ReplyTo)
	return found && asked.Sender == m.who.Agent && (asked.Demanding() || asked.Type == Query), err
}

// Turn is the turn that escalated signals begin, until it is ended: empty if there is
// none, and as long as Forward has not put all of them into the inbox.
func (m *Member) Turn() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.putting {
		return ""
	}
	return m.turn
}

// EndTurn says that the agent is in that turn no more. Of another than the last it
// says nothing.
func (m *Member) EndTurn(ctx context.Context, turn string) {
	m.mu.Lock()
	last := turn != "" && m.turn == turn
	if last {
		m.turn, m.putting = "", false
	}
	m.mu.Unlock()
	if last {
		m.settle(ctx, turn)
	}
}
