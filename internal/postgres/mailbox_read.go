package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/mailbox"
)

// signalColumns are those that scanSignal reads, of a table s.
const signalColumns = `s.seq, s.id, s.time, s.sender, s.recipient, s.type, s.priority, s.depth, s.reply_to, s.metadata, s.content`

func scanSignal(scan func(...any) error, more ...any) (mailbox.Signal, error) {
	var s mailbox.Signal
	var when int64
	var typ, priority, meta string
	var content []byte
	err := scan(append([]any{
		&s.Sequence, &s.ID, &when, &s.Sender, &s.Recipient, &typ, &priority, &s.Depth, &s.ReplyTo, &meta, &content,
	}, more...)...)
	s.Time, s.Type, s.Priority, s.Metadata, s.Content = nanos(when), mailbox.Type(typ), mailbox.Type(priority), metadata(meta), string(content)
	return s, err
}

// The signals that reach agent $2 by its addresses $3, and those of them that it
// has not read.
const (
	reaching = ` FROM ossicle.mailbox_signal s WHERE s.session = $1 AND s.recipient = ANY ($3::text[]) AND s.sender <> $2 AND s.seq > $4`
	notRead  = ` AND NOT EXISTS (SELECT 1 FROM ossicle.mailbox_read r WHERE r.session = $1 AND r.seq = s.seq AND r.agent = $2)`
)

// Read implements mailbox.Signals.
func (m *Mailbox) Read(ctx context.Context, q mailbox.Selection) (page mailbox.Page, err error) {
	limit := mailbox.PageLimit(q.Limit)
	err = m.read(ctx, "read signals", func(p *post) error {
		var floor int64
		err := p.one(`SELECT floor, missed FROM ossicle.mailbox_agent WHERE session = $1 AND id = $2`, []any{q.Agent}, &floor, &page.Missed)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		to := mailbox.Addresses(q.Agent)
		if err := p.one(`SELECT count(*)`+reaching+notRead, []any{q.Agent, to, floor}, &page.Unread); err != nil {
			return err
		}
		size := 0
		take := func(s mailbox.Signal, err error) error {
			if err != nil || page.Next > 0 {
				return err
			}
			if n := len(page.Signals); n == limit || n > 0 && size+len(s.Content) > mailbox.MaxPageBytes {
				page.Next = page.Signals[n-1].Sequence
				return nil
			}
			size += len(s.Content)
			page.Signals = append(page.Signals, s)
			return nil
		}
		if q.Sent {
			return p.each(`SELECT `+signalColumns+`, ARRAY(SELECT r.agent FROM ossicle.mailbox_read r WHERE r.session = $1 AND r.seq = s.seq ORDER BY r.agent)
				FROM ossicle.mailbox_signal s WHERE s.session = $1 AND s.sender = $2 AND s.seq > $3 ORDER BY s.seq LIMIT $4`, []any{q.Agent, q.After, limit + 1},
				func(scan func(...any) error) error {
					var readers []string
					s, err := scanSignal(scan, &readers)
					if len(readers) > 0 {
						s.ReadBy = readers
					}
					return take(s, err)
				})
		}
		after, where := q.After, ""
		if !q.All {
			after, where = max(after, floor), notRead
		}
		return p.each(`SELECT `+signalColumns+`, EXISTS (SELECT 1 FROM ossicle.mailbox_read r WHERE r.session = $1 AND r.seq = s.seq AND r.agent = $2)`+
			reaching+where+` ORDER BY s.seq LIMIT $5`, []any{q.Agent, to, after, limit + 1}, func(scan func(...any) error) error {
			var read bool
			s, err := scanSignal(scan, &read)
			s.Read = read || s.Sequence <= floor
			return take(s, err)
		})
	})
	return page, err
}

// Find implements mailbox.Signals.
func (m *Mailbox) Find(ctx context.Context, id string) (s mailbox.Signal, found bool, err error) {
	err = m.read(ctx, "find signal", func(p *post) error {
		return p.each(`SELECT `+signalColumns+` FROM ossicle.mailbox_signal s WHERE s.session = $1 AND s.id = $2`, []any{id}, func(scan func(...any) error) (err error) {
			s, err = scanSignal(scan)
			found = true
			return err
		})
	})
	return s, found, err
}

// Ack implements mailbox.Signals.
func (m *Mailbox) Ack(ctx context.Context, who mailbox.Identity, ids []string, now time.Time) (fresh []string, err error) {
	err = m.write(ctx, "acknowledge signals", func(p *post) error {
		now := p.at(now)
		r, err := p.enter(who, now)
		if err != nil {
			return err
		}
		var missing []string
		for _, id := range ids {
			mine, added, err := p.ack(who.Agent, id, now)
			switch {
			case err != nil:
				return err
			case !mine:
				missing = append(missing, id)
			case added:
				fresh = append(fresh, id)
			}
		}
		if missing != nil {
			return &mailbox.IDsError{IDs: missing}
		}
		// The floor is just below the first unread signal, so that reading does not
		// walk through all that was read.
		return p.exec(`UPDATE ossicle.mailbox_agent SET floor = greatest(floor, coalesce((SELECT min(s.seq)`+reaching+notRead+`),
			(SELECT signals + 1 FROM ossicle.mailbox WHERE session = $1)) - 1) WHERE session = $1 AND id = $2`, who.Agent, mailbox.Addresses(who.Agent), r.floor)
	})
	if err != nil {
		return nil, err
	}
	return fresh, nil
}

func (p *post) ack(agent, id string, now time.Time) (mine, added bool, err error) {
	var seq int64
	var sender, recipient string
	err = p.one(`SELECT seq, sender, recipient FROM ossicle.mailbox_signal WHERE session = $1 AND id = $2`, []any{id}, &seq, &sender, &recipient)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !mailbox.Reaches(recipient, sender, agent) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	err = p.one(`INSERT INTO ossicle.mailbox_read (session, seq, agent, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING true`,
		[]any{seq, agent, now.UnixNano()}, &added)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, false, nil
	}
	if err == nil {
		err = p.finished(finishOne, seq, now)
	}
	return true, added, err
}

// AddNote implements mailbox.Board.
func (m *Mailbox) AddNote(ctx context.Context, who mailbox.Identity, text string, now time.Time) (n mailbox.Note, err error) {
	n = mailbox.Note{Author: who.Agent, Text: text}
	err = m.write(ctx, "add note", func(p *post) error {
		now := p.at(now)
		n.Time = now.UTC()
		_, err := p.enter(who, now)
		if err == nil {
			n.Sequence, err = p.bump("notes")
		}
		if err != nil {
			return err
		}
		err = p.exec(`INSERT INTO ossicle.mailbox_note (session, seq, time, author, text) VALUES ($1, $2, $3, $4, $5)`, n.Sequence, now.UnixNano(), who.Agent, []byte(text))
		if err != nil {
			return err
		}
		return p.trimNotes(int64(len(text)))
	})
	return n, err
}

// Notes implements mailbox.Board.
func (m *Mailbox) Notes(ctx context.Context, after int64, limit int) (notes []mailbox.Note, next int64, err error) {
	limit = mailbox.PageLimit(limit)
	err = m.read(ctx, "read notes", func(p *post) error {
		size := 0
		return p.each(`SELECT seq, time, author, text FROM ossicle.mailbox_note WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3`, []any{after, limit + 1},
			func(scan func(...any) error) error {
				var n mailbox.Note
				var when int64
				var text []byte
				if err := scan(&n.Sequence, &when, &n.Author, &text); err != nil || next > 0 {
					return err
				}
				if len(notes) == limit || len(notes) > 0 && size+len(text) > mailbox.MaxPageBytes {
					next = notes[len(notes)-1].Sequence
					return nil
				}
				size += len(text)
				n.Time, n.Text = nanos(when), string(text)
				notes = append(notes, n)
				return nil
			})
	})
	return notes, next, err
}

// SetEntry implements mailbox.Board.
func (m *Mailbox) SetEntry(ctx context.Context, who mailbox.Identity, key, value string, now time.Time) (mailbox.Entry, error) {
	e := mailbox.Entry{Key: key, Value: value, UpdatedBy: who.Agent}
	err := m.write(ctx, "write whiteboard", func(p *post) error {
		now := p.at(now)
		e.UpdatedAt = now.UTC()
		if _, err := p.enter(who, now); err != nil {
			return err
		}
		var others int
		if err := p.one(`SELECT count(*) FROM ossicle.mailbox_entry WHERE session = $1 AND key <> $2`, []any{[]byte(key)}, &others); err != nil {
			return err
		}
		if others >= mailbox.MaxEntries {
			return mailbox.FullOfEntries()
		}
		if _, err := p.bump("board"); err != nil {
			return err
		}
		return p.exec(`INSERT INTO ossicle.mailbox_entry (session, key, value, updated_by, updated_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (session, key) DO UPDATE SET value = $3, updated_by = $4, updated_at = $5`, []byte(key), []byte(value), who.Agent, now.UnixNano())
	})
	if err != nil {
		return mailbox.Entry{}, err
	}
	return e, nil
}

// Entries implements mailbox.Board.
func (m *Mailbox) Entries(ctx context.Context, key string) (all []mailbox.Entry, err error) {
	err = m.read(ctx, "read whiteboard", func(p *post) error {
		return p.each(`SELECT key, value, updated_by, updated_at FROM ossicle.mailbox_entry WHERE session = $1 AND ($2 = ''::bytea OR key = $2) ORDER BY key`, []any{[]byte(key)},
			func(scan func(...any) error) error {
				var e mailbox.Entry
				var k, v []byte
				var when int64
				err := scan(&k, &v, &e.UpdatedBy, &when)
				e.Key, e.Value, e.UpdatedAt = string(k), string(v), nanos(when)
				all = append(all, e)
				return err
			})
	})
	return all, err
}
