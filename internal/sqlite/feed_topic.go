package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/feed"
)

var _ feed.TopicReader = (*Feed)(nil)

// Tail implements feed.TopicReader.
func (f *Feed) Tail(ctx context.Context, topic string, limit int, size int64) (feed.Tail, error) {
	var tail feed.Tail
	err := f.db.read(ctx, func(t *tx) error {
		if err := t.one(`SELECT epoch FROM feed_log`, nil, &tail.Epoch); err != nil {
			return err
		}
		var id int64
		err := t.one(`SELECT id, n + removed FROM feed_topic WHERE name = ?`, []any{topic}, &id, &tail.Total)
		if errors.Is(err, sql.ErrNoRows) {
			return t.one(`SELECT counted FROM feed_log`, nil, &tail.Total)
		}
		if err != nil {
			return err
		}
		tail.Events, _, err = t.newest(topic, tail.Epoch, size, `SELECT id, time, size, type, key, data FROM feed_event WHERE topic = ? ORDER BY id DESC LIMIT ?`, id, limit)
		slices.Reverse(tail.Events)
		return err
	})
	if err != nil {
		return feed.Tail{}, fmt.Errorf("read tail of topic %s: %w", topic, err)
	}
	return tail, nil
}

// States implements feed.TopicReader.
func (f *Feed) States(ctx context.Context, topic string, limit int, size int64) (states []feed.Event, more bool, err error) {
	err = f.db.read(ctx, func(t *tx) error {
		var id int64
		var epoch string
		err := t.one(`SELECT id, epoch FROM feed_topic, feed_log WHERE name = ?`, []any{topic}, &id, &epoch)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		states, more, err = t.newest(topic, epoch, size, `SELECT id, time, size, type, key, data FROM feed_event
			WHERE id IN (SELECT max(id) FROM feed_event WHERE topic = ? AND key <> '' GROUP BY key) ORDER BY id DESC LIMIT ?`, id, limit+1)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("read state of topic %s: %w", topic, err)
	}
	if len(states) > limit {
		states, more = states[:limit], true
	}
	slices.SortFunc(states, func(a, b feed.Event) int { return strings.Compare(a.Key, b.Key) })
	return states, more, nil
}

// newest reads events, newest first, until their size is over the limit: the
// first is there in any case, and cut says that there were others.
func (t *tx) newest(topic, epoch string, size int64, query string, args ...any) (events []feed.Event, cut bool, err error) {
	var total int64
	err = t.each(query, args, func(scan func(...any) error) error {
		var at, one int64
		var data string
		e := feed.Event{Epoch: epoch, Topic: topic}
		if err := scan(&e.ID, &at, &one, &e.Type, &e.Key, &data); err != nil || cut {
			return err
		}
		if total += one; total > size && len(events) > 0 {
			cut = true
			return nil
		}
		e.Time, e.Data = time.Unix(0, at).UTC(), json.RawMessage(data)
		events = append(events, e)
		return nil
	})
	return events, cut, err
}
