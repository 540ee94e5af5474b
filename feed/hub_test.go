package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	feedtest.RunStore(t, func(*testing.T) func() feed.Store {
		m := feedtest.NewMemory()
		return func() feed.Store { return m }
	})
}

func TestMemoryTopics(t *testing.T) {
	t.Parallel()
	feedtest.RunTopics(t, func(*testing.T) feedtest.TopicStore { return feedtest.NewMemory() })
}

func TestLocal(t *testing.T) {
	t.Parallel()
	feedtest.RunBus(t, func(*testing.T) (feed.Bus, feed.Bus) { l := &feed.Local{}; return l, l })
}

// bench is a hub at work on a log in memory, in a bubble.
type bench struct {
	*feed.Hub

	t     *testing.T
	store *feedtest.Memory
	stop  func()
}

func inBubble(t *testing.T, o *feed.Options, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startHub(t, feedtest.NewMemory(), nil, o)) })
}

func startHub(t *testing.T, store *feedtest.Memory, bus feed.Bus, o *feed.Options) *bench {
	t.Helper()
	h, err := feed.NewHub(t.Context(), store, bus, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	b := &bench{Hub: h, t: t, store: store}
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

// publish appends n events to each topic in turn, one by one, and waits until
// the hub has them.
func (b *bench) publish(n int, topics ...string) {
	b.t.Helper()
	for i := range n {
		var drafts []feed.Draft
		for _, topic := range topics {
			drafts = append(drafts, feed.Draft{Topic: topic, Type: "up", Data: json.RawMessage(fmt.Sprint(i))})
		}
		if _, err := b.Publish(b.t.Context(), drafts); err != nil {
			b.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (b *bench) subscribe(from *feed.Position, patterns ...string) *feed.Subscription {
	b.t.Helper()
	f, err := feed.ParseFilter(patterns...)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := b.Subscribe(feed.Subscribe{Filter: f, From: from})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// at is a position of this log.
func (b *bench) at(id int64) *feed.Position {
	return &feed.Position{Epoch: b.Stats().Head.Epoch, ID: id}
}

// drain takes what there is: ids as themselves, gaps in words, and the error.
func drain(t *testing.T, s *feed.Subscription) (got []string) {
	t.Helper()
	var last int64
	for {
		batch, ok, err := s.Take(t.Context())
		if err != nil {
			return append(got, err.Error())
		}
		if !ok {
			return got
		}
		if batch.Gap != nil {
			got = append(got, fmt.Sprintf("%s (%d,%d] %d at %d", batch.Gap.Reason, batch.Gap.From, batch.Gap.To, batch.Gap.Dropped, batch.Position.ID))
			last = batch.Position.ID
		}
		for _, it := range batch.Items {
			if it.ID <= last {
				t.Errorf("event %d after %d", it.ID, last)
			}
			last = it.ID
			got = append(got, fmt.Sprint(it.ID))
		}
		if batch.Position.ID < last {
			t.Errorf("position %v behind event %d", batch.Position, last)
		}
	}
}

func ids(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func expect(t *testing.T, what string, got []string, want ...[]string) {
	t.Helper()
	var all []string
	for _, w := range want {
		all = append(all, w...)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// F-13, F-15, F-19: every subscriber gets what it selects, encoded once.
func TestDelivery(t *testing.T) {
	t.Parallel()
	encoded := 0
	o := &feed.Options{Encode: func(e feed.Event) []byte { encoded++; return []byte(e.Topic) }}
	inBubble(t, o, func(t *testing.T, b *bench) {
		all, some, again := b.subscribe(nil), b.subscribe(nil, "a*"), b.subscribe(nil, "a*")
		b.publish(3, "a.x", "b")
		expect(t, "all", drain(t, all), ids(1, 6))
		batch, err := some.Next(t.Context())
		if err != nil || len(batch.Items) != 3 || string(batch.Items[2].Frame) != "a.x" || batch.Position.ID != 6 {
			t.Errorf("got %+v, %v", batch, err)
		}
		expect(t, "again", drain(t, again), []string{"1", "3", "5"})
		if encoded != 6 {
			t.Errorf("encoded %d times", encoded)
		}
		b.publish(1, "b")
		if p := some.Position(); p.ID != 7 { // F-19: a filtered client moves on too
			t.Errorf("position %v", p)
		}
	})
}

// F-19: from the ring, and beyond it from the store in pages, in one go.
func TestResume(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(20_000, "a", "b", "c", "d", "e")
		for _, from := range []int{0, 1, 5000, 99_400, 99_499, 99_500, 99_501, 99_999, 100_000} {
			s := b.subscribe(b.at(int64(from)))
			expect(t, fmt.Sprint(from), drain(t, s), ids(from+1, 100_000))
			s.Close()
		}
		some := b.subscribe(b.at(90_000), "c")
		if got := drain(t, some); len(got) != 2000 || got[0] != "90003" {
			t.Errorf("%d filtered events", len(got))
		}
		if s := b.Stats(); s.FromRing != 4 || s.FromStore != 6 || s.Gaps != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// F-19: whoever resumes is not held to the lag, however much comes meanwhile.
// F-13, F-19: a batch has a bound, from the ring and from the store, and what is
// taken without the store is the same.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	o := &feed.Options{Ring: 20, Lag: 10, Encode: func(e feed.Event) []byte { return make([]byte, 10+90*(e.ID%2)) }}
	inBubble(t, o, func(t *testing.T, b *bench) {
		b.publish(200, "a")
		s, err := b.Subscribe(feed.Subscribe{From: b.at(0), Bytes: 250, Wake: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		fromStore, last := 0, int64(0)
		for buf := make([]*feed.Item, 0, 8); last < 200; {
			batch, behind, err := s.Poll(buf)
			if behind {
				fromStore++
				batch, _, err = s.Take(t.Context())
			}
			size := 0
			for _, it := range batch.Items {
				if it.ID != last+1 {
					t.Fatalf("event %d after %d", it.ID, last)
				}
				last = it.ID
				size += len(it.Frame)
			}
			if err != nil || batch.Gap != nil || size == 0 || size > 250 || batch.Position.ID != last {
				t.Fatalf("%d bytes up to %d at %v, %v", size, last, batch.Position, err)
			}
		}
		if fromStore < 40 || fromStore > 50 {
			t.Errorf("%d pages were read", fromStore)
		}
		if batch, behind, err := s.Poll(nil); behind || err != nil || len(batch.Items) != 0 {
			t.Errorf("at the end %+v, %v, %v", batch, behind, err)
		}
		huge, err := b.Subscribe(feed.Subscribe{From: b.at(198), Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "events larger than a batch", drain(t, huge), ids(199, 200))
	})
}

// F-13: very many filters keep less each, and lose nothing.
func TestManyFilters(t *testing.T) {
	t.Parallel()
	inBubble(t, &feed.Options{Ring: 50, Lag: 5}, func(t *testing.T, b *bench) {
		few := b.subscribe(nil, "a")
		for i := range 70 {
			b.subscribe(nil, fmt.Sprintf("topic.%d", i))
		}
		many := b.subscribe(nil, "a", "b")
		b.publish(5, "a")
		expect(t, "an early filter", drain(t, few), ids(1, 5))
		expect(t, "a late filter", drain(t, many), ids(1, 5))
		b.publish(25, "a")
		expect(t, "early, from memory", drain(t, b.subscribe(b.at(5), "a")), ids(6, 30))
		if got := b.Stats(); got.FromRing != 1 || got.FromStore != 0 {
			t.Errorf("%+v", got)
		}
		expect(t, "late, from the store", drain(t, b.subscribe(b.at(5), "a", "b")), ids(6, 30))
		if got := b.Stats(); got.FromRing != 1 || got.FromStore != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestLeftAloneWhileResuming(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(2, "a")
		s := b.subscribe(b.at(1))
		b.publish(700, "a")
		expect(t, "all", drain(t, s), ids(2, 702))
		if n := b.Stats().Dropped[feed.DropOldest]; n != 0 {
			t.Errorf("%d dropped", n)
		}
	})
}

// F-13, F-14: each policy at the edge and beyond, with true counts.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for policy, want := range map[feed.Policy][][]string{
		feed.DropOldest: {{"slow (0,900] 900 at 900"}, ids(901, 1000)},
		feed.DropNewest: {ids(1, 100), {"slow (100,1000] 900 at 1000"}},
		feed.Disconnect: {{"the subscriber is 1000 events behind; resume from "}},
	} {
		o := &feed.Options{Policy: func(topic string) feed.Policy {
			if topic == "a" {
				return policy
			}
			return feed.DropOldest
		}}
		inBubble(t, o, func(t *testing.T, b *bench) {
			s, edge, other := b.subscribe(nil, "a"), b.subscribe(nil, "a"), b.subscribe(nil, "b")
			b.publish(100, "a")
			expect(t, "at the limit", drain(t, edge), ids(1, 100))
			edge.Close()
			b.publish(900, "a")
			b.publish(1, "b")
			got := drain(t, s)
			if policy == feed.Disconnect {
				position := b.at(0)
				expect(t, "disconnect", got, []string{want[0][0] + position.String()})
				// Nothing is lost to one that comes back.
				expect(t, "resumed", drain(t, b.subscribe(position, "a")), ids(1, 1000))
			} else {
				expect(t, policy.String(), got, want...)
				b.publish(1, "a")
				expect(t, "afterwards", drain(t, s), ids(1002, 1002))
				if n := b.Stats().Dropped[policy]; n != 900 {
					t.Errorf("counted %d", n)
				}
			}
			// The traffic of a topic is nothing to those who did not ask for it.
			expect(t, "another topic", drain(t, other), ids(1001, 1001))
		})
	}
}

// F-14: one auditable topic makes a subscription auditable.
func TestStrictestPolicy(t *testing.T) {
	t.Parallel()
	o := &feed.Options{Policy: func(topic string) feed.Policy {
		return map[string]feed.Policy{"audit": feed.Disconnect, "b": feed.DropNewest}[topic]
	}}
	inBubble(t, o, func(t *testing.T, b *bench) {
		s := b.subscribe(nil)
		b.publish(1, "audit")
		b.publish(200, "a", "b")
		_, err := s.Next(t.Context())
		var slow *feed.SlowError
		if !errors.As(err, &slow) || slow.Lag != 401 || slow.Position != *b.at(0) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("then %v", err)
		}
	})
}

// F-19: what is no longer kept is told, with what is.
func TestEvicted(t *testing.T) {
	t.Parallel()
	inBubble(t, &feed.Options{Ring: 10, Lag: 5}, func(t *testing.T, b *bench) {
		b.publish(20, "a", "b") // a has the odd ids
		if _, err := b.store.Trim(t.Context(), "a", feed.Retention{Count: 5}); err != nil {
			t.Fatal(err)
		}
		expect(t, "one topic", drain(t, b.subscribe(b.at(3), "a")), []string{"evicted (3,29] 0 at 29", "31", "33", "35", "37", "39"})
		expect(t, "the other", drain(t, b.subscribe(b.at(36), "b")), []string{"38", "40"})
		// Events of the longer kept topic within the gap are not lost with it.
		both := drain(t, b.subscribe(b.at(20)))
		expect(t, "both", both, []string{"evicted (20,29] 0 at 21", "22", "24", "26", "28", "30"}, ids(31, 40))
		expect(t, "behind it", drain(t, b.subscribe(b.at(29), "a")), []string{"31", "33", "35", "37", "39"})
		expect(t, "still in the ring", drain(t, b.subscribe(b.at(35))), ids(36, 40))
	})
}

// F-1, F-19: a position of another log, or one that this log never had.
func TestForeignPositions(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(3, "a")
		expect(t, "another epoch", drain(t, b.subscribe(&feed.Position{Epoch: "other", ID: 2})), []string{"epoch (2,0] 0 at 0"}, ids(1, 3))
		s := b.subscribe(b.at(9))
		expect(t, "the future", drain(t, s), []string{"future (9,3] 0 at 3"})
		b.publish(1, "a")
		expect(t, "and on", drain(t, s), ids(4, 4))
	})
}

// F-26: a client may come with an id that this replica has not read yet.
func TestAheadOfTheHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := feedtest.NewMemory()
		deaf := startHub(t, store, nil, nil)
		other := startHub(t, store, nil, nil) // on another bus
		synctest.Wait()
		other.publish(5, "a")
		if id := deaf.Stats().Head.ID; id != 0 {
			t.Fatalf("it heard of %d", id)
		}
		s := deaf.subscribe(other.at(4))
		expect(t, "ahead", drain(t, s), ids(5, 5))
		synctest.Wait()
		other.publish(1, "a")
		deaf.publish(1, "a")
		expect(t, "then on", drain(t, s), ids(6, 7))
	})
}

// F-1: the log is replaced while subscribers listen; each is told once.
func TestLogReplaced(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		s, late := b.subscribe(nil), b.subscribe(nil)
		b.publish(5, "a")
		expect(t, "before", drain(t, s), ids(1, 5))
		b.store.Reset()
		b.publish(3, "a")
		expect(t, "after", drain(t, s), []string{"epoch (5,0] 0 at 0"}, ids(1, 3))
		expect(t, "one that lagged", drain(t, late), []string{"epoch (0,0] 0 at 0"}, ids(1, 3))
		b.store.Reset() // and it grows past the old one before the hub looks
		if _, err := b.store.Append(t.Context(), make([]feed.Draft, 9)); err != nil {
			t.Fatal(err)
		}
		b.publish(1, "a")
		expect(t, "longer than before", drain(t, s), []string{"epoch (3,0] 0 at 0"}, ids(1, 10))
		b.store.Rewind(2)
		b.publish(1, "a")
		expect(t, "went back", drain(t, s), []string{"future (10,9] 0 at 9"})
		b.publish(1, "a")
		expect(t, "and on", drain(t, s), ids(10, 10))
	})
}

// F-19: what was trimmed before the hub could read it is a gap to live
// subscribers too.
func TestTrimmedUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := feedtest.NewMemory()
		deaf, other := startHub(t, store, nil, nil), startHub(t, store, nil, nil)
		s, unconcerned := deaf.subscribe(nil), deaf.subscribe(nil, "b")
		deaf.publish(1, "a")
		expect(t, "before", drain(t, s), ids(1, 1))
		other.publish(9, "a")
		if _, err := store.Trim(t.Context(), "a", feed.Retention{Count: 2}); err != nil {
			t.Fatal(err)
		}
		deaf.publish(1, "a", "b")
		expect(t, "told", drain(t, s), []string{"evicted (1,8] 0 at 8"}, ids(9, 12))
		expect(t, "not concerned", drain(t, unconcerned), ids(12, 12))
	})
}

// F-26, F-27: a bus that fails and a store that fails are waited for, and seen.
func TestOutages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bus := feedtest.NewMemory(), &shaky{}
		one, other := startHub(t, store, bus, nil), startHub(t, store, bus, nil)
		s := one.subscribe(nil)
		synctest.Wait()
		bus.cut(errors.New("cut"))
		synctest.Wait()
		other.publish(3, "a")
		if h := one.Stats().Bus; h.Err == "" || h.Since.IsZero() {
			t.Errorf("health %+v", h)
		}
		expect(t, "cut off", drain(t, s))
		bus.cut(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, "healed", drain(t, s), ids(1, 3))
		if h := one.Stats().Bus; h.Err != "" {
			t.Errorf("health %+v", h)
		}

		store.Fail(errors.New("down"))
		if _, err := one.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: json.RawMessage("1")}}); err == nil {
			t.Error("published")
		}
		if err := bus.Ring(t.Context(), feed.Position{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h := one.Stats().Store; h.Err == "" {
			t.Errorf("health %+v", h)
		}
		store.Fail(nil)
		time.Sleep(10 * time.Second)
		one.publish(1, "a")
		expect(t, "up again", drain(t, s), ids(4, 4))
	})
}

// shaky is a bus that can be cut.
type shaky struct {
	feed.Local

	mu     sync.Mutex
	broken error
	ends   []context.CancelFunc
}

func (s *shaky) cut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	for _, end := range s.ends {
		end()
	}
	s.ends = nil
}

func (s *shaky) Ring(ctx context.Context, p feed.Position) error {
	s.mu.Lock()
	err := s.broken
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Local.Ring(ctx, p)
}

func (s *shaky) Listen(ctx context.Context, ring func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	err := s.broken
	s.ends = append(s.ends, cancel)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Local.Listen(ctx, ring)
}

// F-20, F-21: every way out frees the place; a stop hands out what is left.
func TestEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, &feed.Options{Subscribers: 2}, func(t *testing.T, b *bench) {
		one, two := b.subscribe(nil), b.subscribe(nil)
		if _, err := b.Subscribe(feed.Subscribe{}); !errors.Is(err, feed.ErrFull) {
			t.Errorf("a third: %v", err)
		}
		waiting := make(chan error)
		go func() { _, err := two.Next(t.Context()); waiting <- err }()
		synctest.Wait()
		two.Close()
		two.Close()
		if err := <-waiting; !errors.Is(err, feed.ErrClosed) {
			t.Errorf("closed while waiting: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := one.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		for range 10_000 {
			b.subscribe(nil, "a").Close()
		}
		if n := b.Stats().Subscribers; n != 1 {
			t.Errorf("%d subscribers", n)
		}
		b.publish(2, "a")
		b.stop()
		expect(t, "stopped", drain(t, one), ids(1, 2), []string{feed.ErrStopped.Error()})
		if _, err := b.Subscribe(feed.Subscribe{}); !errors.Is(err, feed.ErrStopped) {
			t.Errorf("got %v", err)
		}
	})
}

// F-19: a hub that starts has the last events in its ring.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(600, "a")
		next := startHub(t, b.store, nil, nil)
		expect(t, "ring", drain(t, next.subscribe(next.at(100))), ids(101, 600))
		expect(t, "store", drain(t, next.subscribe(next.at(99))), ids(100, 600))
		if s := next.Stats(); s.FromRing != 1 || s.FromStore != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}
