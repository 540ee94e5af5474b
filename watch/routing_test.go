package watch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

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
