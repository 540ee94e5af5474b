package watch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// tries are the lines of a tryout as text: what kind of event, and what becomes of
// it.
func tries(t *testing.T, out watch.Tryout) []string {
	t.Helper()
	var lines []string
	for _, l := range out.Lines {
		line := "-"
		if l.Line != nil {
			line = *l.Line
		}
		if l.Error != "" {
			line = "error: " + l.Error
		}
		if l.Now {
			line = "now: " + line
		}
		if len(l.Event) > 20<<10 || !strings.HasPrefix(string(l.Event), "{") {
			t.Errorf("an event of %d bytes", len(l.Event))
		}
		lines = append(lines, line)
	}
	return lines
}

// A filter can be tried without a watch: on the samples of a start, and on what
// there is. It is refused for what a start would refuse it for.
func TestTry(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.Add(notes, "application/json", `{"todo":"a","owner":"me"}`)
		h.server.Add("memo://list", "application/json", `["`+strings.Repeat("x", 30<<10)+`",2,3,4,5,6,7,8]`)
		h.engine.Register("type", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			kind, _ := run.Event["type"].(string)
			switch {
			case kind == "DELETED":
				return watchtest.None()
			case run.Event["key"] == "owner":
				return python.Result{}, &python.Error{Type: "KeyError", Message: "'spec'"}
			}
			return python.Result{Text: fmt.Sprint(kind, " ", run.Event["key"])}, nil
		})
		h.engine.Register("broken", fails(&python.Error{Type: "SyntaxError", Message: "invalid syntax"}))
		for _, c := range []struct {
			uri, source string
			problem     string
			want        []string
		}{
			{notes, "type", "", []string{"ADDED sample", "MODIFIED sample", "-", "now: ADDED todo", "now: error: KeyError: 'spec'"}},
			{notes, "", "", []string{"ADDED default/sample", "MODIFIED default/sample (status.phase: Pending→Ready)", "DELETED default/sample", "now: ADDED todo", "now: ADDED owner"}},
			{notes, "broken", "SyntaxError", nil},
			{"not a uri", "", "not an absolute URI", nil},
			{"other://x", "", "other://x", []string{"ADDED default/sample", "MODIFIED default/sample (status.phase: Pending→Ready)", "DELETED default/sample"}},
		} {
			out, err := h.Try(t.Context(), c.uri, c.source)
			if err != nil {
				t.Fatal(err)
			}
			if out.OK != (c.problem == "") || !strings.Contains(out.Problem, c.problem) {
				t.Errorf("%s %q: %+v", c.uri, c.source, out)
			}
			if d := cmp.Diff(c.want, tries(t, out)); d != "" {
				t.Errorf("%s %q: %s", c.uri, c.source, d)
			}
		}
		out, err := h.Try(t.Context(), "memo://list", "")
		if err != nil || !out.OK || len(out.Lines) != 3+5 {
			t.Errorf("a long list: %v %v", tries(t, out), err)
		}
		if n := h.engine.Open(); n != 0 {
			t.Errorf("%d scopes are open", n)
		}
		if len(h.List()) != 0 || h.server.Subscribers(notes) != 0 {
			t.Error("there is a watch")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Try(ctx, notes, "type"); err == nil {
			t.Error("no error although nobody waits")
		}
	})
}

// A server that hangs costs a person who tries a filter seconds, and is named; the
// samples are tried all the same.
func TestTryWithASilentServer(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.server.Add(notes, "application/json", `{"todo":"a"}`)
		h.engine.Register("p", text(func(map[string]any) string { return "line" }))
		for _, kind := range []string{"info", "entries", "read", "tools"} {
			h.server.Silence(kind, true)
			begin := time.Now()
			out, err := h.Try(t.Context(), notes, "p")
			if took := time.Since(begin); err != nil || took > 8*time.Second {
				t.Errorf("%s: after %s: %v", kind, took, err)
			}
			if kind == "tools" {
				if !out.OK || len(out.Lines) != 4 {
					t.Errorf("a filter that needs no tool: %+v", out)
				}
			} else if want := h.server.Name(); out.OK || len(out.Lines) != 3 || !strings.Contains(out.Problem, want) || !strings.Contains(out.Problem, "it does not answer") {
				t.Errorf("%s: %+v", kind, out)
			}
			h.server.Silence(kind, false)
		}
	})
}
