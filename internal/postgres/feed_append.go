package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
)

const (
	// maxAppends bounds the calls that wait for a commit; further ones wait for
	// their turn.
	maxAppends = 1024
	// groupEvents and groupBytes bound what one transaction publishes, and so for
	// how long it holds the lock of the log.
	groupEvents = 4000
	groupBytes  = 8 << 20
)

// appends are the calls that wait. The log has one writer at a time, which waits
// for the disk: what comes meanwhile is published together, so that the disk
// bounds the number of transactions and not that of events.
type appends struct {
	slots chan struct{}

	mu      sync.Mutex
	waiting []*appending
	running bool // somebody takes care of them
}

type appending struct {
	drafts   []feed.Draft
	receipts []feed.Receipt
	err      error
	done     chan struct{} // closed when receipts or err are there
}

// Append implements feed.Store. If ctx ends while the transaction is under way,
// its outcome is not known; an idempotency key makes a repetition safe.
func (f *Feed) Append(ctx context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("append events: %w", err)
	}
	q := &f.queue
	select {
	case q.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("append events: %w", ctx.Err())
	}
	a := &appending{drafts: drafts, done: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, a)
	if !q.running {
		q.running = true
		f.db.writes.Go(func() { f.appendAll(context.WithoutCancel(ctx)) })
	}
	q.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		if q.remove(a) {
			return nil, fmt.Errorf("append events: %w", ctx.Err())
		}
		return nil, fmt.Errorf("append events, which may still be published: %w", ctx.Err())
	}
	if a.err != nil {
		return nil, fmt.Errorf("append events: %w", a.err)
	}
	return a.receipts, nil
}

// remove takes a call back if nobody has begun with it.
func (q *appends) remove(a *appending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range q.waiting {
		if w == a {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			<-q.slots
			return true
		}
	}
	return false
}

// group takes the calls that are published next.
func (q *appends) group() []*appending {
	q.mu.Lock()
	defer q.mu.Unlock()
	events, bytes, n := 0, 0, 0
	for ; n < len(q.waiting); n++ {
		for _, d := range q.waiting[n].drafts {
			bytes += len(d.Data)
		}
		if events += len(q.waiting[n].drafts); n > 0 && (events > groupEvents || bytes > groupBytes) {
			break
		}
	}
	group := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	q.running = n > 0
	return group
}

// appendAll publishes group after group until nobody waits. A group does not end
// with any of its callers, since others' events are in it; callTime bounds it.
func (f *Feed) appendAll(ctx context.Context) {
	for {
		group := f.queue.group()
		if len(group) == 0 {
			return
		}
		f.appendWithin(ctx, group)
		for _, a := range group {
			<-f.queue.slots // before it is told: whoever has its answer takes up no place any more
			close(a.done)
		}
	}
}

// appendGroup appends the calls of a group in one transaction. If they would make too
// many topics it is full, and nothing is appended.
func (f *Feed) appendGroup(ctx context.Context, group []*appending) (full bool, err error) {
	var columns [5][]string
	for _, a := range group {
		for _, d := range a.drafts {
			for i, value := range []string{d.Topic, d.Type, d.Key, string(d.Data), d.IdempotencyKey} {
				columns[i] = append(columns[i], value)
			}
		}
	}
	args := make([]any, len(columns), len(columns)+1)
	for i, c := range columns {
		args[i] = c
	}
	all := make([]feed.Receipt, 0, len(columns[0]))
	err = f.db.call(ctx, `SELECT event_id, repeated FROM ossicle.feed_publish($1, $2, $3, $4, $5, $6)`, append(args, f.topics), func(rows pgx.Rows) error {
		var r feed.Receipt
		err := rows.Scan(&r.ID, &r.Repeated)
		all = append(all, r)
		return err
	})
	if err != nil || len(all) == 0 {
		return err == nil, err
	}
	if len(all) != len(columns[0]) {
		return false, fmt.Errorf("%d of %d events have an id", len(all), len(columns[0]))
	}
	for _, a := range group {
		a.receipts, all = all[:len(a.drafts):len(a.drafts)], all[len(a.drafts):]
	}
	return false, nil
}
