package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// reaches tells whether the signal s is for the member m, as mailbox.Reaches does.
const reaches = `(s.sender <> m.id AND (s.recipient = '*' OR s.recipient = m.id OR substr(m.id, 1, length(s.recipient) + 1) = s.recipient || '.'))`

// finish marks those signals as done that are: of one sender, or the one of a
// sequence. Its arguments are that, and since when members count that have been
// heard of.
const (
	finish = `UPDATE mailbox_signal AS s SET done = 1 WHERE s.done = 0 AND (s.time < ?2 OR EXISTS (SELECT 1 FROM mailbox_agent m WHERE ` + reaches + `))
		AND NOT EXISTS (SELECT 1 FROM mailbox_agent m WHERE m.seen >= ?2 AND ` + reaches + `
			AND NOT EXISTS (SELECT 1 FROM mailbox_read r WHERE r.seq = s.seq AND r.agent = m.id))`
	finishOne    = finish + ` AND s.seq = ?1 RETURNING sender, size`
	finishSender = finish + ` AND s.sender = ?1 RETURNING sender, size`
)

// finished marks signals as done, and counts them as such.
func (t *tx) finished(query string, of any, now time.Time) error {
	count, bytes := map[string]int64{}, map[string]int64{}
	var total, size int64
	err := t.each(query, []any{of, now.Add(-mailbox.AwayAfter).UnixNano()}, func(scan func(...any) error) error {
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
		_, err := t.exec(`UPDATE mailbox_agent SET waiting = waiting - ?, waiting_bytes = waiting_bytes - ? WHERE id = ?`, n, bytes[sender], sender)
		if err != nil {
			return err
		}
	}
	_, err = t.exec(`UPDATE mailbox SET done = done + ?, done_bytes = done_bytes + ?`, total, size)
	return err
}

// admit counts a signal as one of its sender's that wait, if there is room for it.
func (t *tx) admit(keep mailbox.Retention, s *mailbox.Signal, now time.Time) error {
	for looked := false; ; looked = true {
		var count, bytes int64
		if err := t.one(`SELECT waiting + 1, waiting_bytes + ? FROM mailbox_agent WHERE id = ?`, []any{s.Size(), s.Sender}, &count, &bytes); err != nil {
			return err
		}
		if keep.Fits(count, bytes) {
			break
		}
		if looked {
			return keep.Full()
		}
		// Those that waited for members who are away by now, do so no more.
		if err := t.finished(finishSender, s.Sender, now); err != nil {
			return err
		}
	}
	_, err := t.exec(`UPDATE mailbox_agent SET waiting = waiting + 1, waiting_bytes = waiting_bytes + ? WHERE id = ?`, s.Size(), s.Sender)
	return err
}

// trimSignals removes the oldest of the signals that are done and not kept.
func (t *tx) trimSignals(keep mailbox.Retention, now time.Time) error {
	var count, bytes int64
	if err := t.one(`SELECT done, done_bytes FROM mailbox`, nil, &count, &bytes); err != nil || count == 0 {
		return err
	}
	var through, removed, freed int64
	fits := false
	err := t.each(`SELECT seq, time, size FROM mailbox_signal WHERE done = 1 ORDER BY seq LIMIT ?`, []any{mailbox.TrimStep}, func(scan func(...any) error) error {
		var seq, when, size int64
		if err := scan(&seq, &when, &size); err != nil || fits {
			return err
		}
		if fits = keep.Fits(count-removed, bytes-freed) && !keep.Old(at(when), now); !fits {
			through, removed, freed = seq, removed+1, freed+size
		}
		return nil
	})
	if err != nil || removed == 0 {
		return err
	}
	_, err = t.exec(`UPDATE mailbox_agent AS m SET missed = missed + (SELECT count(*) FROM mailbox_signal s WHERE s.done = 1 AND s.seq <= ?1 AND s.seq > m.floor
		AND s.time >= m.registered AND `+reaches+` AND NOT EXISTS (SELECT 1 FROM mailbox_read r WHERE r.seq = s.seq AND r.agent = m.id)) WHERE m.floor < ?1`, through)
	if err != nil {
		return err
	}
	if _, err := t.exec(`DELETE FROM mailbox_signal WHERE done = 1 AND seq <= ?`, through); err != nil {
		return err
	}
	_, err = t.exec(`UPDATE mailbox SET done = done - ?, done_bytes = done_bytes - ?`, removed, freed)
	return err
}

// trimNotes counts a note and removes the oldest that are not kept.
func (t *tx) trimNotes(size int64) error {
	if _, err := t.exec(`UPDATE mailbox SET note_bytes = note_bytes + ?`, size); err != nil {
		return err
	}
	var last, bytes, through, freed int64
	if err := t.one(`SELECT notes, note_bytes FROM mailbox`, nil, &last, &bytes); err != nil {
		return err
	}
	fits := false
	err := t.each(`SELECT seq, length(CAST(text AS BLOB)) FROM mailbox_note ORDER BY seq LIMIT ?`, []any{mailbox.TrimStep}, func(scan func(...any) error) error {
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
	if _, err := t.exec(`DELETE FROM mailbox_note WHERE seq <= ?`, through); err != nil {
		return err
	}
	_, err = t.exec(`UPDATE mailbox SET note_bytes = note_bytes - ?`, freed)
	return err
}

// seat makes room for one more member.
func (t *tx) seat(now time.Time) error {
	var members int
	if err := t.one(`SELECT count(*) FROM mailbox_agent`, nil, &members); err != nil || members < mailbox.MaxMembers {
		return err
	}
	var id string
	err := t.one(`SELECT id FROM mailbox_agent WHERE seen < ? ORDER BY seen LIMIT 1`, []any{now.Add(-mailbox.AwayAfter).UnixNano()}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return mailbox.FullOfMembers()
	}
	if err == nil {
		err = t.finished(finishSender, id, now) // nobody will look again
	}
	if err == nil {
		_, err = t.exec(`DELETE FROM mailbox_agent WHERE id = ?`, id)
	}
	return err
}
