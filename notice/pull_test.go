package notice_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// D-4, D-11: what a pull has shown no adapter shows, and the other way round.
func TestPullAndPushExclude(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := swallower("host")
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host, Patience: time.Minute, Tries: 1})
		d.post("n1")
		synctest.Wait()
		equal(t, d.pull(nil), []string{}) // in the adapter's hand
		after(time.Minute)
		equal(t, d.pull(nil), []string{"n1"}) // B-040: the host swallowed it
		equal(t, d.record("n1").Steps[3].Adapter, "pull")
		equal(t, d.pull(nil), []string{})
		after(48 * time.Hour)
		equal(t, []any{len(host.Deliveries()), d.state("n1")}, []any{1, notice.Seen})
	})
}

// D-4: a puller that died has shown nothing; its notices go on by themselves.
func TestPullLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		d := newDesk(t, noticetest.NewStore(), nil)
		d.post("n1")
		p, err := d.Pull(t.Context(), "a", "hook", &notice.PullOptions{Lease: time.Minute})
		if err != nil || len(p.Notices) != 1 {
			t.Fatalf("got %v, %v", p, err)
		}
		if err := d.Attach(t.Context(), "a", notice.Route{Waker: host}); err != nil {
			t.Fatal(err)
		}
		after(59 * time.Second)
		equal(t, len(host.Deliveries()), 0)
		after(time.Second)
		equal(t, host.Shown(), []string{"n1"})
		if err := p.Seen(t.Context()); err != nil { // it lives after all: no harm
			t.Fatal(err)
		}
		equal(t, len(d.record("n1").Steps), 2+1-1)
	})
}

func TestPullRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, noticetest.NewStore(), nil)
		for i := range 5 {
			d.postNotice(notice.Notice{ID: fmt.Sprintf("n%d", i), Text: "x", Depth: i})
		}
		p, err := d.Pull(t.Context(), "a", "tool", &notice.PullOptions{Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, []any{len(p.Notices), p.Waiting, p.Depth(), p.Text()}, []any{3, 2, 2, notice.Aside(p.Notices...)})
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, d.pull(nil), []string{"n0", "n1", "n2", "n3", "n4"})
		p, err = d.Pull(t.Context(), "a", "tool", nil)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, []any{len(p.Notices), p.Text(), p.Seen(t.Context()), p.Release(t.Context())}, []any{0, "", nil, nil})
	})
}

// What is given back goes to the adapters at once.
func TestPullReleaseWakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		d := newDesk(t, noticetest.NewStore(), nil)
		d.post("n1")
		p, err := d.Pull(t.Context(), "a", "tool", &notice.PullOptions{Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Attach(t.Context(), "a", notice.Route{Waker: host}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, host.Shown(), []string{"n1"})
	})
}

// A quiet notice causes no turn, and is part of one that runs anyway, whoever
// causes it.
func TestQuiet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		d.postNotice(notice.Notice{ID: "q1", Text: "psst", Quiet: true})
		after(6 * 24 * time.Hour)
		equal(t, len(host.Deliveries()), 0)
		equal(t, d.pull(nil), []string{"q1"})
		d.postNotice(notice.Notice{ID: "q2", Text: "psst", Quiet: true})
		d.post("n1")
		after(time.Minute)
		equal(t, batches(host), [][]string{{"n1"}})
		equal(t, d.state("q2"), notice.Persisted)
	})
}
