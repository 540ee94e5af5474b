package sqlite

import (
	"context"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// Spend implements notice.Ledger. It forgets what no budget asks for any more.
func (n *Notices) Spend(ctx context.Context, agent string, when time.Time, wakes, tokens int) error {
	return wrap("record cost", n.db.write(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM notice_spend WHERE agent = ? AND at <= ?`, id, when.Add(-2*time.Hour).UnixNano()); err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO notice_spend (agent, at, wakes, tokens) VALUES (?, ?, ?, ?)`, id, when.UnixNano(), wakes, tokens)
		return err
	}))
}

// SetHold implements notice.Ledger.
func (n *Notices) SetHold(ctx context.Context, agent string, h notice.Hold) error {
	return wrap("set hold", n.db.write(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		return t.setHold(id, h)
	}))
}

func (t *tx) setHold(agent int64, h notice.Hold) error {
	var since int64
	if h.Reason != "" {
		since = h.At.UnixNano()
	}
	_, err := t.exec(`UPDATE notice_agent SET hold_reason = ?, hold_at = ? WHERE id = ?`, h.Reason, since, agent)
	return err
}

// Reset implements notice.Ledger.
func (n *Notices) Reset(ctx context.Context, agent string) error {
	return wrap("reset budget", n.db.write(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		if err := t.setHold(id, notice.Hold{}); err != nil {
			return err
		}
		_, err = t.exec(`DELETE FROM notice_spend WHERE agent = ?`, id)
		return err
	}))
}

// Prune implements notice.Keeper.
func (n *Notices) Prune(ctx context.Context, p notice.Prune) (notice.Pruned, error) {
	var out notice.Pruned
	err := n.db.write(ctx, func(t *tx) error {
		agent, err := t.agentID(p.Agent)
		if err != nil {
			return err
		}
		expired, err := t.expire(agent, p, bound(p.PendingBefore), p.Limit, "it waited for too long")
		if err != nil {
			return err
		}
		deleted, err := t.exec(deleteDone, agent, bound(p.DoneBefore), p.Limit)
		if err != nil {
			return err
		}
		out = notice.Pruned{Expired: expired, Deleted: int(deleted)}
		if p.Keep > 0 {
			if err := t.keepTo(agent, p, &out); err != nil {
				return err
			}
		}
		_, err = t.exec(`DELETE FROM notice_key WHERE agent = ?1 AND key IN (
			SELECT k.key FROM notice_key k INDEXED BY notice_key_at WHERE k.agent = ?1 AND k.at < ?2
				AND NOT EXISTS (SELECT 1 FROM notice WHERE id = k.id))`, agent, bound(p.KeysBefore))
		return err
	})
	if err != nil {
		return notice.Pruned{}, wrap("prune notices", err)
	}
	return out, nil
}

const deleteDone = `DELETE FROM notice WHERE seq IN (
	SELECT seq FROM notice INDEXED BY notice_done WHERE agent = ? AND state >= 3 AND state_at < ? ORDER BY state_at, seq LIMIT ?)`

// expire moves the oldest pending notices, kept since before a moment, to
// Expired.
func (t *tx) expire(agent int64, p notice.Prune, before int64, limit int, reason string) (int, error) {
	var seqs []int64
	err := t.each(`SELECT seq FROM notice INDEXED BY notice_kept
		WHERE agent = ? AND state < 3 AND kept_at < ? AND (claim IS NULL OR claim_until <= ?) ORDER BY kept_at, seq LIMIT ?`,
		[]any{agent, before, p.Now.UnixNano(), limit}, func(scan func(...any) error) error {
			var seq int64
			err := scan(&seq)
			seqs = append(seqs, seq)
			return err
		})
	if err != nil {
		return 0, err
	}
	step := notice.Step{State: notice.Expired, At: p.Now, Adapter: "inbox", Reason: reason}
	for _, seq := range seqs {
		if _, err := t.exec(`UPDATE notice SET state = ?, state_at = ? WHERE seq = ?`, step.State.Rank(), step.At.UnixNano(), seq); err != nil {
			return 0, err
		}
		if err := t.moved(seq, step); err != nil {
			return 0, err
		}
	}
	return len(seqs), nil
}

// keepTo brings an inbox down to its size, as far as the limit of one call
// goes: first the oldest that are no longer pending are deleted, then the
// oldest pending ones expire.
func (t *tx) keepTo(agent int64, p notice.Prune, out *notice.Pruned) error {
	const always = int64(1<<63 - 1)
	over, err := t.over(agent, p.Keep)
	if err != nil || over <= 0 {
		return err
	}
	deleted, err := t.exec(deleteDone, agent, always, min(over, p.Limit-out.Deleted))
	if err != nil {
		return err
	}
	out.Deleted += int(deleted)
	if over -= int(deleted); over <= 0 {
		return nil
	}
	expired, err := t.expire(agent, p, always, min(over, p.Limit-out.Expired), "the inbox was full")
	out.Expired += expired
	return err
}

func (t *tx) over(agent int64, keep int) (int, error) {
	var total int
	err := t.one(`SELECT coalesce(sum(n), 0) FROM notice_count WHERE agent = ?`, []any{agent}, &total)
	return total - keep, err
}

// Delete implements notice.Keeper.
func (n *Notices) Delete(ctx context.Context, agent string, ids []string) (int, error) {
	deleted := 0
	err := n.db.write(ctx, func(t *tx) error {
		deleted = 0
		for _, id := range ids {
			number, err := t.exec(`DELETE FROM notice WHERE id = ? AND agent = (SELECT id FROM notice_agent WHERE name = ?)`, id, agent)
			if err != nil {
				return err
			}
			deleted += int(number)
		}
		return nil
	})
	return deleted, wrap("delete notices", err)
}
