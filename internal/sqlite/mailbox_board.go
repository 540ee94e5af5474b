package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// AddNote implements mailbox.Board.
func (m *Mailbox) AddNote(ctx context.Context, who mailbox.Identity, text string, now time.Time) (n mailbox.Note, err error) {
	n = mailbox.Note{Time: now.UTC(), Author: who.Agent, Text: text}
	err = m.write(ctx, "add note", func(t *tx) error {
		if _, err := t.enter(who, now); err != nil {
			return err
		}
		if err := t.bump("notes"); err != nil {
			return err
		}
		if err := t.one(`INSERT INTO mailbox_note (seq, time, author, text) VALUES ((SELECT notes FROM mailbox), ?, ?, ?) RETURNING seq`,
			[]any{now.UnixNano(), who.Agent, text}, &n.Sequence); err != nil {
			return err
		}
		return t.trimNotes(int64(len(text)))
	})
	return n, err
}

// Notes implements mailbox.Board.
func (m *Mailbox) Notes(ctx context.Context, after int64, limit int) (notes []mailbox.Note, next int64, err error) {
	limit = mailbox.PageLimit(limit)
	err = m.read(ctx, "read notes", func(t *tx) error {
		notes, next = nil, 0
		size := 0
		return t.each(`SELECT seq, time, author, text FROM mailbox_note WHERE seq > ? ORDER BY seq LIMIT ?`, []any{after, limit + 1}, func(scan func(...any) error) error {
			var n mailbox.Note
			var when int64
			if err := scan(&n.Sequence, &when, &n.Author, &n.Text); err != nil || next > 0 {
				return err
			}
			if len(notes) == limit || len(notes) > 0 && size+len(n.Text) > mailbox.MaxPageBytes {
				next = notes[len(notes)-1].Sequence
				return nil
			}
			n.Time = at(when)
			size += len(n.Text)
			notes = append(notes, n)
			return nil
		})
	})
	return notes, next, err
}

// SetEntry implements mailbox.Board.
func (m *Mailbox) SetEntry(ctx context.Context, who mailbox.Identity, key, value string, now time.Time) (mailbox.Entry, error) {
	err := m.write(ctx, "write whiteboard", func(t *tx) error {
		if _, err := t.enter(who, now); err != nil {
			return err
		}
		var others int
		if err := t.one(`SELECT count(*) FROM mailbox_entry WHERE key <> ?`, []any{key}, &others); err != nil {
			return err
		}
		if others >= mailbox.MaxEntries {
			return mailbox.FullOfEntries()
		}
		if err := t.bump("board"); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO mailbox_entry (key, value, updated_by, updated_at) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (key) DO UPDATE SET value = ?2, updated_by = ?3, updated_at = ?4`, key, value, who.Agent, now.UnixNano())
		return err
	})
	if err != nil {
		return mailbox.Entry{}, err
	}
	return mailbox.Entry{Key: key, Value: value, UpdatedBy: who.Agent, UpdatedAt: now.UTC()}, nil
}

// Entries implements mailbox.Board.
func (m *Mailbox) Entries(ctx context.Context, key string) (all []mailbox.Entry, err error) {
	err = m.read(ctx, "read whiteboard", func(t *tx) error {
		all = nil
		return t.each(`SELECT key, value, updated_by, updated_at FROM mailbox_entry WHERE ?1 = '' OR key = ?1 ORDER BY key`, []any{key},
			func(scan func(...any) error) error {
				var e mailbox.Entry
				var when int64
				err := scan(&e.Key, &e.Value, &e.UpdatedBy, &when)
				e.UpdatedAt = at(when)
				all = append(all, e)
				return err
			})
	})
	return all, err
}

// Escalate implements mailbox.Escalations.
func (m *Mailbox) Escalate(ctx context.Context, q mailbox.Escalate) (e mailbox.Escalation, err error) {
	// Most of the time there is nothing, and a look costs no write.
	quiet := false
	err = m.read(ctx, "escalate signals", func(t *tx) error {
		_, found, err := t.candidates(&q)
		quiet = len(found) == 0
		return err
	})
	if err != nil || quiet {
		return mailbox.Escalation{}, err
	}
	err = m.write(ctx, "escalate signals", func(t *tx) error {
		own, found, err := t.candidates(&q)
		if err != nil || len(found) == 0 {
			return err
		}
		e = mailbox.Escalation{Limits: own.Or(q.Limits).OrDefaults()}
		if e.Wait, err = t.room(&q, own.Escalations); err != nil {
			return err
		}
		last := found[len(found)-1].Sequence
		if e.Wait > 0 {
			e.Refused = mailbox.TooMany
			if !q.Retry {
				_, err = t.exec(`UPDATE mailbox_agent SET considered = (SELECT signals FROM mailbox) WHERE id = ?`, q.Agent)
			}
			return err
		}
		e.ID, e.Signals = q.ID, found
		if _, err = t.exec(`UPDATE mailbox_agent SET considered = ?, turn = ?, turn_until = ? WHERE id = ?`, last, q.ID, q.Until.UnixNano(), q.Agent); err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO mailbox_escalation (id, agent, at) VALUES (?, ?, ?)`, q.ID, q.Agent, q.Now.UnixNano())
		return err
	})
	return e, err
}

// candidates returns the limits of an agent, and its signals that pass the gates
// which need no counting.
func (t *tx) candidates(q *mailbox.Escalate) (own mailbox.Limits, found []mailbox.Signal, err error) {
	var floor, considered int64
	err = t.one(`SELECT floor, considered, signals, escalations, tokens FROM mailbox_agent WHERE id = ?`, []any{q.Agent},
		&floor, &considered, &own.Signals, &own.Escalations, &own.Tokens)
	if errors.Is(err, sql.ErrNoRows) {
		return own, nil, nil
	}
	if err != nil {
		return own, nil, err
	}
	for _, args := range addresses(q.Agent) {
		args = append(args, max(q.After, floor, considered), q.Agent, q.Agent, mailbox.MaxEscalated)
		err := t.each(`SELECT `+signalColumns+` FROM mailbox_signal s WHERE `+anyAddress+` AND s.seq > ?`+unreadWhere+
			` AND s.depth = 0 AND (s.type IN ('delegate', 'urgent') OR s.priority = 'urgent') ORDER BY s.seq LIMIT ?`, args,
			func(scan func(...any) error) error {
				s, err := scanSignal(scan)
				if err == nil && mailbox.Gate(&s, true, 0, 1) == mailbox.Passed {
					found = append(found, s)
				}
				return err
			})
		if err != nil {
			return own, nil, err
		}
	}
	return own, found[:min(len(found), mailbox.MaxEscalated)], nil
}

// room returns how long the limits of the session and of the agent refuse an
// escalation, and forgets those that do not count any more.
func (t *tx) room(q *mailbox.Escalate, own int) (time.Duration, error) {
	var all, mine, old []time.Time
	err := t.each(`SELECT agent, at FROM mailbox_escalation`, nil, func(scan func(...any) error) error {
		var agent string
		var when int64
		err := scan(&agent, &when)
		if !mailbox.InWindow(at(when), q.Now) {
			old = append(old, at(when))
			return err
		}
		all = append(all, at(when))
		if agent == q.Agent {
			mine = append(mine, at(when))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, when := range old {
		if _, err := t.exec(`DELETE FROM mailbox_escalation WHERE at = ?`, when.UnixNano()); err != nil {
			return 0, err
		}
	}
	wait := mailbox.Free(all, q.Now, q.Limits.OrDefaults().Escalations)
	if own > 0 {
		wait = max(wait, mailbox.Free(mine, q.Now, own))
	}
	return wait, nil
}

// Settle implements mailbox.Escalations.
func (m *Mailbox) Settle(ctx context.Context, agent, id string) error {
	return m.write(ctx, "settle escalation", func(t *tx) error {
		_, err := t.exec(`UPDATE mailbox_agent SET turn = '', turn_until = 0 WHERE id = ? AND turn = ?`, agent, id)
		return err
	})
}
