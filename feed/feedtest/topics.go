package feedtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
)

// TopicStore is a log whose topics can be read one by one.
type TopicStore interface {
	feed.Store
	feed.TopicReader
}

const wide = 1 << 20 // a size that nothing here reaches

// RunTopics is the conformance suite of feed.TopicReader.
func RunTopics(t *testing.T, open func(t *testing.T) TopicStore) {
	t.Run("ATopicIsCountedWithoutHoles", func(t *testing.T) { // F-28
		store := open(t)
		for i := range 12 {
			publish(t, store, draft([]string{"a", "b"}[i%2], i))
		}
		tail, err := store.Tail(t.Context(), "a", 4, wide)
		must(t, err)
		if diff := cmp.Diff([]string{"4", "6", "8", "10"}, data(tail.Events)); diff != "" || tail.Total != 6 {
			t.Errorf("total %d (-want +got):\n%s", tail.Total, diff)
		}
		if page := read(t, store, feed.Query{}); tail.Epoch != page.Head.Epoch || tail.Events[3].Epoch != tail.Epoch || tail.Events[3].Topic != "a" {
			t.Errorf("tail %+v of %v", tail, page.Head)
		}
	})
	t.Run("TrimmedEventsStillCount", func(t *testing.T) { // F-3, F-28
		store := open(t)
		for i := range 10 {
			publish(t, store, draft("a", i))
		}
		trim(t, store, "a", feed.Retention{Count: 3})
		publish(t, store, draft("a", 10))
		tail, err := store.Tail(t.Context(), "a", 100, wide)
		must(t, err)
		if diff := cmp.Diff([]string{"7", "8", "9", "10"}, data(tail.Events)); diff != "" || tail.Total != 11 {
			t.Errorf("total %d (-want +got):\n%s", tail.Total, diff)
		}
	})
	t.Run("AReadIsBounded", func(t *testing.T) { // F-28
		store := open(t)
		for i := range 5 {
			publish(t, store, feed.Draft{Topic: "a", Type: "x", Key: fmt.Sprint(i), Data: raw(`"` + strings.Repeat("y", 1000) + `"`)})
		}
		for _, c := range []struct {
			size int64
			want int
		}{{1, 1}, {2500, 2}, {wide, 5}} {
			tail, err := store.Tail(t.Context(), "a", 100, c.size)
			must(t, err)
			states, more, err := store.States(t.Context(), "a", 100, c.size)
			must(t, err)
			if len(tail.Events) != c.want || tail.Events[c.want-1].Key != "4" || len(states) != c.want || states[c.want-1].Key != "4" || more != (c.want < 5) {
				t.Errorf("within %d bytes: %d events, %d states, more %v", c.size, len(tail.Events), len(states), more)
			}
		}
	})
	t.Run("TheStateIsTheLatestOfEachKey", func(t *testing.T) { // F-28
		store := open(t)
		for i, key := range []string{"k2", "k1", "", "k2", "k3", ""} {
			publish(t, store, feed.Draft{Topic: "a", Type: "x", Key: key, Data: raw(fmt.Sprint(i))}, feed.Draft{Topic: "b", Type: "x", Key: key, Data: raw("9")})
		}
		states, more, err := store.States(t.Context(), "a", 10, wide)
		must(t, err)
		if diff := cmp.Diff([]string{"1", "3", "4"}, data(states)); diff != "" || more || states[0].Key != "k1" {
			t.Errorf("more %v (-want +got):\n%s", more, diff)
		}
		states, more, err = store.States(t.Context(), "a", 2, wide)
		must(t, err)
		if diff := cmp.Diff([]string{"3", "4"}, data(states)); diff != "" || !more {
			t.Errorf("the latest two: more %v (-want +got):\n%s", more, diff)
		}
	})
	t.Run("AnEmptyTopicGoes", func(t *testing.T) { forgets(t, open(t)) })
	t.Run("AnUnknownTopicIsEmpty", func(t *testing.T) {
		store := open(t)
		tail, err := store.Tail(t.Context(), "none", 10, wide)
		must(t, err)
		states, more, err := store.States(t.Context(), "none", 10, wide)
		must(t, err)
		if tail.Total != 0 || len(tail.Events) != 0 || tail.Epoch == "" || len(states) != 0 || more {
			t.Errorf("tail %+v, states %v", tail, states)
		}
	})
}

func data(events []feed.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(string(e.Data), `{"number":`), "}"))
	}
	return out
}

// Tail implements feed.TopicReader.
func (m *Memory) Tail(_ context.Context, topic string, limit int, most int64) (feed.Tail, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return feed.Tail{}, m.fail
	}
	tail := feed.Tail{Epoch: m.head.Epoch, Total: m.total[topic]}
	if m.topics[topic] == nil {
		tail.Total = m.gone.Count
	}
	var bytes int64
	for _, e := range slices.Backward(m.events) {
		if e.Topic != topic {
			continue
		}
		if bytes += size(e); len(tail.Events) == limit || (bytes > most && len(tail.Events) > 0) {
			break
		}
		tail.Events = append(tail.Events, e)
	}
	slices.Reverse(tail.Events)
	return tail, nil
}

// States implements feed.TopicReader.
func (m *Memory) States(_ context.Context, topic string, limit int, most int64) (states []feed.Event, more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, false, m.fail
	}
	known := map[string]bool{}
	var bytes int64
	for _, e := range slices.Backward(m.events) {
		if e.Topic != topic || e.Key == "" || known[e.Key] {
			continue
		}
		known[e.Key] = true
		if bytes += size(e); len(states) == limit || (bytes > most && len(states) > 0) {
			more = true
			break
		}
		states = append(states, e)
	}
	slices.SortFunc(states, func(a, b feed.Event) int { return strings.Compare(a.Key, b.Key) })
	return states, more, nil
}

// RunTopicBound is the contract of a feed.Store that may have four topics. open makes an
// empty log, and returns what opens it, as several processes would.
func RunTopicBound(t *testing.T, open func(t *testing.T) func() feed.Store) {
	refused := func(t *testing.T, err error, topic string) {
		t.Helper()
		var full *feed.TopicsError
		if !errors.As(err, &full) || full.Topic != topic || full.Max != 4 {
			t.Errorf("error %v", err)
		}
	}
	// F-4, F-5: a call that asks for too many topics is refused as a whole.
	t.Run("OneTooManyIsRefused", func(t *testing.T) {
		again := open(t)
		store := again()
		publish(t, store, draft("a", 1), draft("b", 1), draft("a", 2))
		_, err := store.Append(t.Context(), []feed.Draft{draft("a", 3), draft("c", 1), draft("d", 1), draft("e", 1)})
		refused(t, err, "e")
		if page := read(t, store, feed.Query{}); len(page.Events) != 3 || len(topics(t, store)) != 2 {
			t.Errorf("of what was refused something is there: %+v", page)
		}
		publish(t, again(), draft("c", 1), draft("d", 1), draft("c", 2), draft("d", 2))
		_, err = store.Append(t.Context(), []feed.Draft{draft("e", 1)})
		refused(t, err, "e")
		publish(t, store, draft("a", 4), draft("d", 3))
		trim(t, store, "b", feed.Retention{Age: time.Nanosecond})
		for range 2 {
			forget(t, store, 0)
		}
		publish(t, store, draft("e", 1))
		_, err = again().Append(t.Context(), []feed.Draft{draft("b", 1)})
		refused(t, err, "b")
	})
	// Who asks for too many topics fails nobody who publishes at the same time.
	t.Run("OthersAreNotRefused", func(t *testing.T) {
		again := open(t)
		publish(t, again(), draft("a", 1), draft("b", 1), draft("c", 1))
		const callers, each = 8, 15
		store := again()
		var all sync.WaitGroup
		var made, failed atomic.Int64
		for c := range callers {
			all.Go(func() {
				for i := range each {
					if _, err := store.Append(t.Context(), []feed.Draft{draft("a", i), draft("b", c)}); err != nil {
						t.Errorf("topics that exist: %v", err)
					}
				}
			})
			all.Go(func() {
				for i := range each {
					topic := fmt.Sprint("new-", c, "-", i)
					if _, err := store.Append(t.Context(), []feed.Draft{draft("c", i), draft(topic, i)}); err == nil {
						made.Add(1)
					} else {
						refused(t, err, topic)
						failed.Add(1)
					}
				}
			})
		}
		all.Wait()
		if made.Load() != 1 || failed.Load() != callers*each-1 {
			t.Errorf("%d new topics, %d refused", made.Load(), failed.Load())
		}
		if got, want := count(t, store), 3+2*callers*each+2; got != want || len(topics(t, store)) != 4 {
			t.Errorf("%d events of %d, %d topics", got, want, len(topics(t, store)))
		}
	})
}
