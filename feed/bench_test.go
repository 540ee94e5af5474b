package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

// BenchmarkFanOut hands bursts of 30 events to 10,000 subscribers that take them
// when they are woken, without a goroutine each.
func BenchmarkFanOut(b *testing.B) {
	const subscribers, burst = 10_000, 30
	h, err := feed.NewHub(b.Context(), feedtest.NewMemory(), nil, &feed.Options{Encode: func(e feed.Event) []byte { return e.Data }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); <-done }()
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	subs := make([]*feed.Subscription, subscribers)
	for i := range subs {
		if subs[i], err = h.Subscribe(feed.Subscribe{Wake: wake}); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	drafts := make([]feed.Draft, burst)
	for i := range drafts {
		drafts[i] = feed.Draft{Topic: "a", Data: json.RawMessage(`{"id":"INC-2231","severity":"SEV1","status":"mitigating"}`)}
	}
	for b.Loop() {
		if _, err := h.Publish(ctx, drafts); err != nil {
			b.Fatal(err)
		}
		for left := subscribers * burst; left > 0; {
			<-woken
			for _, s := range subs {
				batch, ok, err := s.Take(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if ok {
					left -= len(batch.Items)
				}
			}
		}
	}
	b.ReportMetric(float64(b.N*subscribers*burst)/b.Elapsed().Seconds(), "deliveries/s")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/subscribers, "B/subscriber")
}

// BenchmarkManyFilters hands an event to one of 10,000 subscribers, each of which
// has a topic of its own.
func BenchmarkManyFilters(b *testing.B) {
	const subscribers = 10_000
	h, err := feed.NewHub(b.Context(), feedtest.NewMemory(), nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); <-done }()
	subs := make([]*feed.Subscription, subscribers)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range subs {
		f, err := feed.ParseFilter(fmt.Sprintf("user.%d", i))
		if err != nil {
			b.Fatal(err)
		}
		if subs[i], err = h.Subscribe(feed.Subscribe{Filter: f}); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	i := 0
	for b.Loop() {
		if _, err := h.Publish(ctx, []feed.Draft{{Topic: fmt.Sprintf("user.%d", i), Data: json.RawMessage("1")}}); err != nil {
			b.Fatal(err)
		}
		if _, err := subs[i].Next(ctx); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % subscribers
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/subscribers, "B/subscriber")
}
