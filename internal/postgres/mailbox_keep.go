package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/mailbox"
)

// reaches tells whether the signal s is for the member m, as mailbox.Reaches does.
const reaches = `(m.session = s.session AND s.sender <> m.id AND (s.recipient = '*' OR s.recipient = m.id OR starts_with(m.id, s.recipient || '.')))`

// finish marks those signals as done that are: of one sender, or the one of a
// sequence. Its arguments are that, and since when members count that have been
// heard of.
const (
	finish = `UPDATE ossicle.mailbox_signal s SET done = true WHERE s.session = $1 AND NOT s.done
		AND (s.time < $3 OR EXISTS (SELECT 1 FROM ossicle.mailbox_agent m WHERE ` + reaches + `))
		AND NOT EXISTS (SELECT 1 FROM ossicle.mailbox_agent m WHERE m.seen >= $3 AND ` + reaches + `
			AND NOT EXISTS (SELECT 1 FROM ossicle.mailbox_read r WHERE r.session = s.session AND r.seq = s.seq AND r.agent = m.id))`
	finishOne    = finish + ` AND s.seq = $2 RETURNING s.sender, s.size`
	finishSender = finish + ` AND s.sender = $2 RETURNING s.sender, s.size`
)

// finished marks signals as done, and counts them as such.
func (p *post) finished(query string, of any, now time.Time) error {
	count, bytes := map[string]int64{}, map[string]int64{}
	var total, size int64
	err := p.each(query, []any{of, now.Add(-mailbox.AwayAfter).UnixNano()}, func(scan func(...any) error) error {
		var sender string
		var n int64
		err := scan(&sender, &n)
		count[sender]++
		bytes[sender] += n
		total++
		size += n
		return err
	})
	if err != nil || total == 0 {
		return err
	}
	for sender, n := range count {
		err := p.exec(`UPDATE ossicle.mailbox_agent SET waiting = waiting - $3, waiting_bytes = waiting_bytes - $4 WHERE session = $1 AND id = $2`,
			sender, n, bytes[sender])
		if err != nil {
			return err
		}
	}
	return p.exec(`UPDATE ossicle.mailbox SET done = done + $2, done_bytes = done_bytes + $3 WHERE session = $1`, total, size)
}

// admit counts a signal as one of its sender's that wait, if there is room for it.
func (p *post) admit(keep mailbox.Retention, s *mailbox.Signal, now time.Time) error {
	for looked := false; ; looked = true {
		var count, bytes int64
		err := p.one(`SELECT waiting + 1, waiting_bytes + $3 FROM ossicle.mailbox_agent WHERE session = $1 AND id = $2`, []any{s.Sender, s.Size()}, &count, &bytes)
		if err != nil {
			return err
		}
		if keep.Fits(count, bytes) {
			break
		}
		if looked {
			return keep.Full()
		}
		// Those that waited for members who are away by now, do so no more.
		if err := p.finished(finishSender, s.Sender, now); err != nil {
			return err
		}
	}
	return p.exec(`UPDATE ossicle.mailbox_agent SET waiting = waiting + 1, waiting_bytes = waiting_bytes + $3 WHERE session = $1 AND id = $2`, s.Sender, s.Size())
}

// trimSignals removes the oldest of the signals that are done and not kept.
func (p *post) trimSignals(keep mailbox.Retention, now time.Time) error {
	var count, bytes int64
	if err := p.one(`SELECT done, done_bytes FROM ossicle.mailbox WHERE session = $1`, nil, &count, &bytes); err != nil || count == 0 {
		return err
	}
	var through, removed, freed int64
	fits := false
	err := p.each(`SELECT seq, time, size FROM ossicle.mailbox_signal WHERE session = $1 AND done ORDER BY seq LIMIT $2`, []any{mailbox.TrimStep},
		func(scan func(...any) error) error {
			var seq, when, size int64
			if err := scan(&seq, &when, &size); err != nil || fits {
				return err
			}
			if fits = keep.Fits(count-removed, bytes-freed) && !keep.Old(nanos(when), now); !fits {
				through, removed, freed = seq, removed+1, freed+size
			}
			return nil
		})
	if err != nil || removed == 0 {
		return err
	}
	err = p.exec(`UPDATE ossicle.mailbox_agent m SET missed = missed + (SELECT count(*) FROM ossicle.mailbox_signal s WHERE s.session = $1 AND s.done AND s.seq <= $2
		AND s.seq > m.floor AND s.time >= m.registered AND `+reaches+`
		AND NOT EXISTS (SELECT 1 FROM ossicle.mailbox_read r WHERE r.session = $1 AND r.seq = s.seq AND r.agent = m.id)) WHERE session = $1 AND floor < $2`, through)
	if err == nil {
		err = p.exec(`DELETE FROM ossicle.mailbox_signal WHERE session = $1 AND done AND seq <= $2`, through)
	}
	if err == nil {
		err = p.exec(`UPDATE ossicle.mailbox SET done = done - $2, done_bytes = done_bytes - $3 WHERE session = $1`, removed, freed)
	}
	return err
}

// trimNotes counts a note and removes the oldest that are not kept.
func (p *post) trimNotes(size int64) error {
	var last, bytes, through, freed int64
	err := p.one(`UPDATE ossicle.mailbox SET note_bytes = note_bytes + $2 WHERE session = $1 RETURNING notes, note_bytes`, []any{size}, &last, &bytes)
	if err != nil {
		return err
	}
	fits := false
	err = p.each(`SELECT seq, length(text) FROM ossicle.mailbox_note WHERE session = $1 ORDER BY seq LIMIT $2`, []any{mailbox.TrimStep}, func(scan func(...any) error) error {
		var seq, size int64
		if err := scan(&seq, &size); err != nil || fits {
			return err
		}
		if fits = last-seq < mailbox.MaxNotes && bytes-freed <= mailbox.MaxNoteBytes; !fits {
			through, freed = seq, freed+size
		}
		return nil
	})
	if err != nil || through == 0 {
		return err
	}
	if err := p.exec(`DELETE FROM ossicle.mailbox_note WHERE session = $1 AND seq <= $2`, through); err != nil {
		return err
	}
	return p.exec(`UPDATE ossicle.mailbox SET note_bytes = note_bytes - $2 WHERE session = $1`, freed)
}

// seat makes room for one more member.
func (p *post) seat(now time.Time) error {
	var members int
	if err := p.one(`SELECT count(*) FROM ossicle.mailbox_agent WHERE session = $1`, nil, &members); err != nil || members < mailbox.MaxMembers {
		return err
	}
	var id string
	err := p.one(`SELECT id FROM ossicle.mailbox_agent WHERE session = $1 AND seen < $2 ORDER BY seen LIMIT 1`, []any{now.Add(-mailbox.AwayAfter).UnixNano()}, &id)
	if errors.Is(err, pgx.ErrNoRows) {
		return mailbox.FullOfMembers()
	}
	if err == nil {
		err = p.finished(finishSender, id, now) // nobody will look again
	}
	for _, from := range []string{`ossicle.mailbox_read WHERE session = $1 AND agent = $2`, `ossicle.mailbox_agent WHERE session = $1 AND id = $2`} {
		if err == nil {
			err = p.exec(`DELETE FROM `+from, id)
		}
	}
	return err
}

// unused tells whether nobody has used a session since $2.
const unused = `NOT EXISTS (SELECT 1 FROM ossicle.mailbox_agent a WHERE a.session = b.session AND a.seen >= $2)`

// RemoveMailboxes removes sessions that were begun as long ago as is said and have had
// no call of a member since, at most so many, the oldest first. It returns their ids,
// with an error those that were removed before it. Each goes for itself: one that has
// so much that its removal takes longer than ctx lasts keeps no other. Of our clock and
// that of the server the one counts that is behind: a machine whose clock is wrong
// must not take from others what they use.
func (db *DB) RemoveMailboxes(ctx context.Context, now time.Time, unusedFor time.Duration, most int) (removed []string, err error) {
	var server time.Time
	if err := db.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&server); err != nil {
		return nil, fmt.Errorf("remove sessions: %w", err)
	}
	if server.Before(now) {
		now = server
	}
	before := now.Add(-unusedFor)
	for range most {
		id, gone := "", false
		err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, `SELECT session FROM ossicle.mailbox b WHERE left(session, 15) < $1 COLLATE "C" AND `+unused+` ORDER BY session LIMIT 1 FOR UPDATE SKIP LOCKED`,
				before.UTC().Format("20060102_150405"), before.UnixNano()).Scan(&id)
			if err != nil {
				return err
			}
			// It is locked, so nobody uses it from now on; somebody may have just before.
			deleted, err := tx.Exec(ctx, `DELETE FROM ossicle.mailbox b WHERE session = $1 AND `+unused, id, before.UnixNano())
			gone = deleted.RowsAffected() > 0
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return removed, fmt.Errorf("remove sessions: %w", err)
		}
		if gone {
			removed = append(removed, id)
		}
	}
	return removed, nil
}
