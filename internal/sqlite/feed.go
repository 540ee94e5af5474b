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
type Feed struct {
	db     *DB
	topics int64 // that there may be
}

var _ feed.Store = (*Feed)(nil)

// Feed returns the log of events in the file.
func (db *DB) Feed() *Feed { return &Feed{db, feed.MaxTopics} }

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

// commit appends the drafts of calls in one transaction.
func (f *Feed) commit(ctx context.Context, calls []*appending) error {
	return f.db.write(ctx, func(t *tx) error {
		var head, topics int64
		if err := t.one(`SELECT head, topics FROM feed_log`, nil, &head, &topics); err != nil {
			return err
		}
		b := batch{now: time.Now().UnixNano(), head: head, topics: map[string]*topicRow{}, most: f.topics, room: f.topics - topics}
		for _, call := range calls {
			b.left += int64(len(call.drafts))
		}
		for _, call := range calls {
			if err := b.call(t, call); err != nil {
				return err
			}
		}
		return b.flush(t)
	})
}

// batch is an append under way. Nothing but its transaction writes, so it
// assigns the ids itself and inserts many rows with one statement.
type batch struct {
	now    int64
	head   int64
	topics map[string]*topicRow
	most   int64 // topics that there may be
	room   int64 // topics that may be made
	left   int64 // drafts that are not added yet
	rows   []any // seven values for each event that is not inserted yet
}

type topicRow struct {
	id, n, bytes, last int64
}

// call adds the drafts of a call, unless they have too many topics.
func (b *batch) call(t *tx, call *appending) (err error) {
	call.receipts = nil
	if call.err, err = b.admit(t, call.drafts); call.err != nil || err != nil {
		return err
	}
	call.receipts = make([]feed.Receipt, len(call.drafts))
	for i, d := range call.drafts {
		if err := b.add(t, &call.receipts[i], d); err != nil {
			return err
		}
	}
	return nil
}

// admit takes the room of the topics that drafts would make, or says that there is not
// enough. While there is room for all that is left it does not look.
func (b *batch) admit(t *tx, drafts []feed.Draft) (refused, err error) {
	enough := b.room >= b.left
	b.left -= int64(len(drafts))
	if enough {
		return nil, nil
	}
	made := map[string]bool{}
	for _, d := range drafts {
		if b.topics[d.Topic] != nil || made[d.Topic] {
			continue
		}
		var there int
		switch err := t.one(`SELECT 1 FROM feed_topic WHERE name = ?`, []any{d.Topic}, &there); {
		case err == nil:
		case !errors.Is(err, sql.ErrNoRows):
			return nil, err
		case int64(len(made)) >= b.room:
			return &feed.TopicsError{Topic: d.Topic, Max: b.most}, nil
		default:
			made[d.Topic] = true
		}
	}
	b.room -= int64(len(made))
	return nil, nil
}

func (b *batch) add(t *tx, receipt *feed.Receipt, d feed.Draft) error {
	topic, err := b.topic(t, d.Topic)
	if err != nil {
		return err
	}
	if d.IdempotencyKey != "" {
		known, err := b.idempotent(t, topic.id, d.IdempotencyKey)
		if err != nil || known != 0 {
			*receipt = feed.Receipt{ID: known, Repeated: true}
			return err
		}
	}
	b.head++
	size := int64(len(d.Data) + len(d.Type) + len(d.Key))
	topic.n, topic.bytes, topic.last = topic.n+1, topic.bytes+size, b.head
	receipt.ID = b.head
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
		var forgotten int64
		err := t.one(`SELECT epoch, head, forgotten FROM feed_log`, nil, &page.Head.Epoch, &page.Head.ID, &forgotten)
		if err != nil {
			return err
		}
		if page.Trimmed, err = t.trimmed(q.Filter, forgotten); err != nil {
			return err
		}
		page.Through = page.Head.ID
		if q.After >= page.Head.ID {
			return nil
		}
		return t.readEvents(q, &page)
	})
	if err != nil {
		return feed.Page{}, fmt.Errorf("read events: %w", err)
	}
	return page, nil
}

func (t *tx) readEvents(q feed.Query, page *feed.Page) error {
	looked := 0
	var last int64
	err := t.each(`SELECT e.id, t.name, e.time, e.type, e.key, e.data FROM feed_event e CROSS JOIN feed_topic t ON t.id = e.topic
		WHERE e.id > ? ORDER BY e.id LIMIT ?`, []any{q.After, q.Limit},
		func(scan func(...any) error) error {
			var at int64
			var data string
			e := feed.Event{Epoch: page.Head.Epoch}
			if err := scan(&e.ID, &e.Topic, &at, &e.Type, &e.Key, &data); err != nil {
				return err
			}
			looked++
			last = e.ID
			if q.Filter.Match(e.Topic) {
				e.Time, e.Data = time.Unix(0, at).UTC(), json.RawMessage(data)
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
