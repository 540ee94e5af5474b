package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
)

// lone has whatever does not ring go unnoticed for the time of a test.
var lone = &Options{Keepalive: time.Hour}

// rig is a database with a table that is captured.
type rig struct {
	tb   testing.TB
	dsn  string
	db   *DB
	conn *pgx.Conn // a writer
}

func newRig(tb testing.TB, dsn string, o *Options) *rig {
	tb.Helper()
	r := &rig{tb: tb, dsn: dsn, db: openAt(tb, dsn, o)}
	r.conn = r.connect()
	return r
}

const incidents = `CREATE TABLE incidents (id bigint PRIMARY KEY, severity text, status text, note text)`

func newIncidents(t testing.TB) *rig {
	t.Helper()
	r := newRig(t, fresh(t), lone)
	r.exec(incidents)
	r.install(Capture{Table: "incidents", Columns: []string{"id", "severity", "status"}})
	return r
}

func (r *rig) connect() *pgx.Conn {
	r.tb.Helper()
	conn, err := pgx.Connect(r.tb.Context(), r.dsn)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { _ = conn.Close(context.Background()) }) //nolint:usetesting // the test is over then
	return conn
}

func (r *rig) exec(sql string, args ...any) {
	r.tb.Helper()
	if _, err := r.conn.Exec(r.tb.Context(), sql, args...); err != nil {
		r.tb.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) install(c Capture) Captured {
	r.tb.Helper()
	got, err := r.db.Install(r.tb.Context(), c)
	if err != nil {
		r.tb.Fatal(err)
	}
	return got
}

// run runs an outbox until the end of the test.
func (r *rig) run(db *DB) *Outbox {
	r.tb.Helper()
	o := db.Outbox(nil)
	ctx, cancel := context.WithCancel(r.tb.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	r.tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.tb.Error(err)
		}
	})
	return o
}

// drain moves what is committed now.
func (r *rig) drain() {
	r.tb.Helper()
	o := r.db.Outbox(nil)
	for {
		d, err := o.drain(r.tb.Context(), 0)
		if err != nil {
			r.tb.Fatal(err)
		}
		if d.moved == 0 {
			return
		}
	}
}

func (r *rig) events() []feed.Event {
	r.tb.Helper()
	var all []feed.Event
	for after := int64(0); ; {
		page, err := r.db.Feed().Read(r.tb.Context(), feed.Query{After: after})
		if err != nil {
			r.tb.Fatal(err)
		}
		all = append(all, page.Events...)
		if after = page.Through; after == page.Head.ID {
			return all
		}
	}
}

// follow subscribes to everything from the log's beginning.
func (r *rig) follow(db *DB) *feed.Subscription {
	r.tb.Helper()
	h, err := feed.NewHub(r.tb.Context(), db.Feed(), db.Bus(), &feed.Options{Policy: func(string) feed.Policy { return feed.Disconnect }, Lag: 100_000})
	if err != nil {
		r.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.tb.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	r.tb.Cleanup(func() { cancel(); <-done })
	s, err := h.Subscribe(feed.Subscribe{From: &feed.Position{Epoch: h.Stats().Head.Epoch}})
	if err != nil {
		r.tb.Fatal(err)
	}
	return s
}

// rings returns what tells which of the calls that it is given ring.
func (r *rig) rings() func(do func()) bool {
	r.tb.Helper()
	ear, mark := r.connect(), r.connect()
	if _, err := ear.Exec(r.tb.Context(), `LISTEN `+channelOutbox); err != nil {
		r.tb.Fatal(err)
	}
	return func(do func()) (rang bool) {
		r.tb.Helper()
		do()
		if _, err := mark.Exec(r.tb.Context(), `NOTIFY `+channelOutbox+`, 'mark'`); err != nil {
			r.tb.Fatal(err)
		}
		for {
			n, err := ear.WaitForNotification(r.tb.Context())
			if err != nil {
				r.tb.Fatal(err)
			}
			if n.Payload == "mark" {
				return rang
			}
			rang = true
		}
	}
}

// take waits for n events.
func take(tb testing.TB, s *feed.Subscription, n int) []feed.Event {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	var all []feed.Event
	for len(all) < n {
		b, err := s.Next(ctx)
		if err != nil || b.Gap != nil {
			tb.Fatalf("after %d of %d events: gap %+v, %v", len(all), n, b.Gap, err)
		}
		for _, it := range b.Items {
			all = append(all, it.Event)
		}
	}
	return all
}

// told is what a test compares of an event.
type told struct{ Topic, Type, Key, Data string }

func tell(events []feed.Event) []told {
	all := []told{}
	for _, e := range events {
		all = append(all, told{e.Topic, e.Type, e.Key, string(e.Data)})
	}
	return all
}

// F-7: insert, update, delete and truncate, with what was there before, by SQL as
// by COPY; what is rolled back is not told.
func TestCapture(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV1', 'open', 'not told'), (2, NULL, E'a\n"b', '')`)
	r.exec(`UPDATE incidents SET status = 'closed' WHERE id = 1`)
	r.exec(`BEGIN; UPDATE incidents SET status = 'never'; ROLLBACK`)
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV3', 'again') ON CONFLICT (id) DO UPDATE SET severity = EXCLUDED.severity`)
	if _, err := r.conn.PgConn().CopyFrom(t.Context(), strings.NewReader("7\tSEV2\topen\tx\n"), `COPY incidents FROM STDIN`); err != nil {
		t.Fatal(err)
	}
	r.exec(`DELETE FROM incidents WHERE id = 2`)
	r.exec(`TRUNCATE incidents`)
	r.drain()
	want := []told{
		{"incidents", Insert, "1", `{"op":"insert","new":{"id":1,"status":"open","severity":"SEV1"},"table":"public.incidents"}`},
		{"incidents", Insert, "2", `{"op":"insert","new":{"id":2,"status":"a\n\"b","severity":null},"table":"public.incidents"}`},
		{"incidents", Update, "1", `{"op":"update","new":{"id":1,"status":"closed","severity":"SEV1"},"old":{"id":1,"status":"open","severity":"SEV1"},"table":"public.incidents"}`},
		{"incidents", Update, "1", `{"op":"update","new":{"id":1,"status":"closed","severity":"SEV3"},"old":{"id":1,"status":"closed","severity":"SEV1"},"table":"public.incidents"}`},
		{"incidents", Insert, "7", `{"op":"insert","new":{"id":7,"status":"open","severity":"SEV2"},"table":"public.incidents"}`},
		{"incidents", Delete, "2", `{"op":"delete","old":{"id":2,"status":"a\n\"b","severity":null},"table":"public.incidents"}`},
		{"incidents", "truncate", "", `{"op":"truncate","table":"public.incidents"}`},
	}
	events := r.events()
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, e := range events {
		if since := time.Since(e.Time); since < 0 || since > time.Minute {
			t.Errorf("time %v", e.Time)
		}
		clean, err := feed.Clean([]feed.Draft{{Topic: e.Topic, Type: e.Type, Key: e.Key, Data: e.Data}})
		if err != nil || string(clean[0].Data) != string(e.Data) {
			t.Errorf("%s: %v", e.Data, err)
		}
	}
	if lag, err := r.db.Outbox(nil).Lag(t.Context()); err != nil || lag.Rows != 0 || lag.Age != 0 || lag.Estimated || lag.Bytes == 0 {
		t.Errorf("lag %+v, %v", lag, err)
	}
}

// F-8, F-9, F-26: what is written comes to a subscriber of another process, and
// nobody asks for it.
func TestRowsArrive(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.run(r.db)
	s := r.follow(openAt(t, r.dsn, lone))
	for i := range 20 {
		r.exec(`INSERT INTO incidents VALUES ($1, 'SEV1')`, i)
		if got := take(t, s, 1); got[0].Key != fmt.Sprint(i) {
			t.Fatalf("%+v", got)
		}
	}
	var data struct{ New struct{ ID json.Number } }
	r.exec(`INSERT INTO incidents VALUES (1915883588174806058)`)
	if got := take(t, s, 1); json.Unmarshal(got[0].Data, &data) != nil || data.New.ID != "1915883588174806058" {
		t.Errorf("%s", got[0].Data)
	}
}

// F-7, F-31: an outbox that nobody drains grows, and it is seen by how much at a
// cost that does not grow with it.
func TestAnOutboxThatNobodyDrainsIsSeen(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	outbox := r.db.Outbox(nil)
	lag := func() Lag {
		t.Helper()
		l, err := outbox.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	empty := lag()
	r.exec(`INSERT INTO incidents SELECT g FROM generate_series(1, $1::int) g`, lagCounted)
	few := lag()
	if few.Rows != lagCounted || few.Estimated || few.Age <= 0 || few.Bytes < empty.Bytes+100*lagCounted {
		t.Errorf("counted: %+v after %+v", few, empty)
	}
	const more = 4 * lagCounted
	r.exec(`INSERT INTO incidents SELECT g FROM generate_series($1::int, $2::int) g`, lagCounted+1, more)
	r.exec(`UPDATE ossicle.feed_outbox SET at = at - interval '3 weeks' WHERE id = (SELECT min(id) FROM ossicle.feed_outbox)`)
	if many := lag(); many.Rows != more || !many.Estimated || many.Age < 21*24*time.Hour || many.Bytes <= few.Bytes {
		t.Errorf("estimated: %+v", many)
	}
	var plan string
	rows, err := r.conn.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) `+strings.ReplaceAll(strings.ReplaceAll(selectLag, "$1::bigint", "10000"), "$1", "10000"))
	if err == nil {
		var lines []string
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
	}
	if err != nil || strings.Contains(plan, fmt.Sprintf("rows=%d ", more)) || !strings.Contains(plan, fmt.Sprintf("rows=%d ", lagCounted+1)) {
		t.Errorf("%v; it looks at more rows than it counts:\n%s", err, plan)
	}
}
