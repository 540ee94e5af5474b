package kubernetes

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Nothing is polled: while nothing happens nobody asks, but for watches that begin
// again when their time is over.
func TestAnIdleDriverAsksNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		before := len(r.api.asked(""))
		time.Sleep(leastWatch - time.Second)
		if n := len(r.api.asked("")) - before; n != 0 {
			t.Errorf("%d requests", n)
		}
		const long = 6 * time.Hour
		time.Sleep(long)
		if lists := r.api.asked("LIST"); len(lists) != 3 {
			t.Errorf("%d lists", len(lists))
		}
		most := 3 * int(long/leastWatch)
		if watches := len(r.api.asked("WATCH")); watches > most || watches < 3*int(long/mostWatch)-3 {
			t.Errorf("%d watches", watches)
		}
	})
}

// However a watch breaks, what happened meanwhile is told once and in full.
func TestWatchesThatBreak(t *testing.T) {
	t.Parallel()
	half := func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"type":"MODIFIED","object":{"metadata":{"name":"agt-a-x","uid":"u","resourceVersion":"999`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	halfAndEnd := func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"type":"MODIFIED","object":{"metadata":{"na`) }
	line := func(s string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, s+"\n") }
	}
	for name, c := range map[string]struct {
		breaks func(w http.ResponseWriter)
		forget bool // the server has compacted what happened meanwhile
		lists  int  // more, at least
	}{
		"orderly end":          {func(http.ResponseWriter) {}, false, 0},
		"cut":                  {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false, 0},
		"cut in a line":        {half, false, 0},
		"end in a line":        {halfAndEnd, false, 0},
		"gone, told in a line": {line(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}`), false, 3},
		"forgotten":            {func(http.ResponseWriter) {}, true, 3},
		"error in a line":      {line(`{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcdserver: no leader"}}`), false, 0},
		"noise":                {line(`this is a log line`), false, 3},
		"a name twice":         {line(`{"type":"ADDED","type":"DELETED","object":{}}`), false, 3},
		"another type":         {line(`{"type":"ODD","object":{}}`), false, 3},
		"too long a line":      {line(`{"type":"ADDED","object":{"x":"` + strings.Repeat("x", maxEvent) + `"}}`), false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.create(t, "a")
				r.create(t, "b")
				r.create(t, "c")
				r.api.pod("a", "pa", statusRunning)
				r.api.pod("b", "pb", statusRunning)
				time.Sleep(2 * time.Second)
				before := len(r.api.asked("LIST"))
				down := true
				r.api.setHook(func(w http.ResponseWriter, _ *http.Request, what string) bool {
					if down && (strings.HasPrefix(what, "WATCH") || strings.HasPrefix(what, "LIST")) {
						w.WriteHeader(http.StatusBadGateway)
					}
					return down && (strings.HasPrefix(what, "WATCH") || strings.HasPrefix(what, "LIST"))
				})
				r.api.breakWatches(c.breaks)
				synctest.Wait()
				// While nobody looks, one ends, one goes without a trace, and one comes and goes.
				r.api.pod("a", "pa", terminated(75, "Error", ""))
				r.api.drop("pods", "pb")
				r.api.pod("c", "pc", terminated(78, "Error", ""))
				if c.forget {
					r.api.mu.Lock()
					r.api.compacted = r.api.version
					r.api.mu.Unlock()
				}
				r.api.mu.Lock()
				down = false
				r.api.mu.Unlock()
				time.Sleep(time.Minute)
				for session, code := range map[string]int{"a": 75, "b": -1, "c": 78} {
					if got := r.exited(session); len(got) != 1 || got[0].Code != code {
						t.Errorf("%s: %+v", session, got)
					}
				}
				if n := len(r.api.asked("LIST")) - before; n < c.lists || c.lists == 0 && n > 0 && !c.forget {
					t.Errorf("%d lists", n)
				}
				r.api.pod("c", "pc2", statusRunning)
				if len(r.api.watching) != 3 {
					t.Errorf("%d watches are open", len(r.api.watching))
				}
			})
		})
	}
}

// A server that is never well is not stormed, whatever is wrong with it.
func TestWatchesDoNotStorm(t *testing.T) {
	t.Parallel()
	always := func(prefix string, do func(w http.ResponseWriter, q *http.Request)) func(http.ResponseWriter, *http.Request, string) bool {
		return func(w http.ResponseWriter, q *http.Request, what string) bool {
			if strings.HasPrefix(what, prefix) {
				do(w, q)
				return true
			}
			return false
		}
	}
	answer := func(code int, reason string) func(w http.ResponseWriter, _ *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { reply(w, code, statusOf(code, reason, "no")) }
	}
	for name, hook := range map[string]func(http.ResponseWriter, *http.Request, string) bool{
		"410 to every watch": always("WATCH", answer(410, "Expired")),
		"410 in every watch": always("WATCH", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, 200, map[string]any{"type": "ERROR", "object": statusOf(410, "Expired", "")})
		}),
		"ends at once": always("WATCH", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
		"cut at once":  always("WATCH", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"hangs":        always("WATCH", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }),
		"list hangs":   always("LIST", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }),
		"forbidden":    always("LIST", answer(403, "Forbidden")),
		"unauthorized": always("LIST", answer(401, "Unauthorized")),
		"a list without an end": always("LIST", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, 200, map[string]any{"metadata": map[string]any{"continue": "x"}})
		}),
		"a list without version":  always("LIST", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, map[string]any{}) }),
		"a list that is no JSON":  always("LIST", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }),
		"watches that are events": always("WATCH", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}\n") }),
		"redirects":               always("", func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, "/", http.StatusFound) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				if name == "redirects" {
					_ = r.driver.Watch()
				} else {
					r.create(t, "a")
				}
				lists := strings.Contains(name, "list") || name == "forbidden" || name == "unauthorized"
				r.api.setHook(hook)
				r.api.breakWatches(func(w http.ResponseWriter) {
					if lists { // have one be needed
						_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": statusOf(410, "Expired", "")})
					}
				})
				synctest.Wait()
				time.Sleep(time.Minute) // the pauses have grown by then
				before := len(r.api.asked(""))
				pages, long := 2, 20*time.Minute
				if name == "a list without an end" {
					pages, long = maxPages, 2*time.Minute
				}
				time.Sleep(long)
				n := len(r.api.asked("")) - before
				if most := 3 * pages * int(long/(mostRewatch/2)); n > most {
					t.Errorf("%d requests in %s, of at most %d", n, long, most)
				}
				if _, err := r.driver.Health(); err == nil {
					t.Error("nothing is said of it")
				}
				r.api.setHook(nil)
				time.Sleep(mostRewatch + DefaultRequestTime)
				if _, err := r.driver.Health(); err != nil {
					t.Errorf("still: %v", err)
				}
				if name != "redirects" {
					r.api.pod("a", "p", terminated(0, "Completed", ""))
					if got := r.exited("a"); len(got) != 1 {
						t.Errorf("%+v", got)
					}
				}
			})
		})
	}
}

// Events are a right that a cluster may not give: all else goes on without.
func TestWithoutEvents(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.api.refuse("LIST events", 403, "Forbidden", "no")
		r.create(t, "a")
		r.api.pod("a", "p", terminated(0, "Completed", ""))
		if got := r.exited("a"); len(got) != 1 {
			t.Errorf("%+v", got)
		}
		if _, err := r.driver.Health(); !errors.Is(err, ErrForbidden) {
			t.Errorf("%v", err)
		}
	})
}

// A busy server names the pause.
func TestWatchesKeepRetryAfter(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		var at []time.Time // under the lock of the API
		r.api.setHook(func(w http.ResponseWriter, _ *http.Request, what string) bool {
			if what != "WATCH pods" {
				return false
			}
			r.api.mu.Lock()
			at = append(at, time.Now())
			r.api.mu.Unlock()
			w.Header().Set("Retry-After", "120")
			reply(w, 429, statusOf(429, "TooManyRequests", "slow down"))
			return true
		})
		r.api.breakWatches(func(http.ResponseWriter) {})
		time.Sleep(10 * time.Minute)
		r.api.mu.Lock()
		defer r.api.mu.Unlock()
		if len(at) < 2 || len(at) > 5 || at[1].Sub(at[0]) < 2*time.Minute {
			t.Errorf("%v", at)
		}
	})
}

// Bookmarks keep a quiet watch young: the server may forget all that was before the
// last one, and nothing has to be listed again.
func TestBookmarksAreKept(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		for range 10 { // of others, which no watch of ours is told of
			r.api.add("pods", map[string]any{"metadata": map[string]any{"name": "other"}})
		}
		time.Sleep(90 * time.Second)
		r.api.mu.Lock()
		r.api.compacted = r.api.version
		r.api.mu.Unlock()
		r.api.breakWatches(func(http.ResponseWriter) {})
		synctest.Wait()
		r.api.pod("a", "p", terminated(75, "Error", ""))
		if got := r.exited("a"); len(got) != 1 {
			t.Errorf("%+v", got)
		}
		if lists := r.api.asked("LIST"); len(lists) != 3 {
			t.Errorf("%d lists", len(lists))
		}
	})
}
