package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/sqlite"
)

// countingStore counts what it is asked.
type countingStore struct {
	agent.Store

	calls atomic.Int64
	tails error
}

func (s *countingStore) Sessions(ctx context.Context) ([]agent.Meta, error) {
	s.calls.Add(1)
	return s.Store.Sessions(ctx)
}

func (s *countingStore) List(ctx context.Context, id string, q agent.Query) ([]agent.Entry, error) {
	s.calls.Add(1)
	return s.Store.List(ctx, id, q)
}

func (s *countingStore) Tails(ctx context.Context, ids []string, n int, each func(string, []agent.Entry)) error {
	s.calls.Add(1)
	if s.tails != nil {
		return s.tails
	}
	return s.Store.Tails(ctx, ids, n, each)
}

// pastSessions are sessions that run nowhere, whose last turns ended in each of the ways
// in turn. It returns what is to be told of them.
func pastSessions(tb testing.TB, store agent.Store, n int) map[string]agent.TroubleKind {
	tb.Helper()
	at := time.Now().Add(-time.Hour)
	begin := agent.Entry{Time: at, Kind: agent.EntryRunStart, Run: "r"}
	end := agent.Entry{Time: at, Kind: agent.EntryRunEnd, Run: "r", Delivered: true}
	failed := agent.Entry{Time: at, Kind: agent.EntryRunEnd, Run: "r", Error: "run turn: broken", Cause: agent.CauseFailed}
	said := agent.Entry{Time: at, Kind: agent.EntryAssistant, Text: "well"}
	inside := agent.Entry{Time: at, Kind: agent.EntryAssistant, Run: "r", Text: "well"}
	many := func(e agent.Entry, n int) (all []agent.Entry) {
		for range n {
			all = append(all, e)
		}
		return all
	}
	ways := []struct {
		kind    agent.TroubleKind
		entries []agent.Entry
	}{
		{"", nil},
		{"", []agent.Entry{begin, end}},
		{agent.TroubleFailed, []agent.Entry{begin, failed}},
		{agent.TroubleFailed, append([]agent.Entry{begin, failed}, many(said, 20)...)}, // behind what the first look sees
		{agent.TroubleCutOff, []agent.Entry{begin, inside}},
		{agent.TroubleCutOff, append([]agent.Entry{begin}, many(inside, 20)...)},
	}
	want := map[string]agent.TroubleKind{}
	for i := range n {
		id, way := fmt.Sprintf("s%04d", i), ways[i%len(ways)]
		err := store.Save(tb.Context(), agent.Meta{ID: id, CreatedAt: at.Add(time.Duration(i)), UpdatedAt: at})
		if err == nil {
			err = store.Append(tb.Context(), id, way.entries...)
		}
		if err != nil {
			tb.Fatal(err)
		}
		if want[id] = way.kind; way.kind == "" {
			delete(want, id)
		}
	}
	return want
}

// The list of sessions asks the store as often for a thousand of them as for a few, and
// tells of each what it tells of it alone; that of the page is the same.
func TestSessionListAsksTheStoreOnce(t *testing.T) {
	t.Parallel()
	asked := map[int]int64{}
	for _, n := range []int{6, 1000} {
		dir := t.TempDir()
		a := testAgents(t, dir)
		store := &countingStore{Store: agent.NewMemoryStore(0, 0)}
		a.Store = store
		want := pastSessions(t, store, n)
		s := serve(t, a, dir, "")
		store.calls.Store(0)
		_, body := s.ask(http.MethodGet, "/v1/sessions", "")
		asked[n] = store.calls.Load()
		got := map[string]agent.TroubleKind{}
		for _, info := range decode[struct{ Sessions []SessionInfo }](t, []byte(body)).Sessions {
			if info.Trouble != nil {
				got[info.Meta.ID] = info.Trouble.Kind
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d sessions: %s", n, d)
		}
		for i := range 6 { // each alone, and in the list
			s.trouble(fmt.Sprintf("s%04d", i))
		}
		store.calls.Store(0)
		page := s.tab()
		page.subscribe("sessions")
		if calls := store.calls.Load(); calls != asked[n] {
			t.Errorf("%d sessions: the page asks %d times, the list %d times", n, calls, asked[n])
		}
	}
	if asked[6] != asked[1000] || asked[6] != 3 { // the sessions, and the two looks at their ends
		t.Errorf("asked %v times", asked)
	}
}

// What cannot be read is not told; the list is there all the same, also where nobody
// serves.
func TestSessionListWithoutItsEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	store := &countingStore{Store: agent.NewMemoryStore(0, 0)}
	a.Store = store
	pastSessions(t, store, 6)
	store.tails = errors.New("the disk is broken")
	s := serve(t, a, dir, "")
	code, body := s.ask(http.MethodGet, "/v1/sessions", "")
	all := decode[struct{ Sessions []SessionInfo }](t, []byte(body)).Sessions
	if code != http.StatusOK || len(all) != 6 || all[2].Trouble != nil {
		t.Errorf("%d %s", code, body)
	}

	c := config.Default()
	c.Home = t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(c.Home, DataFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := pastSessions(t, db.Sessions(nil), 6)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	h, done, err := OfflineAPI(t.Context(), c, c.Home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = done() })
	get := func(ctx context.Context) []SessionInfo {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/sessions", http.NoBody))
		return decode[struct{ Sessions []SessionInfo }](t, w.Body.Bytes()).Sessions
	}
	for _, info := range get(t.Context()) {
		if kind := want[info.Meta.ID]; (info.Trouble == nil) != (kind == "") || kind != "" && info.Trouble.Kind != kind {
			t.Errorf("%s: %+v, want %q", info.Meta.ID, info.Trouble, kind)
		}
	}
}

// BenchmarkSessionList lists a thousand sessions that run nowhere.
func BenchmarkSessionList(b *testing.B) {
	dir := b.TempDir()
	db, err := sqlite.Open(b.Context(), filepath.Join(dir, DataFile), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	store := db.Sessions(nil)
	pastSessions(b, store, 1000)
	api := newSessionAPI(&Agents{Store: store}, dir, "")
	for b.Loop() {
		if all, err := api.all(b.Context(), func(string) bool { return true }); err != nil || len(all) != 1000 {
			b.Fatal(len(all), err)
		}
	}
}
