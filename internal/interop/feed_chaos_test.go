package interop

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // reads the log that the servers have written
	_ "modernc.org/sqlite"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/testserver"
)

// campaign runs writers and readers while somebody does harm.
type campaign struct {
	*traffic
	readers []*reader
	stop    chan struct{} // ends the writers
	writers sync.WaitGroup
	reading sync.WaitGroup
	cancel  context.CancelFunc
}

// settleTime is how long readers may take to get the rest when all is well again.
const settleTime = 60 * time.Second

// newCampaign has every reader join before anything is written.
func newCampaign(t *testing.T, s *site) *campaign {
	t.Helper()
	c := &campaign{traffic: newTraffic(s), stop: make(chan struct{})}
	for i := range 2 {
		n := func(kind string) string { return fmt.Sprintf("%s%d", kind, i) }
		c.readers = append(c.readers,
			newReader(n("audit"), s, false, "audit*"),
			newReader(n("audit-stalls"), s, true, "audit*"),
			newReader(n("everything-stalls"), s, true, "*"),
			newReader(n("news-stalls"), s, true, "news*"),
			newReader(n("first-stalls"), s, true, "first*"),
			newReader(n("both-stalls"), s, true, "news*", "first*"),
		)
	}
	for _, r := range c.readers {
		if err := r.join(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	for _, r := range c.readers {
		c.reading.Go(func() { r.run(ctx) })
	}
	t.Cleanup(func() {
		c.cancel()
		c.reading.Wait()
		for _, r := range c.readers {
			r.http.CloseIdleConnections()
		}
		c.http.CloseIdleConnections()
	})
	return c
}

// quiesce ends the writers, once each knows what became of what it wrote. Before that
// somebody must have been slow enough for a gap: on a busy machine, which writes little
// in a stall, that takes longer.
func (c *campaign) quiesce(t *testing.T) {
	t.Helper()
	gap := func(r *reader) bool { return r.gaps.Load() > 0 }
	for deadline := time.Now().Add(settleTime); !slices.ContainsFunc(c.readers, gap) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond) // readers tell nobody
	}
	close(c.stop)
	done := make(chan struct{})
	go func() { c.writers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(settleTime):
		t.Fatal("the writers do not end: what they publish is not acknowledged")
	}
}

// verify waits until every reader has what there is, and compares.
func (c *campaign) verify(t *testing.T, log []committed, rows map[string]string) {
	t.Helper()
	for _, r := range c.readers {
		filter, err := feed.ParseFilter(r.patterns...)
		if err != nil {
			t.Fatal(err)
		}
		goal := r.start.ID
		for _, e := range log {
			if filter.Match(e.topic) {
				goal = e.id
			}
		}
		r.calm.Store(true)
		r.goal.Store(goal)
	}
	end := time.AfterFunc(settleTime, c.cancel)
	defer end.Stop()
	c.reading.Wait()
	tell(t, "writers", c.faults)
	tell(t, "log", checkLog(log, c.acknowledged, rows))
	gaps := int64(0)
	for _, r := range c.readers {
		filter, err := feed.ParseFilter(r.patterns...)
		if err != nil {
			t.Fatal(err)
		}
		tell(t, r.name, append(r.faults, checkStream(log, promise{filter, r.start.ID}, r.got)...))
		gaps += r.gaps.Load()
		t.Logf("%s: %d received in %d connections, %d stalls, %d gaps", r.name, len(r.got), r.connections, r.stalled, r.gaps.Load())
	}
	if gaps == 0 {
		t.Error("nobody was slow enough for a gap: this has tested less than it should")
	}
	t.Logf("%d committed: %d over HTTP, %d by other transactions", len(log), len(c.acknowledged), len(rows))
}

// tell fails with the first few of what is wrong.
func tell(t *testing.T, who string, wrong []string) {
	t.Helper()
	if len(wrong) > 0 {
		t.Errorf("%s: %d faults:\n%s", who, len(wrong), strings.Join(wrong[:min(len(wrong), 5)], "\n"))
	}
}

// One server with SQLite is killed again and again: what it acknowledged stays,
// and everybody gets it once and in order.
//
// F-1, F-2, F-4, F-14, F-19.
func TestFeedSurvivesKills(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	path := filepath.Join(t.TempDir(), "feed.db")
	s := newSite(t, 1, "--store", "sqlite:"+path)
	c := newCampaign(t, s)
	for w := range 4 {
		c.writers.Go(func() {
			c.publish(context.WithoutCancel(t.Context()), c.stop, fmt.Sprintf("h%d", w), 60*time.Millisecond)
		})
	}
	time.Sleep(2 * time.Second) // time to be slow
	for range 3 {
		time.Sleep(time.Second + rand.N(time.Second)) // some traffic
		s.replicas[0].kill()
		if err := s.replicas[0].start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.quiesce(t)
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	c.verify(t, readLog(t, db, `SELECT e.id, t.name, e.data FROM feed_event e JOIN feed_topic t ON t.id = e.topic ORDER BY e.id`), nil)
	if t.Failed() {
		t.Logf("the server says: %s", s.replicas[0].said())
	}
}

// readLog reads the log from the database itself.
func readLog(t *testing.T, db *sql.DB, query string) (log []committed) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e committed
		var data []byte
		if err := rows.Scan(&e.id, &e.topic, &data); err != nil {
			t.Fatal(err)
		}
		e.token = tokenOf(data)
		log = append(log, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return log
}

// chaosTime is how long each bus is put to the test: OSSICLE_CHAOS. Without it
// one of them is, for a few seconds.
func chaosTime(t *testing.T) (each time.Duration, all bool) {
	t.Helper()
	text := os.Getenv("OSSICLE_CHAOS")
	if text == "" {
		return 6 * time.Second, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("OSSICLE_CHAOS: %v", err)
	}
	return d, true
}

// Three replicas on one PostgreSQL, behind nginx, with each bus: 4 publishers and
// 4 writers of rows whose commits interleave, while replicas are killed, the bus
// is cut, hangs and heals, and PostgreSQL is restarted. Subscribers stall and
// resume anywhere. What was committed everybody has once and in order; where
// something may be dropped, a gap says so.
//
// F-1, F-2, F-4, F-7, F-9, F-11, F-14, F-19, F-26, F-27.
func TestFeedSurvivesChaos(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a while")
	}
	lasts, all := chaosTime(t)
	pg := testserver.PostgreSQL(t)
	buses := []struct {
		name  string
		start func(t *testing.T) chaosBus
	}{
		{"redis", func(t *testing.T) chaosBus {
			t.Helper()
			s := testserver.Redis(t)
			return &serverBus{s, "redis://" + s.Addr}
		}},
		{"nats", func(t *testing.T) chaosBus {
			t.Helper()
			s := testserver.NATS(t)
			return &serverBus{s, "nats://" + s.Addr}
		}},
		{"postgres", func(*testing.T) chaosBus { return &databaseBus{pg} }},
	}
	if !all {
		i := rand.IntN(len(buses))
		buses = buses[i : i+1]
	}
	for _, bus := range buses {
		t.Run(bus.name, func(t *testing.T) { survive(t, pg, bus.start(t), lasts) })
	}
}

func survive(t *testing.T, pg *testserver.Postgres, bus chaosBus, lasts time.Duration) {
	t.Helper()
	dsn := pg.Database(t)
	s := newSite(t, 3, "--store", dsn, "--bus", bus.url())
	s.behindNginx(t)
	for topic, table := range rowTables {
		pg.SQL(t, dsn, "CREATE TABLE "+table+" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, token text NOT NULL, pad text NOT NULL)")
		must(t, "pg", "install", "--store", dsn, "--table", table, "--columns", "token,pad", "--topic", topic)
	}
	c := newCampaign(t, s)
	calm := context.WithoutCancel(t.Context())
	for w := range 4 {
		c.writers.Go(func() { c.publish(calm, c.stop, fmt.Sprintf("h%d", w), 40*time.Millisecond) })
		c.writers.Go(func() { c.write(calm, c.stop, dsn, fmt.Sprintf("r%d", w)) })
	}
	harm(t, s, pg, bus, lasts)
	time.Sleep(2 * time.Second) // late commits, in good health
	c.quiesce(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	drained(t, db)
	rows := map[string]string{}
	for topic, table := range rowTables {
		for _, e := range readLog(t, db, "SELECT id, '"+topic+"', json_build_object('token', token) FROM "+table) {
			rows[e.token] = topic
		}
	}
	c.verify(t, readLog(t, db, `SELECT id, topic, data FROM ossicle.feed_event ORDER BY id`), rows)
	if t.Failed() {
		for i, r := range s.replicas {
			t.Logf("replica %d says: %s", i, r.said())
		}
	}
}

// drainTime is how long a row may wait in the outbox when all is well: less than
// the 20 s after which a drain looks through the whole of it, which would repair
// what it had overlooked.
const drainTime = 12 * time.Second

// drained waits until the log has what was committed.
func drained(t *testing.T, db *sql.DB) {
	t.Helper()
	for deadline := time.Now().Add(drainTime); ; time.Sleep(20 * time.Millisecond) { // the replicas tell nobody
		var left int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM ossicle.feed_outbox`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d rows are still in the outbox", left)
			return
		}
	}
}

// harm does harm for a while, and leaves everything in good health.
func harm(t *testing.T, s *site, pg *testserver.Postgres, bus chaosBus, lasts time.Duration) {
	t.Helper()
	killReplica := func() {
		r := s.replicas[rand.IntN(len(s.replicas))]
		r.kill()
		time.Sleep(rand.N(time.Second)) // the others go on
		if err := r.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kinds := []struct {
		name string
		do   func()
	}{
		{"kill a replica", killReplica},
		{"cut the bus", func() { bus.cut(t, 500*time.Millisecond+rand.N(time.Second)) }},
		{"restart PostgreSQL", func() { pg.Stop(t); time.Sleep(rand.N(500 * time.Millisecond)); pg.Start(t) }},
		{"kill a replica", killReplica},
		{"hang the bus", func() { bus.hang(t, 500*time.Millisecond+rand.N(2*time.Second)) }},
		{"kill a replica", killReplica},
		{"kill PostgreSQL", func() { pg.Kill(t); time.Sleep(rand.N(500 * time.Millisecond)); pg.Start(t) }},
	}
	count := map[string]int{}
	begun := time.Now()
	for i := 0; time.Since(begun) < lasts || i < len(kinds); i++ {
		time.Sleep(200*time.Millisecond + rand.N(max(lasts/20, 500*time.Millisecond))) // some traffic
		k := kinds[i%len(kinds)]
		k.do()
		count[k.name]++
	}
	t.Logf("in %v: %v", time.Since(begun).Round(time.Second), count)
}

// chaosBus is a bus that can be harmed, for a time.
type chaosBus interface {
	url() string
	cut(t *testing.T, d time.Duration)
	hang(t *testing.T, d time.Duration)
}

// serverBus is a server of its own.
type serverBus struct {
	server  *testserver.Server
	address string
}

func (b *serverBus) url() string { return b.address }

func (b *serverBus) cut(t *testing.T, d time.Duration) {
	t.Helper()
	b.server.Kill(t)
	time.Sleep(d)
	b.server.Start(t)
}

func (b *serverBus) hang(t *testing.T, d time.Duration) {
	t.Helper()
	b.server.Hang(t)
	time.Sleep(d)
	b.server.Resume(t)
}

// databaseBus is NOTIFY. It is cut by ending whoever listens.
type databaseBus struct{ pg *testserver.Postgres }

func (*databaseBus) url() string { return "postgres" }

func (b *databaseBus) cut(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		b.pg.SQL(t, b.pg.DSN, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'listen%'`)
	}
}

func (b *databaseBus) hang(t *testing.T, d time.Duration) { t.Helper(); b.cut(t, d) }
