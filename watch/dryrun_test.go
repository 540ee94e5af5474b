package watch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// W-110, W-264 in kind: what is no source text is refused.
func TestOnEventMustBeSource(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		for _, source := range []string{
			"<function fmt at 0x7f3a5c0d1e50>", "<function <lambda> at 0x7f>", "<bound method X.y of <X object at 0x1>>", "<built-in function len>",
			"<class 'str'>", "<coroutine object f at 0x1>", " <function fmt>\n",
		} {
			_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: source})
			argument, ok := errors.AsType[*watch.ArgumentError](err)
			if !ok || argument.Arg != "on_event" || !strings.Contains(err.Error(), "pass the Python source as a string") {
				t.Errorf("%s: %v", source, err)
			}
		}
		if n := len(h.server.Order()); n != 0 {
			t.Errorf("%d requests for what could not work", n)
		}
		if _, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: strings.Repeat("#", watch.MaxSource+1)}); err == nil {
			t.Error("a source over the bound was accepted")
		}
	})
}

// W-111, W-265: what no event can cure fails the call, and no subscription is made;
// W-112: what an event may cure does not.
func TestDryRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		program watchtest.Program
		want    string // part of the error; "" for none
	}{
		{"syntax", nil, "SyntaxError: invalid syntax (line 1): broken"},
		{"unknown name", fails(&python.Error{Type: "NameError", Message: "name 'fmt' is not defined", Line: 3}), "a filter sees event, its own variables and the functions list_resources, read_resource"},
		{"unknown name in the branch for DELETED", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			if run.Event["type"] == "DELETED" {
				return python.Result{}, &python.Error{Type: "NameError", Message: "name 'gone' is not defined"}
			}
			return watchtest.None()
		}, "name 'gone'"},
		{"missing module", fails(&python.Error{Type: "ModuleNotFoundError", Message: "No module named 'requests'"}), "requests"},
		{"no such construct", fails(&python.Error{Type: "NotImplementedError", Message: "yield"}), "yield"},
		{"never ends", func(ctx context.Context, _ *watchtest.Run) (python.Result, error) {
			<-ctx.Done()
			return python.Result{}, ctx.Err()
		}, "time limit"},
		{"memory", fails(&python.LimitError{Limit: "memory", Text: "more than 64 MiB"}), "memory limit: more than 64 MiB"},
		{"missing key", fails(&python.Error{Type: "KeyError", Message: "'spec'"}), ""},
		{"wrong type", fails(&python.Error{Type: "TypeError", Message: "x"}), ""},
		{"attribute", fails(&python.Error{Type: "AttributeError", Message: "x"}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, h *harness) {
				if c.program != nil {
					h.engine.Register("broken", c.program)
				}
				_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: "broken"})
				if c.want == "" {
					if err != nil {
						t.Errorf("error: %v", err)
					}
					return
				}
				if _, ok := errors.AsType[*watch.FilterError](err); !ok || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "no watch was made") {
					t.Errorf("error: %v", err)
				}
				if n := h.server.Requests()["subscribe"] + h.server.Requests()["read"]; n != 0 || len(h.List()) != 0 || h.engine.Open() != 0 {
					t.Errorf("%d subscriptions and reads, %d scopes", n, h.engine.Open())
				}
			})
		})
	}
}

func fails(err error) watchtest.Program {
	return func(context.Context, *watchtest.Run) (python.Result, error) { return python.Result{}, err }
}

// W-111: the static check finds names in branches that no sample takes.
func TestStaticCheck(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", text(func(map[string]any) string { return "" }))
		h.engine.OnCheck(func(string, []string) error { return errors.New("type checker is not there") })
		h.start(t, "n", notes, "p") // a check that cannot be made stops nobody
		h.engine.OnCheck(func(string, []string) error {
			return &python.Error{Type: "NameError", Message: "name 'oops' is not defined", Line: 7}
		})
		_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: "p"})
		if filter, ok := errors.AsType[*watch.FilterError](err); !ok || filter.Temporary || !strings.Contains(err.Error(), "oops") {
			t.Errorf("error: %v", err)
		}
	})
}

// WA-21: tools are answered null in the dry run and not called, and its limits hold.
func TestDryRunCallsNoTool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil, toolServer())
		var answers []string
		h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			got, err := run.Call("memo_get", map[string]any{"key": "k"})
			answers = append(answers, fmt.Sprint(string(got), err))
			return python.Result{None: true}, nil
		})
		h.start(t, "n", notes, "p")
		if diff := cmp.Diff([]string{"null<nil>", "null<nil>", "null<nil>"}, answers); diff != "" {
			t.Error(diff)
		}
		if n := h.server.Requests()["call"]; n != 0 {
			t.Errorf("%d tool calls", n)
		}
	})
}

// A filter that needs a server which does not answer is refused with that reason,
// and not for ever.
func TestFilterOfASilentServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := toolServer()
		server := watchtest.NewServer("main")
		server.Add("x://y", "text/plain", "a")
		h := newHarness(t, nil, server, other)
		other.Refuse("tools", errors.New("connection refused"))
		h.engine.Register("p", func(_ context.Context, run *watchtest.Run) (python.Result, error) {
			_, err := run.Call("memo_get", nil)
			return python.Result{None: true}, err
		})
		_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: "x://y", OnEvent: "p"})
		filter, ok := errors.AsType[*watch.FilterError](err)
		if !ok || !filter.Temporary || !strings.Contains(err.Error(), "did not answer: memo") {
			t.Errorf("error: %v", err)
		}
		other.Refuse("tools", nil)
		h.start(t, "n", "x://y", "p")
	})
}

// Without an interpreter there are watches, and no filters.
func TestNoInterpreter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := toolServer()
		m := watch.NewManager([]watch.Server{server}, nil, watchtest.NewSink(), nil)
		defer m.Close()
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: "p"}); err == nil || !strings.Contains(err.Error(), "no Python interpreter") {
			t.Errorf("error: %v", err)
		}
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: "n", URI: notes, OnEvent: " \n"}); err != nil {
			t.Error(err)
		}
	})
}
