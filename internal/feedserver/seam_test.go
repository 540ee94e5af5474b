package feedserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/sse"
)

// F-19, F-13: readers come, go, lag and resume while events pour in, by every
// way at once, with a ring so small that most of what they miss is in the store.
// Each gets exactly the ids that were published to its topics, in order.
func TestNothingIsLostAtTheSeam(t *testing.T) {
	t.Parallel()
	events := 3000
	if raceEnabled {
		events = 800
	}
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "Clear", true: "TLS"}[secure], func(t *testing.T) {
			t.Parallel()
			s := newSiteBy(t, way{tls: secure}, setup{
				hub:  feed.Options{Ring: 24, Lag: 16, Replays: 3, Policy: func(string) feed.Policy { return feed.Disconnect }},
				feed: feedserver.Options{Replays: 3, Heartbeat: 20 * time.Millisecond},
			})
			want := s.pour(events)
			var readers sync.WaitGroup
			for i, topics := range []string{"", "?topic=a", "?topic=a&topic=b*", "?topic=b.1", "?topic=c"} {
				for _, h2 := range []bool{false, true} {
					readers.Go(func() {
						seen := &seenIDs{}
						s.chase(s.client(way{tls: secure, http2: h2}), topics, seen, int64(events), rand.New(rand.NewPCG(uint64(i), 1)))
						same(t, want.of(topics), seen.ids)
					})
				}
			}
			readers.Wait()
		})
	}
}

type published struct {
	mu     sync.Mutex
	topics map[int64]string
	last   int64
	wg     sync.WaitGroup
}

// pour publishes from several goroutines, events of very different sizes.
func (s *site) pour(events int) *published {
	p := &published{topics: map[int64]string{}}
	topics := []string{"a", "b.1", "b.2", "c"}
	const publishers = 4
	for w := range publishers {
		p.wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			for sent := 0; sent < events/publishers; {
				n := min(1+r.IntN(8), events/publishers-sent)
				drafts := make([]feed.Draft, n)
				for i := range drafts {
					size := r.IntN(300)
					if r.IntN(40) == 0 {
						size = r.IntN(100 << 10)
					}
					drafts[i] = feed.Draft{Topic: topics[r.IntN(len(topics))], Data: fmt.Appendf(nil, "%q", strings.Repeat("x", size))}
				}
				receipts, err := s.hub.Publish(s.t.Context(), drafts)
				if err != nil {
					s.t.Error(err)
					return
				}
				p.mu.Lock()
				for i, got := range receipts {
					p.topics[got.ID] = drafts[i].Topic
					p.last = max(p.last, got.ID)
				}
				p.mu.Unlock()
				sent += n
			}
		})
	}
	return p
}

// of are the ids of the topics of a query, in order, when all are published.
func (p *published) of(query string) []int64 {
	p.wg.Wait()
	var patterns []string
	for part := range strings.SplitSeq(strings.TrimPrefix(query, "?"), "&") {
		if _, topic, ok := strings.Cut(part, "="); ok {
			patterns = append(patterns, topic)
		}
	}
	f, err := feed.ParseFilter(patterns...)
	if err != nil {
		return nil
	}
	var ids []int64
	for id := int64(1); id <= p.last; id++ {
		if f.Match(p.topics[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

type seenIDs struct{ ids []int64 }

// chase follows a stream through many connections until its position is behind
// the last event.
func (s *site) chase(c *http.Client, query string, seen *seenIDs, last int64, r *rand.Rand) {
	id := s.at(0)
	for end := time.Now().Add(limit); ; {
		if time.Now().After(end) {
			s.t.Errorf("%s: not there in time, at %s of %d", query, id, last)
			return
		}
		p, err := feed.ParsePosition(id)
		if err != nil {
			s.t.Error(err)
			return
		}
		if p.ID >= last {
			return
		}
		id = s.leg(c, query, id, last, seen, r)
	}
}

// leg is one of the connections.
func (s *site) leg(c *http.Client, query, id string, last int64, seen *seenIDs, r *rand.Rand) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events"+query, nil)
	if err != nil {
		s.t.Error(err)
		return id
	}
	req.Header.Set("Last-Event-ID", id)
	res, err := c.Do(req)
	if err != nil {
		s.t.Error(err)
		return id
	}
	defer func() { _ = res.Body.Close() }()
	events := sse.NewReader(res.Body, 0)
	events.All = true
	for left := 1 + r.IntN(300); left > 0; left-- {
		e, err := events.Next()
		if err != nil {
			return id // ended as too slow
		}
		if e.ID != "" {
			id = e.ID
		}
		p, err := feed.ParsePosition(id)
		if err != nil || e.Type == feed.GapType {
			s.t.Errorf("%+v, %v", e, err)
			return id
		}
		if e.Data != nil {
			seen.ids = append(seen.ids, p.ID)
		}
		if p.ID >= last {
			return id
		}
		if r.IntN(100) == 0 {
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond) // a reader that lags, and not a wait
		}
	}
	return id
}
