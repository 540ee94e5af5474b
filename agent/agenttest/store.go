package agenttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/agent"
)

// RunStore is the conformance suite of agent.Store. open returns a store over
// the same data each time it is called within one test, so that a store that
// outlives its process can be tried across a restart; reopen says that it does.
func RunStore(t *testing.T, reopen bool, open func(t *testing.T) func() agent.Store) {
	at := time.Date(2026, 11, 3, 10, 0, 0, 123_000_000, time.UTC)
	t.Run("MetaIsReplacedAndListedByAge", func(t *testing.T) { // N-19
		store := open(t)()
		young := agent.Meta{ID: "b", Profile: "p", Dir: "/d", CreatedAt: at.Add(time.Hour), UpdatedAt: at}
		old := agent.Meta{ID: "a", CreatedAt: at, UpdatedAt: at}
		must(t, store.Save(t.Context(), young))
		must(t, store.Save(t.Context(), old))
		old.Conversation, old.Agent, old.UpdatedAt = "c-1", "codex 1", at.Add(time.Minute)
		must(t, store.Save(t.Context(), old))
		got, err := store.Sessions(t.Context())
		must(t, err)
		diff(t, []agent.Meta{old, young}, got)
	})
	t.Run("EntriesKeepEveryField", func(t *testing.T) {
		store := open(t)()
		want := full(at)
		must(t, store.Append(t.Context(), "s", want))
		got := list(t, store, "s", agent.Query{})
		want.Seq = 1
		diff(t, []agent.Entry{want}, got)
	})
	t.Run("NumbersHaveNoHoles", func(t *testing.T) {
		store := open(t)()
		for i := range 3 {
			must(t, store.Append(t.Context(), "s", entry(at, i*2), entry(at, i*2+1)))
		}
		must(t, store.Append(t.Context(), "s"))
		must(t, store.Append(t.Context(), "other", entry(at, 9)))
		for i, e := range list(t, store, "s", agent.Query{}) {
			if e.Seq != int64(i+1) || e.Text != fmt.Sprint(i) {
				t.Errorf("entry %d has seq %d and text %q", i, e.Seq, e.Text)
			}
		}
		if other := list(t, store, "other", agent.Query{}); len(other) != 1 || other[0].Seq != 1 {
			t.Errorf("the other session has %+v", other)
		}
	})
	t.Run("QueriesSelect", func(t *testing.T) {
		store := open(t)()
		for i := range 10 {
			must(t, store.Append(t.Context(), "s", entry(at, i)))
		}
		for _, c := range []struct {
			q    agent.Query
			want string
		}{
			{agent.Query{}, "0123456789"},
			{agent.Query{After: 4}, "456789"},
			{agent.Query{After: 4, Limit: 2}, "45"},
			{agent.Query{Limit: 3, Last: true}, "789"},
			{agent.Query{After: 8, Limit: 3, Last: true}, "89"},
			{agent.Query{After: 10}, ""},
			{agent.Query{After: 99}, ""},
		} {
			var got strings.Builder
			for _, e := range list(t, store, "s", c.q) {
				got.WriteString(e.Text)
			}
			if got.String() != c.want {
				t.Errorf("%+v: got %q, want %q", c.q, got.String(), c.want)
			}
		}
		if got := list(t, store, "nobody", agent.Query{}); len(got) != 0 {
			t.Errorf("an unknown session has %v", got)
		}
	})
	t.Run("TailsAreTheEndsOfMany", func(t *testing.T) {
		store := open(t)()
		for i := range 5 { // the sessions' entries are among each other
			for n, id := range []string{"b", "a", "c"} {
				e := full(at)
				e.Title = fmt.Sprint(id, i)
				if n < 2 || i == 0 {
					must(t, store.Append(t.Context(), id, e))
				}
			}
		}
		must(t, store.Save(t.Context(), agent.Meta{ID: "empty", CreatedAt: at}))
		got := map[string][]string{}
		must(t, store.Tails(t.Context(), []string{"a", "c", "empty", "nobody", "it's"}, 2, func(id string, tail []agent.Entry) {
			for _, e := range tail {
				want := full(at)
				want.Seq, want.Title, want.Text, want.Input, want.Output = e.Seq, e.Title, "", nil, nil
				diff(t, want, e)
				got[id] = append(got[id], fmt.Sprint(e.Seq, " ", e.Title))
			}
		}))
		diff(t, map[string][]string{"a": {"4 a3", "5 a4"}, "c": {"1 c0"}}, got)
		for _, none := range [][]string{nil, {}} {
			must(t, store.Tails(t.Context(), none, 2, func(id string, _ []agent.Entry) { t.Errorf("%q was not asked for", id) }))
		}
	})
	t.Run("RemoveTakesTheTranscriptToo", func(t *testing.T) { // N-19
		store := open(t)()
		must(t, store.Save(t.Context(), agent.Meta{ID: "s", CreatedAt: at}))
		must(t, store.Append(t.Context(), "s", entry(at, 1)))
		must(t, store.Append(t.Context(), "other", entry(at, 2)))
		must(t, store.Remove(t.Context(), "s"))
		if got := list(t, store, "s", agent.Query{}); len(got) != 0 {
			t.Errorf("entries are left: %v", got)
		}
		if got := list(t, store, "other", agent.Query{}); len(got) != 1 {
			t.Errorf("another session lost entries: %v", got)
		}
		metas, err := store.Sessions(t.Context())
		must(t, err)
		if len(metas) != 0 {
			t.Errorf("sessions are left: %v", metas)
		}
		if err := store.Remove(t.Context(), "s"); !errors.Is(err, agent.ErrNotFound) {
			t.Errorf("removing it again: %v, want ErrNotFound", err)
		}
	})
	t.Run("WritersDoNotMix", func(t *testing.T) {
		store := open(t)()
		const writers, rounds = 4, 25
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for range rounds {
					if err := store.Append(t.Context(), "s", entry(at, w), entry(at, w)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		all := list(t, store, "s", agent.Query{})
		if len(all) != writers*rounds*2 {
			t.Fatalf("%d entries, want %d", len(all), writers*rounds*2)
		}
		for i := 0; i < len(all); i += 2 {
			if all[i].Seq != int64(i+1) || all[i].Text != all[i+1].Text {
				t.Fatalf("entries %d and %d were torn apart: %v %v", i, i+1, all[i], all[i+1])
			}
		}
	})
	t.Run("ExportWritesLines", func(t *testing.T) { // N-19
		store := open(t)()
		must(t, store.Append(t.Context(), "s", full(at), entry(at, 1)))
		var out bytes.Buffer
		must(t, agent.Export(t.Context(), store, "s", &out))
		var got []agent.Entry
		for line := range strings.Lines(out.String()) {
			var e agent.Entry
			must(t, json.Unmarshal([]byte(line), &e))
			got = append(got, e)
		}
		diff(t, list(t, store, "s", agent.Query{}), got)
	})
	if reopen {
		t.Run("SurvivesARestart", func(t *testing.T) { // N-19
			again := open(t)
			store := again()
			must(t, store.Save(t.Context(), agent.Meta{ID: "s", CreatedAt: at, UpdatedAt: at}))
			must(t, store.Append(t.Context(), "s", full(at)))
			store = again()
			must(t, store.Append(t.Context(), "s", entry(at, 7)))
			all := list(t, store, "s", agent.Query{})
			if len(all) != 2 || all[1].Seq != 2 || all[0].Text != full(at).Text {
				t.Errorf("after a restart: %+v", all)
			}
			if metas, err := store.Sessions(t.Context()); err != nil || len(metas) != 1 {
				t.Errorf("after a restart: sessions %v, %v", metas, err)
			}
		})
	}
}

func entry(at time.Time, n int) agent.Entry {
	return agent.Entry{Time: at, Kind: agent.EntryUser, Text: fmt.Sprint(n)}
}

func full(at time.Time) agent.Entry {
	return agent.Entry{
		Time: at, Kind: agent.EntryMonitor, Run: "run-1", ID: "n-1", Text: "ADDED \x00 é </watch-event> 日本",
		From: "eve", Channel: "#a", Operation: agent.OpEnqueue, TaskID: "watch-cm", Description: "watch cm memo://notes", Note: "note",
		Title: "title", Status: "completed", Input: json.RawMessage(`{"id":1915883588174806058}`), Output: json.RawMessage(`[1.0,null]`),
		Inputs: []string{"in-1"}, Notices: []string{"n-1", "n-2"}, Delivered: true, Suppressed: true, Error: "broken",
	}
}

func list(t *testing.T, store agent.Store, session string, q agent.Query) []agent.Entry {
	t.Helper()
	got, err := store.List(t.Context(), session, q)
	must(t, err)
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func diff(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)); d != "" {
		t.Error(d)
	}
}
