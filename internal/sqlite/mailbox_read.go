package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// signalColumns are those that scanSignal reads, of a table s.
const signalColumns = `s.seq, s.id, s.time, s.sender, s.recipient, s.type, s.priority, s.depth, s.reply_to, s.metadata, s.content`

func scanSignal(scan func(...any) error, more ...any) (mailbox.Signal, error) {
	var s mailbox.Signal
	var when int64
	var meta string
	err := scan(append([]any{
		&s.Sequence, &s.ID, &when, &s.Sender, &s.Recipient, &s.Type, &s.Priority, &s.Depth, &s.ReplyTo, &meta, &s.Content,
	}, more...)...)
	s.Time, s.Metadata = at(when), metadata(meta)
	return s, err
}

// addressBatch is how many addresses a statement takes, so that there is one
// statement. Names with more levels need more of them.
const addressBatch = 8

var anyAddress = `recipient IN (?` + strings.Repeat(`, ?`, addressBatch-1) + `)`

// addresses cuts the addresses of an agent into arguments of anyAddress.
func addresses(agent string) [][]any {
	var all [][]any
	for part := range slices.Chunk(mailbox.Addresses(agent), addressBatch) {
		args := make([]any, addressBatch)
		for i := range args {
			args[i] = part[min(i, len(part)-1)]
		}
		all = append(all, args)
	}
	return all
}

// Read implements mailbox.Signals.
func (m *Mailbox) Read(ctx context.Context, q mailbox.Selection) (p mailbox.Page, err error) {
	limit := mailbox.PageLimit(q.Limit)
	err = m.read(ctx, "read signals", func(t *tx) error {
		p = mailbox.Page{}
		var floor int64
		err := t.one(`SELECT floor, missed FROM mailbox_agent WHERE id = ?`, []any{q.Agent}, &floor, &p.Missed)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if p.Unread, err = t.unread(q.Agent, floor); err != nil {
			return err
		}
		var found []mailbox.Signal
		switch {
		case q.Sent:
			found, err = t.sent(q.Agent, q.After, limit+1)
		case q.All:
			found, err = t.received(q.Agent, q.After, floor, true, limit+1)
		default:
			found, err = t.received(q.Agent, max(q.After, floor), floor, false, limit+1)
		}
		p.Signals, p.Next = cutPage(found, limit)
		return err
	})
	return p, err
}

// cutPage cuts what was found to a page. One more than its limit was asked for.
func cutPage(found []mailbox.Signal, limit int) (_ []mailbox.Signal, next int64) {
	size := 0
	for i := range found {
		if i == limit || i > 0 && size+len(found[i].Content) > mailbox.MaxPageBytes {
			return found[:i], found[i-1].Sequence
		}
		size += len(found[i].Content)
	}
	return found, 0
}

const unreadWhere = ` AND s.sender <> ? AND NOT EXISTS (SELECT 1 FROM mailbox_read r WHERE r.seq = s.seq AND r.agent = ?)`

func (t *tx) unread(agent string, floor int64) (n int, err error) {
	for _, args := range addresses(agent) {
		var some int
		err := t.one(`SELECT count(*) FROM mailbox_signal s WHERE `+anyAddress+` AND s.seq > ?`+unreadWhere, append(args, floor, agent, agent), &some)
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

// received returns the signals of an agent that follow a sequence, in order.
func (t *tx) received(agent string, after, floor int64, all bool, limit int) (found []mailbox.Signal, err error) {
	query := `SELECT ` + signalColumns + `, EXISTS (SELECT 1 FROM mailbox_read r WHERE r.seq = s.seq AND r.agent = ?) FROM mailbox_signal s WHERE ` +
		anyAddress + ` AND s.seq > ?`
	for _, args := range addresses(agent) {
		args = append(append([]any{agent}, args...), after, agent)
		where := ` AND s.sender <> ?`
		if !all {
			where = unreadWhere
			args = append(args, agent)
		}
		size := 0
		err := t.each(query+where+` ORDER BY s.seq LIMIT ?`, append(args, limit), func(scan func(...any) error) error {
			if size > mailbox.MaxPageBytes {
				return nil // more than any page takes
			}
			var read bool
			s, err := scanSignal(scan, &read)
			s.Read = read || s.Sequence <= floor
			size += len(s.Content)
			found = append(found, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b mailbox.Signal) int { return int(a.Sequence - b.Sequence) })
	return found, nil
}

// sent returns what an agent has sent, with who has read it.
func (t *tx) sent(agent string, after int64, limit int) (found []mailbox.Signal, err error) {
	err = t.each(`SELECT `+signalColumns+`, (SELECT group_concat(agent, ' ') FROM (SELECT r.agent FROM mailbox_read r WHERE r.seq = s.seq ORDER BY r.agent))
		FROM mailbox_signal s WHERE s.sender = ? AND s.seq > ? ORDER BY s.seq LIMIT ?`, []any{agent, after, limit},
		func(scan func(...any) error) error {
			var readers sql.NullString
			s, err := scanSignal(scan, &readers)
			s.ReadBy = strings.Fields(readers.String)
			if len(s.ReadBy) == 0 {
				s.ReadBy = nil
			}
			found = append(found, s)
			return err
		})
	return found, err
}

// Find implements mailbox.Signals.
func (m *Mailbox) Find(ctx context.Context, id string) (s mailbox.Signal, found bool, err error) {
	err = m.read(ctx, "find signal", func(t *tx) error {
		found = false
		return t.each(`SELECT `+signalColumns+` FROM mailbox_signal s WHERE s.id = ?`, []any{id}, func(scan func(...any) error) (err error) {
			s, err = scanSignal(scan)
			found = true
			return err
		})
	})
	return s, found, err
}

// Ack implements mailbox.Signals.
func (m *Mailbox) Ack(ctx context.Context, who mailbox.Identity, ids []string, now time.Time) (fresh []string, err error) {
	err = m.write(ctx, "acknowledge signals", func(t *tx) error {
		fresh = nil
		r, err := t.enter(who, now)
		if err != nil {
			return err
		}
		var missing []string
		for _, id := range ids {
			mine, added, err := t.ack(who.Agent, id, now)
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
		return t.raiseFloor(who.Agent, r.floor)
	})
	if err != nil {
		return nil, err
	}
	return fresh, nil
}

func (t *tx) ack(agent, id string, now time.Time) (mine, added bool, err error) {
	var seq int64
	var sender, recipient string
	err = t.one(`SELECT seq, sender, recipient FROM mailbox_signal WHERE id = ?`, []any{id}, &seq, &sender, &recipient)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !mailbox.Reaches(recipient, sender, agent) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	n, err := t.exec(`INSERT INTO mailbox_read (seq, agent, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, seq, agent, now.UnixNano())
	if err == nil && n > 0 {
		err = t.finished(finishOne, seq, now)
	}
	return true, n > 0, err
}

// raiseFloor moves the floor of an agent to just below its first unread signal,
// so that reading does not walk through all that was read.
func (t *tx) raiseFloor(agent string, floor int64) error {
	var next int64
	if err := t.one(`SELECT signals + 1 FROM mailbox`, nil, &next); err != nil {
		return err
	}
	for _, args := range addresses(agent) {
		var first sql.NullInt64
		err := t.one(`SELECT min(s.seq) FROM mailbox_signal s WHERE `+anyAddress+` AND s.seq > ?`+unreadWhere, append(args, floor, agent, agent), &first)
		if err != nil {
			return err
		}
		if first.Valid {
			next = min(next, first.Int64)
		}
	}
	_, err := t.exec(`UPDATE mailbox_agent SET floor = ? WHERE id = ? AND floor < ?`, next-1, agent, next-1)
	return err
}
