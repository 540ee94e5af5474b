package noticetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/notice"
)

// t0 is when the suite begins; its own time, so that every store sees the same.
var t0 = time.Date(2026, 11, 29, 12, 0, 0, 123456789, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// RunStore is the contract of notice.Store. open returns a new, empty store and
// sees to its end.
func RunStore(t *testing.T, open func(t *testing.T) notice.Store) {
	t.Helper()
	tests := []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"agents", testAgents},
		{"insert", testInsert},
		{"keeps every field", testFields},
		{"dedupe", testDedupe},
		{"states move forward only", testMove},
		{"list", testList},
		{"claims to wake", testWakeClaims},
		{"pulls", testPulls},
		{"release", testRelease},
		{"desk", testDesk},
		{"ledger", testLedger},
		{"prune by age", testPruneAge},
		{"prune by number", testPruneKeep},
		{"delete", testDelete},
		{"claims are exclusive", testExclusive},
		{"behaves like the model", testModel},
		{"a cancelled call does nothing", testCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, &suite{t: t, Store: open(t)}) })
	}
}

type suite struct {
	t *testing.T
	notice.Store
}

func (s *suite) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) equal(got, want any) {
	s.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("(-want +got)\n%s", diff)
	}
}

func (s *suite) agents(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.ok(s.Register(s.t.Context(), name, t0))
	}
}

// insert keeps a notice with the given id, kept and due at a second.
func (s *suite) insert(agent, id string, kept, due int) {
	s.t.Helper()
	n := notice.Notice{ID: id, Agent: agent, Source: notice.SourceWatch, Text: "text of " + id, CreatedAt: t0, DedupeKey: id}
	_, added, err := s.Insert(s.t.Context(), n, at(kept), at(due))
	s.ok(err)
	if !added {
		s.t.Fatalf("%s was not added", id)
	}
}

func (s *suite) record(id string) notice.Record {
	s.t.Helper()
	r, err := s.Get(s.t.Context(), id)
	s.ok(err)
	return r
}

func recordIDs(records []notice.Record) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = r.ID
	}
	return out
}

// wake claims with the values that most tests need.
func (s *suite) wake(agent, delivery string, fence int64, route, now, until int) (notice.Claimed, error) {
	return s.Claim(s.t.Context(), notice.Claim{
		Agent: agent, Delivery: delivery, Adapter: "a", Wake: true, Fence: fence, Route: route, Now: at(now), Until: at(until), Limit: 100,
	})
}

func (s *suite) pull(delivery string, now, until int) []string {
	s.t.Helper()
	c, err := s.Claim(s.t.Context(), notice.Claim{Agent: "a", Delivery: delivery, Adapter: "p", Now: at(now), Until: at(until), Limit: 100})
	s.ok(err)
	return recordIDs(c.Records)
}

func (s *suite) term(agent string) int64 {
	s.t.Helper()
	f, err := s.Fence(s.t.Context(), agent)
	s.ok(err)
	return f
}

// D-6: an unknown addressee is an error everywhere.
func testAgents(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("b", "a", "b")
	got, err := s.Agents(ctx)
	s.ok(err)
	s.equal(got, []string{"a", "b"})

	unknown := map[string]func() error{
		"insert": func() error {
			_, _, err := s.Insert(ctx, notice.Notice{ID: "x", Agent: "z", DedupeKey: "x"}, t0, t0)
			return err
		},
		"counts":     func() error { _, err := s.Counts(ctx, "z"); return err },
		"desk":       func() error { _, err := s.Desk(ctx, "z", t0, 1); return err },
		"claim":      func() error { _, err := s.Claim(ctx, notice.Claim{Agent: "z", Delivery: "d", Limit: 1}); return err },
		"list":       func() error { _, err := s.List(ctx, notice.Query{Agent: "z"}); return err },
		"fence":      func() error { _, err := s.Fence(ctx, "z"); return err },
		"spend":      func() error { return s.Spend(ctx, "z", t0, 1, 1) },
		"hold":       func() error { return s.SetHold(ctx, "z", notice.Hold{Reason: "r", At: t0}) },
		"reset":      func() error { return s.Reset(ctx, "z") },
		"prune":      func() error { _, err := s.Prune(ctx, notice.Prune{Agent: "z", Limit: 1}); return err },
		"unregister": func() error { return s.Unregister(ctx, "z") },
	}
	for name, call := range unknown {
		var e *notice.UnknownAgentError
		if err := call(); !errors.As(err, &e) || e.Agent != "z" || !slices.Equal(e.Known, []string{"a", "b"}) {
			t.Errorf("%s: got %v, want an UnknownAgentError that knows a and b", name, err)
		}
	}

	s.insert("a", "n1", 0, 0)
	s.ok(s.Unregister(ctx, "a"))
	if _, err := s.Get(ctx, "n1"); !errors.Is(err, notice.ErrNotFound) {
		t.Fatalf("got %v: the inbox outlived its agent", err)
	}
	s.agents("a")
	counts, err := s.Counts(ctx, "a")
	s.ok(err)
	s.equal(counts.Pending(), 0)
	s.insert("a", "n1", 0, 0) // nor are its keys known
}

func testInsert(t *testing.T, s *suite) {
	s.agents("a", "b")
	s.insert("a", "n1", 1, 2)
	s.equal(s.record("n1"), notice.Record{
		Notice: notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceWatch, Text: "text of n1", CreatedAt: t0, DedupeKey: "n1"},
		State:  notice.Persisted, StateAt: at(1), Due: at(2),
		Steps: []notice.Step{{State: notice.Persisted, At: at(1), Adapter: "inbox"}},
	})
	if _, err := s.Get(t.Context(), "n2"); !errors.Is(err, notice.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	var invalid *notice.InvalidError
	_, _, err := s.Insert(t.Context(), notice.Notice{ID: "n1", Agent: "b", DedupeKey: "other"}, t0, t0)
	if !errors.As(err, &invalid) || invalid.Field != "id" {
		t.Fatalf("got %v: an id was given twice", err)
	}
}

// D-1.
func testFields(t *testing.T, s *suite) {
	s.agents("a")
	n := notice.Notice{
		ID: "N.1-_", Agent: "a", Source: notice.SourceSignal, Title: "títle \"'<>&\n", Text: "line\n\x00\u2028\U0001F600 %s {}",
		Meta: map[string]string{"uri": "x://y?a=1&b=2", "": "", "k'\"": "ü"}, CreatedAt: t0.Add(-time.Hour), DedupeKey: "k\x00ey", Depth: 7,
	}
	_, _, err := s.Insert(t.Context(), n, t0, time.Time{})
	s.ok(err)
	got := s.record(n.ID)
	s.equal(got.Notice, n)
	if !got.Due.IsZero() {
		t.Fatalf("due %v, want never", got.Due)
	}
	page, err := s.List(t.Context(), notice.Query{Agent: "a"})
	s.ok(err)
	s.equal(page.Records[0].Notice, n)
	s.equal(s.pull("d", 0, 9), []string(nil))
	c, err := s.Claim(t.Context(), notice.Claim{Agent: "a", Delivery: "d", Held: true, Now: t0, Until: at(9), Limit: 1})
	s.ok(err)
	s.equal(c.Records[0].Notice, n)
}

// D-1, D-4: a known dedupe key changes nothing.
func testDedupe(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a", "b")
	n := notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceFeed, Text: "one", CreatedAt: t0, DedupeKey: "k"}
	_, _, err := s.Insert(ctx, n, t0, t0)
	s.ok(err)
	before := s.record("n1")
	again := n
	again.ID, again.Text = "n2", "two"
	id, added, err := s.Insert(ctx, again, at(5), at(5))
	s.ok(err)
	if id != "n1" || added {
		t.Fatalf("got %s, added %v", id, added)
	}
	s.equal(s.record("n1"), before)
	again.Agent = "b" // a key counts per addressee
	id, added, err = s.Insert(ctx, again, t0, t0)
	s.ok(err)
	if id != "n2" || !added {
		t.Fatalf("got %s, added %v", id, added)
	}
	deleted, err := s.Delete(ctx, "a", []string{"n1"})
	s.ok(err)
	s.equal(deleted, 1)
	again.ID, again.Agent = "n3", "a"
	id, added, err = s.Insert(ctx, again, t0, t0)
	s.ok(err)
	if id != "n1" || added {
		t.Fatalf("got %s, added %v: deletion forgot the key", id, added)
	}
	_, err = s.Prune(ctx, notice.Prune{Agent: "a", Now: t0, KeysBefore: at(1), Limit: 10})
	s.ok(err)
	_, added, err = s.Insert(ctx, again, t0, t0)
	s.ok(err)
	if !added {
		t.Fatal("an old key is still known")
	}
}

// D-2: all pairs of states.
func testMove(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a", "b")
	for i, from := range notice.States() {
		for j, to := range notice.States() {
			id := fmt.Sprintf("n%d.%d", i, j)
			s.insert("a", id, 0, 0)
			if from != notice.Persisted {
				moved, err := s.Move(ctx, "a", []string{id}, notice.Step{State: from, At: at(1), Adapter: "x"})
				s.ok(err)
				s.equal(moved, []string{id})
			}
			want := s.record(id)
			step := notice.Step{State: to, At: at(2), Adapter: "y", Reason: "why"}
			moved, err := s.Move(ctx, "a", []string{"none", id}, step)
			s.ok(err)
			if from.CanBecome(to) {
				s.equal(moved, []string{id})
				want.State, want.StateAt, want.Steps = to, at(2), append(want.Steps, step)
			} else if len(moved) != 0 {
				t.Fatalf("%s became %s", from, to)
			}
			s.equal(s.record(id), want)
		}
	}
	s.insert("a", "mine", 0, 0)
	moved, err := s.Move(ctx, "b", []string{"mine"}, notice.Step{State: notice.Seen, At: at(1)})
	s.ok(err)
	if len(moved) != 0 || s.record("mine").State != notice.Persisted {
		t.Fatal("an agent moved another's notice")
	}
}

func testList(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a", "b")
	for i := range 7 {
		s.insert("a", fmt.Sprintf("a%d", i), i, i)
	}
	s.insert("b", "b0", 9, 9)
	_, err := s.Move(ctx, "a", []string{"a1", "a4"}, notice.Step{State: notice.Dead, At: at(9)})
	s.ok(err)
	_, err = s.Move(ctx, "a", []string{"a2"}, notice.Step{State: notice.Seen, At: at(9)})
	s.ok(err)

	all := func(q notice.Query) (ids []string) {
		for range 100 {
			page, err := s.List(ctx, q)
			s.ok(err)
			if q.Limit > 0 && len(page.Records) > q.Limit {
				t.Fatalf("%d records on a page of %d", len(page.Records), q.Limit)
			}
			ids = append(ids, recordIDs(page.Records)...)
			if page.Next == "" {
				return ids
			}
			q.After = page.Next
		}
		t.Fatal("the pages do not end")
		return nil
	}
	a := []string{"a0", "a1", "a2", "a3", "a4", "a5", "a6"}
	for _, limit := range []int{0, 1, 2, 3, 7, 8} {
		s.equal(all(notice.Query{Agent: "a", Limit: limit}), a)
		s.equal(all(notice.Query{Limit: limit}), append(slices.Clone(a), "b0"))
		s.equal(all(notice.Query{Agent: "a", Limit: limit, Newest: true}), []string{"a6", "a5", "a4", "a3", "a2", "a1", "a0"})
		s.equal(all(notice.Query{Agent: "a", Limit: limit, States: []notice.State{notice.Seen, notice.Dead, notice.Seen}}), []string{"a1", "a2", "a4"})
		s.equal(all(notice.Query{Limit: limit, States: []notice.State{notice.Dead}, Newest: true}), []string{"a4", "a1"})
		s.equal(all(notice.Query{Limit: limit, Source: notice.SourceFeed}), []string(nil))
		s.equal(all(notice.Query{Limit: limit, Source: notice.SourceWatch, Agent: "b"}), []string{"b0"})
	}
	for _, bad := range []string{"x", "-1", "0", "1;"} {
		if _, err := s.List(ctx, notice.Query{After: bad}); !errors.As(err, new(*notice.InvalidError)) {
			t.Errorf("cursor %q: got %v", bad, err)
		}
	}
	counts, err := s.Counts(ctx, "a")
	s.ok(err)
	s.equal(counts, notice.Counts{notice.Persisted: 4, notice.Dead: 2, notice.Seen: 1})
}

// D-5: one outstanding wake, and the fence between two processes.
func testWakeClaims(t *testing.T, s *suite) {
	s.agents("a", "b")
	fence := s.term("a")
	s.insert("a", "n1", 0, 0)
	s.insert("a", "n2", 0, 5)
	s.insert("a", "n3", 0, 0)
	s.insert("b", "other", 0, 0)

	if _, err := s.wake("a", "d0", fence-1, 0, 1, 9); !errors.Is(err, notice.ErrFenced) {
		t.Fatalf("got %v, want ErrFenced", err)
	}
	c, err := s.wake("a", "d1", fence, 0, 1, 9)
	s.ok(err)
	s.equal(recordIDs(c.Records), []string{"n1", "n3"})
	s.equal([]any{c.Delivery, c.Adapter, c.Until, c.Waiting}, []any{"d1", "a", at(9), 1})
	s.equal(s.record("n1").Delivery, "d1")
	for _, now := range []int{2, 20} { // also when its time is up: it must be released first
		if _, err := s.wake("a", "d2", fence, 0, now, 30); !errors.Is(err, notice.ErrOutstanding) {
			t.Fatalf("got %v, want ErrOutstanding", err)
		}
	}
	d, err := s.Desk(t.Context(), "a", at(20), 1)
	s.ok(err)
	s.equal([]any{d.Claimed.Delivery, d.Claimed.Adapter, d.Claimed.Route, d.Claimed.Until}, []any{"d1", "a", 0, at(9)})
	s.equal(recordIDs(d.Claimed.Records), []string{"n1", "n3"})

	// A notice that was shown belongs to the claim no more.
	_, err = s.Move(t.Context(), "a", []string{"n1"}, notice.Step{State: notice.Notified, At: at(3)})
	s.ok(err)
	s.equal(s.record("n1").Delivery, "d1")
	_, err = s.Move(t.Context(), "a", []string{"n1", "n3"}, notice.Step{State: notice.Seen, At: at(3)})
	s.ok(err)
	s.equal(s.record("n1").Delivery, "")
	c, err = s.wake("a", "d3", fence, 0, 6, 9)
	s.ok(err)
	s.equal(recordIDs(c.Records), []string{"n2"})
	newer := s.term("a")
	if newer <= fence {
		t.Fatalf("term %d after %d", newer, fence)
	}
	c, err = s.wake("b", "d4", s.term("b"), 0, 6, 9)
	s.ok(err)
	s.equal(recordIDs(c.Records), []string{"other"})
}

func testPulls(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a")
	fence := s.term("a")
	s.insert("a", "n1", 0, 0)
	s.insert("a", "n2", 0, 50)
	s.equal(s.pull("p1", 1, 10), []string{"n1", "n2"}) // also what is not due yet
	s.equal(s.pull("p2", 2, 12), []string(nil))        // nor twice
	c, err := s.wake("a", "d1", fence, 0, 2, 12)
	s.ok(err)
	s.equal(recordIDs(c.Records), []string(nil))
	// A puller that died has shown nothing.
	c, err = s.wake("a", "d2", fence, 0, 10, 20)
	s.ok(err)
	s.equal(recordIDs(c.Records), []string{"n1"})
	s.ok(s.Release(ctx, "a", "p1", []notice.Next{{ID: "n1", Route: 3}}, notice.Step{At: at(11), Reason: "late"}))
	s.equal(s.record("n1").Delivery, "d2") // what it lost it cannot release
	s.equal(s.pull("p3", 11, 30), []string{"n2"})
	s.equal(s.pull("p4", 20, 30), []string{"n1"}) // nor does a waker that died hold for ever
	d, err := s.Desk(ctx, "a", at(20), 1)
	s.ok(err)
	if d.Claimed != nil {
		t.Fatal("a wake is outstanding whose notices are another's")
	}
	limited, err := s.Claim(ctx, notice.Claim{Agent: "a", Delivery: "p5", Now: at(40), Until: at(41), Limit: 1})
	s.ok(err)
	s.equal(recordIDs(limited.Records), []string{"n1"})
	s.equal(limited.Waiting, 1)
}

func testRelease(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a")
	fence := s.term("a")
	for _, id := range []string{"n1", "n2", "n3"} {
		s.insert("a", id, 0, 0)
	}
	_, err := s.wake("a", "d1", fence, 0, 1, 9)
	s.ok(err)
	s.ok(s.Extend(ctx, "a", "d1", at(15)))
	s.equal(s.pull("p", 14, 16), []string(nil))
	_, err = s.Move(ctx, "a", []string{"n1"}, notice.Step{State: notice.Woken, At: at(2)})
	s.ok(err)
	step := notice.Step{State: notice.Seen, At: at(15), Adapter: "a", Reason: "no proof"}
	s.ok(s.Release(ctx, "a", "d1", []notice.Next{
		{ID: "n1", Route: 1, Tries: 2, Offers: 3, Due: at(30)},
		{ID: "n2", Route: notice.RouteDone, Offers: 6, Due: at(40), Dead: true},
	}, step))
	n1 := s.record("n1")
	s.equal([]any{n1.State, n1.Delivery, n1.Route, n1.Tries, n1.Offers, n1.Due}, []any{notice.Woken, "", 1, 2, 3, at(30)})
	step.State = notice.Woken
	s.equal(n1.Steps[len(n1.Steps)-1], step)
	n2 := s.record("n2")
	s.equal([]any{n2.State, n2.StateAt, n2.Offers}, []any{notice.Dead, at(15), 6})
	n3 := s.record("n3")
	s.equal([]any{n3.State, n3.Delivery, n3.Route, n3.Offers, len(n3.Steps)}, []any{notice.Persisted, "", 0, 0, 2})
	s.equal(s.pull("p1", 16, 20), []string{"n1", "n3"})
	s.ok(s.Release(ctx, "a", "p1", nil, notice.Step{At: at(17)}))
	s.equal(len(s.record("n3").Steps), 2) // nothing happened to it
	s.ok(s.Release(ctx, "a", "p1", nil, notice.Step{At: at(17), Reason: "again"}))
	s.equal(len(s.record("n3").Steps), 2)
	s.ok(s.Release(ctx, "a", "", nil, notice.Step{At: at(17), Reason: "nothing"}))
	s.equal(len(s.record("n3").Steps), 2)
}

func testDesk(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a")
	d, err := s.Desk(ctx, "a", t0, 3)
	s.ok(err)
	s.equal(d, notice.Desk{})
	fence := s.term("a")
	route := func(id string, kept, due, route int) {
		s.insert("a", id, kept, 0)
		_, err := s.Claim(ctx, notice.Claim{Agent: "a", Delivery: "d" + id, Now: at(0), Until: at(1), Limit: 99})
		s.ok(err)
		s.ok(s.Release(ctx, "a", "d"+id, []notice.Next{{ID: id, Route: route, Due: at(due)}}, notice.Step{At: at(0)}))
	}
	route("n1", 3, 40, 0)
	route("n2", 4, 30, 0)
	route("n3", 5, 20, 2)
	route("n4", 6, 10, notice.RouteDone)
	route("n5", 7, 50, 5) // more routes than there are
	route("n6", 7, 45, 4)
	d, err = s.Desk(ctx, "a", at(100), 3)
	s.ok(err)
	s.equal(d.Heads, []notice.Head{{Route: notice.RouteDone, Due: at(10)}, {Route: 2, Due: at(20)}, {Route: 0, Due: at(30)}, {Route: 4, Due: at(45)}})
	s.equal(d.Oldest, at(3))
	// What a pull holds is due when its hold ends.
	c, err := s.Claim(ctx, notice.Claim{Agent: "a", Delivery: "p", Now: at(0), Until: at(35), Limit: 99})
	s.ok(err)
	s.equal(len(c.Records), 6)
	d, err = s.Desk(ctx, "a", at(34), 3)
	s.ok(err)
	s.equal(d.Heads, []notice.Head{{Route: notice.RouteDone, Due: at(35)}, {Route: 0, Due: at(35)}, {Route: 2, Due: at(35)}, {Route: 4, Due: at(45)}})
	_, err = s.wake("a", "w", fence, 2, 50, 60)
	s.ok(err)
	d, err = s.Desk(ctx, "a", at(50), 3)
	s.ok(err)
	s.equal(recordIDs(d.Claimed.Records), []string{"n3"})
	s.equal(len(d.Heads), 3)
	_, err = s.Move(ctx, "a", []string{"n1", "n2", "n3", "n4", "n5", "n6"}, notice.Step{State: notice.Acked, At: at(60)})
	s.ok(err)
	d, err = s.Desk(ctx, "a", at(60), 3)
	s.ok(err)
	s.equal(d, notice.Desk{})
}

// D-7: the ledger is on disk.
func testLedger(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a", "b")
	s.ok(s.Spend(ctx, "a", at(0), 1, 100))
	s.ok(s.Spend(ctx, "a", at(3600), 1, 10))
	s.ok(s.Spend(ctx, "a", at(3630), 2, 7))
	s.ok(s.Spend(ctx, "a", at(3630), -1, -2))
	spent := func(agent string, now int) notice.Spent {
		d, err := s.Desk(ctx, agent, at(now), 1)
		s.ok(err)
		return d.Spent
	}
	s.equal(spent("a", 3599), notice.Spent{WakesMinute: 2, WakesHour: 3, TokensHour: 115})
	s.equal(spent("a", 3600), notice.Spent{WakesMinute: 2, WakesHour: 2, TokensHour: 15})
	s.equal(spent("a", 3661), notice.Spent{WakesMinute: 1, WakesHour: 2, TokensHour: 15})
	s.equal(spent("a", 7200), notice.Spent{WakesHour: 1, TokensHour: 5})
	s.equal(spent("b", 3600), notice.Spent{})
	hold := notice.Hold{Reason: "over budget", At: at(5)}
	s.ok(s.SetHold(ctx, "a", hold))
	d, err := s.Desk(ctx, "a", at(3600), 1)
	s.ok(err)
	s.equal(d.Hold, hold)
	s.ok(s.SetHold(ctx, "a", notice.Hold{}))
	d, err = s.Desk(ctx, "a", at(3600), 1)
	s.ok(err)
	s.equal(d.Hold, notice.Hold{})
	s.ok(s.SetHold(ctx, "a", hold))
	s.ok(s.Reset(ctx, "a"))
	d, err = s.Desk(ctx, "a", at(3600), 1)
	s.ok(err)
	s.equal(d, notice.Desk{})
}

// D-8.
func testPruneAge(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a", "b")
	fence := s.term("a")
	for i, id := range []string{"old1", "old2", "held", "seen", "young"} {
		s.insert("a", id, i*10, i*10)
	}
	s.insert("b", "other", 0, 0)
	_, err := s.Move(ctx, "a", []string{"seen"}, notice.Step{State: notice.Seen, At: at(100)})
	s.ok(err)
	p := notice.Prune{Agent: "a", Now: at(200), PendingBefore: at(35), Limit: 1}
	got, err := s.Prune(ctx, p)
	s.ok(err)
	s.equal(got, notice.Pruned{Expired: 1})
	r := s.record("old1")
	s.equal([]any{r.State, r.StateAt, r.Steps[1].Adapter}, []any{notice.Expired, at(200), "inbox"})
	s.equal(s.record("old2").State, notice.Persisted)
	_, err = s.wake("a", "d", fence, 0, 15, 300) // old2 alone is due
	s.ok(err)
	p.Limit = 10
	got, err = s.Prune(ctx, p)
	s.ok(err)
	s.equal(got, notice.Pruned{Expired: 1})
	s.equal(s.record("old2").State, notice.Persisted) // in somebody's hand
	s.equal(s.record("held").State, notice.Expired)
	p.Now = at(300)
	got, err = s.Prune(ctx, p)
	s.ok(err)
	s.equal(got, notice.Pruned{Expired: 1})
	got, err = s.Prune(ctx, notice.Prune{Agent: "a", Now: at(300), DoneBefore: at(150), Limit: 10})
	s.ok(err)
	s.equal(got, notice.Pruned{Deleted: 1})
	page, err := s.List(ctx, notice.Query{})
	s.ok(err)
	s.equal(recordIDs(page.Records), []string{"old1", "old2", "held", "young", "other"})
}

// D-8.
func testPruneKeep(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a")
	for i := range 6 {
		s.insert("a", fmt.Sprintf("n%d", i), i, i)
	}
	_, err := s.Move(ctx, "a", []string{"n1", "n4"}, notice.Step{State: notice.Acked, At: at(9)})
	s.ok(err)
	list := func() []string {
		page, err := s.List(ctx, notice.Query{Agent: "a"})
		s.ok(err)
		return recordIDs(page.Records)
	}
	got, err := s.Prune(ctx, notice.Prune{Agent: "a", Now: at(9), Keep: 6, Limit: 10})
	s.ok(err)
	s.equal(got, notice.Pruned{})
	got, err = s.Prune(ctx, notice.Prune{Agent: "a", Now: at(9), Keep: 5, Limit: 10})
	s.ok(err)
	s.equal(got, notice.Pruned{Deleted: 1})
	s.equal(list(), []string{"n0", "n2", "n3", "n4", "n5"})
	got, err = s.Prune(ctx, notice.Prune{Agent: "a", Now: at(9), Keep: 2, Limit: 10})
	s.ok(err)
	s.equal(got, notice.Pruned{Deleted: 1, Expired: 2})
	s.equal(s.record("n0").State, notice.Expired)
	s.equal(s.record("n2").State, notice.Expired)
	got, err = s.Prune(ctx, notice.Prune{Agent: "a", Now: at(9), Keep: 2, Limit: 10})
	s.ok(err)
	s.equal(got, notice.Pruned{Deleted: 2})
	s.equal(list(), []string{"n3", "n5"})
}

func testDelete(t *testing.T, s *suite) {
	ctx := t.Context()
	s.agents("a", "b")
	for _, id := range []string{"n1", "n2"} {
		s.insert("a", id, 0, 0)
	}
	n, err := s.Delete(ctx, "b", []string{"n1"})
	s.ok(err)
	s.equal(n, 0)
	n, err = s.Delete(ctx, "a", []string{"n1", "none", "n1"})
	s.ok(err)
	s.equal(n, 1)
	if _, err := s.Get(ctx, "n1"); !errors.Is(err, notice.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	counts, err := s.Counts(ctx, "a")
	s.ok(err)
	s.equal(counts, notice.Counts{notice.Persisted: 1})
}

// D-4: whatever claims at the same time, each notice is in one hand.
func testExclusive(t *testing.T, s *suite) {
	s.agents("a")
	const notices, callers = 60, 6
	fence := s.term("a")
	for i := range notices {
		s.insert("a", fmt.Sprintf("n%d", i), 0, 0)
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range 2 * notices / callers {
				c, err := s.Claim(t.Context(), notice.Claim{
					Agent: "a", Delivery: fmt.Sprintf("d%d.%d", i, j), Wake: i == 0, Fence: fence, Now: at(1), Until: at(9), Limit: 1,
				})
				if err != nil && !errors.Is(err, notice.ErrOutstanding) {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range c.Records {
					taken[r.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(taken) != notices {
		t.Errorf("%d of %d notices were taken", len(taken), notices)
	}
	for id, n := range taken {
		if n > 1 {
			t.Errorf("%s was taken %d times", id, n)
		}
	}
}

func testCancelled(t *testing.T, s *suite) {
	s.agents("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Insert(ctx, notice.Notice{ID: "n1", Agent: "a", DedupeKey: "n1"}, t0, t0); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Get(t.Context(), "n1"); !errors.Is(err, notice.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
}
