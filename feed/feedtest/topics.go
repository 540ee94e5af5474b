package feedtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
