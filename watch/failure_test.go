package watch_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

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

// What the server itself says is not there is told at once, without tries, and
// heard of again when it is back.
func TestResourceGoes(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Refuse("read", fmt.Errorf("read: %w", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "not found"}))
		before, begin := h.server.Requests()["read"], time.Now()
		h.server.Change(notes, `{}`)
		if got := h.lines(t, "n"); !strings.HasPrefix(got, "ERROR read") || !strings.Contains(got, "not found") {
			t.Errorf("lines: %s", got)
		}
		if took := time.Since(begin); took != watch.DefaultQuiet {
			t.Errorf("told after %s", took)
		}
		h.quiet(t)
		if n := h.server.Requests()["read"] - before; n != 1 {
			t.Errorf("%d reads of what is not there", n)
		}
		h.server.Refuse("read", nil)
		h.server.Change(notes, `{"todo":"b"}`)
		if got := h.lines(t, "n"); got != "MODIFIED todo (a→b)" {
			t.Errorf("lines when it is back: %s", got)
		}
	})
}

// W-094, W-100: lines that do not show the value are alike for every change; a
// change to another value is told all the same, and a repetition is not.
func TestHiddenValuesAreNoRepetition(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		long := strings.Repeat("x", 1000)
		h.server.Change(notes, `{"todo":"a","list":[1],"text":"`+long+`"}`)
		if got := h.lines(t, "n"); got != "ADDED list|ADDED text" {
			t.Fatalf("lines: %s", got)
		}
		for i := range 3 {
			h.server.Change(notes, fmt.Sprintf(`{"todo":"a","list":[1,%d],"text":"%s%d"}`, i, long, i))
			if got := h.lines(t, "n"); !strings.Contains(got, "MODIFIED list") || !strings.Contains(got, "MODIFIED text") {
				t.Errorf("change %d: %s", i, got)
			}
		}
	})
}

// Whoever has no tools of ours is not told to call them.
func TestAdviceWithoutTools(t *testing.T) {
	t.Parallel()
	for toolless, want := range map[bool][3]string{
		false: {"kept until watch_start or watch_stop: ", "call watch_start again with a corrected on_event", "start it again with watch_start"},
		true:  {"kept for the next start: ", "start the watch again with a corrected filter", "no more changes are seen until it is started again"},
	} {
		path := filepath.Join(t.TempDir(), "watches.json")
		writeState(t, path, watch.StartRequest{Name: "kept", URI: notes})
		change := func(o *watch.Options) { o.Toolless, o.Limits.FilterFailures = toolless, 1 }
		stateful(t, path, change, func(t *testing.T, h *harness) {
			h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
				if field(run.Event, "key") == "todo" {
					return python.Result{}, &python.Error{Type: "KeyError", Message: "'object'"}
				}
				return watchtest.Text("fine")
			})
			h.server.Refuse("subscribe", errors.New("connection refused"))
			h.Restore(t.Context())
			h.server.Refuse("subscribe", nil)
			told := [3]string{0: h.sink.Next(t).Text()}
			h.start(t, "n", notes, "p")
			h.server.Change(notes, `{"todo":"b"}`)
			told[1] = h.lines(t, "n")
			h.server.Fail(notes, errors.New("gone"))
			told[2] = h.sink.Next(t).Text()
			for i := range want {
				if !strings.Contains(told[i], want[i]) || toolless && strings.Contains(told[i], "watch_st") {
					t.Errorf("toolless %t: %q, want %q", toolless, told[i], want[i])
				}
			}
		})
	}
}
