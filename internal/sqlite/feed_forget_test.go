package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

func TestTopicBound(t *testing.T) {
	t.Parallel()
	feedtest.RunTopicBound(t, func(t *testing.T) func() feed.Store {
		path := filepath.Join(t.TempDir(), "x.db")
		return func() feed.Store {
			f := open(t, path, &Options{BusyTimeout: time.Minute}).Feed()
			f.topics = 4
			return f
		}
	})
}

// Calls that share a commit share what room there is, in their order.
func TestASharedCommitHasOneRoom(t *testing.T) {
	t.Parallel()
	f := open(t, filepath.Join(t.TempDir(), "x.db"), nil).Feed()
	f.topics = 3
	var calls []*appending
	for _, topics := range [][]string{{"a"}, {"b", "c", "d"}, {"b", "b"}, {"c"}, {"d", "a"}, {"a", "b", "c"}} {
		calls = append(calls, &appending{drafts: events(len(topics), topics...)})
	}
	if err := f.commit(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	next := int64(1)
	for i, call := range calls {
		var full *feed.TopicsError
		if refused := i == 1 || i == 4; errors.As(call.err, &full) != refused || (refused && (full.Topic != "d" || call.receipts != nil)) {
			t.Errorf("call %d: %v, %v", i, call.receipts, call.err)
		}
		for _, r := range call.receipts {
			if r.ID != next {
				t.Errorf("call %d: %v", i, call.receipts)
			}
			next++
		}
	}
	if next != 8 || head(t, f).ID != 7 {
		t.Errorf("%d events, head %v", next-1, head(t, f))
	}
}

// Topics go in steps, none is lost of the count, and processes of before, which know
// nothing of it, make theirs as they did.
func TestForgetInSteps(t *testing.T) {
	t.Parallel()
	const all = 2*forgetStep + 10
	db := open(t, filepath.Join(t.TempDir(), "x.db"), nil)
	f := db.Feed()
	names := make([]string, all)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
	}
	if _, err := f.Append(t.Context(), append(events(all, names...), events(all, names...)...)); err != nil {
		t.Fatal(err)
	}
	// As if each had been trimmed.
	if _, err := db.writer.db.ExecContext(t.Context(), `DELETE FROM feed_event;
		UPDATE feed_topic SET removed = n, n = 0, bytes = 0, trimmed = last`); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for next := time.Duration(0); next == 0; steps++ {
		var err error
		if next, err = f.Forget(t.Context(), []string{"t7"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	topics, err := f.Topics(t.Context())
	if err != nil || len(topics) != 1 || topics[0].Name != "t7" || steps != 3 {
		t.Errorf("%d steps, %+v, %v", steps, topics, err)
	}
	// As a process of before makes a topic and publishes to it.
	if _, err := db.writer.db.ExecContext(t.Context(), `INSERT INTO feed_topic (name) VALUES ('t1') ON CONFLICT (name) DO UPDATE SET name = name;
		INSERT INTO feed_event (id, topic, time, size, type, key, data) SELECT head + 1, id, 1, 1, 'x', '', '1' FROM feed_log, feed_topic WHERE name = 't1';
		UPDATE feed_topic SET n = n + 1, bytes = bytes + 1, last = (SELECT head + 1 FROM feed_log) WHERE name = 't1';
		UPDATE feed_log SET head = head + 1`); err != nil {
		t.Fatal(err)
	}
	var counted, trimmed, removed int64
	err = db.reader.db.QueryRowContext(t.Context(), `SELECT topics, t.trimmed, t.removed FROM feed_log, feed_topic t WHERE name = 't1'`).Scan(&counted, &trimmed, &removed)
	if err != nil || counted != 2 || trimmed != 2*all || removed != 2 {
		t.Errorf("%d topics; up to %d and %d events are gone, %v", counted, trimmed, removed, err)
	}
	checkFeed(t, db)
}

// A page of the log costs the same however many topics there are.
func BenchmarkFeedReadManyTopics(b *testing.B) {
	f := open(b, filepath.Join(b.TempDir(), "x.db"), nil).Feed()
	for i := range 50 {
		drafts := events(1000, "a")
		for j := range drafts {
			drafts[j].Topic = fmt.Sprint("t", i*1000+j)
		}
		if _, err := f.Append(b.Context(), drafts); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if page, err := f.Read(b.Context(), feed.Query{After: 49_900}); err != nil || len(page.Events) != 100 {
			b.Fatal(err)
		}
	}
}
