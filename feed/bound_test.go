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

// narrow is a store that takes no new topic.
type narrow struct{ *feedtest.Memory }

func (*narrow) Append(_ context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	return nil, &feed.TopicsError{Topic: drafts[0].Topic, Max: 3}
}

// F-5: who asks for a topic too many is told so, and nobody that the store ails.
func TestATopicTooManyIsNoFaultOfTheStore(t *testing.T) {
	t.Parallel()
	hub, err := feed.NewHub(t.Context(), &narrow{feedtest.NewMemory()}, &feed.Local{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = hub.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: []byte("1")}})
	var full *feed.TopicsError
	if !errors.As(err, &full) || full.Topic != "a" || hub.Stats().Store.Err != "" {
		t.Errorf("%v; the store: %+v", err, hub.Stats().Store)
	}
}

// F-3, F-10: an empty topic goes after its time, a named one does not, and nothing runs
// before and after that. Who resumes from before learns that events are missing.
func TestKeeperForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const age = 30 * 24 * time.Hour
		store, bus := &counted{Memory: feedtest.NewMemory()}, &feed.Local{}
		b := startHub(t, store.Memory, bus, nil)
		b.publish(1, "a", "b", "b", "named") // 1 to 4
		from := feed.Position{Epoch: b.Stats().Head.Epoch, ID: 2}
		keep := func(string) feed.Retention { return feed.Retention{Age: age} }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- feed.NewKeeper(store, bus, keep, &feed.KeeperOptions{Spare: []string{"named"}}).Run(ctx)
		}()
		left := func() int {
			t.Helper()
			topics, err := store.Memory.Topics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(topics)
		}
		time.Sleep(age + feed.ForgetAfter - time.Hour)
		if n := left(); n != 3 {
			t.Errorf("an hour before the time %d topics are left", n)
		}
		before := store.calls.Load()
		time.Sleep(2 * time.Hour)
		if n := left(); n != 1 {
			t.Errorf("an hour after the time %d topics are left", n)
		}
		if n := store.calls.Load() - before; before > 8 || n > 2 {
			t.Errorf("topics were listed %d times, and %d at the end", before, n)
		}
		before = store.calls.Load()
		time.Sleep(2 * age)
		if n := store.calls.Load(); n != before {
			t.Errorf("%d calls while nothing happened", n-before)
		}
		filter, err := feed.ParseFilter("b")
		if err != nil {
			t.Fatal(err)
		}
		later := startHub(t, store.Memory, bus, nil) // whose ring has none of them
		sub, err := later.Subscribe(feed.Subscribe{Filter: filter, From: &from})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		batch, err := sub.Next(t.Context())
		if err != nil || batch.Gap == nil || batch.Gap.Reason != feed.Evicted || batch.Gap.From != 2 || batch.Gap.To < 3 {
			t.Errorf("%+v, %v", batch, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
