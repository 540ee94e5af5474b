package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// Desk implements notice.Claims.
func (n *Notices) Desk(ctx context.Context, agent string, now time.Time, routes int) (notice.Desk, error) {
	var d notice.Desk
	err := n.db.read(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		var held int64
		if err := t.one(`SELECT hold_reason, hold_at FROM notice_agent WHERE id = ?`, []any{id}, &d.Hold.Reason, &held); err != nil {
			return err
		}
		if d.Hold.Reason != "" {
			d.Hold.At = at(held)
		}
		if d.Spent, err = t.spent(id, now); err != nil {
			return err
		}
		var oldest int64
		err = t.one(`SELECT kept_at FROM notice INDEXED BY notice_kept WHERE agent = ? AND state < 3 ORDER BY kept_at, seq LIMIT 1`, []any{id}, &oldest)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil // nothing is pending
		case err != nil:
			return err
		}
		d.Oldest = at(oldest)
		if d.Claimed, err = t.outstanding(id); err != nil {
			return err
		}
		d.Heads, err = t.heads(id, max(routes, 0))
		return err
	})
	if err != nil {
		return notice.Desk{}, wrap("read desk", err)
	}
	return d, nil
}

func (t *tx) spent(agent int64, now time.Time) (s notice.Spent, err error) {
	err = t.one(`SELECT coalesce(sum(wakes), 0), coalesce(sum(tokens), 0), coalesce(sum(wakes) FILTER (WHERE at > ?3), 0)
		FROM notice_spend WHERE agent = ?1 AND at > ?2`,
		[]any{agent, now.Add(-time.Hour).UnixNano(), now.Add(-time.Minute).UnixNano()}, &s.WakesHour, &s.TokensHour, &s.WakesMinute)
	return s, err
}

// outstanding returns the wake that is under way, or nil.
func (t *tx) outstanding(agent int64) (*notice.Claimed, error) {
	var c *notice.Claimed
	err := t.each(`SELECT `+columns+`, n.claim_adapter, n.claim_until`+from+` INDEXED BY notice_claim`+joined+
		` WHERE n.agent = ? AND n.claim IS NOT NULL AND n.claim_wake = 1 ORDER BY n.seq`, []any{agent},
		func(scan func(...any) error) error {
			var adapter string
			var until int64
			_, r, err := record(func(dest ...any) error { return scan(append(dest, &adapter, &until)...) })
			if err != nil {
				return err
			}
			if c == nil {
				c = &notice.Claimed{Delivery: r.Delivery, Adapter: adapter, Route: r.Route, Until: at(until)}
			}
			c.Records = append(c.Records, r)
			return nil
		})
	return c, err
}

// heads returns the earliest due notice of each route; routes from routes on
// share one.
func (t *tx) heads(agent int64, routes int) ([]notice.Head, error) {
	earliest := map[int]notice.Head{}
	add := func(route int, due int64) {
		slot := min(route, routes)
		h := notice.Head{Route: route, Due: at(due)}
		if old, ok := earliest[slot]; !ok || h.Due.Before(old.Due) {
			earliest[slot] = h
		}
	}
	for route := notice.RouteDone; route < routes; route++ {
		var due int64
		err := t.one(`SELECT due FROM notice INDEXED BY notice_due
			WHERE agent = ? AND route = ? AND state < 3 AND due IS NOT NULL AND claim IS NULL ORDER BY due LIMIT 1`, []any{agent, route}, &due)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return nil, err
		default:
			add(route, due)
		}
	}
	several := func(scan func(...any) error) error {
		var route int
		var due int64
		err := scan(&route, &due)
		add(route, due)
		return err
	}
	err := t.each(`SELECT route, due FROM notice INDEXED BY notice_due
		WHERE agent = ? AND route >= ? AND state < 3 AND due IS NOT NULL AND claim IS NULL ORDER BY due, seq LIMIT 1`, []any{agent, routes}, several)
	if err != nil {
		return nil, err
	}
	err = t.each(`SELECT route, max(due, claim_until) FROM notice INDEXED BY notice_claim
		WHERE agent = ? AND claim IS NOT NULL AND claim_wake = 0 AND due IS NOT NULL ORDER BY seq`, []any{agent}, several)
	if err != nil {
		return nil, err
	}
	var heads []notice.Head
	for _, h := range earliest {
		heads = append(heads, h)
	}
	slices.SortFunc(heads, func(a, b notice.Head) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Route, b.Route)) })
	return heads, nil
}

// Claim implements notice.Claims.
func (n *Notices) Claim(ctx context.Context, c notice.Claim) (notice.Claimed, error) {
	out := notice.Claimed{Delivery: c.Delivery, Adapter: c.Adapter, Route: c.Route, Until: c.Until}
	if !c.Wake { // mostly there is nothing to pull, and then nobody waits for the writer
		switch nothing, err := n.nothing(ctx, c, &out.Waiting); {
		case err != nil:
			return notice.Claimed{}, wrap("claim notices", err)
		case nothing:
			return out, nil
		}
	}
	err := n.db.write(ctx, func(t *tx) error {
		agent, err := t.agentID(c.Agent)
		if err != nil {
			return err
		}
		if c.Wake {
			if err := t.mayWake(agent, c.Fence); err != nil {
				return err
			}
		}
		found, err := t.claimable(agent, c)
		if err != nil {
			return err
		}
		seqs := make([]int64, len(found))
		for i, r := range found {
			r.Delivery = c.Delivery
			seqs[i], out.Records = r.seq, append(out.Records, r.Record)
		}
		if err := t.hold(seqs, c); err != nil {
			return err
		}
		out.Waiting, err = t.pending(agent)
		out.Waiting -= len(found)
		return err
	})
	if err != nil {
		return notice.Claimed{}, wrap("claim notices", err)
	}
	return out, nil
}

// nothing reports whether there is nothing to claim, and how many notices wait.
func (n *Notices) nothing(ctx context.Context, c notice.Claim, waiting *int) (nothing bool, err error) {
	err = n.db.read(ctx, func(t *tx) error {
		agent, err := t.agentID(c.Agent)
		if err != nil {
			return err
		}
		c.Limit = 1
		found, err := t.claimable(agent, c)
		if err != nil || len(found) > 0 {
			return err
		}
		nothing = true
		*waiting, err = t.pending(agent)
		return err
	})
	return nothing, err
}

func (t *tx) pending(agent int64) (n int, err error) {
	err = t.one(`SELECT coalesce(sum(n), 0) FROM notice_count WHERE agent = ? AND state < 3`, []any{agent}, &n)
	return n, err
}

// hold gives the notices to a claim.
func (t *tx) hold(seqs []int64, c notice.Claim) error {
	if len(seqs) == 0 {
		return nil
	}
	list, err := json.Marshal(seqs)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE notice SET claim = ?, claim_adapter = ?, claim_wake = ?, claim_until = ? WHERE seq IN (SELECT value FROM json_each(?))`,
		c.Delivery, c.Adapter, c.Wake, c.Until.UnixNano(), string(list))
	return err
}

func (t *tx) mayWake(agent, fence int64) error {
	var current int64
	if err := t.one(`SELECT fence FROM notice_agent WHERE id = ?`, []any{agent}, &current); err != nil {
		return err
	}
	if current != fence {
		return notice.ErrFenced
	}
	var outstanding bool
	err := t.one(`SELECT EXISTS (SELECT 1 FROM notice INDEXED BY notice_claim WHERE agent = ? AND claim IS NOT NULL AND claim_wake = 1)`, []any{agent}, &outstanding)
	if err == nil && outstanding {
		return notice.ErrOutstanding
	}
	return err
}

// claimable returns what a claim takes, oldest first.
func (t *tx) claimable(agent int64, c notice.Claim) ([]numbered, error) {
	var found []numbered
	add := func(scan func(...any) error) error {
		seq, r, err := record(scan)
		found = append(found, numbered{seq, r})
		return err
	}
	now := c.Now.UnixNano()
	if c.Wake {
		err := t.each(`SELECT `+columns+from+` INDEXED BY notice_due`+joined+`
			WHERE n.agent = ? AND n.route = ? AND n.state < 3 AND n.due <= ? AND (n.claim IS NULL OR n.claim_until <= ?) ORDER BY n.due, n.seq LIMIT ?`,
			[]any{agent, c.Route, now, now, c.Limit}, add)
		if err != nil {
			return nil, err
		}
	} else {
		for rank := range notice.Suppressed.Rank() { // the pending states
			err := t.each(`SELECT `+columns+from+` INDEXED BY notice_state`+joined+`
				WHERE n.agent = ? AND n.state = ? AND (n.claim IS NULL OR n.claim_until <= ?) AND (? OR n.due IS NOT NULL) ORDER BY n.seq LIMIT ?`,
				[]any{agent, rank, now, c.Held, c.Limit}, add)
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
	return found[:min(len(found), c.Limit)], nil
}

// Extend implements notice.Claims.
func (n *Notices) Extend(ctx context.Context, agent, delivery string, until time.Time) error {
	return wrap("extend claim", n.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE notice SET claim_until = ? WHERE claim = ? AND agent = (SELECT id FROM notice_agent WHERE name = ?)`,
			until.UnixNano(), delivery, agent)
		return err
	}))
}

// Release implements notice.Claims.
func (n *Notices) Release(ctx context.Context, agent, delivery string, next []notice.Next, step notice.Step) error {
	schedule := map[string]notice.Next{}
	for _, x := range next {
		schedule[x.ID] = x
	}
	return wrap("release claim", n.db.write(ctx, func(t *tx) error {
		held, err := t.heldBy(agent, delivery)
		if err != nil {
			return err
		}
		if len(held) == 0 {
			return nil
		}
		_, err = t.exec(`UPDATE notice SET claim = NULL, claim_adapter = NULL, claim_wake = NULL, claim_until = NULL
			WHERE agent = (SELECT id FROM notice_agent WHERE name = ?) AND claim = ?`, agent, delivery)
		if err != nil {
			return err
		}
		for _, h := range held {
			step := step
			step.State = h.State
			if x, ok := schedule[h.ID]; ok {
				if x.Dead {
					step.State = notice.Dead
				}
				_, err := t.exec(`UPDATE notice SET route = ?, tries = ?, offers = ?, due = ? WHERE seq = ?`, x.Route, x.Tries, x.Offers, nanos(x.Due), h.seq)
				if err != nil {
					return err
				}
			}
			if step.State != h.State {
				if _, err := t.exec(`UPDATE notice SET state = ?, state_at = ? WHERE seq = ?`, step.State.Rank(), step.At.UnixNano(), h.seq); err != nil {
					return err
				}
			} else if step.Reason == "" {
				continue
			}
			if err := t.step(h.seq, step); err != nil {
				return err
			}
		}
		return nil
	}))
}

// heldBy returns what a claim holds: number, id and state.
func (t *tx) heldBy(agent, delivery string) ([]numbered, error) {
	var held []numbered
	err := t.each(`SELECT seq, id, state FROM notice INDEXED BY notice_claim
		WHERE agent = (SELECT id FROM notice_agent WHERE name = ?) AND claim = ? AND claim IS NOT NULL ORDER BY seq`, []any{agent, delivery},
		func(scan func(...any) error) error {
			var h numbered
			var rank int
			err := scan(&h.seq, &h.ID, &rank)
			if err != nil {
				return err
			}
			h.State, err = stateOf(rank)
			held = append(held, h)
			return err
		})
	return held, err
}
