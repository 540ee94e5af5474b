package mailbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Log returns the signals with greater sequences than after, whoever has sent them,
// in order and without a gap but for what is not kept any more: the last ones, at most
// so many. It is for whoever may see the whole session, and marks nothing.
func (s *Session) Log(ctx context.Context, after int64, last int) ([]Signal, error) {
	head, err := s.head(ctx)
	if err != nil {
		return nil, fmt.Errorf("read signals of session %s: %w", s.id, err)
	}
	after = max(after, head-int64(last))
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return nil, fmt.Errorf("read signals of session %s: %w", s.id, err)
	}
	all, err := s.walk(ctx, agents, after, head, true)
	if err == nil && len(agents) >= MaxMembers && int64(len(all)) < head-after {
		// Every signal was sent by one of them, or by one whose place another has taken.
		var received []Signal
		received, err = s.walk(ctx, agents, after, head, false)
		for i := range received {
			received[i].Read = false
		}
		all = append(all, received...)
	}
	if err != nil {
		return nil, fmt.Errorf("read signals of session %s: %w", s.id, err)
	}
	slices.SortStableFunc(all, func(a, b Signal) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return slices.CompactFunc(all, func(a, b Signal) bool { return a.Sequence == b.Sequence }), nil
}

// walk returns what agents have sent, or received, from after one sequence to another:
// others may have sent more while these were read, and those come the next time.
func (s *Session) walk(ctx context.Context, agents []Agent, after, to int64, sent bool) ([]Signal, error) {
	all := []Signal{}
	for _, a := range agents {
		for from := after; from < to; {
			p, err := s.store.Read(ctx, Selection{Agent: a.ID, Sent: sent, All: true, After: from, Limit: MaxPage})
			if err != nil {
				return nil, err
			}
			all = append(all, p.Signals...)
			if from = p.Next; from == 0 {
				break
			}
		}
	}
	return slices.DeleteFunc(all, func(m Signal) bool { return m.Sequence > to }), nil
}

// head is the sequence of the last signal.
func (s *Session) head(ctx context.Context) (int64, error) {
	s.mu.Lock()
	heads := s.heads
	s.mu.Unlock()
	for {
		c, err := s.store.Changes(ctx, heads)
		if err != nil || c.Heads == heads {
			return heads.Signals, err
		}
		heads = c.Heads
	}
}

// WatchLog is Watch for the signals of all members.
func (s *Session) WatchLog(changed func()) (stop func()) {
	return s.add(&watcher{part: PartSignals, all: true, changed: func(Envelope) { changed() }}, nil)
}
