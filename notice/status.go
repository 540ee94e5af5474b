package notice

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Status is the state of one inbox, for its agent, senders and the operator.
type Status struct {
	Agent  string `json:"agent"`
	Counts Counts `json:"counts"`
	// Pending is the number of notices that wait to be shown.
	Pending int `json:"pending"`
	// Hold says why no turn is begun for the agent, if so.
	Hold Hold `json:"hold,omitzero"`
	// Outstanding is the adapter of the wake under way, if any, and Until when
	// its time is up.
	Outstanding string    `json:"outstanding,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	Spent       Spent     `json:"spent"`
}

// Status returns the state of an agent's inbox. Errors: *UnknownAgentError.
func (in *Inbox) Status(ctx context.Context, agent string) (Status, error) {
	counts, err := in.store.Counts(ctx, agent)
	if err != nil {
		return Status{}, err
	}
	d, err := in.store.Desk(ctx, agent, time.Now(), 0)
	if err != nil {
		return Status{}, err
	}
	s := Status{Agent: agent, Counts: counts, Pending: counts.Pending(), Hold: d.Hold, Spent: d.Spent}
	if d.Claimed != nil {
		s.Outstanding, s.Until = d.Claimed.Adapter, d.Claimed.Until
	}
	return s, nil
}

// String says it in words; an inbox with nothing to show is "0 pending".
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pending", s.Pending)
	if s.Pending > 0 {
		var parts []string
		for _, state := range States() {
			if n := s.Counts[state]; n > 0 && state.Pending() {
				parts = append(parts, fmt.Sprintf("%d %s", n, state))
			}
		}
		b.WriteString(" (" + strings.Join(parts, ", ") + ")")
	}
	for _, state := range []State{Dead, Expired} {
		if n := s.Counts[state]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, state)
		}
	}
	if s.Outstanding != "" {
		b.WriteString("; offered by " + s.Outstanding)
	}
	if s.Hold.Reason != "" {
		b.WriteString("; wakes are held: " + s.Hold.Reason)
	}
	return b.String()
}
