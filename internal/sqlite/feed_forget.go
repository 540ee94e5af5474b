package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// forgetStep bounds the topics that one transaction removes.
const forgetStep = 500

// Forget implements feed.Store.
func (f *Feed) Forget(ctx context.Context, spare []string, empty time.Duration) (next time.Duration, err error) {
	err = f.db.write(ctx, func(t *tx) error {
		now := time.Now()
		_, err := t.exec(`UPDATE feed_topic SET empty_at = ?, empty_last = last WHERE n = 0 AND empty_last IS NOT last`, now.UnixNano())
		if err == nil {
			next, err = t.forget(spare, now, empty)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("forget topics: %w", err)
	}
	return next, nil
}

// forget removes topics that have been empty for long enough, and returns when the
// next one will have been.
func (t *tx) forget(spare []string, now time.Time, empty time.Duration) (next time.Duration, err error) {
	var due []int64
	next = -1
	err = t.each(`SELECT id, name, empty_at FROM feed_topic t WHERE n = 0 AND empty_at IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM feed_idempotency WHERE topic = t.id) ORDER BY empty_at`, nil, func(scan func(...any) error) error {
		var id, at int64
		var name string
		if err := scan(&id, &name, &at); err != nil || next >= 0 || slices.Contains(spare, name) {
			return err
		}
		switch left := time.Unix(0, at).Add(empty).Sub(now); {
		case left > 0:
			next = left
		case len(due) == forgetStep:
			next = 0
		default:
			due = append(due, id)
		}
		return nil
	})
	for _, id := range due {
		if err == nil {
			err = t.forgetTopic(id)
		}
	}
	return next, err
}

func (t *tx) forgetTopic(id int64) error {
	_, err := t.exec(`UPDATE feed_log SET topics = topics - 1, forgotten = max(forgotten, t.trimmed, t.last), counted = max(counted, t.removed)
		FROM feed_topic t WHERE t.id = ?`, id)
	if err == nil {
		_, err = t.exec(`DELETE FROM feed_topic WHERE id = ?`, id)
	}
	return err
}

// trimmed returns the highest id that may have been removed from the topics that a
// filter selects.
func (t *tx) trimmed(f feed.Filter, forgotten int64) (highest int64, err error) {
	if f.All() {
		err = t.one(`SELECT coalesce(max(trimmed), 0) FROM feed_topic`, nil, &highest)
		return max(highest, forgotten), err
	}
	for _, p := range f.Patterns() {
		var one int64
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			// Names have no character behind z.
			err = t.one(`SELECT coalesce(max(trimmed), 0) FROM feed_topic WHERE name >= ? AND name < ?`, []any{prefix, prefix + "{"}, &one)
			one = max(one, forgotten)
		} else if err = t.one(`SELECT trimmed FROM feed_topic WHERE name = ?`, []any{p}, &one); errors.Is(err, sql.ErrNoRows) {
			one, err = forgotten, nil
		}
		if err != nil {
			return 0, err
		}
		highest = max(highest, one)
	}
	return highest, nil
}
