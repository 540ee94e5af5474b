package agent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// quiet is an engine that answers every turn with nothing.
type quiet struct{ sink Sink }

func (q *quiet) Start(_ context.Context, _ StartOptions, sink Sink) (Info, error) {
	q.sink = sink
	return Info{}, nil
}

func (q *quiet) Turn(context.Context, Prompt) (Outcome, error) {
	return Outcome{Stop: StopEndTurn}, nil
}
func (q *quiet) Cancel(context.Context) error { return nil }
func (q *quiet) Close() error                 { return nil }

// W-001, W-240: a session that has nothing to do waits for nothing in time: no
// timer is armed, at first, after a run, after activity out of turn, and while
// notices are held back.
func TestIdleSessionArmsNoTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := &quiet{}
		s, err := NewSession("s", func() (Engine, error) { return engine, nil }, NewMemoryStore(0, 0), func([]Notice, bool) string { return "x" }, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		look := func(when string) {
			t.Helper()
			synctest.Wait()
			time.Sleep(time.Hour)
			if st := s.next(time.Now()); st.wait != 0 || st.work || st.over {
				t.Errorf("%s: %+v", when, st)
			}
		}
		look("at first")
		if err := s.Notify(Notice{ID: "n1"}, nil); err != nil {
			t.Fatal(err)
		}
		look("after a run")
		engine.sink(Activity{What: "own account"})
		look("after activity out of turn")
		s.mu.Lock()
		s.held = true
		s.mu.Unlock()
		if err := s.Notify(Notice{ID: "n2"}, nil); err != nil {
			t.Fatal(err)
		}
		look("while a notice is held")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Run may be on its way to tell of a turn that has been settled meanwhile: then
// nobody hears of it after the last word.
func TestNoWordAfterTheLast(t *testing.T) {
	t.Parallel()
	s, err := NewSession("s", func() (Engine, error) { return &quiet{}, nil }, NewMemoryStore(0, 0), func([]Notice, bool) string { return "x" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	heard := 0
	r := &run{items: []*item{{notice: &Notice{ID: "n1"}, acks: []func(Ack){func(Ack) { heard++ }}}}}
	s.endWoken(r)
	s.tellWoken(r)
	if heard != 0 {
		t.Error("heard of the turn after its end")
	}
}

// The bounded set of seen ids forgets the oldest first.
func TestRecent(t *testing.T) {
	t.Parallel()
	r := newRecent()
	for i := range seenIDs + 1 {
		r.add(string(rune('a' + i)))
		r.add(string(rune('a' + i)))
	}
	if r.has("a") || !r.has("b") || !r.has(string(rune('a'+seenIDs))) || len(r.set) != seenIDs {
		t.Errorf("%d ids, first %v", len(r.set), r.has("a"))
	}
}

// A transcript that its store cannot follow is bounded, and says what is
// missing.
func TestTranscriptIsBounded(t *testing.T) {
	t.Parallel()
	store := NewMemoryStore(0, 0)
	tr := newTranscript("s", store, (&Options{}).orDefaults().Log)
	for range maxPending + 10 {
		tr.add(Entry{Kind: EntryThought, Text: "x"})
	}
	if err := tr.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.add(Entry{Kind: EntryUser})
	if err := tr.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := store.List(t.Context(), "s", Query{After: maxPending - 1})
	if err != nil || len(all) != 3 || all[1].Text != "10 entries are missing here" || all[2].Kind != EntryUser {
		t.Errorf("%+v, %v", all, err)
	}
	long := make([]byte, maxRaw+1)
	for i := range long {
		long[i] = '1'
	}
	tr.add(Entry{Kind: EntryTool, Input: long, Output: []byte("{not json")})
	if err := tr.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err = store.List(t.Context(), "s", Query{Last: true, Limit: 1})
	if err != nil || len(all[0].Input) != maxRaw+2 || string(all[0].Output) != `"{not json"` {
		t.Errorf("%d bytes, %s, %v", len(all[0].Input), all[0].Output, err)
	}
}

// FuzzCut: a cut never splits a rune and never grows.
func FuzzCut(f *testing.F) {
	f.Add("aé日", 2)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		got := cut(s, limit)
		if len(got) > limit || got != s[:len(got)] {
			t.Errorf("%q cut at %d is %q", s, limit, got)
		}
	})
}

// FuzzToolSignature: no schema of a server breaks naming or binding.
func FuzzToolSignature(f *testing.F) {
	f.Add(`{"properties":{"a b":{"type":["string","null"]},"a_b":{},"class":{"type":5}},"required":["a b",1],"additionalProperties":false}`, "a_b")
	f.Add(`[]`, "x")
	f.Fuzz(func(t *testing.T, schema, key string) {
		sig := toolSignature("f", []byte(schema))
		seen := map[string]bool{}
		for _, p := range sig.params {
			if p.name != python.Identifier(p.name) || seen[p.name] {
				t.Errorf("parameter %q of %s", p.name, schema)
			}
			seen[p.name] = true
		}
		args, err := sig.bind(python.Call{Name: "f", Kwargs: map[string]json.RawMessage{key: json.RawMessage("1")}})
		if err != nil {
			var raised *python.Error
			if !errors.As(err, &raised) || raised.Type != "TypeError" {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := toolArguments(sig.object(args)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	})
}
