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

// flaky is a bus whose first calls to Listen fail.
type flaky struct {
	feed.Local

	left int
}

func (f *flaky) Listen(ctx context.Context, ring func()) error {
	if f.left > 0 {
		f.left--
		return errors.New("the connection broke")
	}
	return f.Local.Listen(ctx, ring)
}

// Health implements what the hub asks of a bus that knows its state.
func (f *flaky) Health() feed.Health {
	if f.left > 0 {
		return feed.Health{Err: "deaf"}
	}
	return feed.Health{}
}

// F-3, F-27: retention goes on after the bus could not be heard, and the hub says
// what the bus says of itself.
func TestKeeperHearsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bus := feedtest.NewMemory(), &flaky{left: 6}
		hub, err := feed.NewHub(t.Context(), store, bus, nil)
		if err != nil || hub.Stats().Bus.Err != "deaf" {
			t.Fatalf("%+v, %v", hub.Stats().Bus, err)
		}
		keep := func(string) feed.Retention { return feed.Retention{Count: 1} }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- feed.NewKeeper(store, bus, keep, nil).Run(ctx) }()
		time.Sleep(time.Minute)
		if _, err := hub.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: []byte("1")}, {Topic: "a", Data: []byte("2")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		topics, err := store.Topics(t.Context())
		if err != nil || len(topics) != 1 || topics[0].Count != 1 || hub.Stats().Bus.Err != "" {
			t.Errorf("%+v, %v; the bus is %+v", topics, err, hub.Stats().Bus)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
