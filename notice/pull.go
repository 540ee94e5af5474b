package notice

import (
	"context"
	"time"
)

// PullOptions adjust a Pull. Zero fields take the defaults.
type PullOptions struct {
	// User says that a person begins a turn: notices that must not cause one of
	// themselves come too.
	User bool
	// Limit bounds the number of notices; what is over waits.
	Limit int
	// Lease is how long the notices are held for the caller. A caller that died
	// has shown nothing: after the lease they wait as before.
	Lease time.Duration
}

// Pull is a handful of notices that somebody who can show them has fetched.
// Exactly one of Seen and Release must follow.
type Pull struct {
	Notices []Notice // oldest first
	Waiting int      // pending ones that did not come

	in             *Inbox
	agent, adapter string
	delivery       string
}

// Pull takes hold of what waits for an agent, for a caller who will show it in
// a turn that runs anyway: a tool's result, a hook, a person's prompt. It takes
// nothing that an adapter has in hand. An empty inbox gives a Pull without
// notices. Errors: *UnknownAgentError.
func (in *Inbox) Pull(ctx context.Context, agent, adapter string, o *PullOptions) (*Pull, error) {
	var opts PullOptions
	if o != nil {
		opts = *o
	}
	fill(&opts.Limit, in.o.Batch)
	fill(&opts.Lease, DefaultLease)
	now := time.Now()
	c, err := in.store.Claim(ctx, Claim{
		Agent: agent, Delivery: newDelivery(), Adapter: adapter,
		Held: opts.User, Now: now, Until: now.Add(opts.Lease), Limit: opts.Limit,
	})
	if err != nil {
		return nil, err
	}
	return &Pull{
		Notices: delivery(agent, c).Notices, Waiting: c.Waiting,
		in: in, agent: agent, adapter: adapter, delivery: c.Delivery,
	}, nil
}

// Text renders the notices for a place inside a turn; see [Aside].
func (p *Pull) Text() string { return Aside(p.Notices...) }

// Depth is the greatest depth among the notices.
func (p *Pull) Depth() int {
	depth := 0
	for _, n := range p.Notices {
		depth = max(depth, n.Depth)
	}
	return depth
}

// Seen records that the notices were shown.
func (p *Pull) Seen(ctx context.Context) error {
	if len(p.Notices) == 0 {
		return nil
	}
	_, err := p.in.move(ctx, p.agent, ids(p.Notices), Step{State: Seen, Adapter: p.adapter})
	return err
}

// Release gives the notices back, because they were not shown.
func (p *Pull) Release(ctx context.Context) error {
	if len(p.Notices) == 0 {
		return nil
	}
	err := p.in.store.Release(ctx, p.agent, p.delivery, nil, Step{At: time.Now(), Adapter: p.adapter})
	p.in.Kick(p.agent)
	return err
}

// MayWake says whether a turn may be begun for the agent within its budget, and
// counts it as begun if so. It is for surfaces that begin turns other than by
// a Waker, such as a hook that makes an agent go on.
func (in *Inbox) MayWake(ctx context.Context, agent string, tokens int) (bool, error) {
	s, err := in.store.Desk(ctx, agent, time.Now(), 0)
	if err != nil {
		return false, err
	}
	if held, err := in.held(ctx, agent, s); held || err != nil {
		return false, err
	}
	return true, in.store.Spend(ctx, agent, time.Now(), 1, tokens)
}
