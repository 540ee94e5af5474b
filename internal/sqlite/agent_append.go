package sqlite

import (
	"context"

	"github.com/ossicle/ossicle/agent"
)

const (
	// totalStep is by how much a transcript grows until the sum of all is looked
	// at again, which has to visit every session.
	totalStep = 1 << 20
	// trimLeast and trimMost bound how many entries are looked at at once when the
	// oldest go.
	trimLeast = 8
	trimMost  = 512
)

// transcript is what a session row says of its entries.
type transcript struct {
	id                 int64
	first, last, bytes int64
}

// Append implements agent.Store.
func (s *Sessions) Append(ctx context.Context, session string, entries ...agent.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	rows := make([]row, len(entries)) // encoded before the write lock is taken
	var added int64
	for i, e := range entries {
		r, err := toRow(e)
		if err != nil {
			return named("append to session", session, err)
		}
		rows[i] = r
		added += r.size()
	}
	return named("append to session", session, s.db.write(ctx, func(t *tx) error {
		tr, err := t.grow(session, int64(len(rows)), added)
		if err != nil {
			return err
		}
		for i, r := range rows {
			seq := tr.last - int64(len(rows)-1-i)
			_, err := t.exec(`INSERT INTO agent_entry (session, seq, size, body, text, input, output) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				tr.id, seq, r.size(), r.body, r.text, r.input, r.output)
			if err != nil {
				return err
			}
		}
		if tr.last == int64(len(rows)) { // it may be new
			if err := t.boundSessions(s.keep.Sessions); err != nil {
				return err
			}
		}
		if err := t.trim(tr, s.keep); err != nil {
			return err
		}
		if tr.bytes/totalStep != (tr.bytes-added)/totalStep {
			return t.boundTotal(tr.id, s.keep.TotalBytes)
		}
		return nil
	}))
}

// grow takes the next numbers of a transcript, making the session if need be.
func (t *tx) grow(session string, entries, bytes int64) (transcript, error) {
	var tr transcript
	err := t.one(`INSERT INTO agent_session (name, last, bytes, touched) VALUES (?, ?, ?, `+nextTouch+`)
		ON CONFLICT (name) DO UPDATE SET last = last + excluded.last, bytes = bytes + excluded.bytes, touched = excluded.touched
		RETURNING id, first, last, bytes`, []any{session, entries, bytes}, &tr.id, &tr.first, &tr.last, &tr.bytes)
	return tr, err
}

// trim removes the oldest entries of a transcript until it fits.
func (t *tx) trim(tr transcript, keep SessionOptions) error {
	fits := func() bool {
		return (tr.last-tr.first < keep.Entries && tr.bytes <= keep.Bytes) || tr.first >= tr.last
	}
	if fits() {
		return nil
	}
	for more := true; more && !fits(); {
		more = false
		limit := max(trimLeast, min(trimMost, tr.last-tr.first+1-keep.Entries))
		err := t.each(`SELECT seq, size FROM agent_entry WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?`, []any{tr.id, tr.first, limit},
			func(scan func(...any) error) error {
				var seq, size int64
				err := scan(&seq, &size)
				if err == nil && !fits() {
					more = true
					tr.first, tr.bytes = seq+1, tr.bytes-size
				}
				return err
			})
		if err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM agent_entry WHERE session = ? AND seq < ?`, tr.id, tr.first); err != nil {
			return err
		}
	}
	_, err := t.exec(`UPDATE agent_session SET first = ?, bytes = ? WHERE id = ?`, tr.first, tr.bytes, tr.id)
	return err
}

// boundSessions removes the sessions that are too many. The one that was just
// touched is the last to go.
func (t *tx) boundSessions(most int) error {
	_, err := t.exec(`DELETE FROM agent_session WHERE id IN (SELECT id FROM agent_session ORDER BY touched DESC LIMIT -1 OFFSET ?)`, most)
	return err
}

// boundTotal removes the sessions that were left alone for longest until the
// sum of all transcripts fits, but not the one that is written to.
func (t *tx) boundTotal(writing, most int64) error {
	_, err := t.exec(`DELETE FROM agent_session WHERE id <> ?1 AND id IN (
		SELECT id FROM (SELECT id, sum(bytes) OVER (ORDER BY touched DESC) AS upto FROM agent_session) WHERE upto > ?2)`, writing, most)
	return err
}
