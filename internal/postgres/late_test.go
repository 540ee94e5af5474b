package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/testserver"
)

// F-11: a transaction that wrote first and commits last arrives, behind what was
// committed before it.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.run(r.db)
	s := r.follow(r.db)
	late, err := r.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), `INSERT INTO incidents VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	// The first has promised nothing to the second: it may stay open for hours.
	r.exec(`INSERT INTO incidents VALUES (2)`)
	early := take(t, s, 1)
	r.exec(`INSERT INTO incidents VALUES (3)`)
	early = append(early, take(t, s, 1)...)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := take(t, s, 1)
	if early[0].Key != "2" || early[1].Key != "3" || last[0].Key != "1" || last[0].ID <= early[1].ID || !last[0].Time.Before(early[0].Time) {
		t.Errorf("%+v, then %+v", early, last)
	}
}

// F-9: a writer that has seen that the drain is awake does not ring, and is not
// forgotten.
func TestAWriterThatDoesNotRingIsFound(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	o := r.db.Outbox(nil)
	held, err := o.hold(t.Context())
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	silent, err := r.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Exec(t.Context(), `INSERT INTO incidents VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	letGo(t.Context(), held)
	d, err := o.drain(t.Context(), 0)
	if err != nil || d.moved != 0 || d.writers != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	rang := r.rings()
	done := make(chan error, 1)
	go func() {
		_, err := o.awake(t.Context(), nil, 0)
		done <- err
	}()
	if rang(func() {
		if err := silent.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}) {
		t.Error("it rings")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if events := r.events(); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}

// F-7: of many transactions that write while nobody looks, a few ring; those that
// do not are found because the others do.
func TestFewRing(t *testing.T) {
	t.Parallel()
	const writers, ringers = 12, 8
	r := newIncidents(t)
	var open []pgx.Tx
	for i := range writers {
		tx, err := r.connect().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `INSERT INTO incidents VALUES ($1), ($2)`, i, i+writers); err != nil {
			t.Fatal(err)
		}
		open = append(open, tx)
	}
	rang := r.rings()
	for i, tx := range slices.Backward(open) {
		if i < ringers {
			break
		}
		if rang(func() {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}) {
			t.Errorf("writer %d rings", i)
		}
	}
	r.run(r.db)
	s := r.follow(r.db)
	rest(t.Context(), nil, 50*time.Millisecond) // so that the drain has greeted and perhaps slept
	for i, tx := range open[:ringers] {
		if !rang(func() {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}) {
			t.Errorf("writer %d does not ring", i)
		}
	}
	take(t, s, 2*writers)
}

// F-9: nor is one forgotten that commits, without having rung, between the last
// look of a drain and the moment when the drain says that it sleeps.
func TestAWriterJustBeforeTheSleepIsFound(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	o := r.db.Outbox(nil)
	late, err := r.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), `INSERT INTO incidents VALUES (0)`); err != nil {
		t.Fatal(err)
	}
	ask := func(sql string, args ...any) (yes bool) {
		if err := r.conn.QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
			t.Error(err)
		}
		return yes
	}
	steps, empty, silent := 0, false, 0
	r.db.stepped = func() {
		steps++
		if steps%3 == 1 { // a look begins
			empty = late == nil && ask(`SELECT NOT EXISTS (SELECT FROM ossicle.feed_outbox)`)
		}
		if steps%3 != 0 { // each third is the end of a look
			return
		}
		held := ask(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND mode = 'ExclusiveLock'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, lockAwake)
		switch {
		case held && late != nil:
			if err := late.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			late = nil
		case held && empty:
			silent++
			r.exec(`INSERT INTO incidents VALUES ($1)`, silent)
		}
	}
	if _, err := o.awake(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	if events := r.events(); len(events) != 2 || silent != 1 {
		t.Errorf("%d events, %d silent", len(events), silent)
	}
}

// writer commits rows of incidents, some late, some never, and knows which.
type writer struct {
	conn      *pgx.Conn
	committed map[string]bool
	unsure    map[string]bool // the connection broke during the commit
}

func (w *writer) write(ctx context.Context, dsn string, first, n int) {
	for i := first; i < first+n; {
		if w.conn == nil || w.conn.IsClosed() {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				rest(ctx, nil, 10*time.Millisecond) // a server that is not there tells nobody when it is
				continue
			}
			w.conn = conn
		}
		w.transaction(ctx, i)
		i++
	}
	_ = w.conn.Close(ctx)
}

func (w *writer) transaction(ctx context.Context, i int) {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return
	}
	if _, err := tx.Exec(ctx, `INSERT INTO incidents VALUES ($1, 'SEV1', 'open')`, i); err != nil {
		return
	}
	if i%7 == 0 {
		_ = tx.Rollback(ctx)
		return
	}
	if i%5 == 0 {
		rest(ctx, nil, time.Duration(rand.IntN(30))*time.Millisecond) // commits late
	}
	if err := tx.Commit(ctx); err != nil {
		w.unsure[fmt.Sprint(i)] = true
		return
	}
	w.committed[fmt.Sprint(i)] = true
}

// F-1, F-2, F-8, F-9, F-11, F-26: eight writers whose transactions interleave,
// three processes that drain and publish, a server that is stopped and one that
// crashes: each subscriber of each process gets what was committed, each once, in
// the order of ids, which is the same for all.
func TestNothingIsLostToRestarts(t *testing.T) {
	t.Parallel()
	const writers, rows, replicas = 8, 120, 3
	pg := testserver.PostgreSQL(t)
	r := newRig(t, pg.Database(t), lone)
	r.exec(incidents)
	r.install(Capture{Table: "incidents", Columns: []string{"id", "severity", "status"}})
	var subscribers []*feed.Subscription
	for range replicas {
		db := openAt(t, r.dsn, lone)
		r.run(db)
		subscribers = append(subscribers, r.follow(db))
	}
	var wg sync.WaitGroup
	all := make([]*writer, writers)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range all {
		all[i] = &writer{committed: map[string]bool{}, unsure: map[string]bool{}}
		wg.Go(func() { all[i].write(ctx, r.dsn, i*rows, rows) })
	}
	take(t, subscribers[0], 100)
	pg.Restart(t)
	pg.Kill(t)
	pg.Start(t)
	wg.Wait()
	r.conn = r.connect()
	r.exec(`INSERT INTO incidents VALUES (-1)`)

	rest := take(t, subscribers[1], 1)
	for rest[len(rest)-1].Key != "-1" {
		rest = append(rest, take(t, subscribers[1], 1)...)
	}
	seen := map[string]bool{}
	for i, e := range rest {
		if seen[e.Key] || (i > 0 && e.ID <= rest[i-1].ID) {
			t.Fatalf("event %+v after %+v", e, rest[i-1])
		}
		seen[e.Key] = true
	}
	delete(seen, "-1")
	for _, w := range all {
		for key := range w.committed {
			if !seen[key] {
				t.Errorf("row %s was lost", key)
			}
			delete(seen, key)
		}
		for key := range w.unsure {
			delete(seen, key)
		}
	}
	if len(seen) > 0 {
		t.Errorf("never committed: %v", seen)
	}
	if same := take(t, subscribers[2], len(rest)); tellIDs(same) != tellIDs(rest) {
		t.Error("two replicas differ")
	}
}

func tellIDs(events []feed.Event) (s string) {
	for _, e := range events {
		s += fmt.Sprintf("%d=%s ", e.ID, e.Key)
	}
	return s
}

// F-8, B-074: a connection that breaks is made again, and what was written
// meanwhile is found.
func TestTheListenerComesBack(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	p := newProxy(t, r.dsn)
	db := openAt(t, p.dsn, lone)
	r.run(db)
	s := r.follow(db)
	for i := range 5 {
		r.exec(`INSERT INTO incidents VALUES ($1)`, 2*i)
		take(t, s, 1)
		p.cut()
		r.exec(`INSERT INTO incidents VALUES ($1)`, 2*i+1)
		if got := take(t, s, 1); got[0].Key != fmt.Sprint(2*i+1) {
			t.Fatalf("%+v", got)
		}
	}
}

// F-9: rows that are gone and cannot be cleaned up, because somebody has an old
// snapshot, are not in the way of every look.
func TestAnOldSnapshot(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	old := r.connect()
	if _, err := old.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`); err != nil {
		t.Fatal(err)
	}
	r.exec(`INSERT INTO incidents SELECT g FROM generate_series(1, 3000) g`)
	o := r.db.Outbox(nil)
	behind, err := o.awake(t.Context(), nil, 0)
	if err != nil || behind != 3000 || o.Stats().Moved != 3000 {
		t.Fatalf("behind %d, %+v, %v", behind, o.Stats(), err)
	}
	r.exec(`BEGIN; INSERT INTO incidents VALUES (3001)`)
	other := r.connect()
	if _, err := other.Exec(t.Context(), `INSERT INTO incidents VALUES (3002)`); err != nil {
		t.Fatal(err)
	}
	// While the first is open, nothing behind it is over.
	for range 2 {
		d, err := o.drain(t.Context(), behind)
		if err != nil || d.writers != 1 || d.through != behind {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	r.exec(`COMMIT`)
	if behind, err = o.awake(t.Context(), nil, behind); err != nil || behind != 3002 || o.Stats().Moved != 3002 {
		t.Errorf("behind %d, %+v, %v", behind, o.Stats(), err)
	}
}

// F-8: a server that has vanished without a word is noticed by the sign of life,
// and by the deadline of calls.
func TestTheServerVanishes(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	p := newProxy(t, r.dsn)
	db := openAt(t, p.dsn, &Options{Keepalive: 200 * time.Millisecond})
	r.run(db)
	s := r.follow(db)
	r.exec(`INSERT INTO incidents VALUES (1)`)
	take(t, s, 1)
	rest(t.Context(), nil, time.Second+100*time.Millisecond) // connections that rested longer are tried before they are used
	p.freeze()
	r.exec(`INSERT INTO incidents VALUES (2)`)
	if got := take(t, s, 1); got[0].Key != "2" {
		t.Errorf("%+v", got)
	}
	p.cut() // or each takes its time to end
}

// F-10: nothing is sent to the server while nothing is written, apart from the
// sign of life.
func TestIdle(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	p := newProxy(t, r.dsn)
	db := openAt(t, p.dsn, lone)
	o := r.run(db)
	s := r.follow(db)
	for i := range 3 {
		r.exec(`INSERT INTO incidents VALUES ($1)`, i)
	}
	take(t, s, 3)
	quiet := func() int64 {
		before := p.sent.Load()
		rest(t.Context(), nil, time.Second) // that nothing happens shows only in real time
		return p.sent.Load() - before
	}
	// Three in a row: one alone may have been a second in which nothing of this process ran.
	for rests, looks := 0, 0; rests < 3; looks++ {
		if n := quiet(); n == 0 {
			rests++
		} else if rests = 0; looks > 20 {
			t.Fatalf("%d bytes in a second of nothing", n)
		}
	}
	if moved := o.Stats().Moved; moved != 3 {
		t.Errorf("%d moved", moved)
	}
}

// F-10: a sign of life is one query, and finds rows that nobody rang for.
func TestTheSignOfLife(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.install(Capture{Table: "incidents", Columns: []string{"id"}, Silent: true})
	db := openAt(t, r.dsn, &Options{Keepalive: 300 * time.Millisecond})
	r.run(db)
	s := r.follow(db)
	for i := range 3 {
		r.exec(`INSERT INTO incidents VALUES ($1)`, i)
		take(t, s, 1)
	}
}
