package noticetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// Desk implements notice.Claims.
func (s *Store) Desk(ctx context.Context, agent string, now time.Time, routes int) (notice.Desk, error) {
	if err := s.begin(ctx, "Desk"); err != nil {
		return notice.Desk{}, err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return notice.Desk{}, err
	}
	d := notice.Desk{Hold: b.hold, Spent: b.sum(now)}
	heads := map[int]notice.Head{}
	for _, r := range b.rows {
		if !r.State.Pending() {
			continue
		}
		if d.Oldest.IsZero() {
			d.Oldest = r.keptAt
		}
		if r.wake {
			if d.Claimed == nil {
				d.Claimed = &notice.Claimed{Delivery: r.claim, Adapter: r.adapter, Route: r.Route, Until: r.until}
			}
			d.Claimed.Records = append(d.Claimed.Records, r.listed())
			continue
		}
		if r.Due.IsZero() {
			continue
		}
		due := r.Due
		if r.claim != "" && r.until.After(due) {
			due = r.until
		}
		slot := min(r.Route, max(routes, 0))
		if h, ok := heads[slot]; !ok || due.Before(h.Due) {
			heads[slot] = notice.Head{Route: r.Route, Due: due}
		}
	}
	for _, h := range heads {
		d.Heads = append(d.Heads, h)
	}
	slices.SortFunc(d.Heads, func(a, b notice.Head) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Route, b.Route)) })
	return d, nil
}

func (b *inbox) sum(now time.Time) notice.Spent {
	var out notice.Spent
	for _, sp := range b.spent {
		if sp.at.After(now.Add(-time.Hour)) {
			out.WakesHour += sp.wakes
			out.TokensHour += sp.tokens
		}
		if sp.at.After(now.Add(-time.Minute)) {
			out.WakesMinute += sp.wakes
		}
	}
	return out
}

// Claim implements notice.Claims.
func (s *Store) Claim(ctx context.Context, c notice.Claim) (notice.Claimed, error) {
	if err := s.begin(ctx, "Claim"); err != nil {
		return notice.Claimed{}, err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(c.Agent)
	if err != nil {
		return notice.Claimed{}, err
	}
	if c.Wake {
		if b.fence != c.Fence {
			return notice.Claimed{}, notice.ErrFenced
		}
		if slices.ContainsFunc(b.rows, func(r *row) bool { return r.wake }) {
			return notice.Claimed{}, notice.ErrOutstanding
		}
	}
	free := slices.DeleteFunc(slices.Clone(b.rows), func(r *row) bool { return !r.claimable(c) })
	if c.Wake { // the earliest due are taken, and handed out oldest first
		slices.SortStableFunc(free, func(a, b *row) int { return a.Due.Compare(b.Due) })
	}
	free = free[:min(len(free), c.Limit)]
	slices.SortFunc(free, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
	out := notice.Claimed{Delivery: c.Delivery, Adapter: c.Adapter, Route: c.Route, Until: c.Until}
	for _, r := range free {
		r.claim, r.Delivery, r.adapter, r.wake, r.until = c.Delivery, c.Delivery, c.Adapter, c.Wake, c.Until
		out.Records = append(out.Records, r.listed())
	}
	for _, r := range b.rows {
		if r.State.Pending() {
			out.Waiting++
		}
	}
	out.Waiting -= len(free)
	return out, nil
}

func (r *row) claimable(c notice.Claim) bool {
	if !r.State.Pending() || r.claim != "" && r.until.After(c.Now) {
		return false
	}
	if c.Wake {
		return r.Route == c.Route && !r.Due.IsZero() && !r.Due.After(c.Now)
	}
	return c.Held || !r.Due.IsZero()
}

// Extend implements notice.Claims.
func (s *Store) Extend(ctx context.Context, agent, delivery string, until time.Time) error {
	if err := s.begin(ctx, "Extend"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range s.held(agent, delivery) {
		r.until = until
	}
	return nil
}

func (s *Store) held(agent, delivery string) []*row {
	b := s.agents[agent]
	if b == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.rows), func(r *row) bool { return r.claim != delivery || delivery == "" })
}

// Release implements notice.Claims.
func (s *Store) Release(ctx context.Context, agent, delivery string, next []notice.Next, step notice.Step) error {
	if err := s.begin(ctx, "Release"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range s.held(agent, delivery) {
		r.free()
		step := step
		step.State = r.State
		dead := false
		for _, n := range next {
			if n.ID == r.ID {
				r.Route, r.Tries, r.Offers, r.Due, dead = n.Route, n.Tries, n.Offers, n.Due, n.Dead
			}
		}
		switch {
		case dead:
			step.State = notice.Dead
			r.move(step)
		case step.Reason != "":
			r.Steps = append(r.Steps, step)
		}
	}
	return nil
}

// Spend implements notice.Ledger.
func (s *Store) Spend(ctx context.Context, agent string, at time.Time, wakes, tokens int) error {
	if err := s.begin(ctx, "Spend"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return err
	}
	b.spent = append(b.spent, spending{at, wakes, tokens})
	return nil
}

// SetHold implements notice.Ledger.
func (s *Store) SetHold(ctx context.Context, agent string, h notice.Hold) error {
	if err := s.begin(ctx, "SetHold"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return err
	}
	b.hold = h
	return nil
}

// Reset implements notice.Ledger.
func (s *Store) Reset(ctx context.Context, agent string) error {
	if err := s.begin(ctx, "Reset"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return err
	}
	b.hold, b.spent = notice.Hold{}, nil
	return nil
}

// Prune implements notice.Keeper.
func (s *Store) Prune(ctx context.Context, p notice.Prune) (notice.Pruned, error) {
	if err := s.begin(ctx, "Prune"); err != nil {
		return notice.Pruned{}, err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(p.Agent)
	if err != nil {
		return notice.Pruned{}, err
	}
	var out notice.Pruned
	expire := func(reason string, want func(*row) bool) {
		for _, r := range b.rows {
			if out.Expired < p.Limit && r.State.Pending() && (r.claim == "" || !r.until.After(p.Now)) && want(r) {
				r.move(notice.Step{State: notice.Expired, At: p.Now, Adapter: "inbox", Reason: reason})
				out.Expired++
			}
		}
	}
	remove := func(want func(*row) bool) {
		rows := slices.Clone(b.rows)
		slices.SortStableFunc(rows, func(a, b *row) int { return a.StateAt.Compare(b.StateAt) })
		for _, r := range rows {
			if out.Deleted < p.Limit && !r.State.Pending() && want(r) {
				s.remove(b, r)
				out.Deleted++
			}
		}
	}
	expire("it waited for too long", func(r *row) bool { return r.keptAt.Before(p.PendingBefore) })
	remove(func(r *row) bool { return r.StateAt.Before(p.DoneBefore) })
	if p.Keep > 0 {
		remove(func(*row) bool { return len(b.rows) > p.Keep })
		over := len(b.rows) - p.Keep
		expire("the inbox was full", func(*row) bool { over--; return over >= 0 })
	}
	for k, v := range b.keys {
		if v.at.Before(p.KeysBefore) && s.byID[v.id] == nil {
			delete(b.keys, k)
		}
	}
	return out, nil
}

func (s *Store) remove(b *inbox, r *row) {
	delete(s.byID, r.ID)
	b.rows = slices.DeleteFunc(b.rows, func(o *row) bool { return o == r })
}

// Delete implements notice.Keeper.
func (s *Store) Delete(ctx context.Context, agent string, ids []string) (int, error) {
	if err := s.begin(ctx, "Delete"); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for _, id := range ids {
		if r := s.byID[id]; r != nil && r.Agent == agent {
			s.remove(s.agents[agent], r)
			n++
		}
	}
	return n, nil
}
