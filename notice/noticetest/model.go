package noticetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/notice"
)

// testModel does the same random things to the store and to the model, and
// compares every answer and, now and then, everything.
func testModel(t *testing.T, s *suite) {
	const steps = 1500
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &walk{t: t, r: rand.New(rand.NewPCG(seed, 1)), store: s.Store, model: NewStore()}
	for i := range steps {
		w.now++
		w.step()
		if t.Failed() {
			t.Fatalf("after %d steps: %s", i, w.last)
		}
		if i%100 == 0 {
			w.everything()
		}
	}
	w.everything()
}

type walk struct {
	t      *testing.T
	r      *rand.Rand
	store  notice.Store
	model  *Store
	now    int
	ids    int
	claims int
	fences [3]int64
	last   string
}

func (w *walk) agent() string { return fmt.Sprintf("agent%d", w.r.IntN(3)) }

func (w *walk) id() string { return fmt.Sprintf("n%d", max(0, w.ids-w.r.IntN(40))) }

func (w *walk) delivery() string { return fmt.Sprintf("d%d", max(0, w.claims-w.r.IntN(6))) }

func (w *walk) some() []string {
	ids := make([]string, 1+w.r.IntN(3))
	for i := range ids {
		ids[i] = w.id()
	}
	return ids
}

// both calls f on the store and the model and compares what comes back.
func (w *walk) both(what string, f func(notice.Store) (any, error)) {
	w.t.Helper()
	w.last = what
	got, gotErr := f(w.store)
	want, wantErr := f(w.model)
	if kind(gotErr) != kind(wantErr) {
		w.t.Errorf("%s: got error %v, the model %v", what, gotErr, wantErr)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" && wantErr == nil {
		w.t.Errorf("%s: (-model +store)\n%s", what, diff)
	}
}

func kind(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.As(err, new(*notice.UnknownAgentError)):
		return "unknown agent"
	case errors.As(err, new(*notice.InvalidError)):
		return "invalid"
	}
	for _, e := range []error{notice.ErrNotFound, notice.ErrFenced, notice.ErrOutstanding} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return "other"
}

func (w *walk) step() {
	ctx, now := w.t.Context(), at(w.now)
	agent := w.agent()
	switch w.r.IntN(16) {
	case 0:
		w.both("register", func(s notice.Store) (any, error) { return nil, s.Register(ctx, agent, now) })
	case 1, 2, 3, 4:
		w.insert(agent)
	case 5, 6, 7:
		step := notice.Step{State: notice.States()[w.r.IntN(8)], At: now, Adapter: "x", Reason: "r"}
		ids := w.some()
		w.both("move", func(s notice.Store) (any, error) { return s.Move(ctx, agent, ids, step) })
	case 8, 9, 10:
		w.claim(agent)
	case 11:
		d, until := w.delivery(), at(w.now+w.r.IntN(30))
		w.both("extend", func(s notice.Store) (any, error) { return nil, s.Extend(ctx, agent, d, until) })
	case 12, 13:
		w.release(agent)
	case 14:
		w.rest(agent)
	default:
		routes := w.r.IntN(4)
		w.both("desk", func(s notice.Store) (any, error) { return s.Desk(ctx, agent, now, routes) })
	}
}

func (w *walk) insert(agent string) {
	w.ids++
	n := notice.Notice{ID: fmt.Sprintf("n%d", w.ids), Agent: agent, Source: notice.SourceFeed, Text: "t", CreatedAt: at(w.now)}
	n.DedupeKey = n.ID
	if w.r.IntN(4) == 0 {
		n.DedupeKey = fmt.Sprintf("k%d", w.r.IntN(20))
	}
	kept, due := at(w.now), at(w.now+w.r.IntN(10))
	if w.r.IntN(8) == 0 {
		n.Depth, due = 9, time.Time{}
	}
	w.both("insert", func(s notice.Store) (any, error) {
		id, added, err := s.Insert(w.t.Context(), n, kept, due)
		return fmt.Sprint(id, added), err
	})
}

func (w *walk) claim(agent string) {
	ctx := w.t.Context()
	i := int(agent[5] - '0')
	if w.r.IntN(5) == 0 {
		w.both("fence", func(s notice.Store) (any, error) {
			f, err := s.Fence(ctx, agent)
			w.fences[i] = f
			return f, err
		})
	}
	w.claims++
	c := notice.Claim{
		Agent: agent, Delivery: fmt.Sprintf("d%d", w.claims), Adapter: "a", Wake: w.r.IntN(2) == 0, Fence: w.fences[i],
		Route: w.r.IntN(3) - 1, Held: w.r.IntN(2) == 0, Now: at(w.now), Until: at(w.now + w.r.IntN(30)), Limit: 1 + w.r.IntN(5),
	}
	w.both("claim", func(s notice.Store) (any, error) { return s.Claim(ctx, c) })
}

func (w *walk) release(agent string) {
	d := w.delivery()
	var next []notice.Next
	page, err := w.model.List(w.t.Context(), notice.Query{Limit: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range page.Records {
		if r.Delivery == d && w.r.IntN(3) > 0 {
			next = append(next, notice.Next{
				ID: r.ID, Route: w.r.IntN(4) - 1, Tries: w.r.IntN(3), Offers: r.Offers + 1, Due: at(w.now + w.r.IntN(20)), Dead: w.r.IntN(5) == 0,
			})
		}
	}
	step := notice.Step{At: at(w.now), Adapter: "a"}
	if w.r.IntN(2) == 0 {
		step.Reason = "because"
	}
	w.both("release", func(s notice.Store) (any, error) { return nil, s.Release(w.t.Context(), agent, d, next, step) })
}

func (w *walk) rest(agent string) {
	ctx, now := w.t.Context(), at(w.now)
	switch w.r.IntN(7) {
	case 0:
		wakes, tokens := w.r.IntN(3), w.r.IntN(100)
		w.both("spend", func(s notice.Store) (any, error) { return nil, s.Spend(ctx, agent, now, wakes, tokens) })
	case 1:
		hold := notice.Hold{Reason: "r", At: now}
		w.both("hold", func(s notice.Store) (any, error) { return nil, s.SetHold(ctx, agent, hold) })
	case 2:
		w.both("reset", func(s notice.Store) (any, error) { return nil, s.Reset(ctx, agent) })
	case 3:
		ids := w.some()
		w.both("delete", func(s notice.Store) (any, error) { return s.Delete(ctx, agent, ids) })
	case 4:
		if w.r.IntN(10) == 0 {
			w.both("unregister", func(s notice.Store) (any, error) { return nil, s.Unregister(ctx, agent) })
		}
	default:
		p := notice.Prune{
			Agent: agent, Now: now, PendingBefore: at(w.now - 200), DoneBefore: at(w.now - 100), KeysBefore: at(w.now - 150),
			Keep: 5 + w.r.IntN(40), Limit: 1 + w.r.IntN(50),
		}
		w.both("prune", func(s notice.Store) (any, error) { return s.Prune(ctx, p) })
	}
}

func (w *walk) everything() {
	w.t.Helper()
	ctx := w.t.Context()
	w.both("agents", func(s notice.Store) (any, error) { return s.Agents(ctx) })
	w.both("list", func(s notice.Store) (any, error) { return s.List(ctx, notice.Query{Limit: 500}) })
	for i := range 3 {
		agent := fmt.Sprintf("agent%d", i)
		w.both("counts", func(s notice.Store) (any, error) { return s.Counts(ctx, agent) })
		w.both("desk", func(s notice.Store) (any, error) { return s.Desk(ctx, agent, at(w.now), 2) })
	}
	for i := range 60 {
		id := fmt.Sprintf("n%d", w.ids-i)
		w.both("get "+id, func(s notice.Store) (any, error) { return s.Get(ctx, id) })
	}
}
