package watch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

func added(ids ...int) []string {
	var events []string
	for _, id := range ids {
		events = append(events, fmt.Sprintf(`"type":"ADDED","object":{"metadata":{"name":"o%d"}}`, id))
	}
	return events
}

// W-040 to W-044: what a watch of an event log delivers, with and without a server
// that knows cursors.
func TestEventLogWatch(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"one", ""} {
		synctest.Test(t, func(t *testing.T) {
			server := watchtest.NewServer("kube")
			log := watchtest.NewLog(server, "log://x", id, 4)
			log.Append(added(1, 2)...)
			h := newHarness(t, nil, server)
			if got := h.start(t, "n", "log://x", ""); got.Shape != watch.ShapeEventLog {
				t.Errorf("shape %s", got.Shape)
			}
			h.quiet(t) // W-044: what was there at the start is not delivered
			log.Push(added(3)...)
			server.Notify("log://x") // W-041: duplicate notifications
			server.Notify("log://x")
			if got := h.lines(t, "n"); got != "ADDED o3" {
				t.Errorf("lines: %s", got)
			}
			server.Restore("log://x") // W-041, W-053: a resubscription reads again
			h.quiet(t)
			log.Append(added(4, 5)...) // W-053: missed while the listen was down
			server.Restore("log://x")
			if got := h.lines(t, "n"); got != "ADDED o4|ADDED o5" {
				t.Errorf("lines: %s", got)
			}
			log.Push(added(6, 7, 8, 9, 10, 11)...) // two more than the ring keeps
			if got := h.lines(t, "n"); got != "GAP 2 events were missed (seq 6 to 7)|ADDED o8|ADDED o9|ADDED o10|ADDED o11" {
				t.Errorf("lines: %s", got)
			}
			h.quiet(t)
		})
	}
}

// WA-06: a server that began anew is seen, whether it knows cursors or not, and
// what its new log has is delivered.
func TestEventLogBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"one", ""} {
		synctest.Test(t, func(t *testing.T) {
			server := watchtest.NewServer("kube")
			log := watchtest.NewLog(server, "log://x", id, 100)
			log.Append(added(make([]int, 57)...)...)
			h := newHarness(t, nil, server)
			h.start(t, "n", "log://x", "")
			log.Restart(strings.Replace(id, "one", "two", 1))
			log.Push(added(1, 2)...)
			if got := h.lines(t, "n"); got != "GAP the event log began anew after seq 57; events may have been missed|ADDED o1|ADDED o2" {
				t.Errorf("lines: %s", got)
			}
			log.Push(added(3)...)
			if got := h.lines(t, "n"); got != "ADDED o3" {
				t.Errorf("lines: %s", got)
			}
		})
	}
}

// WA-29, M-6: a cursor is sent to servers that give identity and position, and to
// no others; a busy watch still gets what it has not seen.
func TestEventLogCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("kube")
		log := watchtest.NewLog(server, "log://x", "one", 100)
		log.Append(added(1, 2, 3)...)
		h := newHarness(t, nil, server)
		gate := make(chan struct{})
		h.engine.Register("slow", func(ctx context.Context, run *watchtest.Run) (python.Result, error) {
			if run.Event["seq"] == 4.0 {
				select {
				case <-gate:
				case <-ctx.Done():
				}
			}
			return watchtest.Text(fmt.Sprint(run.Event["seq"]))
		})
		h.start(t, "fast", "log://x", "")
		h.start(t, "slow", "log://x", "slow")
		for i := 4; i <= 7; i++ {
			log.Push(added(i)...)
			synctest.Wait()
		}
		close(gate)
		got := map[string]string{}
		for range 2 {
			n := h.sink.Next(t)
			got[n.Watch] = strings.Join(n.Lines, "|")
		}
		if diff := cmp.Diff(map[string]string{"fast": "ADDED o4|ADDED o5|ADDED o6|ADDED o7", "slow": "4|5|6|7"}, got); diff != "" {
			t.Error(diff)
		}
		var afters []string
		for _, a := range log.Afters() {
			if a == nil {
				afters = append(afters, "all")
			} else {
				afters = append(afters, fmt.Sprint(*a))
			}
		}
		// Two baselines, then from behind the slower of both.
		if diff := cmp.Diff([]string{"all", "3", "3", "4", "4", "4"}, afters); diff != "" {
			t.Error(diff)
		}
		// A watch that was stopped holds nobody back.
		h.Stop("slow")
		for i := 8; i <= 9; i++ {
			log.Push(added(i)...)
			synctest.Wait()
		}
		if all := log.Afters(); *all[len(all)-1] != 8 {
			t.Errorf("after the slow watch is gone the cursor is %d", *all[len(all)-1])
		}
	})
}

// A body that is no event log is told once and does not end the watch.
func TestBrokenEventLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("kube")
		server.Add("log://x", watchtest.EventLogMIME, `{"events":[{"seq":1,"type":"A"}]}`)
		h := newHarness(t, nil, server)
		h.start(t, "n", "log://x", "")
		server.Change("log://x", `{"events":`)
		if got := h.lines(t, "n"); !strings.HasPrefix(got, "ERROR read event log: ") {
			t.Errorf("lines: %s", got)
		}
		server.Notify("log://x")
		h.quiet(t)
		server.Change("log://x", `{"events":[{"seq":1,"type":"A"},{"seq":2,"type":"B"},{"type":"C"}]}`)
		if got := h.lines(t, "n"); got != `{"seq":2,"type":"B"}|ERROR 1 entries of the event log have no seq or no type and are left out` {
			t.Errorf("lines: %s", got)
		}
		server.Put("log://x", watchtest.EventLogMIME, `[]`)
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "m", URI: "log://x"}); err == nil || !strings.Contains(err.Error(), "not {") {
			t.Errorf("baseline of a broken log: %v", err)
		}
	})
}
