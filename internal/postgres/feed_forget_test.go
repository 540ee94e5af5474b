package postgres

import (
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

func TestTopicBound(t *testing.T) {
	t.Parallel()
	again := reused(t)
	feedtest.RunTopicBound(t, func(t *testing.T) func() feed.Store {
		dsn := again(t)
		return func() feed.Store {
			f := openAt(t, dsn, nil).Feed()
			f.topics = 4
			return f
		}
	})
}

// F-7: of a captured table the topic is never refused, and never forgotten: no
// transaction of its writers fails, and nothing waits in the outbox for good.
func TestCapturedTopicsAreSpared(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	f := r.db.Feed()
	f.topics = 1
	if _, err := f.Append(t.Context(), []feed.Draft{{Topic: "a", Type: "x", Data: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV1', 'open')`)
	if d, err := r.db.Outbox(nil).drain(t.Context(), 0); err != nil || d.moved != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := f.Trim(t.Context(), "incidents", feed.Retention{Age: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if next, err := f.Forget(t.Context(), nil, 0); err != nil || next != -1 {
			t.Errorf("again in %v, %v", next, err)
		}
	}
	if topics, err := f.Topics(t.Context()); err != nil || len(topics) != 2 {
		t.Errorf("%+v, %v", topics, err)
	}
	if err := r.db.Uninstall(t.Context(), "incidents"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Forget(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	if topics, err := f.Topics(t.Context()); err != nil || len(topics) != 1 {
		t.Errorf("not captured any more: %+v, %v", topics, err)
	}
}

// Processes of before, which are at work when the schema changes, publish and drain as
// they did; what they make counts, and begins where what was forgotten ended.
func TestTopicsOfProcessesOfBefore(t *testing.T) {
	t.Parallel()
	dsn := server.Get(t).Database(t)
	old := schemaAt(t, dsn, 5)
	defer func() { _ = old.Close() }()
	publish := func(topic string) {
		t.Helper()
		if _, err := old.ExecContext(t.Context(), `SELECT ossicle.feed_append(ARRAY[$1, $1], ARRAY['x', 'x'], ARRAY['', ''], ARRAY['1', '2'], ARRAY['', ''])`, topic); err != nil {
			t.Fatal(err)
		}
	}
	publish("before")
	// One is about to publish while the schema changes.
	writer, err := old.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback() }()
	if _, err := writer.ExecContext(t.Context(), `SELECT ossicle.feed_begin()`); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *DB, 1)
	go func() {
		db, err := Open(t.Context(), dsn, nil)
		if err != nil {
			t.Error(err)
		}
		opened <- db
	}()
	deadline := time.Now().Add(30 * time.Second)
	for waiting := false; !waiting; time.Sleep(5 * time.Millisecond) { // the server tells nobody who waits
		err := old.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'ossicle.feed_log'::regclass)`).Scan(&waiting)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the change does not wait for the writer: %v", err)
		}
	}
	if _, err := writer.ExecContext(t.Context(), `SELECT ossicle.feed_append(ARRAY['during'], ARRAY['x'], ARRAY[''], ARRAY['1'], ARRAY[''])`); err != nil {
		t.Fatal(err)
	}
	if err := writer.Commit(); err != nil {
		t.Fatal(err)
	}
	db := <-opened
	if db == nil {
		t.Fatal("the schema could not be changed")
	}
	defer db.Close()
	f := db.Feed()
	epoch := ""
	check := func(topics, trimmed, removed int64, name string) {
		t.Helper()
		var e string
		var gotTopics, gotTrimmed, gotRemoved int64
		err := old.QueryRowContext(t.Context(), `SELECT l.epoch, l.topics, t.trimmed, t.removed FROM ossicle.feed_log l, ossicle.feed_topic t WHERE t.name = $1`, name).
			Scan(&e, &gotTopics, &gotTrimmed, &gotRemoved)
		if err != nil || gotTopics != topics || gotTrimmed != trimmed || gotRemoved != removed || epoch != "" && e != epoch {
			t.Errorf("%d topics; of %s up to %d and %d events are gone, %v", gotTopics, name, gotTrimmed, gotRemoved, err)
		}
		epoch = e
	}
	check(2, 0, 0, "during")
	publish("after")
	check(3, 0, 0, "after")
	if _, err := f.Trim(t.Context(), "before", feed.Retention{Age: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Forget(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	check(2, 0, 0, "after")
	publish("before")
	check(3, 2, 2, "before")
	if _, err := old.ExecContext(t.Context(), `INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES ('drained', 'x', '', '1')`); err != nil {
		t.Fatal(err)
	}
	if _, err := old.ExecContext(t.Context(), `SELECT * FROM ossicle.feed_drain(0, 10, 1000)`); err != nil {
		t.Fatal(err)
	}
	check(4, 2, 2, "drained")
}
