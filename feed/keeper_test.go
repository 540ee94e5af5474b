package feed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

// F-3, F-10: retention is applied when the log grows and when events come of
// age; otherwise nothing runs.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bus := &counted{Memory: feedtest.NewMemory()}, &feed.Local{}
		b := startHub(t, store.Memory, bus, nil)
		keep := func(topic string) feed.Retention {
			return map[string]feed.Retention{"few": {Count: 2}, "young": {Age: time.Hour}}[topic]
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- feed.NewKeeper(store, bus, keep, nil).Run(ctx) }()
		b.publish(5, "few", "young", "all")
		time.Sleep(time.Minute)
		counts := func() (n [3]int64) {
			topics, err := store.Memory.Topics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, topic := range topics {
				n[i] = topic.Count
			}
			return n
		}
		if got := counts(); got != [3]int64{5, 2, 5} {
			t.Errorf("all, few, young: %v", got)
		}
		time.Sleep(time.Hour)
		if got := counts(); got != [3]int64{5, 2, 0} {
			t.Errorf("an hour later: %v", got)
		}
		before := store.calls
		time.Sleep(24 * time.Hour)
		if store.calls != before {
			t.Errorf("%d calls while nothing happened", store.calls-before)
		}
		store.Fail(errors.New("down"))
		_ = bus.Ring(t.Context(), feed.Position{})
		time.Sleep(2 * time.Minute)
		store.Fail(nil)
		b.publish(3, "few")
		time.Sleep(2 * time.Minute)
		if got := counts(); got != [3]int64{5, 2, 0} {
			t.Errorf("after an outage: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type counted struct {
	*feedtest.Memory

	calls int
}

func (c *counted) Topics(ctx context.Context) ([]feed.Topic, error) {
	c.calls++
	return c.Memory.Topics(ctx)
}
