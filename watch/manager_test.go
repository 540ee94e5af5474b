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

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
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
		if diff := cmp.Diff(watch.Notice{Watch: "n", URI: notes, Kind: watch.KindEvents, Time: time.Now().UTC(),
			Lines: []string{"ADDED owner", "MODIFIED todo (a→b)"}}, n); diff != "" {
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

// A server that is silent cannot hang a start, whatever it is asked.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(map[string]any) string { return "" }))
		for kind, most := range map[string]time.Duration{
			"info": watch.DefaultReadTime, "entries": 2 * watch.DefaultReadTime, "subscribe": watch.DefaultReadTime, "read": watch.DefaultReadTime,
		} {
			h.server.Silence(kind, true)
			begin := time.Now()
			_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: "p"})
			if kind != "entries" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", kind, err) // without entries the only server is asked all the same
			}
			if took := time.Since(begin); took > most {
				t.Errorf("%s: after %s", kind, took)
			}
			h.server.Silence(kind, false)
			h.Stop("n")
		}
		h.server.Silence("tools", true)
		h.start(t, "n", notes, "p") // a filter that needs no tool
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

// W-045 to W-049, WA-07.
func TestRouting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second, third := watchtest.NewServer("first"), watchtest.NewServer("second"), watchtest.NewServer("third")
		first.AddEntry(watch.Entry{URI: "kv://{key}{?a,b}", Template: true})
		second.AddEntry(watch.Entry{URI: "kv://{key}", Template: true})
		second.AddEntry(watch.Entry{URI: "kv://exact"})
		second.AddEntry(watch.Entry{URI: "log://only-here"})
		third.AddEntry(watch.Entry{URI: "kv://exact"})
		third.AddEntry(watch.Entry{URI: "legacy://x"})
		third.SetInfo(watch.ServerInfo{ProtocolVersion: "2025-11-25", Subscribable: true})
		servers := []*watchtest.Server{first, second, third}
		for _, s := range servers {
			s.OnRead(func(context.Context, string, *int64) (watch.Body, error) { return watch.Body{Text: "x"}, nil })
		}
		h := newHarness(t, nil, servers...)
		for _, c := range []struct{ uri, server string }{
			{"kv://exact", "second"},      // listed there, before a template matches and before third in the configuration
			{"kv://other", "first"},       // both templates match: the first in the configuration
			{"kv://other?b=1", "first"},   // W-046: a subset of the query variables
			{"log://elsewhere", "second"}, // nobody lists it: the one that knows the scheme
		} {
			h.start(t, "n", c.uri, "")
			for _, s := range servers {
				if got, want := s.Subscribers(c.uri), s.Name() == c.server; (got == 1) != want {
					t.Errorf("%s: %d subscriptions at %s", c.uri, got, s.Name())
				}
			}
		}
		// A scheme that nobody knows, with several servers: the error says what is known.
		_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "kw://exact"})
		route, ok := errors.AsType[*watch.RouteError](err)
		if !ok || !slices.Contains(route.Known, "kv://{key}{?a,b}") || !slices.Contains(route.DidYouMean, "kv://exact") || !strings.Contains(err.Error(), "did you mean: ") {
			t.Errorf("unknown scheme: %v", err)
		}
		// W-049, W-014: a server of an older version, by name of the needed one.
		_, err = h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "legacy://x"})
		version, ok := errors.AsType[*watch.VersionError](err)
		if !ok || version.Version != "2025-11-25" || !strings.Contains(err.Error(), "2026-07-28") {
			t.Errorf("old server: %v", err)
		}
		// W-048: its reads work.
		if got, err := h.Read(t.Context(), "legacy://x"); err != nil || string(got) != `"x"` {
			t.Errorf("read of an old server: %s, %v", got, err)
		}
		// W-010: a server that can be read only.
		second.SetInfo(watch.ServerInfo{ProtocolVersion: watch.RequiredVersion, Listens: true})
		_, err = h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "kv://exact"})
		if _, ok := errors.AsType[*watch.RefusedError](err); !ok || !strings.Contains(err.Error(), "resources.subscribe") {
			t.Errorf("server without subscriptions: %v", err)
		}
		h.Stop("n")
	})
}

// WA-07: a scheme that nobody knows goes to the only server there is; one that is
// down is named in the error.
func TestRoutingFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		only, down := watchtest.NewServer("only"), watchtest.NewServer("down")
		only.Put("new://x", "text/plain", "x")
		down.SetInfo(watch.ServerInfo{})
		down.Refuse("entries", errors.New("connection refused"))
		h := newHarness(t, nil, only, down)
		h.start(t, "n", "new://x", "")
		if only.Subscribers("new://x") != 1 {
			t.Error("the only server that can be watched was not asked")
		}
		h.Stop("n")
		only.SetInfo(watch.ServerInfo{ProtocolVersion: watch.RequiredVersion})
		_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "new://x"})
		if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), `"down"`) {
			t.Errorf("error: %v", err)
		}
	})
}

// A resource whose entry says that it cannot be watched is refused at once.
func TestStaticEntry(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.AddEntry(watch.Entry{URI: "memo://static", Static: true})
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "memo://static"}); err == nil || h.server.Requests()["subscribe"] != 0 {
			t.Errorf("error %v after %d subscriptions", err, h.server.Requests()["subscribe"])
		}
	})
}

// W-023, W-053: an interrupted listen is no failure; when it is back, one read
// brings what was missed.
func TestInterruptedAndRestored(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Interrupt(notes, errors.New("stream ended"), 1, time.Second)
		h.server.Put(notes, "application/json", `{"todo":"missed"}`)
		before := h.server.Requests()["read"]
		h.quiet(t)
		if n := h.server.Requests()["read"] - before; n != 0 {
			t.Errorf("%d reads while the listen is down", n)
		}
		// A read that fails meanwhile is not tried again: the listen's return does that.
		h.server.Refuse("read", errors.New("connection refused"))
		h.server.Notify(notes)
		h.quiet(t)
		h.server.Refuse("read", nil)
		if n := h.server.Requests()["read"] - before; n != 1 {
			t.Errorf("%d reads while the listen is down", n)
		}
		before++
		h.server.Restore(notes)
		if got := h.lines(t, "n"); got != "MODIFIED todo (a→missed)" {
			t.Errorf("lines: %s", got)
		}
		if n := h.server.Requests()["read"] - before; n != 1 {
			t.Errorf("%d reads after the listen came back", n)
		}
	})
}

// W-051, WA-10: a subscription that is over for good ends its watches, the agent
// is told after the lines that were waiting, and the watches stay listed. Others
// are not touched.
func TestFailed(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.Add("memo://other", "application/json", `{"x":1}`)
		h.start(t, "n", notes, "")
		h.start(t, "other", "memo://other", "")
		h.server.Change(notes, `{"todo":"b"}`)
		synctest.Wait()
		h.server.Fail(notes, errors.New("gave up after 5 attempts: connection refused"))
		if got := h.lines(t, "n"); got != "MODIFIED todo (a→b)" {
			t.Errorf("the lines that were waiting: %s", got)
		}
		n := h.sink.Next(t)
		if n.Kind != watch.KindFailed || n.Watch != "n" || !strings.Contains(n.Text(), "gave up after 5 attempts") || !strings.Contains(n.Text(), "watch_start") {
			t.Errorf("notice: %+v", n)
		}
		if diff := cmp.Diff([]watch.Status{
			{Name: "n", URI: notes, Shape: watch.ShapeState, Events: 1, Failed: true, Error: "gave up after 5 attempts: connection refused"},
			{Name: "other", URI: "memo://other", Shape: watch.ShapeState},
		}, h.List()); diff != "" {
			t.Error(diff)
		}
		if h.server.Subscribers(notes) != 0 || h.server.Subscribers("memo://other") != 1 {
			t.Error("the wrong subscriptions ended")
		}
		h.server.Change("memo://other", `{"x":2}`)
		if got := h.lines(t, "other"); got != "MODIFIED x (1→2)" {
			t.Errorf("the other watch: %s", got)
		}
		h.start(t, "n", notes, "") // started again
		h.server.Change(notes, `{"todo":"c"}`)
		if got := h.lines(t, "n"); got != "MODIFIED todo (b→c)" {
			t.Errorf("started again: %s", got)
		}
		h.server.Fail(notes, errors.New("again"))
		h.sink.Next(t)
		if !h.Stop("n") || len(h.List()) != 1 {
			t.Error("a failed watch cannot be stopped")
		}
	})
}

// A subscription that fails after the baseline and before the watch is known
// fails the start.
func TestFailsWhileStarting(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.Put(notes, watchtest.EventLogMIME, `{"events":[]}`) // not what the entry says: that is logged
		h.log.hook = func(message string) {
			if message == "watch.shape_differs" {
				h.server.Fail(notes, errors.New("gone"))
				synctest.Wait()
			}
		}
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes}); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("error: %v", err)
		}
		if len(h.List()) != 0 || h.server.Subscribers(notes) != 0 {
			t.Errorf("left: %v", h.List())
		}
	})
}

// A read that fails after an update is tried again, so that the change is not
// lost; when the tries are used up, the watch says so and lives on.
func TestReadFailsAfterUpdate(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Refuse("read", errors.New("broken pipe"))
		h.server.Change(notes, `{"todo":"b"}`)
		time.Sleep(5 * time.Second) // tries at 0, 1 and 3 s
		synctest.Wait()
		h.server.Refuse("read", nil)
		if got := h.lines(t, "n"); got != "MODIFIED todo (a→b)" {
			t.Errorf("lines: %s", got)
		}
		before := h.server.Requests()["read"]
		h.server.Refuse("read", errors.New("broken pipe"))
		h.server.Change(notes, `{"todo":"c"}`)
		if got := h.lines(t, "n"); !strings.HasPrefix(got, "ERROR read") || !strings.Contains(got, "broken pipe") {
			t.Errorf("lines: %s", got)
		}
		h.quiet(t)
		if n := h.server.Requests()["read"] - before; n != 1+watch.Resubscribes {
			t.Errorf("%d reads, want the one and %d tries", n, watch.Resubscribes)
		}
		h.server.Refuse("read", nil)
		h.server.Change(notes, `{"todo":"d"}`)
		if got := h.lines(t, "n"); got != "MODIFIED todo (b→d)" {
			t.Errorf("lines after recovery: %s", got)
		}
	})
}

// A failure to read does not cost a busy watch the change that it has not yet seen.
func TestReadFailsWhileTheFilterIsBusy(t *testing.T) {
	t.Parallel()
	bubble(t, func(o *watch.Options) { o.Limits.FilterTime = time.Hour }, func(t *testing.T, h *harness) {
		gate := make(chan struct{})
		h.engine.Register("slow", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			if run.Event["key"] == "todo" && run.Event["new"] == "b" {
				<-gate
			}
			return watchtest.Text(fmt.Sprintf("%v to %v", run.Event["old"], run.Event["new"]))
		})
		h.start(t, "n", notes, "slow")
		h.server.Change(notes, `{"todo":"b"}`)
		synctest.Wait()
		h.server.Change(notes, `{"todo":"c"}`)
		synctest.Wait()
		h.server.Refuse("read", errors.New("broken pipe"))
		h.server.Notify(notes)
		time.Sleep(time.Minute)
		close(gate)
		if got := h.lines(t, "n"); !strings.HasPrefix(got, "a to b|b to c|ERROR read") {
			t.Errorf("lines: %s", got)
		}
	})
}

// W-050, W-166: 1, 2, 4, 8, 16 s, and no sixth.
func TestBackoff(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for n := 0; n <= watch.Resubscribes+1; n++ {
		if d, ok := watch.Backoff(n); ok {
			got = append(got, d)
		}
	}
	if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}, got); diff != "" {
		t.Error(diff)
	}
}

// W-017: event-log by either media type, else state; WA-02: the read decides.
func TestShape(t *testing.T) {
	t.Parallel()
	for mimeType, want := range map[string]watch.Shape{
		"application/vnd.ossicle.events+json":                watch.ShapeEventLog,
		"application/vnd.asyncai.events+json":                watch.ShapeEventLog,
		"Application/vnd.ossicle.events+JSON; charset=utf-8": watch.ShapeEventLog,
		"application/json":                                   watch.ShapeState,
		"":                                                   watch.ShapeState,
		"application/vnd.ossicle.events":                     watch.ShapeState,
	} {
		bubble(t, nil, func(t *testing.T, h *harness) {
			h.server.Put(notes, mimeType, `{"events":[]}`)
			if got := h.start(t, "n", notes, "").Shape; got != want {
				t.Errorf("%q: %s", mimeType, got)
			}
			if listed := h.log.with("watch.shape_differs"); (len(listed) == 1) != (want == watch.ShapeEventLog) {
				t.Errorf("%q: logged %v", mimeType, listed)
			}
		})
	}
}

// A resource that becomes another shape while it is watched is no dead watch.
func TestShapeChanges(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Put(notes, watchtest.EventLogMIME, `{"events":[{"seq":1,"type":"A"}]}`)
		h.server.Notify(notes)
		if got := h.lines(t, "n"); !strings.HasPrefix(got, "GAP the resource was of shape state") {
			t.Errorf("lines: %s", got)
		}
		h.server.Change(notes, `{"events":[{"seq":1,"type":"A"},{"seq":2,"type":"B"}]}`)
		if got := h.lines(t, "n"); got != `{"seq":2,"type":"B"}` {
			t.Errorf("lines: %s", got)
		}
	})
}

// W-036: a body over the bound is an error of the read.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(o *watch.Options) { o.Limits.Body = 100 }, func(t *testing.T, h *harness) {
		h.server.Put(notes, "text/plain", strings.Repeat("x", 100))
		h.start(t, "n", notes, "")
		h.server.Put(notes, "text/plain", strings.Repeat("x", 101))
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "m", URI: notes}); err == nil || !strings.Contains(err.Error(), "101 bytes, more than 100") {
			t.Errorf("error: %v", err)
		}
		if _, err := h.Read(t.Context(), notes); err == nil || !strings.Contains(err.Error(), "101 bytes, more than 100") {
			t.Errorf("read: %v", err)
		}
		h.Stop("n")
	})
}

// W-054, W-243: nothing outlives the engine, and Close does not wait for ever.
func TestClose(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Change(notes, `{"todo":"b"}`)
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if n := h.server.Subscribers(notes); n != 0 {
			t.Errorf("%d subscriptions after Close", n)
		}
		// WA-35: the line that waited is in the log, and not sent.
		if got := h.log.with("INFO watch.unsent", "watch=n", "line=MODIFIED todo (a→b)"); len(got) != 1 {
			t.Errorf("log: %v", got)
		}
		h.server.Change(notes, `{"todo":"c"}`)
		h.quiet(t)
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes}); !errors.Is(err, watch.ErrClosed) {
			t.Errorf("start after Close: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestCloseEndsAStartThatWaits(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.OnRead(func(ctx context.Context, _ string, _ *int64) (watch.Body, error) {
			<-ctx.Done()
			return watch.Body{}, ctx.Err()
		})
		result := make(chan error, 1)
		go func() {
			_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes})
			result <- err
		}()
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := <-result; err == nil {
			t.Error("the start succeeded")
		}
	})
}

// A sink that blocks delays nobody: lines gather and leave as one notice, and
// Close says that it does not let go.
func TestSlowSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("memo")
		server.Add(notes, "application/json", `{"n":0}`)
		gate, got := make(chan struct{}), make(chan watch.Notice, 10)
		sink := watch.SinkFunc(func(_ context.Context, n watch.Notice) error {
			got <- n
			<-gate
			return nil
		})
		m := watch.NewManager([]watch.Server{server}, nil, sink, nil)
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes}); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			server.Change(notes, fmt.Sprintf(`{"n":%d}`, i+1))
			time.Sleep(4 * time.Second)
			synctest.Wait()
		}
		if n := server.Requests()["read"]; n != 31 {
			t.Errorf("%d reads: the sink delayed the intake", n)
		}
		if n := <-got; n.Text() != "MODIFIED n (0→1)" {
			t.Errorf("first notice: %v", n.Lines)
		}
		gate <- struct{}{}
		if n := <-got; len(n.Lines) != 21 || n.Lines[0] != "MODIFIED n (1→2)" || n.Lines[20] != "+9 more" {
			t.Errorf("second notice: %v", n.Lines)
		}
		if err := m.Close(); err == nil {
			t.Error("Close does not say that the sink holds on")
		}
		close(gate)
	})
}

// A notice that the sink refuses is logged as such, and the next one comes.
func TestFailingSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("memo")
		server.Add(notes, "application/json", `{"n":0}`)
		h := newHarness(t, nil, server)
		calls := 0
		sink := watch.SinkFunc(func(ctx context.Context, n watch.Notice) error {
			if calls++; calls == 1 {
				return errors.New("disk full")
			}
			return h.sink.Notify(ctx, n)
		})
		log := &records{}
		m := watch.NewManager([]watch.Server{server}, nil, sink, &watch.Options{Logger: newLogger(log)})
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes}); err != nil {
			t.Fatal(err)
		}
		server.Change(notes, `{"n":1}`)
		time.Sleep(10 * time.Second)
		server.Change(notes, `{"n":2}`)
		if got := h.lines(t, "n"); got != "MODIFIED n (1→2)" {
			t.Errorf("lines: %s", got)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if len(log.with("watch.notice_failed", "disk full")) != 1 || len(log.with("INFO watch.notice ")) != 1 {
			t.Errorf("log: %v", log.with("watch.notice"))
		}
	})
}
