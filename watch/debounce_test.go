package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

func elapsed(begin time.Time) time.Duration { return time.Since(begin).Round(time.Millisecond) }

// W-120, W-121, W-165: a notice leaves three seconds after its last line, and
// fifteen after its first at the latest.
func TestDebounce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step  time.Duration // between changes
		count int
		after time.Duration // of the notice, from the first change
		lines int
	}{
		{time.Second, 1, 3 * time.Second, 1},
		{2999 * time.Millisecond, 2, 5999 * time.Millisecond, 2},
		{3001 * time.Millisecond, 2, 3 * time.Second, 1},
		{2 * time.Second, 7, 15 * time.Second, 7},
		{2 * time.Second, 20, 15 * time.Second, 8},
	} {
		bubble(t, nil, func(t *testing.T, h *harness) {
			h.start(t, "n", notes, "")
			begin := time.Now()
			go func() {
				for i := range c.count {
					if i > 0 {
						time.Sleep(c.step)
					}
					h.server.Change(notes, fmt.Sprintf(`{"todo":"%d"}`, i))
				}
			}()
			n := h.sink.Next(t)
			if got := elapsed(begin); got != c.after || len(n.Lines) != c.lines {
				t.Errorf("every %s: %d lines after %s, want %d after %s", c.step, len(n.Lines), got, c.lines, c.after)
			}
			time.Sleep(time.Minute)
		})
	}
}

// The intervals can be set.
func TestDebounceSettings(t *testing.T) {
	t.Parallel()
	bubble(t, func(o *watch.Options) { o.Limits.Quiet, o.Limits.MaxWait = 100*time.Millisecond, 250*time.Millisecond }, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		begin := time.Now()
		go func() {
			for i := range 20 {
				h.server.Change(notes, fmt.Sprintf(`{"todo":"%d"}`, i))
				time.Sleep(90 * time.Millisecond)
			}
		}()
		h.sink.Next(t)
		if got := elapsed(begin); got != 250*time.Millisecond {
			t.Errorf("after %s", got)
		}
		time.Sleep(time.Minute)
	})
}

// W-123, W-251: a burst is one notice.
func TestBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("kube")
		log := watchtest.NewLog(server, "log://x", "one", 100)
		h := newHarness(t, nil, server)
		h.start(t, "n", "log://x", "")
		log.Push(`"type":"ADDED","object":{"metadata":{"name":"bid-1"},"status":{}}`)
		for i, phase := range []string{"Deciding", "Published", "Won"} {
			time.Sleep(time.Second)
			log.Push(fmt.Sprintf(`"type":"MODIFIED","old":{"metadata":{"name":"bid-1"},"status":{"n":%d}},"object":{"metadata":{"name":"bid-1"},"status":{"n":%d,"phase":%q}}`, i, i+1, phase))
		}
		if got := strings.Count(h.lines(t, "n"), "bid-1"); got != 4 {
			t.Errorf("%d lines", got)
		}
		h.quiet(t)
	})
}

// W-124: dropped events neither arm nor move the timer. W-100: a repetition is one.
func TestDroppedEventsDoNotMoveTheTimer(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(e map[string]any) string {
			if field(e, "key") == "todo" {
				return "todo changed" // the same line for each change
			}
			return ""
		}))
		h.start(t, "n", notes, "p")
		for i := range 10 {
			// Every second: one repetition (deduped), one that the filter drops.
			h.server.Change(notes, fmt.Sprintf(`{"todo":"%d","x":%d}`, i, i))
			time.Sleep(time.Second)
			synctest.Wait()
			if i < 2 {
				h.sink.Empty(t)
			}
		}
		if got := h.lines(t, "n"); got != "todo changed" {
			t.Errorf("lines: %s", got)
		}
		synctest.Wait() // a notice counts once the sink has taken it
		if n := h.List()[0].Notices; n != 1 {
			t.Errorf("%d notices", n)
		}
		// W-100: also across notices.
		h.server.Change(notes, `{"todo":"again"}`)
		h.quiet(t)
	})
}

// The notice of a watch whose lines are repetitions leaves three seconds after the
// first of them.
func TestRepetitionDoesNotDelay(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(map[string]any) string { return "same" }))
		h.start(t, "n", notes, "p")
		begin := time.Now()
		go func() {
			for i := range 10 {
				h.server.Change(notes, fmt.Sprintf(`{"todo":"%d"}`, i))
				time.Sleep(time.Second)
			}
		}()
		h.sink.Next(t)
		if got := elapsed(begin); got != 3*time.Second {
			t.Errorf("after %s", got)
		}
		time.Sleep(time.Minute)
	})
}

// W-101: identical lines of several objects collapse.
func TestCollapse(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(e map[string]any) string { return field(e, "type") }))
		h.start(t, "n", notes, "p")
		h.server.Change(notes, `{"a":1,"b":2,"c":3}`)
		if got := h.lines(t, "n"); got != "ADDED ×3|DELETED" {
			t.Errorf("lines: %s", got)
		}
	})
}

// W-122, W-164: twenty lines, then how many more.
func TestNoticeLimit(t *testing.T) {
	t.Parallel()
	for n, last := range map[int]string{20: "ADDED k19", 21: "+1 more", 25: "+5 more"} {
		bubble(t, nil, func(t *testing.T, h *harness) {
			h.start(t, "n", notes, "")
			members := []string{`"todo":"a"`}
			for i := range n {
				members = append(members, fmt.Sprintf(`"k%02d":1`, i))
			}
			h.server.Change(notes, "{"+strings.Join(members, ",")+"}")
			notice := h.sink.Next(t)
			if got := notice.Lines[len(notice.Lines)-1]; got != last || len(notice.Lines) != min(n, 21) {
				t.Errorf("%d lines, the last %q", len(notice.Lines), got)
			}
		})
	}
}

// W-125, W-163, WA-22: more events than one pass takes; none is dropped.
func TestPasses(t *testing.T) {
	t.Parallel()
	for _, n := range []int{99, 100, 101, 250} {
		synctest.Test(t, func(t *testing.T) {
			server := watchtest.NewServer("kube")
			log := watchtest.NewLog(server, "log://x", "one", 1000)
			h := newHarness(t, nil, server)
			h.start(t, "n", "log://x", "")
			var events []string
			for i := range n {
				events = append(events, fmt.Sprintf(`"type":"ADDED","object":{"id":%d}`, i))
			}
			log.Push(events...)
			h.sink.Next(t)
			if got := h.List()[0].Events; got != n {
				t.Errorf("%d of %d events were processed", got, n)
			}
			if reads := server.Requests()["read"]; reads != 2 {
				t.Errorf("%d reads", reads)
			}
		})
	}
}

// WA-36: several watches in one window give one notice each.
func TestOneNoticePerWatch(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.Add("memo://other", "application/json", `{"x":1}`)
		h.start(t, "a", notes, "")
		h.start(t, "b", "memo://other", "")
		h.server.Change(notes, `{"todo":"b"}`)
		h.server.Change("memo://other", `{"x":2}`)
		got := map[string]string{}
		for range 2 {
			n := h.sink.Next(t)
			got[n.Watch] = n.URI + " " + n.Text()
		}
		if diff := cmp.Diff(map[string]string{"a": notes + " MODIFIED todo (a→b)", "b": "memo://other MODIFIED x (1→2)"}, got); diff != "" {
			t.Error(diff)
		}
	})
}
