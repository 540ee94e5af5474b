package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// W-060: the built-ins are there exactly if a server is connected.
func TestFunctions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down, up := watchtest.NewServer("down"), watchtest.NewServer("up")
		down.Refuse("info", errors.New("refused"))
		if got := newHarness(t, nil).Functions(t.Context()); got != nil {
			t.Errorf("without servers: %v", got)
		}
		if got := newHarness(t, nil, down).Functions(t.Context()); got != nil {
			t.Errorf("with none that is connected: %v", got)
		}
		if diff := cmp.Diff([]string{"list_resources", "read_resource", "watch_list", "watch_start", "watch_stop"}, newHarness(t, nil, down, up).Functions(t.Context())); diff != "" {
			t.Error(diff)
		}
	})
}

// W-011, W-012, W-061, W-062, WA-11: what list_resources shows.
func TestResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memo, old, down := watchtest.NewServer("memo"), watchtest.NewServer("old"), watchtest.NewServer("down")
		memo.AddEntry(watch.Entry{
			URI: "memo://notes", Name: "notes", MIMEType: "application/json",
			Description: "All notes.\nExample: x\nExample: await watch_start(name=\"n\", uri=\"memo://notes\")\n",
		})
		memo.AddEntry(watch.Entry{URI: "kcp://{x}", Template: true, Name: "kcp", Description: "Family. Example:\n`await watch_start(...)`"})
		memo.AddEntry(watch.Entry{URI: "memo://static", Static: true, Description: "For example: none"})
		old.AddEntry(watch.Entry{URI: "old://x"})
		old.SetInfo(watch.ServerInfo{ProtocolVersion: "2025-11-25", Subscribable: true})
		down.Refuse("entries", errors.New("connection refused"))
		h := newHarness(t, nil, memo, old, down)
		got, err := h.Resources(t.Context())
		if err == nil || !strings.Contains(err.Error(), `"down"`) {
			t.Errorf("error: %v", err)
		}
		want := []watch.Resource{
			{
				URI: "memo://notes", Name: "notes", MIMEType: "application/json", Server: "memo", Subscribable: true,
				Description: "All notes.\nExample: x\nExample: await watch_start(name=\"n\", uri=\"memo://notes\")\n",
				Example:     `await watch_start(name="n", uri="memo://notes")`,
			},
			{
				URI: "kcp://{x}", Template: true, Name: "kcp", Server: "memo", Subscribable: true,
				Description: "Family. Example:\n`await watch_start(...)`", Example: "await watch_start(...)",
			},
			{URI: "memo://static", Description: "For example: none", Server: "memo"},
			{URI: "old://x", Server: "old"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		raw, err := h.Call(t.Context(), python.Call{Name: "list_resources"})
		if err != nil {
			t.Fatal(err)
		}
		var shown []map[string]any
		if err := json.Unmarshal(raw, &shown); err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for name := range shown[0] {
			names = append(names, name)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"description", "example", "mime_type", "name", "server", "subscribable", "template", "uri"}, names); diff != "" {
			t.Error(diff)
		}
	})
}

// W-063: parsed JSON where the body is JSON, otherwise a string. B-051.
func TestRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"id":1915883588174806058, "b":[1.0]}`: `{"id":1915883588174806058, "b":[1.0]}`,
		`[1]`:                                   `[1]`,
		`7`:                                     `7`,
		`plain "text"`:                          `"plain \"text\""`,
		`{"a":1,"a":2}`:                         `"{\"a\":1,\"a\":2}"`,
		``:                                      `""`,
		"{\"a\":\"\xff\"}":                      "\"{\\\"a\\\":\\\"\ufffd\\\"}\"",
	} {
		bubble(t, nil, func(t *testing.T, h *harness) {
			h.server.Put(notes, "application/json", body)
			got, err := h.Call(t.Context(), python.Call{Name: "read_resource", Kwargs: map[string]json.RawMessage{"uri": raw(notes)}})
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || string(compacted(t, got)) != string(compacted(t, []byte(want))) {
				t.Errorf("%s reads as %s", body, got)
			}
		})
	}
	bubble(t, nil, func(t *testing.T, h *harness) {
		for _, uri := range []string{"memo://{x}", "", "memo://absent"} {
			if _, err := h.Read(t.Context(), uri); err == nil {
				t.Errorf("%q could be read", uri)
			}
		}
	})
}

func compacted(t *testing.T, b []byte) []byte {
	t.Helper()
	return []byte(strings.ReplaceAll(string(b), ", ", ","))
}

// W-064 to W-066, W-069: the built-ins as the Example: lines write them.
func TestBuiltins(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.engine.Register("src", text(func(map[string]any) string { return "" }))
		call := func(name string, kwargs map[string]any, args ...any) string {
			t.Helper()
			c := python.Call{Name: name, Kwargs: map[string]json.RawMessage{}}
			for k, v := range kwargs {
				c.Kwargs[k] = raw(v)
			}
			for _, a := range args {
				c.Args = append(c.Args, raw(a))
			}
			got, err := h.Call(t.Context(), c)
			if err != nil {
				return err.Error()
			}
			return string(got)
		}
		type kw = map[string]any
		for _, c := range []struct {
			got, want string
		}{
			{call("watch_start", kw{"name": "n", "uri": notes}), `{"name":"n","uri":"memo://notes","shape":"state"}`},
			{call("watch_start", kw{"name": "n", "uri": notes, "on_event": nil}), `{"name":"n","uri":"memo://notes","shape":"state"}`},
			{call("watch_start", kw{"on_event": "src"}, "m", notes), `{"name":"m","uri":"memo://notes","shape":"state"}`},
			{call("watch_list", nil), `[{"name":"n","uri":"memo://notes","shape":"state","events":0,"notices":0},{"name":"m","uri":"memo://notes","shape":"state","events":0,"notices":0}]`},
			{call("watch_stop", kw{"name": "n"}), `true`},
			{call("watch_stop", kw{"name": "n"}), `false`},
			{call("watch_start", kw{"name": "n"}), `ValueError: check argument uri: it is missing; pass a URI that list_resources() shows`},
			{call("watch_start", kw{"name": 7, "uri": notes}), `ValueError: check argument name: it is not a string; pass a short name for the watch, for instance name="cm"`},
			{call("watch_start", kw{"name": "n", "uri": notes, "filter": "x"}), `TypeError: watch_start() got an unexpected keyword argument 'filter'; it takes [name uri on_event]`},
			{call("watch_start", nil, "n", notes, nil, 1), `TypeError: watch_start() takes 3 arguments but 4 were given`},
			{call("watch_start", kw{"name": "n"}, "n"), `TypeError: watch_start() got multiple values for argument 'name'`},
			{call("watch_dance", nil), `NameError: name 'watch_dance' is not defined`},
			{call("watch_list", nil, 1), `TypeError: watch_list() takes 0 arguments but 1 were given`},
			{call("read_resource", nil), `ValueError: check argument uri: it is missing; pass a URI that list_resources() shows`},
		} {
			if c.got != c.want {
				t.Errorf("got  %s\nwant %s", c.got, c.want)
			}
		}
		// W-110: an object that is no source text.
		for _, v := range []any{7, kw{"a": 1}, []any{}, true, "<function f at 0x1>"} {
			if got := call("watch_start", kw{"name": "n", "uri": notes, "on_event": v}); !strings.HasPrefix(got, "ValueError: check argument on_event: ") || !strings.Contains(got, "source as a string") {
				t.Errorf("on_event=%v: %s", v, got)
			}
		}
		if got := call("watch_start", kw{"name": "n", "uri": notes, "on_event": "def"}); !strings.HasPrefix(got, "ValueError: check on_event: SyntaxError") {
			t.Errorf("syntax error: %s", got)
		}
		if got := call("watch_start", kw{"name": "n", "uri": "memo://absent"}); !strings.HasPrefix(got, "RuntimeError: read ") {
			t.Errorf("absent: %s", got)
		}
	})
}

// W-068: arguments are checked before anything is asked, and the error says what to
// pass instead.
func TestArguments(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		for _, c := range []struct{ name, uri, arg, fix string }{
			{"", notes, "name", `name="cm"`},
			{"  ", notes, "name", `name="cm"`},
			{strings.Repeat("n", watch.MaxName+1), notes, "name", "at most 64"},
			{"a\nb", notes, "name", "letters"},
			{"a\u202eb", notes, "name", "letters"},
			{"n", "", "uri", "list_resources()"},
			{"n", "notes", "uri", "scheme://"},
			{"n", "memo:a b", "uri", "scheme://"},
			{"n", "memo://%zz", "uri", "percent-encoded"},
			{"n", "kcp://watch/{workspace}/x", "uri", "replace each {...}"},
			{"n", "kcp://watch/x{?namespace}", "uri", "replace each {...}"},
			{"n", "memo://" + strings.Repeat("x", watch.MaxURI), "uri", "at most 4096"},
		} {
			_, err := h.Start(t.Context(), watch.StartRequest{Name: c.name, URI: c.uri})
			argument, ok := errors.AsType[*watch.ArgumentError](err)
			if !ok || argument.Arg != c.arg || !strings.Contains(err.Error(), c.fix) {
				t.Errorf("name %.10q, uri %.30q: %v", c.name, c.uri, err)
			}
		}
		if n := len(h.server.Order()); n != 0 {
			t.Errorf("%d requests", n)
		}
		h.start(t, strings.Repeat("n", watch.MaxName), notes, "")
	})
}

// W-046 beside package listen's own tests: every subset and order of the query.
func TestTemplateRouting(t *testing.T) {
	t.Parallel()
	const template = "kcp-events://watch/{workspace}/{resource}{?namespace,labelSelector,fieldSelector,kcp}"
	synctest.Test(t, func(t *testing.T) {
		kube, other := watchtest.NewServer("kube"), watchtest.NewServer("other")
		kube.AddEntry(watch.Entry{URI: template, Template: true})
		kube.OnRead(func(context.Context, string, *int64) (watch.Body, error) { return watch.Body{Text: "x"}, nil })
		kube.SetInfo(watch.ServerInfo{ProtocolVersion: watch.RequiredVersion, Listens: true}) // no fallback to hide a miss
		h := newHarness(t, nil, kube, other)
		for uri, match := range map[string]bool{
			"kcp-events://watch/root:app/configmaps":                               true,
			"kcp-events://watch/root:app/configmaps?namespace=*":                   true,
			"kcp-events://watch/root%3Aapp/configmaps?kcp=a&namespace=default":     true,
			"kcp-events://watch/root:app/pods?labelSelector=a%3Db&fieldSelector=x": true,
			"kcp-events://watch/root:app":                                          false,
			"kcp-events://watch/root:app/configmaps?unknown=1":                     false,
		} {
			_, err := h.Start(t.Context(), watch.StartRequest{Name: "n", URI: uri})
			refused, ok := errors.AsType[*watch.RefusedError](err)
			if got := ok && refused.Server == "kube"; got != match {
				t.Errorf("%s: %v", uri, err)
			}
		}
	})
}
