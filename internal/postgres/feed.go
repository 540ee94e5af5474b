package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
)

// trimStep bounds the events, and the idempotency keys, that one transaction
// removes, and so for how long a publisher may have to wait for it.
const trimStep = 500

// Feed is the feed.Store of a database. Several processes may publish and read
// at once: they learn of each other's events by a Bus.
type Feed struct {
	db     *DB
	queue  appends
	topics int64 // that there may be

	mu   sync.Mutex
	seen feed.Position // the furthest that was ever read
}

var _ feed.Store = (*Feed)(nil)

// Feed returns the log of events in the database.
func (db *DB) Feed() *Feed { return db.feed }

func newFeed(db *DB) *Feed {
	return &Feed{db: db, topics: feed.MaxTopics, queue: appends{slots: make(chan struct{}, maxAppends)}}
}

const (
	selectHead = `SELECT l.epoch, l.head, greatest(l.forgotten, (SELECT max(t.trimmed) FROM ossicle.feed_topic t)) FROM ossicle.feed_log l`
	selectPage = `SELECT id, topic, time, type, key, data, loose FROM ossicle.feed_event WHERE id > $1 ORDER BY id LIMIT $2`

	selected = ` = ANY ($1) OR EXISTS (SELECT FROM unnest($2::text[]) p WHERE starts_with(`
	// A beginning may be that of topics that were forgotten, and a name that of one.
	selectSomeHead = `SELECT l.epoch, l.head, greatest((SELECT max(t.trimmed) FROM ossicle.feed_topic t WHERE t.name` + selected + `t.name, p))),
			CASE WHEN cardinality($2::text[]) > 0 OR EXISTS (SELECT FROM unnest($1::text[]) AS u (name)
				WHERE NOT EXISTS (SELECT FROM ossicle.feed_topic t WHERE t.name = u.name)) THEN l.forgotten ELSE 0 END)
		FROM ossicle.feed_log l`
	selectSomePage = `SELECT id, topic, time, type, key, CASE WHEN topic` + selected + `topic, p)) THEN data ELSE '' END, loose
		FROM ossicle.feed_event WHERE id > $3 ORDER BY id LIMIT $4`
)

// Read implements feed.Store.
func (f *Feed) Read(ctx context.Context, q feed.Query) (feed.Page, error) {
	if q.Limit <= 0 || q.Limit > feed.MaxPage {
		q.Limit = feed.MaxPage
	}
	f.mu.Lock()
	seen := f.seen
	f.mu.Unlock()
	page, err := f.read(ctx, q)
	if err == nil && (page.Head.Epoch == "" || (page.Head.Epoch == seen.Epoch && page.Head.ID < seen.ID)) {
		// What was seen before this read began is gone: somebody has put back the
		// server's files, or emptied the table. What follows is another log.
		if err = f.db.call(ctx, `SELECT ossicle.feed_renew($1, $2)`, []any{seen.Epoch, seen.ID}, nil); err == nil {
			page, err = f.read(ctx, q)
		}
	}
	if err != nil {
		return feed.Page{}, fmt.Errorf("read events: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen.Epoch != page.Head.Epoch || f.seen.ID < page.Head.ID {
		f.seen = page.Head
	}
	return page, nil
}

func (f *Feed) read(ctx context.Context, q feed.Query) (feed.Page, error) {
	batch := &pgx.Batch{}
	if q.Filter.All() {
		batch.Queue(selectHead)
		batch.Queue(selectPage, q.After, q.Limit)
	} else {
		names, prefixes := []string{}, []string{}
		for _, p := range q.Filter.Patterns() {
			if prefix, ok := strings.CutSuffix(p, "*"); ok {
				prefixes = append(prefixes, prefix)
			} else {
				names = append(names, p)
			}
		}
		batch.Queue(selectSomeHead, names, prefixes)
		batch.Queue(selectSomePage, names, prefixes, q.After, q.Limit)
	}
	var page feed.Page
	looked, last := 0, int64(0)
	err := f.db.snapshot(ctx, batch,
		func(rows pgx.Rows) error { return rows.Scan(&page.Head.Epoch, &page.Head.ID, &page.Trimmed) },
		func(rows pgx.Rows) error {
			e := feed.Event{Epoch: page.Head.Epoch}
			var data string
			var loose bool
			if err := rows.Scan(&e.ID, &e.Topic, &e.Time, &e.Type, &e.Key, &data, &loose); err != nil {
				return err
			}
			looked++
			last = e.ID
			if q.Filter.Match(e.Topic) {
				e.Time, e.Data = e.Time.UTC(), compact(data, loose)
				page.Events = append(page.Events, e)
			}
			return nil
		})
	page.Through = page.Head.ID
	if looked == q.Limit {
		page.Through = last
	}
	return page, err
}

// compact takes the blanks out of what the server has spelt.
func compact(data string, loose bool) json.RawMessage {
	if v := jsontext.Value(data); loose && v.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) == nil {
		return json.RawMessage(v)
	}
	return json.RawMessage(data)
}

// Topics implements feed.Store.
func (f *Feed) Topics(ctx context.Context) ([]feed.Topic, error) {
	rows, err := f.db.pool.Query(ctx, `SELECT t.name, t.n, t.bytes, t.last, t.trimmed, coalesce(e.id, 0), e.time,
		coalesce(extract(epoch FROM clock_timestamp() - e.time), 0)::float8 FROM ossicle.feed_topic t
		LEFT JOIN LATERAL (SELECT id, time FROM ossicle.feed_event WHERE topic = t.name ORDER BY id LIMIT 1) e ON true ORDER BY t.name`)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (feed.Topic, error) {
		var t feed.Topic
		var oldest *time.Time
		var seconds float64
		err := row.Scan(&t.Name, &t.Count, &t.Bytes, &t.Last, &t.Trimmed, &t.First, &oldest, &seconds)
		t.Age = time.Duration(seconds * float64(time.Second))
		if oldest != nil {
			t.Oldest = oldest.UTC()
		}
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return all, nil
}

// trimOne has the server say what is old: the clocks of its clients may differ.
const trimOne = `SELECT ossicle.feed_trim($1, $2, $3, CASE WHEN $5 THEN clock_timestamp() - $4 * interval '1 microsecond' END, $6)`

// Trim implements feed.Store.
func (f *Feed) Trim(ctx context.Context, topic string, keep feed.Retention) (more bool, err error) {
	err = f.db.call(ctx, trimOne, []any{topic, keep.Count, keep.Bytes, keep.Age.Microseconds(), keep.Age > 0, trimStep},
		func(rows pgx.Rows) error { return rows.Scan(&more) })
	if err != nil {
		return false, fmt.Errorf("trim topic %s: %w", topic, err)
	}
	return more, nil
}
