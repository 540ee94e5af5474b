package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// trimStep bounds the events, and the idempotency keys, that one transaction
// removes, and so for how long a publisher may have to wait for it.
const trimStep = 500

// Trim implements feed.Store.
func (f *Feed) Trim(ctx context.Context, topic string, keep feed.Retention) (more bool, err error) {
	var before int64
	if keep.Age > 0 {
		before = time.Now().Add(-keep.Age).UnixNano()
	}
	err = f.db.write(ctx, func(t *tx) error {
		more = false
		var id, count, bytes int64
		err := t.one(`SELECT id, n, bytes FROM feed_topic WHERE name = ?`, []any{topic}, &id, &count, &bytes)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		removed, err := t.trimEvents(id, count, bytes, before, keep)
		if err != nil {
			return err
		}
		keys, err := t.trimKeys(id, before)
		more = keys == trimStep || removed == trimStep
		return err
	})
	if err != nil {
		return false, fmt.Errorf("trim topic %s: %w", topic, err)
	}
	return more, nil
}

// trimKeys removes the idempotency keys of a topic from before a time or, if that
// is 0, of events that were removed.
func (t *tx) trimKeys(topic, before int64) (int64, error) {
	if before != 0 {
		return t.exec(`DELETE FROM feed_idempotency WHERE topic = ?1 AND key IN
			(SELECT key FROM feed_idempotency WHERE topic = ?1 AND at < ?2 LIMIT ?3)`, topic, before, trimStep)
	}
	return t.exec(`DELETE FROM feed_idempotency WHERE topic = ?1 AND key IN
		(SELECT key FROM feed_idempotency WHERE topic = ?1 AND id <= (SELECT trimmed FROM feed_topic WHERE id = ?1) LIMIT ?2)`, topic, trimStep)
}

// trimEvents removes the oldest events of a topic until it fits.
func (t *tx) trimEvents(topic, count, bytes, before int64, keep feed.Retention) (removed int64, err error) {
	var through, freed int64
	fits := false
	err = t.each(`SELECT id, time, size FROM feed_event WHERE topic = ? ORDER BY id LIMIT ?`, []any{topic, trimStep}, func(scan func(...any) error) error {
		var id, at, size int64
		if err := scan(&id, &at, &size); err != nil || fits {
			return err
		}
		fits = (keep.Count <= 0 || count-removed <= keep.Count) && (keep.Bytes <= 0 || bytes-freed <= keep.Bytes) && at >= before
		if !fits {
			through, removed, freed = id, removed+1, freed+size
		}
		return nil
	})
	if err != nil || removed == 0 {
		return 0, err
	}
	if _, err := t.exec(`DELETE FROM feed_event WHERE topic = ? AND id <= ?`, topic, through); err != nil {
		return 0, err
	}
	_, err = t.exec(`UPDATE feed_topic SET n = n - ?1, removed = removed + ?1, bytes = bytes - ?2, trimmed = ?3 WHERE id = ?4`, removed, freed, through, topic)
	return removed, err
}
