package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
)

// RunStore is the conformance suite of feed.Store. open makes an empty log, and
// returns what opens it, again and again, as several processes would.
func RunStore(t *testing.T, open func(t *testing.T) func() feed.Store) {
	t.Run("AnEventKeepsItsFields", func(t *testing.T) { // F-1
		store := open(t)()
		before := time.Now().Add(-time.Second)
		receipts := publish(t, store, feed.Draft{Topic: "a.b", Type: "up", Key: "k é", Data: raw(`{"n":1915883588174806058,"x":1.50}`)}, draft("c", 1))
		page := read(t, store, feed.Query{})
		if len(page.Events) != 2 || page.Through != receipts[1].ID || page.Head.ID != receipts[1].ID || page.Trimmed != 0 {
			t.Fatalf("page %+v", page)
		}
		e := page.Events[0]
		if e.Time.Before(before) || e.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("time %v", e.Time)
		}
		e.Time = time.Time{}
		want := feed.Event{ID: receipts[0].ID, Epoch: page.Head.Epoch, Topic: "a.b", Type: "up", Key: "k é", Data: raw(`{"n":1915883588174806058,"x":1.50}`)}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if p, err := feed.ParsePosition(page.Head.String()); err != nil || p != page.Head || e.ID < 1 {
			t.Errorf("position %v, %v", p, err)
		}
	})
	t.Run("TheLogOutlivesItsProcess", func(t *testing.T) { // F-1, F-4
		again := open(t)
		receipts := publish(t, again(), draft("a", 1))
		store := again()
		first := read(t, store, feed.Query{})
		later := publish(t, store, draft("a", 2))
		second := read(t, again(), feed.Query{After: receipts[0].ID})
		if len(first.Events) != 1 || len(second.Events) != 1 || later[0].ID <= receipts[0].ID || first.Head.Epoch != second.Head.Epoch {
			t.Errorf("pages %+v and %+v", first, second)
		}
	})
	t.Run("PagesSelect", func(t *testing.T) { // F-1
		store := open(t)()
		for i := range 20 {
			publish(t, store, draft([]string{"a", "b.x", "b.y"}[i%3], i))
		}
		for _, patterns := range [][]string{nil, {"a"}, {"b*"}, {"a", "b.y"}, {"none"}} {
			f, err := feed.ParseFilter(patterns...)
			must(t, err)
			var want, got []int64
			for _, e := range read(t, store, feed.Query{}).Events {
				if f.Match(e.Topic) {
					want = append(want, e.ID)
				}
			}
			for after := int64(0); ; {
				page := read(t, store, feed.Query{After: after, Filter: f, Limit: 3})
				for _, e := range page.Events {
					if e.ID <= after || e.ID > page.Through {
						t.Errorf("event %d is not in (%d, %d]", e.ID, after, page.Through)
					}
					got = append(got, e.ID)
				}
				if page.Through == page.Head.ID {
					break
				}
				if page.Through <= after {
					t.Fatalf("no progress behind %d", after)
				}
				after = page.Through
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", patterns, diff)
			}
		}
		if page := read(t, store, feed.Query{After: 1 << 60}); len(page.Events) != 0 || page.Through != page.Head.ID {
			t.Errorf("beyond the end: %+v", page)
		}
	})
	t.Run("ARepetitionPublishesNothing", func(t *testing.T) { // F-4
		again := open(t)
		d := draft("a", 1)
		d.IdempotencyKey = "k"
		first := publish(t, again(), d)
		other := d
		other.Topic = "b"
		second := publish(t, again(), d, draft("a", 2), other, d)
		if second[0] != (feed.Receipt{ID: first[0].ID, Repeated: true}) || second[1].Repeated || second[2].Repeated || second[3] != second[0] {
			t.Errorf("receipts %+v and %+v", first, second)
		}
		if page := read(t, again(), feed.Query{}); len(page.Events) != 3 {
			t.Errorf("%d events", len(page.Events))
		}
	})
	t.Run("TheOldestGo", func(t *testing.T) { trims(t, open(t)()) })
	t.Run("TopicsGoAmongWriters", func(t *testing.T) { forgetsAmongWriters(t, open(t)) })
	t.Run("TheOrderIsThatOfVisibility", func(t *testing.T) { visible(t, open(t)) })
	t.Run("AnEndedCallIsNoPublication", func(t *testing.T) { // F-4
		store := open(t)()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := store.Append(ctx, []feed.Draft{draft("a", 1)}); err != nil && len(read(t, store, feed.Query{}).Events) != 0 {
			t.Error("an append that failed has published")
		}
	})
}

// F-3: retention by count, bytes and age, topic by topic; ids are not used again.
func trims(t *testing.T, store feed.Store) {
	for i := range 30 {
		publish(t, store, draft("a", i), draft("b", i))
	}
	all := read(t, store, feed.Query{}).Events
	for _, keep := range []feed.Retention{{Count: 20}, {Bytes: 5 * 20}} {
		trim(t, store, "a", keep)
	}
	topics := topics(t, store)
	a, b := topics["a"], topics["b"]
	if a.Count < 1 || a.Count > 19 || a.Bytes > 100 || b.Count != 30 || b.Trimmed != 0 || a.Trimmed == 0 || a.Last != all[58].ID {
		t.Errorf("topics %+v and %+v", a, b)
	}
	only, err := feed.ParseFilter("a")
	must(t, err)
	page := read(t, store, feed.Query{Filter: only})
	if page.Trimmed != a.Trimmed || int64(len(page.Events)) != a.Count || page.Events[0].ID != a.First || a.First <= a.Trimmed {
		t.Errorf("page trimmed %d, first %d, topic %+v", page.Trimmed, page.Events[0].ID, a)
	}
	other, err := feed.ParseFilter("b")
	must(t, err)
	if page := read(t, store, feed.Query{Filter: other}); page.Trimmed != 0 || len(page.Events) != 30 {
		t.Errorf("the other topic lost something: %+v", page.Trimmed)
	}

	keyed := draft("a", 0)
	keyed.IdempotencyKey = "k"
	first := publish(t, store, keyed)
	trim(t, store, "a", feed.Retention{Age: time.Hour})
	if got := publish(t, store, keyed); !got[0].Repeated {
		t.Error("an idempotency key went before its time")
	}
	for _, topic := range []string{"a", "b"} {
		trim(t, store, topic, feed.Retention{Age: time.Nanosecond})
	}
	page = read(t, store, feed.Query{})
	if len(page.Events) != 0 || page.Through != page.Head.ID || page.Head.ID != first[0].ID || page.Trimmed != first[0].ID {
		t.Errorf("after all is trimmed: %+v", page)
	}
	second := publish(t, store, keyed)
	if second[0].Repeated || second[0].ID <= first[0].ID {
		t.Errorf("got %+v after %+v", second, first)
	}
	publish(t, store, draft("a", 1))
	trim(t, store, "a", feed.Retention{Count: 2})
	if got := publish(t, store, keyed); got[0] != (feed.Receipt{ID: second[0].ID, Repeated: true}) {
		t.Errorf("got %+v after %+v", got, second)
	}
	trim(t, store, "a", feed.Retention{Count: 1})
	if got := publish(t, store, keyed); got[0].Repeated {
		t.Error("a key outlived its event, and nothing says how long")
	}
}

// F-2: whoever has seen an id never meets a lower one later.
func visible(t *testing.T, again func() feed.Store) {
	const writers, batches = 4, 40
	var wg sync.WaitGroup
	for w := range writers {
		store := again()
		wg.Go(func() {
			for i := range batches {
				if _, err := store.Append(t.Context(), []feed.Draft{draft("a", w), draft("b", i)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	store := again()
	var last int64
	for seen := 0; seen < 2*writers*batches && !t.Failed(); {
		page := read(t, store, feed.Query{After: last, Limit: 7})
		for _, e := range page.Events {
			if e.ID <= last {
				t.Fatalf("id %d after %d", e.ID, last)
			}
			last = e.ID
			seen++
		}
	}
	wg.Wait()
	if got := count(t, store); got != 2*writers*batches {
		t.Errorf("%d events", got)
	}
}

func count(t *testing.T, store feed.Store) (n int) {
	for after := int64(0); ; {
		page := read(t, store, feed.Query{After: after})
		if n += len(page.Events); page.Through == page.Head.ID {
			return n
		}
		after = page.Through
	}
}

func draft(topic string, n int) feed.Draft {
	return feed.Draft{Topic: topic, Type: "up", Data: raw(fmt.Sprintf(`{"number":%9d}`, n))}
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, store feed.Store, drafts ...feed.Draft) []feed.Receipt {
	t.Helper()
	clean, err := feed.Clean(drafts)
	must(t, err)
	receipts, err := store.Append(t.Context(), clean)
	must(t, err)
	if len(receipts) != len(drafts) {
		t.Fatalf("%d receipts for %d events", len(receipts), len(drafts))
	}
	return receipts
}

func read(t *testing.T, store feed.Store, q feed.Query) feed.Page {
	t.Helper()
	page, err := store.Read(t.Context(), q)
	must(t, err)
	return page
}

func topics(t *testing.T, store feed.Store) map[string]feed.Topic {
	t.Helper()
	all, err := store.Topics(t.Context())
	must(t, err)
	byName := map[string]feed.Topic{}
	for _, topic := range all {
		byName[topic.Name] = topic
	}
	return byName
}

func trim(t *testing.T, store feed.Store, topic string, keep feed.Retention) {
	t.Helper()
	for range 1000 {
		more, err := store.Trim(t.Context(), topic, keep)
		must(t, err)
		if !more {
			return
		}
	}
	t.Fatal("trimming does not end")
}

// RunBus is the conformance suite of feed.Bus. open returns two ends of one bus.
func RunBus(t *testing.T, open func(t *testing.T) (one, other feed.Bus)) {
	t.Run("ARingIsHeard", func(t *testing.T) { // F-26
		one, other := open(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		rings := make(chan struct{}, 1000)
		done := make(chan error, 1)
		go func() { done <- other.Listen(ctx, func() { rings <- struct{}{} }) }()
		for i := range 5 {
			if i > 0 { // the first is the greeting
				must(t, one.Ring(ctx, feed.Position{Epoch: "e", ID: int64(i)}))
			}
			select {
			case <-rings:
			case <-ctx.Done():
				t.Fatal("not heard")
			}
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("AnEndIsNoError", func(t *testing.T) {
		_, other := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		if err := other.Listen(ctx, cancel); err != nil {
			t.Error(err)
		}
	})
	t.Run("NobodyNeedsToListen", func(t *testing.T) {
		one, _ := open(t)
		must(t, one.Ring(t.Context(), feed.Position{Epoch: strings.Repeat("e", 26), ID: 1 << 60}))
	})
}

// A topic that has been empty for long goes, and what is left of it is the truth:
// whoever knew it learns that events are missing, though it is made anew, and its
// count goes on. F-1, F-4, F-19.
func forgets(t *testing.T, store TopicStore) {
	first := publish(t, store, draft("a", 1), draft("b", 1), draft("gone", 1), draft("gone", 2), draft("spared", 1))
	keyed := draft("keyed", 1)
	keyed.IdempotencyKey = "k"
	publish(t, store, keyed)
	trim(t, store, "gone", feed.Retention{Age: time.Nanosecond})
	trim(t, store, "spared", feed.Retention{Age: time.Nanosecond})
	trim(t, store, "keyed", feed.Retention{Bytes: 1, Age: time.Hour}) // its key is good for longer
	if next := forget(t, store, time.Hour); next <= 59*time.Minute || next > time.Hour {
		t.Errorf("looked at for the first time: again in %v", next)
	}
	if next := forget(t, store, time.Hour); next <= 59*time.Minute || next > time.Hour || len(topics(t, store)) != 5 {
		t.Errorf("it has not been empty for long: again in %v", next)
	}
	// It is not silent, so its time begins again. The clock is the store's, so it is
	// waited for.
	const short = 20 * time.Millisecond
	time.Sleep(short)
	publish(t, store, draft("gone", 3))
	trim(t, store, "gone", feed.Retention{Age: time.Nanosecond})
	if forget(t, store, short); topics(t, store)["gone"].Last == 0 {
		t.Error("it went as if it had been silent")
	}
	last := publish(t, store, draft("a", 2))[0].ID
	if next := forget(t, store, 0); next > 0 {
		t.Errorf("nothing is left to go: again in %v", next)
	}
	all := topics(t, store)
	if _, there := all["gone"]; there || len(all) != 4 {
		t.Errorf("%+v", all)
	}
	if got := publish(t, store, keyed); !got[0].Repeated {
		t.Error("a key went with its topic before its time")
	}

	page := func(after int64, patterns ...string) feed.Page {
		t.Helper()
		f, err := feed.ParseFilter(patterns...)
		must(t, err)
		return read(t, store, feed.Query{After: after, Filter: f})
	}
	missing := last - 1 // the third event of the topic that went
	for _, patterns := range [][]string{nil, {"gone"}, {"gone", "a"}, {"go*"}} {
		if p := page(first[2].ID, patterns...); p.Trimmed != missing {
			t.Errorf("%q: up to %d may be missing, and %d is", patterns, p.Trimmed, missing)
		}
	}
	if p := page(0, "a", "b"); p.Trimmed != 0 || len(p.Events) != 3 {
		t.Errorf("topics that are there lost something: %+v", p)
	}
	tail, err := store.Tail(t.Context(), "gone", 10, wide)
	must(t, err)
	if tail.Total != 3 || len(tail.Events) != 0 {
		t.Errorf("tail %+v", tail)
	}
	again := publish(t, store, draft("gone", 4))[0].ID
	if again <= last {
		t.Errorf("id %d after %d", again, last)
	}
	for _, patterns := range [][]string{{"gone"}, {"go*"}} {
		if p := page(first[2].ID, patterns...); p.Trimmed != missing || len(p.Events) != 1 || p.Events[0].ID != again {
			t.Errorf("%q, made anew: %+v, and %d is missing", patterns, p, missing)
		}
	}
	if tail, err = store.Tail(t.Context(), "gone", 10, wide); err != nil || tail.Total != 4 || len(tail.Events) != 1 {
		t.Errorf("made anew: tail %+v, %v", tail, err)
	}
	if made := topics(t, store)["gone"]; made.Count != 1 || made.First != again || made.Trimmed != missing {
		t.Errorf("made anew: %+v", made)
	}
}

// Topics go and come while others publish to them: every event is there, in order,
// and counted once. F-2.
func forgetsAmongWriters(t *testing.T, again func() feed.Store) {
	const writers, each = 4, 25
	var publishing, forgetting sync.WaitGroup
	stop := make(chan struct{})
	keeper := again()
	forgetting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, topic := range []string{"x", "y"} {
				if _, err := keeper.Trim(t.Context(), topic, feed.Retention{Age: time.Nanosecond}); err != nil {
					t.Error(err)
					return
				}
			}
			if _, err := keeper.Forget(t.Context(), nil, 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var mu sync.Mutex
	ids := map[int64]bool{}
	for w := range writers {
		store := again()
		publishing.Go(func() {
			for i := range each {
				receipts, err := store.Append(t.Context(), []feed.Draft{draft("x", w), draft("y", i), draft("kept", i)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range receipts {
					ids[r.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	publishing.Wait()
	close(stop)
	forgetting.Wait()
	store := again()
	all := topics(t, store)
	if kept := all["kept"]; kept.Count != writers*each || kept.Trimmed >= kept.First || len(ids) != 3*writers*each {
		t.Errorf("%d ids, %+v", len(ids), kept)
	}
	var left, counted int64
	for _, topic := range []string{"x", "y"} {
		counted += all[topic].Count
		f, err := feed.ParseFilter(topic)
		must(t, err)
		page := read(t, store, feed.Query{Filter: f})
		left += int64(len(page.Events))
		for _, e := range page.Events {
			if e.ID <= page.Trimmed || !ids[e.ID] {
				t.Errorf("event %d, and all up to %d were removed", e.ID, page.Trimmed)
			}
		}
	}
	if left != counted {
		t.Errorf("%d events are left, and %d are counted", left, counted)
	}
}

func forget(t *testing.T, store feed.Store, empty time.Duration) time.Duration {
	t.Helper()
	next, err := store.Forget(t.Context(), []string{"spared"}, empty)
	must(t, err)
	return next
}
