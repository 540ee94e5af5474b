package agent

import (
	"context"
	"fmt"
)

// Observation is a session at one moment, and what comes after it: nothing is
// missing between the parts, and nothing is in two of them.
type Observation struct {
	// Entries are the last ones of the transcript, in order.
	Entries []Entry
	// Present is what goes on and is not among the entries. It is the caller's.
	Present *Present
	// Updates are those from then on. The caller closes it.
	Updates *Subscription
}

// Observe returns the session as it is, with the last entries of its transcript,
// at most so many. Later entries are read from the store, behind the last of
// these, when Subscription.Changed rings. What is waiting to be written is
// written first, so it takes as long as the store does.
func (s *Session) Observe(ctx context.Context, last int) (*Observation, error) {
	var o Observation
	var err error
	o.Entries, err = s.transcript.observe(ctx, last, func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.Present, o.Updates = s.feed.observe()
		return s.transcript.waiting()
	})
	if err != nil {
		o.Updates.Close()
		return nil, fmt.Errorf("observe session %q: %w", s.id, err)
	}
	return &o, nil
}

// observe is one moment: what was added before it is written and read, and what
// comes after it waits until then.
func (t *transcript) observe(ctx context.Context, last int, moment func() (waiting int)) ([]Entry, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	waiting := moment()
	write, written := context.WithTimeout(context.WithoutCancel(ctx), storeTime) // the entries do not depend on who looks
	defer written()
	_ = t.write(write, waiting) // what it lacks is counted as missing
	read, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return t.store.List(read, t.session, Query{Limit: last, Last: true})
}

// waiting counts the entries that are not written.
func (t *transcript) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}
