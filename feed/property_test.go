package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

// F-2, F-13, F-14, F-19, F-26: writers on two replicas, and subscribers that
// stall, leave and resume on the other one. Each gets exactly the committed ids
// that it selects, each once and in order, or a gap that covers what is missing;
// on the auditable topic there are no gaps at all.
func TestNothingLostNothingTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			storm(t, seed)
		})
	}
}

const (
	stormWriters = 4
	stormBatches = 150
)

var stormPolicies = map[string]feed.Policy{"oldest": feed.DropOldest, "newest": feed.DropNewest, "audit": feed.Disconnect, "trimmed": feed.DropOldest}

// committed is what the checker knows: the topic of each id.
type committed struct {
	mu     sync.Mutex
	topics map[int64]string
}

func storm(t *testing.T, seed uint64) {
	store, bus := feedtest.NewMemory(), &feed.Local{}
	o := &feed.Options{Ring: 60, Lag: 20, Replays: 2, Policy: func(topic string) feed.Policy { return stormPolicies[topic] }, Encode: func(feed.Event) []byte { return make([]byte, 100) }}
	hubs := []*bench{startHub(t, store, bus, o), startHub(t, store, bus, o)}
	log := &committed{topics: map[int64]string{}}
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range stormWriters {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		writers.Go(func() { stormWrite(t, hubs[w%2], store, r, log) })
	}
	for i, patterns := range [][]string{nil, {"oldest"}, {"newest"}, {"audit"}, {"trimmed"}, {"oldest", "newest"}, {"trimmed", "oldest"}, {"a*"}} {
		r := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
		f, err := feed.ParseFilter(patterns...)
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			c := &checker{t: t, filter: f, position: *hubs[0].at(0), seen: map[int64]bool{}}
			c.follow(hubs, r, done)
			c.check(log)
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

func stormWrite(t *testing.T, to feed.Publisher, store feed.Store, r *rand.Rand, log *committed) {
	topics := []string{"oldest", "newest", "audit", "trimmed"}
	for range stormBatches {
		drafts := make([]feed.Draft, 1+r.IntN(12))
		for i := range drafts {
			drafts[i] = feed.Draft{Topic: topics[r.IntN(len(topics))], Data: json.RawMessage("1")}
		}
		receipts, err := to.Publish(t.Context(), drafts)
		if err != nil {
			t.Error(err)
			return
		}
		log.mu.Lock()
		for i, receipt := range receipts {
			log.topics[receipt.ID] = drafts[i].Topic
		}
		log.mu.Unlock()
		switch r.IntN(10) {
		case 0:
			if _, err := store.Trim(t.Context(), "trimmed", feed.Retention{Count: 30}); err != nil {
				t.Error(err)
			}
		case 1, 2, 3:
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond) // a writer's own pace
		}
	}
}

// checker is a subscriber that remembers what it was given.
type checker struct {
	t        *testing.T
	filter   feed.Filter
	position feed.Position
	seen     map[int64]bool
	gaps     []feed.Gap
	last     int64
}

// follow reads until everything was written and read.
func (c *checker) follow(hubs []*bench, r *rand.Rand, done <-chan struct{}) {
	for {
		hub := hubs[r.IntN(len(hubs))]
		s, err := hub.Subscribe(feed.Subscribe{Filter: c.filter, From: &c.position, Bytes: r.IntN(4) * 150})
		if err != nil {
			c.t.Error(err)
			return
		}
		finished := c.read(s, hub, r, done)
		s.Close()
		if finished || c.t.Failed() {
			return
		}
	}
}

func (c *checker) read(s *feed.Subscription, hub *bench, r *rand.Rand, done <-chan struct{}) bool {
	for range 1 + r.IntN(30) {
		ctx, cancel := context.WithTimeout(c.t.Context(), 50*time.Millisecond)
		batch, behind, err := s.Poll(nil)
		if err == nil && (behind || batch.Gap == nil && len(batch.Items) == 0) {
			batch, err = s.Next(ctx)
		}
		cancel()
		var slow *feed.SlowError
		switch {
		case errors.As(err, &slow):
			c.position = slow.Position
			return false
		case errors.Is(err, context.DeadlineExceeded):
			select {
			case <-done:
				// Nothing came for a while: is this the end of the log?
				page, err := hub.store.Read(c.t.Context(), feed.Query{Limit: 1})
				if err != nil || s.Position() == page.Head {
					return err == nil
				}
			default:
			}
			continue
		case err != nil:
			c.t.Error(err)
			return true
		}
		c.take(batch)
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond) // a stall
		}
	}
	return false
}

func (c *checker) take(b feed.Batch) {
	if b.Gap != nil {
		c.gaps = append(c.gaps, *b.Gap)
	}
	for _, it := range b.Items {
		if it.ID <= c.last || c.seen[it.ID] || !c.filter.Match(it.Topic) {
			c.t.Errorf("%v: event %d of %s after %d", c.filter.Patterns(), it.ID, it.Topic, c.last)
		}
		c.seen[it.ID], c.last = true, it.ID
	}
	if b.Position.ID < c.last || b.Position.ID < c.position.ID {
		c.t.Errorf("position %v after %v and event %d", b.Position, c.position, c.last)
	}
	c.position = b.Position
	c.last = max(c.last, b.Position.ID)
}

func (c *checker) check(log *committed) {
	log.mu.Lock()
	defer log.mu.Unlock()
	missing := make([]int64, len(c.gaps))
	for id, topic := range log.topics {
		if !c.filter.Match(topic) || c.seen[id] {
			continue
		}
		at := slices.IndexFunc(c.gaps, func(g feed.Gap) bool { return id > g.From && id <= g.To })
		if at < 0 {
			c.t.Errorf("%v: event %d of %s is missing and no gap says so", c.filter.Patterns(), id, topic)
			continue
		}
		missing[at]++
		if topic == "audit" {
			c.t.Errorf("%v: event %d of the auditable topic was dropped by %+v", c.filter.Patterns(), id, c.gaps[at])
		}
	}
	for i, g := range c.gaps {
		if g.Reason == feed.Slow && g.Dropped != missing[i] && !c.filter.Match("trimmed") {
			c.t.Errorf("%v: %+v, but %d are missing", c.filter.Patterns(), g, missing[i])
		}
	}
	for id := range c.seen {
		if log.topics[id] == "" {
			c.t.Errorf("event %d was never committed", id)
		}
	}
	c.t.Logf("%v: %d events, %d gaps", c.filter.Patterns(), len(c.seen), len(c.gaps))
}
