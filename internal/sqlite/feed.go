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

// insertRows is how many events one statement inserts.
const insertRows = 20

// Feed is the feed.Store of a file. Several processes may publish and read at
// once: they learn of each other's events by a Bell.
type Feed struct{ db *DB }

var _ feed.Store = (*Feed)(nil)

// Feed returns the log of events in the file.
func (db *DB) Feed() *Feed { return &Feed{db} }

// Append implements feed.Store. The file has one writer at a time, so the order
// of ids is that of the commits. Calls that come while one is at the disk share
// the next commit.
func (f *Feed) Append(ctx context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	receipts, err := f.db.appends.add(ctx, drafts, f.commit)
	if err != nil {
		return nil, fmt.Errorf("append events: %w", err)
	}
	return receipts, nil
}

// commit appends the drafts in one transaction.
func (f *Feed) commit(ctx context.Context, drafts []feed.Draft) (receipts []feed.Receipt, err error) {
	err = f.db.write(ctx, func(t *tx) error {
		var head int64
		if err := t.one(`SELECT head FROM feed_log`, nil, &head); err != nil {
			return err
		}
		b := batch{now: time.Now().UnixNano(), head: head, topics: map[string]*topicRow{}, receipts: make([]feed.Receipt, len(drafts))}
		for i, d := range drafts {
			if err := b.add(t, i, d); err != nil {
				return err
			}
		}
		receipts = b.receipts
		return b.flush(t)
	})
	return receipts, err
}

// batch is an append under way. Nothing but its transaction writes, so it
// assigns the ids itself and inserts many rows with one statement.
type batch struct {
	now      int64
	head     int64
	topics   map[string]*topicRow
	receipts []feed.Receipt
	rows     []any // seven values for each event that is not inserted yet
}

type topicRow struct {
	id, n, bytes, last int64
}

func (b *batch) add(t *tx, i int, d feed.Draft) error {
	topic, err := b.topic(t, d.Topic)
	if err != nil {
		return err
	}
	if d.IdempotencyKey != "" {
		known, err := b.idempotent(t, topic.id, d.IdempotencyKey)
		if err != nil || known != 0 {
			b.receipts[i] = feed.Receipt{ID: known, Repeated: true}
			return err
		}
	}
	b.head++
	size := int64(len(d.Data) + len(d.Type) + len(d.Key))
	topic.n, topic.bytes, topic.last = topic.n+1, topic.bytes+size, b.head
	b.receipts[i].ID = b.head
	b.rows = append(b.rows, b.head, topic.id, b.now, size, d.Type, d.Key, string(d.Data))
	if len(b.rows) == insertRows*eventColumns {
		return b.insert(t)
	}
	return nil
}

func (b *batch) topic(t *tx, name string) (*topicRow, error) {
	if row := b.topics[name]; row != nil {
		return row, nil
	}
	row := &topicRow{}
	err := t.one(`INSERT INTO feed_topic (name) VALUES (?) ON CONFLICT (name) DO UPDATE SET name = name RETURNING id`, []any{name}, &row.id)
	if err != nil {
		return nil, err
	}
	b.topics[name] = row
	return row, nil
}

// idempotent returns the id that a key stands for, or 0 after it has taken the
// key for the next event.
func (b *batch) idempotent(t *tx, topic int64, key string) (id int64, err error) {
	err = t.one(`SELECT id FROM feed_idempotency WHERE topic = ? AND key = ?`, []any{topic, key}, &id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	_, err = t.exec(`INSERT INTO feed_idempotency (topic, key, id, at) VALUES (?, ?, ?, ?)`, topic, key, b.head+1, b.now)
	return 0, err
}

const (
	eventColumns = 7
	insertEvents = `INSERT INTO feed_event (id, topic, time, size, type, key, data) VALUES `
	eventRow     = `(?, ?, ?, ?, ?, ?, ?)`
)

var insertMany = insertEvents + strings.Repeat(eventRow+", ", insertRows-1) + eventRow

// insert writes the rows that were collected: a full statement at once, others
// one by one, so that there are two statements to prepare.
func (b *batch) insert(t *tx) error {
	rows := b.rows
	b.rows = b.rows[:0]
	if len(rows) == insertRows*eventColumns {
		_, err := t.exec(insertMany, rows...)
		return err
	}
	for one := range slices.Chunk(rows, eventColumns) {
		if _, err := t.exec(insertEvents+eventRow, one...); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) flush(t *tx) error {
	if err := b.insert(t); err != nil {
		return err
	}
	for _, topic := range b.topics {
		if topic.n == 0 {
			continue
		}
		if _, err := t.exec(`UPDATE feed_topic SET n = n + ?, bytes = bytes + ?, last = ? WHERE id = ?`, topic.n, topic.bytes, topic.last, topic.id); err != nil {
			return err
		}
	}
	_, err := t.exec(`UPDATE feed_log SET head = ?`, b.head)
	return err
}

// Read implements feed.Store.
func (f *Feed) Read(ctx context.Context, q feed.Query) (feed.Page, error) {
	if q.Limit <= 0 || q.Limit > feed.MaxPage {
		q.Limit = feed.MaxPage
	}
	var page feed.Page
	err := f.db.read(ctx, func(t *tx) error {
		if err := t.one(`SELECT epoch, head FROM feed_log`, nil, &page.Head.Epoch, &page.Head.ID); err != nil {
			return err
		}
		names, err := t.selected(q.Filter, &page.Trimmed)
		if err != nil {
			return err
		}
		page.Through = page.Head.ID
		if q.After >= page.Head.ID {
			return nil
		}
		return t.readEvents(q, names, &page)
	})
	if err != nil {
		return feed.Page{}, fmt.Errorf("read events: %w", err)
	}
	return page, nil
}

// selected returns the names of the topics that a filter selects, by number, and
// the highest id that was removed from them.
func (t *tx) selected(f feed.Filter, trimmed *int64) (map[int64]string, error) {
	names := map[int64]string{}
	err := t.each(`SELECT id, name, trimmed FROM feed_topic`, nil, func(scan func(...any) error) error {
		var id, removed int64
		var name string
		err := scan(&id, &name, &removed)
		if err == nil && f.Match(name) {
			names[id] = name
			*trimmed = max(*trimmed, removed)
		}
		return err
	})
	return names, err
}

func (t *tx) readEvents(q feed.Query, names map[int64]string, page *feed.Page) error {
	looked := 0
	var last int64
	err := t.each(`SELECT id, topic, time, type, key, data FROM feed_event WHERE id > ? ORDER BY id LIMIT ?`, []any{q.After, q.Limit},
		func(scan func(...any) error) error {
			var topic, at int64
			var data string
			e := feed.Event{Epoch: page.Head.Epoch}
			if err := scan(&e.ID, &topic, &at, &e.Type, &e.Key, &data); err != nil {
				return err
			}
			looked++
			last = e.ID
			if name, ok := names[topic]; ok {
				e.Topic, e.Time, e.Data = name, time.Unix(0, at).UTC(), json.RawMessage(data)
				page.Events = append(page.Events, e)
			}
			return nil
		})
	if looked == q.Limit {
		page.Through = last
	}
	return err
}

// Topics implements feed.Store.
func (f *Feed) Topics(ctx context.Context) ([]feed.Topic, error) {
	all := []feed.Topic{}
	err := f.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT t.name, t.n, t.bytes, t.last, t.trimmed, e.id, e.time FROM feed_topic t
			LEFT JOIN feed_event e ON e.id = (SELECT min(id) FROM feed_event WHERE topic = t.id) ORDER BY t.name`, nil,
			func(scan func(...any) error) error {
				var topic feed.Topic
				var first, oldest sql.NullInt64
				err := scan(&topic.Name, &topic.Count, &topic.Bytes, &topic.Last, &topic.Trimmed, &first, &oldest)
				topic.First, topic.Oldest = first.Int64, fromNanos(oldest)
				if first.Valid {
					topic.Age = time.Since(topic.Oldest)
				}
				all = append(all, topic)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return all, nil
}
