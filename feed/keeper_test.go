package feed_test

import (
	"context"
	"errors"
	"sync/atomic"
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
		before := store.calls.Load()
		time.Sleep(24 * time.Hour)
		if now := store.calls.Load(); now != before {
			t.Errorf("%d calls while nothing happened", now-before)
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

	calls atomic.Int64
}

func (c *counted) Topics(ctx context.Context) ([]feed.Topic, error) {
	c.calls.Add(1)
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

// F-3, F-10: what is old is for the store to say. A machine whose clock is a week
// ahead of the store's neither removes what is not old yet, nor looks again and again.
func TestKeeperGoesByTheClockOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ahead = 7 * 24 * time.Hour
		store, bus := &behind{&counted{Memory: feedtest.NewMemory()}, ahead}, &feed.Local{}
		keep := func(string) feed.Retention { return feed.Retention{Age: 24 * time.Hour} }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- feed.NewKeeper(store, bus, keep, nil).Run(ctx) }()
		if _, err := store.Append(t.Context(), []feed.Draft{{Topic: "a", Type: "x", Data: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		_ = bus.Ring(t.Context(), feed.Position{})
		time.Sleep(23 * time.Hour)
		topics, err := store.Memory.Topics(t.Context())
		if err != nil || topics[0].Count != 1 {
			t.Errorf("after 23 hours: %+v, %v", topics, err)
		}
		if n := store.calls.Load(); n > 6 {
			t.Errorf("topics were listed %d times", n)
		}
		time.Sleep(2 * time.Hour)
		if topics, err = store.Memory.Topics(t.Context()); err != nil || topics[0].Count != 0 {
			t.Errorf("after 25 hours: %+v, %v", topics, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// behind is a store with a clock that is behind ours.
type behind struct {
	*counted

	by time.Duration
}

func (b *behind) Topics(ctx context.Context) ([]feed.Topic, error) {
	all, err := b.counted.Topics(ctx)
	for i := range all {
		if all[i].Count > 0 {
			all[i].Oldest = all[i].Oldest.Add(-b.by)
		}
	}
	return all, err
}
