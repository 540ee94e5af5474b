package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/mailbox"
)

// Escalate implements mailbox.Escalations.
func (m *Mailbox) Escalate(ctx context.Context, q mailbox.Escalate) (e mailbox.Escalation, err error) {
	// Most of the time there is nothing, and a look costs no write.
	quiet := false
	err = m.read(ctx, "escalate signals", func(p *post) error {
		_, found, err := p.candidates(&q)
		quiet = len(found) == 0
		return err
	})
	if err != nil || quiet {
		return mailbox.Escalation{}, err
	}
	err = m.write(ctx, "escalate signals", func(p *post) error {
		q.Now, q.Until = p.at(q.Now), p.at(q.Until)
		own, found, err := p.candidates(&q)
		if err != nil || len(found) == 0 {
			return err
		}
		e = mailbox.Escalation{Limits: own.Or(q.Limits).OrDefaults()}
		if e.Wait, err = p.room(&q, own.Escalations); err != nil {
			return err
		}
		if e.Wait > 0 {
			e.Refused = mailbox.TooMany
			if !q.Retry {
				err = p.exec(`UPDATE ossicle.mailbox_agent SET considered = (SELECT signals FROM ossicle.mailbox WHERE session = $1) WHERE session = $1 AND id = $2`, q.Agent)
			}
			return err
		}
		e.ID, e.Signals = q.ID, found
		err = p.exec(`UPDATE ossicle.mailbox_agent SET considered = $3, turn = $4, turn_until = $5 WHERE session = $1 AND id = $2`,
			q.Agent, found[len(found)-1].Sequence, q.ID, q.Until.UnixNano())
		if err != nil {
			return err
		}
		return p.exec(`INSERT INTO ossicle.mailbox_escalation (session, id, agent, at) VALUES ($1, $2, $3, $4)`, q.ID, q.Agent, q.Now.UnixNano())
	})
	return e, err
}

// candidates returns the limits of an agent, and its signals that pass the gates
// which need no counting.
func (p *post) candidates(q *mailbox.Escalate) (own mailbox.Limits, found []mailbox.Signal, err error) {
	var floor, considered int64
	err = p.one(`SELECT floor, considered, signals, escalations, tokens FROM ossicle.mailbox_agent WHERE session = $1 AND id = $2`, []any{q.Agent},
		&floor, &considered, &own.Signals, &own.Escalations, &own.Tokens)
	if errors.Is(err, pgx.ErrNoRows) {
		return own, nil, nil
	}
	if err != nil {
		return own, nil, err
	}
	err = p.each(`SELECT `+signalColumns+reaching+notRead+` AND s.depth = 0 AND (s.type IN ('delegate', 'urgent') OR s.priority = 'urgent') ORDER BY s.seq LIMIT $5`,
		[]any{q.Agent, mailbox.Addresses(q.Agent), max(q.After, floor, considered), mailbox.MaxEscalated}, func(scan func(...any) error) error {
			s, err := scanSignal(scan)
			if err == nil && mailbox.Gate(&s, true, 0, 1) == mailbox.Passed {
				found = append(found, s)
			}
			return err
		})
	return own, found, err
}

// room returns how long the limits of the session and of the agent refuse an
// escalation, and forgets those that do not count any more.
func (p *post) room(q *mailbox.Escalate, own int) (time.Duration, error) {
	var all, mine []time.Time
	var old []int64
	err := p.each(`SELECT agent, at FROM ossicle.mailbox_escalation WHERE session = $1`, nil, func(scan func(...any) error) error {
		var agent string
		var when int64
		err := scan(&agent, &when)
		if !mailbox.InWindow(nanos(when), q.Now) {
			old = append(old, when)
			return err
		}
		all = append(all, nanos(when))
		if agent == q.Agent {
			mine = append(mine, nanos(when))
		}
		return err
	})
	if err == nil && len(old) > 0 {
		err = p.exec(`DELETE FROM ossicle.mailbox_escalation WHERE session = $1 AND at = ANY ($2::bigint[])`, old)
	}
	if err != nil {
		return 0, err
	}
	wait := mailbox.Free(all, q.Now, q.Limits.OrDefaults().Escalations)
	if own > 0 {
		wait = max(wait, mailbox.Free(mine, q.Now, own))
	}
	return wait, nil
}

// Settle implements mailbox.Escalations.
func (m *Mailbox) Settle(ctx context.Context, agent, id string) error {
	return m.write(ctx, "settle escalation", func(p *post) error {
		return p.exec(`UPDATE ossicle.mailbox_agent SET turn = '', turn_until = 0 WHERE session = $1 AND id = $2 AND turn = $3`, agent, id)
	})
}
