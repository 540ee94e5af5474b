package watch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/watch"
)

// W-005, W-230 in kind, W-252: start, push, notice.
func TestStartPushNotice(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		// W-064
		if diff := cmp.Diff(watch.Started{Name: "n", URI: notes, Shape: watch.ShapeState}, h.start(t, "n", notes, "")); diff != "" {
			t.Error(diff)
		}
		begin := time.Now()
		h.server.Change(notes, `{"owner":"me","todo":"b"}`)
		n := h.sink.Next(t)
		if diff := cmp.Diff(watch.Notice{
			Watch: "n", URI: notes, Kind: watch.KindEvents, Time: time.Now().UTC(),
			Lines: []string{"ADDED owner", "MODIFIED todo (a→b)"},
		}, n); diff != "" {
			t.Error(diff)
		}
		// W-120: three seconds after the only change.
		if after := time.Since(begin); after != 3*time.Second {
			t.Errorf("the notice came after %s", after)
		}
		if n.Text() != "ADDED owner\nMODIFIED todo (a→b)" {
			t.Errorf("text is %q", n.Text())
		}
		// W-066
		synctest.Wait() // a notice counts once the sink has taken it
		if diff := cmp.Diff([]watch.Status{{Name: "n", URI: notes, Shape: watch.ShapeState, Events: 2, Notices: 1}}, h.List()); diff != "" {
			t.Error(diff)
		}
		if !h.Stop("n") || h.Stop("n") || h.Stop("other") {
			t.Error("W-065: Stop does not say whether there was such a watch")
		}
		if n := h.server.Subscribers(notes); n != 0 {
			t.Errorf("%d subscriptions after Stop", n)
		}
		h.server.Put(notes, "application/json", `{}`)
		h.quiet(t)
	})
}

// W-006, W-115: listen first, then the baseline; WA-01: what happens between is
// in the baseline and yields nothing.
func TestSubscribeThenBaseline(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		var once bool
		h.server.OnRead(func(context.Context, string, *int64) (watch.Body, error) {
			body := watch.Body{Text: `{"todo":"between"}`, MIMEType: "application/json"}
			if !once {
				once = true
				h.server.Notify(notes)
			}
			return body, nil
		})
		h.start(t, "n", notes, "")
		synctest.Wait()
		order := h.server.Order()
		if i, j := slices.Index(order, "subscribe"), slices.Index(order, "read"); i < 0 || j < i {
			t.Errorf("order of requests: %v", order)
		}
		if n := h.server.Requests()["read"]; n != 2 {
			t.Errorf("%d reads, want the baseline and one for the update", n)
		}
		h.quiet(t)
	})
}

// W-001, W-052, W-240, W-282: while nothing changes nothing is asked.
func TestIdleCostsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Change(notes, `{"todo":"b"}`)
		h.lines(t, "n")
		before := h.server.Requests()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(before, h.server.Requests()); diff != "" {
			t.Errorf("an idle day cost requests: %s", diff)
		}
		h.sink.Empty(t)
	})
}

// W-015, W-035, W-280, M-15: updates that come while a read runs cost one more
// read, and yield the net diff.
func TestUpdatesCoalesce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		before := h.server.Requests()["read"]
		gate := make(chan struct{})
		h.server.OnRead(func(context.Context, string, *int64) (watch.Body, error) {
			<-gate
			return watch.Body{Text: `{"todo":"z"}`, MIMEType: "application/json"}, nil
		})
		h.server.Notify(notes)
		synctest.Wait()
		for range 50 {
			h.server.Notify(notes)
		}
		synctest.Wait()
		if n := h.server.Requests()["read"] - before; n != 1 {
			t.Errorf("%d reads at once", n)
		}
		close(gate)
		if got := h.lines(t, "n"); got != "MODIFIED todo (a→z)" {
			t.Errorf("lines: %s", got)
		}
		if n := h.server.Requests()["read"] - before; n != 2 {
			t.Errorf("51 updates cost %d reads", n)
		}
		h.quiet(t)
	})
}

// W-034: an update whose read is equal yields nothing; it does not arm the timer.
func TestEqualReadIsNoEvent(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Notify(notes)
		h.server.Change(notes, ` { "todo" : "a" } `)
		h.quiet(t)
		if got := h.log.with("watch.event"); len(got) != 0 {
			t.Errorf("events: %v", got)
		}
	})
}

// M-15, WA-08, W-021: one read per update and URI, shared by its watches.
func TestWatchesOfOneURIShareReads(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "a", notes, "")
		h.start(t, "b", notes, "")
		if n := h.server.Requests()["subscribe"]; n != 1 {
			t.Errorf("%d subscriptions for one URI", n)
		}
		before := h.server.Requests()["read"]
		h.server.Change(notes, `{"todo":"b"}`)
		got := []string{h.sink.Next(t).Watch, h.sink.Next(t).Watch}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
			t.Error(diff)
		}
		if n := h.server.Requests()["read"] - before; n != 1 {
			t.Errorf("%d reads for one update", n)
		}
		h.Stop("a")
		if n := h.server.Subscribers(notes); n != 1 {
			t.Errorf("%d subscriptions while one watch is left", n)
		}
		h.server.Change(notes, `{"todo":"c"}`)
		if got := h.lines(t, "b"); got != "MODIFIED todo (b→c)" {
			t.Errorf("lines: %s", got)
		}
	})
}

// A watch that joins another sees only what comes after its own baseline.
func TestJoiningWatchHasItsOwnBaseline(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "a", notes, "")
		h.server.Put(notes, "application/json", `{"todo":"b"}`) // nobody is told
		h.start(t, "b", notes, "")
		if got := h.lines(t, "a"); got != "MODIFIED todo (a→b)" {
			t.Errorf("lines: %s", got)
		}
		h.quiet(t)
	})
}

// W-115, and the client's part of W-116: a server that rejects the URI fails the
// call with its own words, and nothing is left behind.
func TestStartFailsFast(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(map[string]any) string { return "" }))
		for kind, fault := range map[string]error{
			"read":      errors.New("no resource atproprecords: did you mean: atprotorecords"),
			"subscribe": &watch.RefusedError{Server: "memo", URI: notes, Reason: "not honoured"},
		} {
			h.server.Refuse(kind, fault)
			_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: "p"})
			if !errors.Is(err, fault) || !strings.Contains(err.Error(), fault.Error()) {
				t.Errorf("%s: error %v", kind, err)
			}
			h.server.Refuse(kind, nil)
			synctest.Wait()
			if n := h.server.Subscribers(notes); n != 0 || len(h.List()) != 0 || h.engine.Open() != 0 {
				t.Errorf("%s: %d subscriptions, %d scopes and %v are left", kind, n, h.engine.Open(), h.List())
			}
		}
		h.start(t, "n", notes, "")
	})
}

// W-027 in kind: the first read may wait for its source, and Start waits with it,
// but not for ever.
func TestStartWaitsForTheFirstRead(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.OnRead(func(ctx context.Context, _ string, _ *int64) (watch.Body, error) {
			<-ctx.Done()
			return watch.Body{}, ctx.Err()
		})
		begin := time.Now()
		_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != watch.DefaultReadTime {
			t.Errorf("error %v after %s", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if _, err = h.Start(ctx, watch.StartRequest{Name: "n", URI: notes}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("error %v after %s", err, time.Since(begin))
		}
		synctest.Wait()
		if n := h.server.Subscribers(notes); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
	})
}

// W-067, WA-12: a name in use is replaced when the new watch is up, and left alone
// when it does not come up; a replacement does not count against the limit.
func TestReplace(t *testing.T) {
	t.Parallel()
	bubble(t, func(o *watch.Options) { o.Limits.Watches = 1 }, func(t *testing.T, h *harness) {
		h.server.Add("memo://other", "application/json", `{"x":1}`)
		h.start(t, "n", notes, "")
		h.server.Change(notes, `{"todo":"b"}`)
		synctest.Wait()
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "memo://absent"}); err == nil {
			t.Fatal("a watch of nothing started")
		}
		if got := h.lines(t, "n"); got != "MODIFIED todo (a→b)" {
			t.Errorf("lines of the old watch: %s", got)
		}
		h.server.Change(notes, `{"todo":"c"}`)
		synctest.Wait()
		h.start(t, "n", "memo://other", "")
		begin := time.Now()
		if got := h.lines(t, "n"); got != "MODIFIED todo (b→c)" || time.Since(begin) != 0 {
			t.Errorf("the old watch's last lines: %s after %s", got, time.Since(begin))
		}
		if n := h.server.Subscribers(notes); n != 0 {
			t.Errorf("%d subscriptions of the old watch", n)
		}
		h.server.Change(notes, `{"todo":"d"}`)
		h.server.Change("memo://other", `{"x":2}`)
		if got := h.lines(t, "n"); got != "MODIFIED x (1→2)" {
			t.Errorf("lines of the new watch: %s", got)
		}
		h.quiet(t)
		if len(h.List()) != 1 {
			t.Errorf("list: %v", h.List())
		}
	})
}

// W-160: five watches, and the sixth fails with the limit in its text.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		for i := range watch.DefaultWatches {
			h.start(t, fmt.Sprint("w", i), notes, "")
		}
		_, err := h.Start(t.Context(), watch.StartRequest{Name: "w5", URI: notes})
		limit, ok := errors.AsType[*watch.LimitError](err)
		if !ok || limit.Limit != 5 || !strings.Contains(err.Error(), "5 watches") || !strings.Contains(err.Error(), "watch_stop") {
			t.Errorf("the sixth watch: %v", err)
		}
		h.start(t, "w4", notes, "") // a replacement
		h.Stop("w0")
		h.start(t, "w5", notes, "")
		// WA-34: one that failed does not count.
		h.server.Fail(notes, errors.New("gone"))
		for range watch.DefaultWatches {
			h.sink.Next(t)
		}
		h.start(t, "w6", notes, "")
	})
}

// Starts at once: the limit holds, and of one name the last one stays.
func TestConcurrentStarts(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		results := make(chan error, 40)
		for i := range 40 {
			go func() {
				_, err := h.Start(t.Context(), watch.StartRequest{Name: fmt.Sprint("w", i%8), URI: notes})
				results <- err
			}()
		}
		for range 40 {
			if err := <-results; err != nil {
				if _, ok := errors.AsType[*watch.LimitError](err); !ok {
					t.Error(err)
				}
			}
		}
		if n := len(h.List()); n != watch.DefaultWatches {
			t.Errorf("%d watches", n)
		}
		if n := h.server.Subscribers(notes); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
	})
}
