package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// harness is a manager over in-memory servers, under a virtual clock.
type harness struct {
	*watch.Manager
	server *watchtest.Server
	engine *watchtest.Engine
	sink   *watchtest.Sink
	log    *records
}

// bubble runs a test with a manager over one server, "memo", that has a state
// resource memo://notes. change, if not nil, alters the options.
func bubble(t *testing.T, change func(*watch.Options), test func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := watchtest.NewServer("memo")
		server.Add(notes, "application/json", `{"todo":"a"}`)
		test(t, newHarness(t, change, server))
	})
}

const notes = "memo://notes"

func newHarness(t *testing.T, change func(*watch.Options), servers ...*watchtest.Server) *harness {
	t.Helper()
	h := &harness{engine: watchtest.NewEngine(), sink: watchtest.NewSink(), log: &records{}}
	opts := &watch.Options{Logger: slog.New(h.log)}
	if change != nil {
		change(opts)
	}
	var list []watch.Server
	for _, s := range servers {
		list = append(list, s)
	}
	if len(servers) > 0 {
		h.server = servers[0]
	}
	h.Manager = watch.NewManager(list, h.engine, h.sink, opts)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if n := h.engine.Open(); n != 0 {
			t.Errorf("%d scopes are open after Close", n)
		}
		for _, s := range servers {
			if n := s.Subscribers(notes); n != 0 {
				t.Errorf("%d subscriptions after Close", n)
			}
		}
	})
	return h
}

func (h *harness) start(t *testing.T, name, uri, source string) watch.Started {
	t.Helper()
	started, err := h.Start(t.Context(), watch.StartRequest{Name: name, URI: uri, OnEvent: source})
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// lines waits for the next notice, of the named watch, and joins its lines.
func (h *harness) lines(t *testing.T, name string) string {
	t.Helper()
	n := h.sink.Next(t)
	if n.Watch != name {
		t.Fatalf("the notice is of %q, want %q: %v", n.Watch, name, n.Lines)
	}
	return strings.Join(n.Lines, "|")
}

// quiet lets a minute pass and fails if a notice came.
func (h *harness) quiet(t *testing.T) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	h.sink.Empty(t)
}

// records keeps what is logged.
type records struct {
	hook func(message string) // called with each record, before it is kept

	mu   sync.Mutex
	list []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	if r.hook != nil {
		r.hook(rec.Message)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := rec.Level.String() + " " + rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		s += " " + a.Key + "=" + a.Value.String()
		return true
	})
	r.list = append(r.list, s)
	return nil
}

// with returns the records whose text contains all parts.
func (r *records) with(parts ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
next:
	for _, s := range r.list {
		for _, p := range parts {
			if !strings.Contains(s, p) {
				continue next
			}
		}
		found = append(found, s)
	}
	return found
}

// text makes a program whose result is a string, or None for "".
func text(f func(event map[string]any) string) watchtest.Program {
	return func(_ context.Context, run *watchtest.Run) (python.Result, error) {
		if s := f(run.Event); s != "" {
			return watchtest.Text(s)
		}
		return watchtest.None()
	}
}

func field(event map[string]any, name string) string {
	s, _ := event[name].(string)
	return s
}

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint("encode: ", err))
	}
	return b
}

func newLogger(r *records) *slog.Logger { return slog.New(r) }
