package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/files"
)

func TestFeed(t *testing.T) {
	t.Parallel()
	feedtest.RunStore(t, func(t *testing.T) func() feed.Store {
		path := filepath.Join(t.TempDir(), "x.db")
		return func() feed.Store { return open(t, path, &Options{BusyTimeout: time.Minute}).Feed() }
	})
}

func TestFeedTopics(t *testing.T) {
	t.Parallel()
	feedtest.RunTopics(t, func(t *testing.T) feedtest.TopicStore { return open(t, filepath.Join(t.TempDir(), "x.db"), nil).Feed() })
}

func TestBell(t *testing.T) {
	t.Parallel()
	feedtest.RunBus(t, func(t *testing.T) (feed.Bus, feed.Bus) {
		path := filepath.Join(t.TempDir(), "x.db")
		return bell(t, open(t, path, nil)), bell(t, open(t, path, nil))
	})
}

func bell(tb testing.TB, db *DB) *Bell {
	tb.Helper()
	b, err := OpenBell(tb.Context(), db.Feed(), files.Touched)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func events(n int, topics ...string) []feed.Draft {
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		drafts[i] = feed.Draft{Topic: topics[i%len(topics)], Type: "up", Data: json.RawMessage(`"` + strings.Repeat("x", 198) + `"`)}
	}
	return drafts
}

func head(t *testing.T, f *Feed) feed.Position {
	t.Helper()
	page, err := f.Read(t.Context(), feed.Query{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return page.Head
}

// F-1: a copy of the file that is put back is another log from there on, and
// nothing else is.
func TestRestoredFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	life := func(n int, forget bool) (before, after feed.Position) {
		db, err := Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if forget {
			if err := os.Remove(path + "-bell"); err != nil {
				t.Fatal(err)
			}
		}
		b, f := bell(t, db), db.Feed()
		before = head(t, f)
		for range n {
			if _, err := f.Append(t.Context(), events(3, "a")); err != nil {
				t.Fatal(err)
			}
			if err := b.Ring(t.Context(), head(t, f)); err != nil {
				t.Fatal(err)
			}
		}
		return before, head(t, f)
	}
	_, first := life(2, false)
	again, _ := life(0, false)
	if again != first {
		t.Errorf("reopened: %v after %v", again, first)
	}
	copied, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, grown := life(5, false); grown.Epoch != first.Epoch || grown.ID != 21 {
		t.Errorf("grown: %v", grown)
	}
	if err := os.WriteFile(path, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	restored, _ := life(0, false)
	if restored.Epoch == first.Epoch || restored.ID != first.ID {
		t.Errorf("restored: %v after %v", restored, first)
	}
	if next, _ := life(0, false); next != restored {
		t.Errorf("opened once more: %v after %v", next, restored)
	}
	if next, _ := life(1, true); next != restored {
		t.Errorf("without its bell: %v after %v", next, restored)
	}
}

// F-1: a copy of the whole directory, its bell with it, is another log too; a file
// that was renamed is not.
func TestCopiedLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if home, err := fileHome(dir); err != nil || home == "" {
		t.Skip("this file system does not tell when a file was made")
	}
	life := func(name string) (at feed.Position) {
		db, err := Open(t.Context(), filepath.Join(dir, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		b, f := bell(t, db), db.Feed()
		receipts, err := f.Append(t.Context(), events(1, "a"))
		if err != nil {
			t.Fatal(err)
		}
		at = feed.Position{Epoch: head(t, f).Epoch, ID: receipts[0].ID}
		if err := b.Ring(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	first := life("x.db")
	for _, suffix := range []string{"", "-bell"} {
		text, err := os.ReadFile(filepath.Join(dir, "x.db"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "copy.db"+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if again := life("x.db"); again.Epoch != first.Epoch || again.ID != 2 {
		t.Errorf("opened again: %v after %v", again, first)
	}
	copied := life("copy.db")
	if copied.Epoch == first.Epoch || copied.ID != 2 {
		t.Errorf("a copy: %v after %v", copied, first)
	}
	for _, suffix := range []string{"", "-bell"} {
		if err := os.Rename(filepath.Join(dir, "copy.db"+suffix), filepath.Join(dir, "moved.db"+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if moved := life("moved.db"); moved.Epoch != copied.Epoch {
		t.Errorf("renamed: %v after %v", moved, copied)
	}
}

// F-2, F-4, B-071: an append that fails half way leaves nothing, not even ids or
// counts.
func TestAppendIsAtomic(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "x.db"), nil)
	f := db.Feed()
	if _, err := f.Append(t.Context(), events(2, "a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	db.stepped = cancel
	drafts := events(30, "a", "b")
	drafts[3].IdempotencyKey = "k"
	if err := f.commit(ctx, []*appending{{drafts: drafts}}); err == nil {
		t.Fatal("no error")
	}
	db.stepped = func() {}
	topics, err := f.Topics(t.Context())
	if err != nil || len(topics) != 1 || topics[0].Count != 2 || head(t, f).ID != 2 {
		t.Errorf("topics %+v, head %v, %v", topics, head(t, f), err)
	}
	receipts, err := f.Append(t.Context(), drafts)
	if err != nil || receipts[3].Repeated || receipts[29].ID != 32 {
		t.Errorf("receipts %+v, %v", receipts, err)
	}
	checkFeed(t, db)
}

// checkFeed looks at the file, and at the counts of topics.
func checkFeed(t *testing.T, db *DB) {
	t.Helper()
	checkIntegrity(t, db)
	var wrong int
	err := db.reader.db.QueryRowContext(t.Context(), `SELECT count(*) FROM feed_topic t WHERE
		n <> (SELECT count(*) FROM feed_event WHERE topic = t.id) OR bytes <> (SELECT coalesce(sum(size), 0) FROM feed_event WHERE topic = t.id)
		OR trimmed >= (SELECT coalesce(min(id), 1 << 62) FROM feed_event WHERE topic = t.id)
		OR last > (SELECT head FROM feed_log)`).Scan(&wrong)
	if err != nil || wrong != 0 {
		t.Errorf("%d wrong topics, %v", wrong, err)
	}
}

// F-3: trimming a long topic takes many short steps, between which others write.
func TestTrimInSteps(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "x.db"), nil)
	f := db.Feed()
	for range 4 {
		if _, err := f.Append(t.Context(), events(600, "a", "b")); err != nil {
			t.Fatal(err)
		}
	}
	steps := 0
	for more := true; more; steps++ {
		before := head(t, f).ID
		var err error
		if more, err = f.Trim(t.Context(), "a", feed.Retention{Count: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Append(t.Context(), events(1, "b")); err != nil || head(t, f).ID != before+1 {
			t.Fatal(err)
		}
	}
	topics, err := f.Topics(t.Context())
	if err != nil || steps != 3 || topics[0].Count != 1 || topics[0].Trimmed != 2397 || topics[0].First != 2399 || topics[1].Count != 1203 {
		t.Errorf("%d steps, topics %+v, %v", steps, topics, err)
	}
	if more, err := f.Trim(t.Context(), "none", feed.Retention{Count: 1}); more || err != nil {
		t.Errorf("a topic that is not there: %v, %v", more, err)
	}
	checkFeed(t, db)
}

// F-2, F-19, F-26: hubs on several openings of one file, as in several processes.
// Whoever is subscribed to any of them gets what is published through any.
func TestHubsOnOneFile(t *testing.T) {
	t.Parallel()
	const hubs, batches = 3, 40
	path := filepath.Join(t.TempDir(), "x.db")
	var all []*feed.Hub
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var running, readers, writers sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range hubs {
		db := open(t, path, &Options{BusyTimeout: time.Minute})
		h, err := feed.NewHub(ctx, db.Feed(), bell(t, db), &feed.Options{Policy: func(string) feed.Policy { return feed.Disconnect }, Lag: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
		running.Go(func() { _ = h.Run(ctx) })
	}
	start := feed.Position{Epoch: all[0].Stats().Head.Epoch}
	for _, h := range all {
		readers.Go(func() {
			s, err := h.Subscribe(feed.Subscribe{From: &start})
			if err != nil {
				t.Error(err)
				return
			}
			var got []int64
			for len(got) < hubs*batches*5 {
				b, err := s.Next(ctx)
				if err != nil || b.Gap != nil {
					t.Errorf("after %d events: %+v, %v", len(got), b.Gap, err)
					return
				}
				for _, it := range b.Items {
					got = append(got, it.ID)
				}
			}
			for i, id := range got {
				if id != int64(i+1) {
					t.Errorf("event %d has id %d", i, id)
					return
				}
			}
		})
		writers.Go(func() {
			for range batches {
				if _, err := h.Publish(ctx, events(5, "a", "b")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
}

// BenchmarkFeedAppend publishes events of 200 bytes in batches. The target is
// 20,000 events/s in batches of 100.
func BenchmarkFeedAppend(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := open(b, filepath.Join(b.TempDir(), "x.db"), nil).Feed()
			drafts := events(size, "a", "b", "c")
			for b.Loop() {
				if _, err := f.Append(b.Context(), drafts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkFeedRead reads pages of 500 events of 200 bytes.
func BenchmarkFeedRead(b *testing.B) {
	f := open(b, filepath.Join(b.TempDir(), "x.db"), nil).Feed()
	for range 20 {
		if _, err := f.Append(b.Context(), events(1000, "a", "b", "c")); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		if page, err := f.Read(b.Context(), feed.Query{After: int64(i * 500 % 19_000), Limit: 500}); err != nil || len(page.Events) != 500 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*500)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkFeedAcross measures from the end of a commit to a subscriber of
// another process. The target is 10 ms at the 99th percentile.
func BenchmarkFeedAcross(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.db")
	db := open(b, path, nil)
	h, err := feed.NewHub(b.Context(), db.Feed(), bell(b, db), nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); <-done }()
	s, err := h.Subscribe(feed.Subscribe{})
	if err != nil {
		b.Fatal(err)
	}
	writer := startWriter(b, path)
	defer writer.stop()
	var took []time.Duration
	for b.Loop() {
		committed := writer.publish()
		batch, err := s.Next(ctx)
		arrived := time.Now()
		if err != nil || len(batch.Items) != 1 {
			b.Fatal(err)
		}
		took = append(took, arrived.Sub(committed()))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
}
