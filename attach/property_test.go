package attach_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	godiff "github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/attach"
)

// worlds are sizes around every bound.
var worlds = []struct{ evidence, servers int }{{10, 1}, {40, 3}, {120, 3}, {150, 12}, {200, attach.MaxServers}, {220, attach.MaxServers + 15}}

// eachWorld runs do with random evidence. Of more servers than the bound, agents
// speak of none: what only they know is the first to go.
func eachWorld(t *testing.T, do func(t *testing.T, rnd *rand.Rand, all []attach.Evidence)) {
	t.Helper()
	for _, w := range worlds {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			t.Parallel()
			kinds := hostKinds
			if w.servers <= attach.MaxServers {
				kinds = append(slices.Clone(kinds), attach.AgentConnected, attach.AgentFailed)
			}
			for seed := range uint64(3) {
				rnd := rand.New(rand.NewPCG(seed, uint64(w.evidence)))
				do(t, rnd, randomEvidence(rnd, w.evidence, w.servers, kinds))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Any interleaving of the same evidence, with repetitions, gives the same report,
// also where bounds drop some of it.
//
//
func TestAnyOrderGivesTheSame(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, rnd *rand.Rand, all []attach.Evidence) {
		first := begin(t, attach.Report{}, "a", 0)
		want := reduce(t, first, all...)
		got := reduce(t, first, mixed(rnd, all)...)
		if d := godiff.Diff(want, got); d != "" {
			t.Error(d)
		}
		if d := godiff.Diff(want, reduce(t, got, mixed(rnd, all)...)); d != "" {
			t.Errorf("the same again: %s", d)
		}
	})
}

// A row that came and had to go leaves no trace in what others keep.
//
//
func TestOverflowInAnyOrder(t *testing.T) {
	t.Parallel()
	one := func(kind attach.Kind, server string, second int) attach.Evidence {
		return saw(kind, second, func(e *attach.Evidence) { e.Server = server })
	}
	goes := []attach.Evidence{one(attach.ServerDelivered, "z", 1), one(attach.InitializeObserved, "z", 2), one(attach.ToolsListObserved, "z", 3)}
	var rows, more []attach.Evidence
	for i := range attach.MaxServers {
		rows = append(rows, one(attach.ServerDelivered, fmt.Sprintf("m%02d", i), i))
	}
	for i := range attach.MaxEvidence {
		more = append(more, one(attach.RequestError, "m00", 100+i))
	}
	first := begin(t, attach.Report{}, "a", 0)
	want := reduce(t, first, slices.Concat(rows, more, goes)...)
	for _, order := range [][]attach.Evidence{slices.Concat(goes, rows, more), slices.Concat(rows[1:], goes, more, rows[:1]), slices.Concat(more, goes, rows)} {
		if d := godiff.Diff(want, reduce(t, first, order...)); d != "" {
			t.Error(d)
		}
	}
}

// Reduce changes no report that it was given, and one that went through a store
// goes on as if it had not.
//
//
func TestReduceIsPureAndSurvivesJSON(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, rnd *rand.Rand, all []attach.Evidence) {
		r := begin(t, attach.Report{}, "a", 0)
		stored := r
		for _, e := range all {
			if rnd.IntN(10) != 0 { // every step would take long
				r, stored = reduce(t, r, e), reduce(t, stored, e)
				continue
			}
			before := text(t, r)
			next := reduce(t, r, e)
			if after := text(t, r); after != before {
				t.Fatalf("%s changed its input:\n%s\n%s", e.Kind, before, after)
			}
			var hydrated attach.Report
			if err := json.Unmarshal([]byte(text(t, stored)), &hydrated); err != nil {
				t.Fatal(err)
			}
			r, stored = next, reduce(t, hydrated, e)
		}
		if d := godiff.Diff(r, stored); d != "" {
			t.Error(d)
		}
	})
}

// Nothing grows without end.
//
//
func TestBoundsHold(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, _ *rand.Rand, all []attach.Evidence) {
		r := begin(t, attach.Report{}, "a", 0)
		names := map[string]bool{}
		for _, e := range all {
			r = reduce(t, r, e)
			names[e.Server] = true
			a := r.CurrentAttempt()
			if len(a.Evidence) > attach.MaxEvidence || len(a.Servers) > attach.MaxServers {
				t.Fatalf("%d pieces of evidence, %d servers", len(a.Evidence), len(a.Servers))
			}
			for _, s := range a.Servers {
				if len(s.Connections) > attach.MaxConnections {
					t.Fatalf("%d connections", len(s.Connections))
				}
			}
		}
		delete(names, "")
		if a := r.CurrentAttempt(); a.ServersTruncated != (len(names) > attach.MaxServers) {
			t.Errorf("truncated %t with %d servers", a.ServersTruncated, len(names))
		}
	})
}

// What the rows say is what the evidence, replayed in its order by the letter of
// the rules, says, and the evidence on which a status rests is never dropped.
//
//
func TestStatusesFollowFromTheEvidence(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, _ *rand.Rand, all []attach.Evidence) {
		a := reduce(t, begin(t, attach.Report{}, "a", 0), all...).CurrentAttempt()
		for _, s := range a.Servers {
			status, rests := oracle(s.Name, all)
			if s.Status != status {
				t.Errorf("%s is %s, want %s", s.Name, s.Status, status)
			}
			if rests != nil && !slices.ContainsFunc(a.Evidence, rests) {
				t.Errorf("%s is %s, and what that rests on was dropped", s.Name, s.Status)
			}
		}
	})
}

// oracle replays what concerns one server. Of a success and a failure at one time
// the success counts.
func oracle(server string, all []attach.Evidence) (attach.Status, func(attach.Evidence) bool) {
	var mine []attach.Evidence
	for _, e := range all {
		if e.Server == server {
			mine = append(mine, e)
		}
	}
	failure := func(e attach.Evidence) int {
		switch e.Kind {
		case attach.ServerError, attach.AgentFailed:
			return 0
		case attach.ToolCallObserved:
			return 2
		default:
			return 1
		}
	}
	slices.SortStableFunc(mine, func(a, b attach.Evidence) int {
		return cmp.Or(a.OccurredAt.Compare(b.OccurredAt), cmp.Compare(failure(a), failure(b)))
	})
	var (
		placed, live = attach.Unknown, attach.Status("")
		listed       bool
		rests        [2]attach.Kind
		restsAt      time.Time
		listedAt     time.Time
	)
	success := func(e attach.Evidence) {
		switch {
		case listed && live != attach.Active:
			live = attach.Active // and rests on the list
		case !listed:
			live, rests[1], restsAt = attach.Connected, e.Kind, e.OccurredAt
		}
	}
	for _, e := range mine {
		switch e.Kind {
		case attach.ServerFiltered:
			if placed != attach.Delivered {
				placed, rests[0] = attach.Filtered, e.Kind
			}
		case attach.ServerDelivered, attach.SessionAccepted:
			placed, rests[0] = attach.Delivered, e.Kind
		case attach.ServerError, attach.AgentFailed:
			live, rests[1], restsAt = attach.Failed, e.Kind, e.OccurredAt
		case attach.DiscoverObserved:
			if e.Era == attach.EraModern {
				success(e)
			}
		case attach.InitializeObserved, attach.AgentConnected:
			success(e)
		case attach.ToolCallObserved:
			success(e)
		case attach.ToolsListObserved:
			listed, listedAt = true, e.OccurredAt
			live = attach.Active
		default:
		}
	}
	switch {
	case live == attach.Failed:
		return live, func(e attach.Evidence) bool {
			return e.Server == server && failure(e) == 0 && e.OccurredAt.Equal(restsAt)
		}
	case live != "":
		return live, func(e attach.Evidence) bool {
			if live == attach.Active {
				return e.Server == server && e.Kind == attach.ToolsListObserved && !e.OccurredAt.Before(listedAt)
			}
			return e.Server == server && !e.OccurredAt.Before(restsAt)
		}
	case placed == attach.Filtered:
		return lastOmission(mine), func(e attach.Evidence) bool { return e.Server == server && e.Kind == attach.ServerFiltered }
	case placed == attach.Delivered:
		return placed, func(e attach.Evidence) bool {
			return e.Server == server && (e.Kind == attach.ServerDelivered || e.Kind == attach.SessionAccepted)
		}
	}
	return placed, nil
}

// lastOmission is what the latest reason makes of a server that was left out. Of
// reasons of one time the code that sorts last counts.
func lastOmission(mine []attach.Evidence) attach.Status {
	var last attach.Evidence
	for _, e := range mine {
		if e.Kind == attach.ServerFiltered && (last.Kind == "" || e.OccurredAt.After(last.OccurredAt) ||
			e.OccurredAt.Equal(last.OccurredAt) && cmp.Or(cmp.Compare(e.Source, last.Source), cmp.Compare(e.Transport, last.Transport), cmp.Compare(e.Reason, last.Reason)) > 0) {
			last = e
		}
	}
	for _, i := range attach.Reasons() {
		if i.Reason == last.Reason && i.Status != "" {
			return i.Status
		}
	}
	return attach.Filtered
}

// Attempts may become known in any order.
func TestAttemptsInAnyOrder(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "b", "c", "d", "e"}
	build := func(order []int) attach.Report {
		var r attach.Report
		for _, i := range order {
			r = begin(t, r, ids[i], i)
		}
		return r
	}
	want := build([]int{0, 1, 2, 3, 4})
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		if d := godiff.Diff(want, build(rnd.Perm(len(ids)))); d != "" {
			t.Fatal(d)
		}
	}
	if len(want.Attempts) != attach.MaxAttempts || want.Current != "e" || want.Attempts[2].ID != "c" || !want.Attempts[2].SupersededAt.Equal(at(3)) {
		t.Errorf("got %s", text(t, want))
	}
}
