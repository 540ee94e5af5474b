package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
)

var _ feed.TopicReader = (*Feed)(nil)

// The newest of some events, as far as their size allows; total is that of an
// event and the newer ones.
const (
	selectNewest = `SELECT e.id, e.time, e.type, e.key, CASE WHEN s.total <= $3 OR s.nth = 1 THEN e.data ELSE '' END, e.loose, s.total <= $3 OR s.nth = 1
		FROM (SELECT id, sum(size) OVER w AS total, row_number() OVER w AS nth FROM (`
	endNewest  = `) chosen WINDOW w AS (ORDER BY id DESC)) s JOIN ossicle.feed_event e ON e.id = s.id ORDER BY e.id DESC`
	selectTail = selectNewest + `SELECT id, size FROM ossicle.feed_event WHERE topic = $1 ORDER BY id DESC LIMIT $2` + endNewest

	selectStates = selectNewest + `SELECT id, size FROM ossicle.feed_event
		WHERE id IN (SELECT max(id) FROM ossicle.feed_event WHERE topic = $1 AND key <> '' GROUP BY key) ORDER BY id DESC LIMIT $2` + endNewest

	selectTotal = `SELECT l.epoch, coalesce((SELECT t.n + t.removed FROM ossicle.feed_topic t WHERE t.name = $1), l.counted) FROM ossicle.feed_log l`
)

// Tail implements feed.TopicReader.
func (f *Feed) Tail(ctx context.Context, topic string, limit int, size int64) (feed.Tail, error) {
	var tail feed.Tail
	newest := newest{topic: topic, epoch: &tail.Epoch}
	batch := &pgx.Batch{}
	batch.Queue(selectTotal, topic)
	batch.Queue(selectTail, topic, limit, size)
	err := f.db.snapshot(ctx, batch, func(rows pgx.Rows) error { return rows.Scan(&tail.Epoch, &tail.Total) }, newest.scan)
	if err != nil {
		return feed.Tail{}, fmt.Errorf("read tail of topic %s: %w", topic, err)
	}
	tail.Events = newest.events
	slices.Reverse(tail.Events)
	return tail, nil
}

// States implements feed.TopicReader.
func (f *Feed) States(ctx context.Context, topic string, limit int, size int64) (states []feed.Event, more bool, err error) {
	var epoch string
	var total int64
	newest := newest{topic: topic, epoch: &epoch}
	batch := &pgx.Batch{}
	batch.Queue(selectTotal, topic)
	batch.Queue(selectStates, topic, limit+1, size)
	err = f.db.snapshot(ctx, batch, func(rows pgx.Rows) error { return rows.Scan(&epoch, &total) }, newest.scan)
	if err != nil {
		return nil, false, fmt.Errorf("read state of topic %s: %w", topic, err)
	}
	states, more = newest.events, newest.cut
	if len(states) > limit {
		states, more = states[:limit], true
	}
	slices.SortFunc(states, func(a, b feed.Event) int { return strings.Compare(a.Key, b.Key) })
	return states, more, nil
}

// newest gathers the rows of selectNewest.
type newest struct {
	topic  string
	epoch  *string
	events []feed.Event
	cut    bool // there were others
}

func (n *newest) scan(rows pgx.Rows) error {
	e := feed.Event{Epoch: *n.epoch, Topic: n.topic}
	var data string
	var loose, fits bool
	if err := rows.Scan(&e.ID, &e.Time, &e.Type, &e.Key, &data, &loose, &fits); err != nil {
		return err
	}
	if !fits {
		n.cut = true
		return nil
	}
	e.Time, e.Data = e.Time.UTC(), compact(data, loose)
	n.events = append(n.events, e)
	return nil
}
