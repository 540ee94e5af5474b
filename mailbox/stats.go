package mailbox

import (
	"maps"
	"sync"
	"time"
)

// Stats are the counters of a session in this process, since it was opened
// (specification S-21).
type Stats struct {
	Sent      map[Type]int64    // signals that members of this process sent
	Announced int64             // calls of watchers
	Escalated int64             // turns begun
	Refused   map[Refusal]int64 // signals that a gate kept in the first tier
	// Outcomes counts how escalations ended: "done", or why not.
	Outcomes map[string]int64
	// Turns is the time that all escalations took together.
	Turns time.Duration
}

// Add adds other counters to these.
func (s *Stats) Add(other Stats) {
	if s.Sent == nil {
		s.Sent, s.Refused, s.Outcomes = map[Type]int64{}, map[Refusal]int64{}, map[string]int64{}
	}
	for k, n := range other.Sent {
		s.Sent[k] += n
	}
	for k, n := range other.Refused {
		s.Refused[k] += n
	}
	for k, n := range other.Outcomes {
		s.Outcomes[k] += n
	}
	s.Announced += other.Announced
	s.Escalated += other.Escalated
	s.Turns += other.Turns
}

// Outcomes of an escalation.
const (
	OutcomeDone    = "done"
	OutcomeTimeout = "timeout"
	OutcomeFailed  = "failed"
)

type counters struct {
	mu sync.Mutex
	s  Stats
}

func newCounters() *counters {
	return &counters{s: Stats{Sent: map[Type]int64{}, Refused: map[Refusal]int64{}, Outcomes: map[string]int64{}}}
}

func (c *counters) add(f func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.s
	out.Sent, out.Refused, out.Outcomes = maps.Clone(c.s.Sent), maps.Clone(c.s.Refused), maps.Clone(c.s.Outcomes)
	return out
}
