package notice_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
}

// D-2: the law of states, written out.
func TestStatesMoveForward(t *testing.T) {
	t.Parallel()
	want := map[notice.State]string{
		notice.Persisted:  "notified woken suppressed expired dead seen acked",
		notice.Notified:   "woken suppressed expired dead seen acked",
		notice.Woken:      "suppressed expired dead seen acked",
		notice.Suppressed: "",
		notice.Expired:    "dead seen acked",
		notice.Dead:       "seen acked",
		notice.Seen:       "acked",
		notice.Acked:      "",
		"other":           "",
	}
	for from, tos := range want {
		for _, to := range append(notice.States(), "other") {
			if got, want := from.CanBecome(to), strings.Contains(" "+tos+" ", " "+string(to)+" "); got != want {
				t.Errorf("%s to %s: %v", from, to, got)
			}
		}
	}
}

// D-1, D-2: persisted first, then every proof with its time and adapter.
func TestDeliver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, host := noticetest.NewStore(), noticetest.NewHost("host")
		host.WakeFunc = func(_ context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
			if r, err := store.Get(t.Context(), d.Notices[0].ID); err != nil || r.State != notice.Persisted {
				t.Errorf("woken before it was persisted: %v, %v", r.State, err)
			}
			time.Sleep(time.Second)
			proved(notice.Notified)
			time.Sleep(time.Second)
			proved(notice.Woken)
			proved(notice.Notified) // never back
			proved(notice.Acked)    // not the adapter's to say
			time.Sleep(time.Second)
			return notice.Seen, nil
		}
		d := newDesk(t, store, nil, notice.Route{Waker: host})
		start := time.Now().UTC()
		r, err := d.Post(t.Context(), notice.Notice{Agent: "a", Source: notice.SourceWatch, Title: "w", Text: "changed", Depth: 3})
		if err != nil || !r.Added || r.ID == "" {
			t.Fatalf("got %+v, %v", r, err)
		}
		after(3 * time.Second)
		got := d.record(r.ID)
		equal(t, got.Steps, []notice.Step{
			{State: notice.Persisted, At: start, Adapter: "inbox"},
			{State: notice.Notified, At: start.Add(time.Second), Adapter: "host"},
			{State: notice.Woken, At: start.Add(2 * time.Second), Adapter: "host"},
			{State: notice.Seen, At: start.Add(3 * time.Second), Adapter: "host"},
		})
		del := host.Deliveries()[0]
		equal(t, []any{del.Agent, del.Attempt, del.Depth, del.Text}, []any{"a", 1, 3, notice.Frame(got.Notice)})
		acked, err := d.Ack(t.Context(), "a", "tool", r.ID)
		if err != nil || len(acked) != 1 || d.state(r.ID) != notice.Acked {
			t.Fatalf("got %v, %v", acked, err)
		}
		if acked, err = d.Ack(t.Context(), "", "operator", r.ID); err != nil || len(acked) != 0 {
			t.Fatalf("acknowledged twice: %v, %v", acked, err)
		}
	})
}

// D-1, D-4.
func TestPostTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		n := notice.Notice{Agent: "a", Source: notice.SourceFeed, Text: "one", DedupeKey: strings.Repeat("k", 5000)}
		first, err := d.Post(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		second, err := d.Post(t.Context(), n)
		equal(t, []any{second.ID, second.Added, err}, []any{first.ID, false, nil})
		synctest.Wait()
		equal(t, host.Shown(), []string{first.ID})
		if k := d.record(first.ID).DedupeKey; len(k) > 100 {
			t.Errorf("a key of %d bytes is kept", len(k))
		}
	})
}

func TestPostRefuses(t *testing.T) {
	t.Parallel()
	in := notice.New(noticetest.NewStore(), nil)
	if err := in.Register(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	good := notice.Notice{Agent: "a", Source: notice.SourceWatch, Text: "x"}
	for field, change := range map[string]func(*notice.Notice){
		"agent":  func(n *notice.Notice) { n.Agent = "../etc" },
		"source": func(n *notice.Notice) { n.Source = "user" },
		"id":     func(n *notice.Notice) { n.ID = "a b" },
		"depth":  func(n *notice.Notice) { n.Depth = -1 },
		"meta":   func(n *notice.Notice) { n.Meta = map[string]string{"k": strings.Repeat("v", notice.MaxMetaLen)} },
	} {
		n := good
		change(&n)
		var e *notice.InvalidError
		if _, err := in.Post(t.Context(), n); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	// D-6
	n := good
	n.Agent = "b"
	var unknown *notice.UnknownAgentError
	if _, err := in.Post(t.Context(), n); !errors.As(err, &unknown) || unknown.Agent != "b" {
		t.Errorf("got %v", err)
	}
	if _, err := in.Pull(t.Context(), "b", "x", nil); !errors.As(err, &unknown) {
		t.Errorf("got %v", err)
	}
	// D-8: what is too long is cut where a rune ends.
	n = good
	n.Text, n.Title = strings.Repeat("é", notice.MaxText), "a\xffb"
	r, err := in.Post(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	got, err := in.Get(t.Context(), "a", r.ID)
	if err != nil || len(got.Text) > notice.MaxText || !strings.HasSuffix(got.Text, "é…") || got.Title != "a\uFFFDb" {
		t.Errorf("got %d bytes, title %q, %v", len(got.Text), got.Title, err)
	}
}

// D-3.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("push")
		host.WakeFunc = func(context.Context, notice.Delivery, func(notice.State)) (notice.State, error) {
			return notice.Notified, nil
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		say := func() string {
			s, err := d.Status(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			return s.String()
		}
		equal(t, say(), "0 pending")
		d.post("n1")
		synctest.Wait()
		d.post("n2")
		synctest.Wait()
		equal(t, say(), "2 pending (1 persisted, 1 notified); offered by push")
		if err := d.Hold(t.Context(), "a", "its person cancelled"); err != nil {
			t.Fatal(err)
		}
		equal(t, say(), "2 pending (1 persisted, 1 notified); offered by push; wakes are held: its person cancelled")
		if _, err := d.Status(t.Context(), "b"); !errors.As(err, new(*notice.UnknownAgentError)) {
			t.Errorf("got %v", err)
		}
	})
}

// An agent touches its own notices only, and is told which were not.
func TestOwnership(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	in := notice.New(noticetest.NewStore(), nil)
	for _, agent := range []string{"a", "b"} {
		if err := in.Register(ctx, agent); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Post(ctx, notice.Notice{ID: "of." + agent, Agent: agent, Source: notice.SourceSignal, Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Get(ctx, "a", "of.b"); !errors.Is(err, notice.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	var e *notice.IDError
	if _, err := in.Ack(ctx, "a", "tool", "of.a", "of.b", "none"); !errors.As(err, &e) || !errors.Is(err, notice.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	equal(t, e.IDs, []string{"of.b", "none"})
	for _, id := range []string{"of.a", "of.b"} {
		if r, err := in.Get(ctx, "", id); err != nil || r.State != notice.Persisted {
			t.Errorf("%s: %v, %v: a refused call changed something", id, r.State, err)
		}
	}
	moved, err := in.Ack(ctx, "", "operator", "of.a", "of.b")
	equal(t, []any{moved, err}, []any{[]string{"of.a", "of.b"}, nil})
	n, err := in.Delete(ctx, "a", "of.b", "of.a")
	equal(t, []any{n, err}, []any{1, nil})
}
