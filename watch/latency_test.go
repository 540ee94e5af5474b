package watch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// crowd is a manager with n watches, each of a resource of its own, and all but
// no debounce.
func crowd(tb testing.TB, n int) (*watchtest.Server, chan watch.Notice) {
	tb.Helper()
	server := watchtest.NewServer("memo")
	got := make(chan watch.Notice, n)
	sink := watch.SinkFunc(func(_ context.Context, notice watch.Notice) error {
		got <- notice
		return nil
	})
	m := watch.NewManager([]watch.Server{server}, nil, sink, &watch.Options{Limits: watch.Limits{Watches: n, Quiet: time.Nanosecond}})
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	// One template instead of n entries: a start then costs no walk over them.
	server.AddEntry(watch.Entry{URI: "memo://{x}", Template: true})
	for i := range n {
		uri := fmt.Sprintf("memo://%d", i)
		server.Put(uri, "application/json", `{"n":-1}`)
		if _, err := m.Start(tb.Context(), watch.StartRequest{Name: fmt.Sprint("w", i), URI: uri}); err != nil {
			tb.Fatal(err)
		}
	}
	return server, got
}

// W-270: the push path itself adds less than 100 ms.
func TestPushPathLatency(t *testing.T) {
	t.Parallel()
	server, got := crowd(t, 100)
	var took []time.Duration
	for i := range 200 {
		begin := time.Now()
		server.Change(fmt.Sprintf("memo://%d", i%100), fmt.Sprintf(`{"n":%d}`, i))
		<-got
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > 100*time.Millisecond {
		t.Errorf("median %s", median)
	}
}

// BenchmarkChangeToNotice is the way from a server's word to the sink with 1,000
// watches, debounce excluded.
func BenchmarkChangeToNotice(b *testing.B) {
	server, got := crowd(b, 1000)
	var took []time.Duration
	i := 0
	for b.Loop() {
		begin := time.Now()
		server.Change(fmt.Sprintf("memo://%d", i%1000), fmt.Sprintf(`{"n":%d}`, i))
		<-got
		took = append(took, time.Since(begin))
		i++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
