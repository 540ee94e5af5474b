package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

func TestFeed(t *testing.T) {
	t.Parallel()
	again := reused(t)
	feedtest.RunStore(t, func(t *testing.T) func() feed.Store {
		dsn := again(t)
		return func() feed.Store { return openAt(t, dsn, nil).Feed() }
	})
}

func TestBus(t *testing.T) {
	t.Parallel()
	again := reused(t)
	feedtest.RunBus(t, func(t *testing.T) (feed.Bus, feed.Bus) {
		dsn := again(t)
		return openAt(t, dsn, nil).Bus(), openAt(t, dsn, nil).Bus()
	})
}

// F-2, F-4: calls that come while another is committed are published together,
// each as a whole and with its own receipts.
func TestAppendsShareCommits(t *testing.T) {
	t.Parallel()
	const calls = 400
	db := openAt(t, fresh(t), nil)
	var commits int
	db.stepped = func() { commits++ } // groups follow each other
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[int64]string{}
	for i := range calls {
		wg.Go(func() {
			d := feed.Draft{Topic: "a", Type: "up", Key: fmt.Sprint(i), Data: []byte(`1`), IdempotencyKey: fmt.Sprint(i / 2)}
			other := feed.Draft{Topic: "b", Type: "up", Key: fmt.Sprint(i), Data: []byte(`2`)}
			receipts, err := db.Feed().Append(t.Context(), []feed.Draft{other, d, other})
			if err != nil || receipts[2].ID <= receipts[0].ID {
				t.Errorf("%+v, %v", receipts, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[receipts[0].ID], ids[receipts[2].ID] = fmt.Sprint(i), fmt.Sprint(i)
		})
	}
	wg.Wait()
	commits /= 3
	page, err := db.Feed().Read(t.Context(), feed.Query{})
	if err != nil || len(ids) != 2*calls || page.Head.ID != 2*calls+calls/2 || commits > calls/4 {
		t.Errorf("%d commits, %d ids, head %v, %v", commits, len(ids), page.Head, err)
	}
	for _, e := range page.Events {
		if e.Topic == "b" && ids[e.ID] != e.Key {
			t.Errorf("event %+v", e)
		}
	}
}

// F-4: whoever gives up while waiting has published nothing, and is in nobody's
// way.
func TestAppendGivesUp(t *testing.T) {
	t.Parallel()
	dsn := fresh(t)
	db := openAt(t, dsn, nil)
	r := newRig(t, dsn, nil)
	r.exec(`BEGIN; SELECT FROM ossicle.feed_log FOR UPDATE`)
	d := []feed.Draft{{Topic: "a", Type: "up", Data: []byte(`1`)}}
	first := make(chan error, 1)
	go func() {
		_, err := db.Feed().Append(t.Context(), d)
		first <- err
	}()
	q := &db.Feed().queue
	for n := 1; n > 0 || len(q.slots) == 0; { // until the first is under way
		rest(t.Context(), nil, time.Millisecond)
		q.mu.Lock()
		n = len(q.waiting)
		q.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := db.Feed().Append(ctx, d)
		second <- err
	}()
	for n := 0; n == 0; {
		rest(t.Context(), nil, time.Millisecond)
		q.mu.Lock()
		n = len(q.waiting)
		q.mu.Unlock()
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.exec(`ROLLBACK`)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if p := head(t, db); p.ID != 1 || len(q.slots) != 0 {
		t.Errorf("head %v, %d places taken", p, len(q.slots))
	}
}

// F-1: what is acknowledged is on the disk, whatever the server's settings are.
func TestACommitWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	dsn := pg.Database(t)
	for setting, want := range map[string]string{"off": "on", "local": "local", "remote_apply": "remote_apply"} {
		pg.SQL(t, dsn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = `+setting+`', current_database()); END $$`)
		db := openAt(t, dsn, nil)
		var got string
		err := db.call(t.Context(), `SELECT current_setting('synchronous_commit') FROM ossicle.feed_begin()`, nil, func(rows pgx.Rows) error { return rows.Scan(&got) })
		if err != nil || got != want {
			t.Errorf("%s becomes %s, %v", setting, got, err)
		}
	}
}
