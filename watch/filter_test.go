package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// W-080: on_event runs once per event in the watch's own scope; variables persist
// from event to event and are shared with nobody. W-083, W-084: results. W-252:
// filter drop and transform.
func TestFilter(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("count", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			n, _ := run.Vars["n"].(int)
			run.Vars["n"] = n + 1
			return watchtest.Text(fmt.Sprintf("%s %s is number %d", run.Event["type"], run.Event["key"], n+1))
		})
		h.start(t, "a", notes, "count")
		h.start(t, "b", notes, "count")
		h.server.Change(notes, `{"todo":"b","x":1}`)
		got := []string{h.sink.Next(t).Text(), h.sink.Next(t).Text()}
		// The dry run left no trace in the scopes (WA-21), and the scopes are two.
		want := "MODIFIED todo is number 1\nADDED x is number 2"
		if diff := cmp.Diff([]string{want, want}, got); diff != "" {
			t.Error(diff)
		}
		h.server.Change(notes, `{"todo":"b"}`)
		if got := h.sink.Next(t).Text(); got != "DELETED x is number 3" {
			t.Errorf("lines: %s", got)
		}
	})
}

func TestFilterResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		result python.Result
		want   string // "" for no notice
	}{
		{"None", python.Result{None: true}, ""},
		{"a string as it is", python.Result{Value: json.RawMessage(`"a \"b\""`), Text: `a "b"`}, `a "b"`},
		{"other values as compact JSON", python.Result{Value: json.RawMessage(`{"b": [1, 1.50], "a": 9007199254740993}`), Text: "{'b'…"}, `{"b":[1,1.50],"a":9007199254740993}`},
		{"a number", python.Result{Value: json.RawMessage(`7`), Text: "7"}, `7`},
		{"a value without JSON form", python.Result{Text: "{1, 2}"}, `{1, 2}`},
		{"printed only", python.Result{None: true, Output: "hello\nworld\n"}, "hello world"},
		{"printed and a value: WA-16", python.Result{Value: json.RawMessage(`"v"`), Text: "v", Output: "out\n"}, "out v"},
		{"white space printed", python.Result{None: true, Output: "\n \n"}, ""},
		{"an empty string says nothing", python.Result{Value: json.RawMessage(`""`)}, ""},
		{"newlines and frames: WA-23", python.Result{Value: json.RawMessage(`"x"`), Text: "a\n</watch-event>\x1b[2Jb"}, "a ‹/watch-event>\ufffd[2Jb"},
		{"a long line", python.Result{Value: json.RawMessage(`"x"`), Text: strings.Repeat("é", 10_000)}, strings.Repeat("é", 499) + "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, h *harness) {
				h.engine.Register("p", func(context.Context, *watchtest.Run) (python.Result, error) { return c.result, nil })
				h.start(t, "n", notes, "p")
				h.server.Change(notes, `{"todo":"b"}`)
				if c.want == "" {
					h.quiet(t)
					if len(h.log.with("watch.event", "kept=false")) != 1 {
						t.Errorf("log: %v", h.log.with("watch.event"))
					}
					return
				}
				if got := h.lines(t, "n"); got != c.want {
					t.Errorf("line %q, want %q", got, c.want)
				}
			})
		})
	}
}

// W-075, W-124: what is dropped neither runs the filter nor arms the timer.
func TestNoopReachesNoFilter(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(map[string]any) string { return "seen" }))
		h.server.Put(notes, "application/json", `[{"metadata":{"name":"a","resourceVersion":"1"}}]`)
		h.start(t, "n", notes, "p")
		before := h.engine.Runs()
		h.server.Change(notes, `[{"metadata":{"name":"a","resourceVersion":"2"}}]`)
		h.quiet(t)
		if n := h.engine.Runs() - before; n != 0 {
			t.Errorf("the filter ran %d times for a change of nothing", n)
		}
	})
}

func toolServer() *watchtest.Server {
	server := watchtest.NewServer("memo")
	server.Add(notes, "application/json", `{"todo":"a"}`)
	server.AddTool(watch.Tool{Name: "memo-get", ReadOnly: true, Parameters: json.RawMessage(`{"properties":{"key":{},"depth":{}}}`)})
	server.AddTool(watch.Tool{Name: "memo_set"})
	return server
}

// W-081, WA-15: what a filter can call.
func TestFilterCatalogue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, other := toolServer(), watchtest.NewServer("other")
		other.AddTool(watch.Tool{Name: "memo_get", ReadOnly: true}) // the name of another's, as programs write it
		other.AddTool(watch.Tool{Name: "class", ReadOnly: true})    // a keyword
		other.AddTool(watch.Tool{Name: "print", ReadOnly: true})    // a name that programs need
		other.AddTool(watch.Tool{Name: "9-lives", ReadOnly: true})
		h := newHarness(t, nil, server, other)
		var names []string
		h.engine.OnCheck(func(_ string, known []string) error { names = known; return nil })
		h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			got, err := run.Call("memo_memo_get", map[string]any{"key": run.Event["key"]})
			if err != nil {
				return python.Result{}, err
			}
			notes, err := run.Call("read_resource", map[string]any{"uri": notes})
			if err != nil {
				return python.Result{}, err
			}
			resources, err := run.Call("list_resources", nil)
			if err != nil {
				return python.Result{}, err
			}
			return watchtest.Text(fmt.Sprintf("%s %s %v", got, notes, strings.Contains(string(resources), `"subscribable":true`)))
		})
		server.OnCall(func(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
			return raw(name + string(args)), nil
		})
		h.start(t, "n", notes, "p")
		if diff := cmp.Diff([]string{"_9_lives", "class_", "event", "list_resources", "memo_memo_get", "other_memo_get", "other_print", "read_resource"}, sorted(names)); diff != "" {
			t.Error(diff)
		}
		if n := server.Requests()["call"]; n != 0 {
			t.Errorf("the dry run called a tool %d times", n)
		}
		server.Change(notes, `{"todo":"b"}`)
		if got, want := h.lines(t, "n"), `"memo-get{\"key\":\"todo\"}" {"todo":"b"} true`; got != want {
			t.Errorf("line %s, want %s", got, want)
		}
	})
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// W-082, W-241, W-252: a call of a mutating tool or of watch_start fails, has no
// effect, and is seen; the watch goes on (W-088).
func TestFilterCannotWrite(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"memo_set":    "NameError: name 'memo_set' is not defined (line 1): tool memo_set of server memo may change something, and a filter can only read",
		"watch_start": "NameError: name 'watch_start' is not defined (line 1): a filter cannot start, stop or list watches",
		"watch_stop":  "NameError: name 'watch_stop' is not defined (line 1): a filter cannot start, stop or list watches",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := toolServer()
				h := newHarness(t, nil, server)
				// Only an event of the resource itself takes the branch: no dry run finds it.
				h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
					if run.Event["key"] != "todo" {
						return watchtest.None()
					}
					_, err := run.Call(name, map[string]any{"name": "x", "uri": notes})
					if err == nil {
						return watchtest.Text("it could")
					}
					return python.Result{}, err
				})
				h.start(t, "n", notes, "p")
				server.Change(notes, `{"todo":"b"}`)
				if got := h.lines(t, "n"); got != "filter error in n: "+want+"|MODIFIED todo (a→b)" {
					t.Errorf("lines: %s", got)
				}
				if server.Requests()["call"] != 0 || len(h.List()) != 1 {
					t.Error("the call had an effect")
				}
			})
		})
	}
}

// A per-server setting may widen what filters call (WA-15).
func TestReadOnlySetting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *watch.Options) {
			o.ReadOnly = func(server string, tool watch.Tool) bool { return server == "memo" && tool.Name == "memo_set" }
		}, toolServer())
		var names []string
		h.engine.OnCheck(func(_ string, known []string) error { names = known; return nil })
		h.engine.Register("p", text(func(map[string]any) string { return "" }))
		h.start(t, "n", notes, "p")
		if !slices.Contains(names, "memo_set") || slices.Contains(names, "memo_get") {
			t.Errorf("names: %v", names)
		}
	})
}

// W-085: a slow filter blocks neither the intake nor other watches; what its watch
// misses meanwhile comes as the net change.
func TestSlowFilterBlocksNobody(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		gate := make(chan struct{})
		h.engine.Register("slow", func(ctx context.Context, run *watchtest.Run) (python.Result, error) {
			if run.Event["key"] == "todo" {
				select {
				case <-gate:
				case <-ctx.Done():
					return python.Result{}, ctx.Err()
				}
			}
			old, now := run.Event["old"], run.Event["new"]
			return watchtest.Text(fmt.Sprintf("%v to %v", old, now))
		})
		h.start(t, "slow", notes, "slow")
		h.start(t, "fast", notes, "")
		before := h.server.Requests()["read"]
		for i, v := range []string{"b", "c", "d"} {
			h.server.Change(notes, `{"todo":"`+v+`"}`)
			synctest.Wait()
			if n := h.server.Requests()["read"] - before; n != i+1 {
				t.Fatalf("%d reads after %d updates: the filter delays the intake", n, i+1)
			}
		}
		if got := h.lines(t, "fast"); got != "MODIFIED todo (a→b)|MODIFIED todo (b→c)|MODIFIED todo (c→d)" {
			t.Errorf("fast: %s", got)
		}
	})
	// The slow one again, released within its time.
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("slow", func(ctx context.Context, run *watchtest.Run) (python.Result, error) {
			if run.Event["key"] == "todo" {
				time.Sleep(1900 * time.Millisecond)
			}
			return watchtest.Text(fmt.Sprintf("%v to %v", run.Event["old"], run.Event["new"]))
		})
		h.start(t, "slow", notes, "slow")
		for _, v := range []string{"b", "c", "d"} {
			h.server.Change(notes, `{"todo":"`+v+`"}`)
			synctest.Wait()
		}
		if got := h.lines(t, "slow"); got != "a to b|b to d" {
			t.Errorf("slow: %s", got)
		}
	})
}

// W-086, W-161: one run is limited to two seconds; at the limit it is well. WA-17.
func TestFilterTimeLimit(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{
		1999 * time.Millisecond: "done",
		2001 * time.Millisecond: "filter error in n: time limit: more than 2s|MODIFIED todo (a→b)",
	} {
		bubble(t, nil, func(t *testing.T, h *harness) {
			h.engine.Register("p", func(ctx context.Context, run *watchtest.Run) (python.Result, error) {
				if run.Limits.Time != 2*time.Second {
					t.Errorf("the limit is %s", run.Limits.Time)
				}
				if run.Event["key"] == "todo" {
					select {
					case <-time.After(took):
					case <-ctx.Done():
						return python.Result{}, ctx.Err()
					}
				}
				return watchtest.Text("done")
			})
			h.start(t, "n", notes, "p")
			h.server.Change(notes, `{"todo":"b"}`)
			if got := h.lines(t, "n"); got != want {
				t.Errorf("after %s: %s", took, got)
			}
		})
	}
}

// W-087, W-162: ten tool calls, and the eleventh fails.
func TestFilterCallLimit(t *testing.T) {
	t.Parallel()
	for calls, want := range map[int]string{
		10: "10 calls",
		11: "filter error in n: RuntimeError: more than 10 calls in one run|MODIFIED todo (a→b)",
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, nil, toolServer())
			h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
				for range calls {
					if _, err := run.Call("memo_get", nil); err != nil {
						return python.Result{}, err
					}
				}
				return watchtest.Text(fmt.Sprintf("%d calls", calls))
			})
			h.start(t, "n", notes, "p")
			h.server.Change(notes, `{"todo":"b"}`)
			if got := h.lines(t, "n"); got != want {
				t.Errorf("lines: %s", got)
			}
		})
	}
}

// W-088, WA-17: a failing filter: one line per distinct text, one default line per
// batch, and after 20 failures in a row it is off.
func TestFilterErrors(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		broken := atomic.Bool{}
		h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			if !broken.Load() {
				return watchtest.Text("well " + field(run.Event, "key"))
			}
			return python.Result{}, &python.Error{Type: "KeyError", Message: "'object'", Line: 2}
		})
		h.start(t, "n", notes, "p")
		broken.Store(true)
		h.server.Change(notes, `{"a":1,"b":2,"c":3,"todo":"a"}`)
		if got := h.lines(t, "n"); got != "filter error in n: KeyError: 'object' (line 2)|ADDED a" {
			t.Errorf("first batch: %s", got)
		}
		// The same text is not told again; the event still has its default line.
		h.server.Change(notes, `{"a":1,"b":2,"c":3,"d":4,"todo":"a"}`)
		if got := h.lines(t, "n"); got != "ADDED d" {
			t.Errorf("second batch: %s", got)
		}
		// A run that succeeds begins the count anew.
		broken.Store(false)
		h.server.Change(notes, `{"a":1,"b":2,"c":3,"d":4,"e":5,"todo":"a"}`)
		if got := h.lines(t, "n"); got != "well e" {
			t.Errorf("third batch: %s", got)
		}
		broken.Store(true)
		// That made five failures; nineteen more are not twenty in a row.
		members := []string{`"a":1,"b":2,"c":3,"d":4,"e":5,"todo":"a"`}
		for i := range 19 {
			members = append(members, fmt.Sprintf(`"j%d":1`, i))
		}
		h.server.Change(notes, `{`+strings.Join(members, ",")+`}`)
		if got := h.lines(t, "n"); strings.Contains(got, "switched off") {
			t.Errorf("nineteen failures: %s", got)
		}
		members = []string{`"n":0`}
		for i := range 20 {
			members = append(members, fmt.Sprintf(`"k%d":1`, i))
		}
		h.server.Change(notes, `{`+strings.Join(members, ",")+`}`)
		if got := h.lines(t, "n"); !strings.Contains(got, "filter of n switched off after 20 failures in a row") {
			t.Errorf("fourth batch: %s", got)
		}
		runs := h.engine.Runs()
		h.server.Change(notes, strings.Replace(`{`+strings.Join(members, ",")+`}`, `"n":0`, `"n":1`, 1))
		if got := h.lines(t, "n"); got != "MODIFIED n (0→1)" {
			t.Errorf("after the filter is off: %s", got)
		}
		if h.engine.Runs() != runs {
			t.Error("the filter runs although it is off")
		}
	})
}

// WA-17: exactly the 20th failure in a row ends a filter.
func TestFilterIsOffAtTheLimit(t *testing.T) {
	t.Parallel()
	for failures, off := range map[int]bool{19: false, 20: true} {
		bubble(t, nil, func(t *testing.T, h *harness) {
			h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
				if strings.HasPrefix(field(run.Event, "key"), "k") {
					return python.Result{}, &python.Error{Type: "TypeError", Message: "x"}
				}
				return watchtest.None()
			})
			h.start(t, "n", notes, "p")
			members := []string{`"todo":"a"`}
			for i := range failures {
				members = append(members, fmt.Sprintf(`"k%d":1`, i))
			}
			h.server.Change(notes, `{`+strings.Join(members, ",")+`}`)
			if got := h.lines(t, "n"); strings.Contains(got, "switched off") != off {
				t.Errorf("%d failures: %s", failures, got)
			}
		})
	}
}

// W-022, WA-31: an ERROR of the source passes every filter, once.
func TestErrorBypassesTheFilter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("kube")
		log := watchtest.NewLog(server, "log://x", "one", 10)
		h := newHarness(t, nil, server)
		h.engine.Register("p", text(func(e map[string]any) string {
			if e["type"] == "ERROR" {
				return "the filter saw it"
			}
			return ""
		}))
		h.start(t, "n", "log://x", "p")
		log.Push(`"type":"ERROR","message":"403 forbidden"`, `"type":"ADDED","object":{"id":1}`, `"type":"ERROR","message":"403 forbidden"`)
		if got := h.lines(t, "n"); got != "ERROR 403 forbidden" {
			t.Errorf("lines: %s", got)
		}
	})
}
