package watch

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is an outbox whose sink holds the first notice until gate is closed.
func stuck(t *testing.T, limit int, log *slog.Logger) (o *outbox, gate chan struct{}, got chan Notice) {
	t.Helper()
	gate, got = make(chan struct{}), make(chan Notice, 100)
	c := newCrew()
	o = &outbox{limit: limit, crew: c, log: log, sink: SinkFunc(func(_ context.Context, n Notice) error {
		<-gate
		got <- n
		return nil
	})}
	t.Cleanup(func() {
		if !c.dismiss(time.Second, func() {}) {
			t.Error("the outbox did not end")
		}
	})
	o.enqueueNotice(Notice{Lines: []string{"first"}})
	synctest.Wait()
	return o, gate, got
}

// A watch stands in the queue at most once, so that watches bound the queue.
func TestOutboxHoldsAWatchOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, gate, _ := stuck(t, 5, slog.New(slog.DiscardHandler))
		lim := Limits{}.withDefaults()
		w := &runningWatch{batch: batch{limits: &lim}}
		for range 100 {
			o.enqueue(w)
		}
		if n := len(o.queue); n != 1 {
			t.Errorf("the queue holds %d", n)
		}
		close(gate)
	})
}

// When too many notices wait that are no lines of a watch, the oldest is dropped
// and logged.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o, gate, got := stuck(t, 3, slog.New(slog.NewTextHandler(&log, nil)))
		for i := range 5 {
			o.enqueueNotice(Notice{Kind: KindFailed, Lines: []string{fmt.Sprint("n", i)}})
		}
		close(gate)
		for _, want := range []string{"first", "n2", "n3", "n4"} {
			if n := <-got; n.Text() != want {
				t.Errorf("notice %q, want %q", n.Text(), want)
			}
		}
		synctest.Wait()
		if s := log.String(); strings.Count(s, `reason="queue full"`) != 2 || !strings.Contains(s, "line=n0") || !strings.Contains(s, "level=WARN") {
			t.Errorf("log: %s", s)
		}
	})
}
