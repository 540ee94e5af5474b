package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// drainBytes is about how much one transaction moves at most.
	drainBytes = 8 << 20

	// While somebody may yet commit rows, the drain looks again after lookLeast,
	// four times longer each time, up to lookMost. It also rests after a batch that
	// was not full, since a few rows cost a transaction as many do: for lookLeast, or
	// after busyRows for lookBusy, to leave the machine to the writers.
	lookLeast = 5 * time.Millisecond
	lookMost  = 500 * time.Millisecond
	lookBusy  = 20 * time.Millisecond
	busyRows  = 64
	// lookAwake is the longest pause in which writers are spared from ringing.
	lookAwake = 100 * time.Millisecond

	drainRetryLeast = 50 * time.Millisecond
	drainRetryMost  = 5 * time.Second
)

// Outbox moves what triggers have written into the log of the same database. It
// is no feed.Source: a row must leave the outbox and enter the log in one
// transaction, which no feed.Publisher can be part of. Any number of processes
// may run one on the same database.
//
// Nothing is asked while nothing is written. A writer rings when it commits,
// unless a drain is awake and will look again by itself; see Run.
type Outbox struct {
	db  *DB
	bus feed.Bus

	mu    sync.Mutex
	stats OutboxStats
}

// OutboxStats are what an Outbox counts from its start.
type OutboxStats struct {
	Moved   int64       `json:"moved"`   // rows
	Batches int64       `json:"batches"` // transactions that moved some
	Health  feed.Health `json:"health"`
}

// Outbox returns the outbox of the database. It rings the bus when it has moved
// rows; nil is the database's own.
func (db *DB) Outbox(bus feed.Bus) *Outbox {
	if bus == nil {
		bus = db.Bus()
	}
	return &Outbox{db: db, bus: bus}
}

// Stats returns the counts of this moment.
func (o *Outbox) Stats() OutboxStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

// lagCounted is how many rows are counted one by one, at most. An outbox that
// nobody drains has many more, and whoever asks must not walk through all of them.
const lagCounted = 10_000

// Lag is what waits in the outbox.
type Lag struct {
	Rows int64
	// Estimated: there are more than 10,000 rows, and Rows tells about how many, by
	// their numbers.
	Estimated bool
	Age       time.Duration // of the oldest
	Bytes     int64         // that the outbox takes on disk, with the room that it does not use now
}

// selectLag counts to one more than $1. Rows are numbered as they are written, so the oldest
// is the first, and there are about as many as the numbers tell.
const selectLag = `SELECT CASE WHEN counted.n <= $1 THEN counted.n ELSE greatest(counted.n, last.id - first.id + 1) END, counted.n > $1,
		coalesce(extract(epoch FROM clock_timestamp() - first.at), 0)::float8, pg_total_relation_size('ossicle.feed_outbox')
	FROM (SELECT count(*) AS n FROM (SELECT FROM ossicle.feed_outbox LIMIT $1::bigint + 1) AS each) AS counted
	LEFT JOIN (SELECT id, at FROM ossicle.feed_outbox ORDER BY id LIMIT 1) AS first ON true
	LEFT JOIN (SELECT id FROM ossicle.feed_outbox ORDER BY id DESC LIMIT 1) AS last ON true`

// Lag asks the database what waits to be moved, at a cost that does not grow with
// it. Rows that are not committed are not counted.
func (o *Outbox) Lag(ctx context.Context) (Lag, error) {
	var l Lag
	var seconds float64
	if err := o.db.pool.QueryRow(ctx, selectLag, lagCounted).Scan(&l.Rows, &l.Estimated, &seconds, &l.Bytes); err != nil {
		return Lag{}, fmt.Errorf("ask for the outbox's lag: %w", err)
	}
	l.Age = time.Duration(max(0, seconds) * float64(time.Second))
	return l, nil
}

// Run moves rows until ctx ends, and returns nil.
//
// It wakes when a writer rings, when it has just begun to hear, and when the
// sign of life of the connection found rows. Then it drains until nothing is
// left. A writer that had not committed then has perhaps seen that the drain was
// awake and does not ring; so before each look the drain asks who still writes,
// and looks again as long as there is anybody.
func (o *Outbox) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	bell := make(chan struct{}, 1)
	wg.Go(func() {
		ring := func() {
			select {
			case bell <- struct{}{}:
			default:
			}
		}
		for ctx.Err() == nil {
			// It waits by itself when it fails again and again. While it does not
			// hear, each try is a reason to look.
			if err := o.db.ears.listen(ctx, channelOutbox, ring); err != nil {
				ring()
			}
		}
	})
	// Rows that are gone stay in the way while somebody has an old snapshot, so it
	// begins where it was; but from the front now and then, should it be wrong.
	var behind int64
	var whole time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bell:
		}
		if time.Since(whole) > o.db.o.Keepalive {
			behind, whole = 0, time.Now()
		}
		o.retry(ctx, func() (err error) {
			behind, err = o.awake(ctx, bell, behind)
			return err
		})
	}
}

func (o *Outbox) retry(ctx context.Context, f func() error) {
	for wait := drainRetryLeast; ; wait = min(2*wait, drainRetryMost) {
		err := f()
		if ctx.Err() != nil {
			return
		}
		o.note(err)
		if err == nil {
			return
		}
		pause := wait/2 + rand.N(wait/2)
		o.db.o.Logger.WarnContext(ctx, "the outbox cannot be drained", logattr.Err(err), logattr.Delay(pause))
		rest(ctx, nil, pause)
	}
}

// rest waits, and reports whether the bell rang.
func rest(ctx context.Context, bell <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-bell:
		return true
	}
	return false
}

// awake drains until there is nothing left behind an id and nobody who could
// commit more without ringing. It returns the id behind which to go on.
func (o *Outbox) awake(ctx context.Context, bell <-chan struct{}, behind int64) (int64, error) {
	var held pgx.Tx
	defer func() { letGo(ctx, held) }()
	for wait := lookLeast; ctx.Err() == nil; {
		d, err := o.drain(ctx, behind)
		if err != nil {
			return 0, err
		}
		behind = d.through
		if d.writers > 0 && wait <= lookAwake && held == nil {
			if held, err = o.hold(ctx); err != nil {
				return 0, err
			}
		}
		if d.moved > 0 {
			wait = lookLeast
			switch {
			case d.moved >= int64(o.db.o.Batch):
			case d.moved >= busyRows:
				rest(ctx, nil, lookBusy)
			default:
				rest(ctx, nil, lookLeast)
			}
			continue
		}
		if d.writers == 0 {
			if held == nil {
				return behind, nil
			}
			// Whoever comes from here on rings. Once more for those who did not.
			letGo(ctx, held)
			held = nil
			continue
		}
		if wait > lookAwake && held != nil {
			letGo(ctx, held)
			held = nil
		}
		if rest(ctx, bell, wait) {
			wait = lookLeast
		} else {
			wait = min(4*wait, lookMost)
		}
	}
	return behind, nil
}

// hold says to writers that a drain is awake: by a lock, which they see without
// waiting for it. It is in a transaction that does nothing else, so that it goes
// through a pooler, and away with us. If another process holds it, that is as
// good.
func (o *Outbox) hold(ctx context.Context) (pgx.Tx, error) {
	tx, err := o.db.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	var ok bool
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1, $2)`, lockClass, lockAwake).Scan(&ok); err != nil || !ok {
		letGo(ctx, tx)
		return nil, err
	}
	return tx, nil
}

func letGo(ctx context.Context, tx pgx.Tx) {
	if tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reply)
	defer cancel()
	_ = tx.Rollback(ctx) // a connection that fails is closed, which frees the lock too
}

type drained struct {
	moved   int64
	writers int64 // transactions that may have written rows and are not over
	through int64 // there are no rows up to this id, nor will there be
	head    feed.Position
}

// drain moves one batch and has it heard.
func (o *Outbox) drain(ctx context.Context, behind int64) (drained, error) {
	var d drained
	err := o.db.call(ctx, `SELECT moved, writers, through, epoch, head FROM ossicle.feed_drain($1, $2, $3)`, []any{behind, o.db.o.Batch, drainBytes},
		func(rows pgx.Rows) error {
			return rows.Scan(&d.moved, &d.writers, &d.through, &d.head.Epoch, &d.head.ID)
		})
	if err != nil {
		return d, fmt.Errorf("drain outbox: %w", err)
	}
	if d.moved == 0 {
		return d, nil
	}
	o.mu.Lock()
	o.stats.Moved += d.moved
	o.stats.Batches++
	o.mu.Unlock()
	ringing, cancel := context.WithTimeout(context.WithoutCancel(ctx), reply)
	defer cancel()
	if err := o.bus.Ring(ringing, d.head); err != nil {
		o.db.o.Logger.WarnContext(ctx, "the bus took no ring; other processes learn of the events later", logattr.Err(err))
	}
	return d, nil
}

func (o *Outbox) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.stats.Health = feed.Health{}
	case o.stats.Health.Err == "":
		o.stats.Health = feed.Health{Err: err.Error(), Since: time.Now()}
	default:
		o.stats.Health.Err = err.Error()
	}
}
