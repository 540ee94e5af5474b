package notice_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// swallow takes a delivery and says nothing more, as hosts do.
func swallow(context.Context, notice.Delivery, func(notice.State)) (notice.State, error) {
	return notice.Notified, nil
}

func swallower(name string) *noticetest.Host {
	h := noticetest.NewHost(name)
	h.WakeFunc = swallow
	return h
}

// D-5: what arrives during a wake goes into one more, however much it is.
func TestOneOutstandingWake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		running := 0
		host.WakeFunc = func(_ context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
			if running++; running > 1 {
				t.Error("two wakes at once")
			}
			proved(notice.Woken)
			time.Sleep(time.Minute)
			running--
			host.Show(d)
			return notice.Seen, nil
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		d.post("n0")
		after(time.Second)
		for i := range 5 {
			d.post(fmt.Sprintf("n%d", i+1))
			after(time.Second)
		}
		after(2 * time.Minute)
		equal(t, batches(host), [][]string{{"n0"}, {"n1", "n2", "n3", "n4", "n5"}})
	})
}

// D-6: the same adapter again after its patience, then the next one, at most N
// times in all; then a wait for a pull, then dead.
func TestUnseenIsOfferedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := swallower("first"), swallower("second")
		d := newDesk(t, noticetest.NewStore(), &notice.Options{PullWait: time.Hour},
			notice.Route{Waker: first, Patience: time.Minute, Tries: 2},
			notice.Route{Waker: second, Patience: 10 * time.Minute, Tries: 1})
		start := time.Now().UTC()
		d.post("n1")
		for _, step := range []struct {
			wait          time.Duration
			first, second int
			state         notice.State
		}{
			{0, 1, 0, notice.Notified},
			{59 * time.Second, 1, 0, notice.Notified},
			{time.Second, 2, 0, notice.Notified},
			{59 * time.Second, 2, 0, notice.Notified},
			{time.Second, 2, 1, notice.Notified},
			{10*time.Minute - time.Second, 2, 1, notice.Notified},
			{time.Second, 2, 1, notice.Notified}, // both have done what they can
			{time.Hour - time.Second, 2, 1, notice.Notified},
			{time.Second, 2, 1, notice.Dead},
			{48 * time.Hour, 2, 1, notice.Dead},
		} {
			after(step.wait)
			equal(t, []any{len(first.Deliveries()), len(second.Deliveries()), d.state("n1")}, []any{step.first, step.second, step.state})
		}
		r := d.record("n1")
		var history []string
		for _, s := range r.Steps {
			history = append(history, fmt.Sprintf("%s %s %v", s.State, s.Adapter, s.At.Sub(start)))
		}
		equal(t, history, []string{
			"persisted inbox 0s", "notified first 0s", "notified first 1m0s", "notified first 2m0s", "notified second 12m0s", "dead inbox 1h12m0s",
		})
		equal(t, r.Offers, 3)
		status, err := d.Status(t.Context(), "a")
		equal(t, []any{status.String(), err}, []any{"0 pending, 1 dead", nil})
		page, err := d.List(t.Context(), notice.Query{States: []notice.State{notice.Dead}}) // the operator's view
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("got %v, %v", page, err)
		}
		// A proof that comes late is still the truth.
		if err := d.Seen(t.Context(), "a", "tool", "n1"); err != nil || d.state("n1") != notice.Seen {
			t.Fatalf("%v, %v", d.state("n1"), err)
		}
	})
}

// D-6: MaxOffers bounds all adapters together.
func TestMaxOffers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := swallower("host")
		d := newDesk(t, noticetest.NewStore(), &notice.Options{MaxOffers: 3}, notice.Route{Waker: host, Tries: 100, Patience: time.Minute})
		d.post("n1")
		after(20 * time.Hour)
		equal(t, len(host.Deliveries()), 3)
	})
}

// D-6: an adapter that fails is followed by the next one at once.
func TestFailingAdapter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken, good := noticetest.NewHost("broken"), noticetest.NewHost("good")
		broken.WakeFunc = func(context.Context, notice.Delivery, func(notice.State)) (notice.State, error) {
			return "", &notice.HostError{Op: "push", Code: 500, Detail: "text of n1"}
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: broken, Tries: 1}, notice.Route{Waker: good})
		d.post("n1")
		synctest.Wait()
		equal(t, good.Shown(), []string{"n1"})
		steps := d.record("n1").Steps
		equal(t, []any{steps[1].Adapter, steps[1].State, steps[1].Reason}, []any{"broken", notice.Persisted, "push: the host answered 500"})
	})
}

// A turn that was aborted after it began did not deliver: it is offered again,
// once the pause after a failure is over (specification N-22).
func TestAbortedTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		host.WakeFunc = func(_ context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
			proved(notice.Woken)
			if d.Attempt == 1 {
				return "", errors.New("turn aborted")
			}
			return notice.Seen, nil
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		d.post("n1")
		synctest.Wait()
		equal(t, []any{len(host.Deliveries()), d.state("n1")}, []any{1, notice.Woken})
		after(5 * time.Second)
		equal(t, []any{len(host.Deliveries()), d.state("n1")}, []any{2, notice.Seen})
	})
}

// A lost answer is waited for like a swallowed push, and proves nothing.
func TestUncertain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		host.WakeFunc = func(context.Context, notice.Delivery, func(notice.State)) (notice.State, error) {
			return "", fmt.Errorf("post: connection reset (%w)", notice.ErrUncertain)
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host, Patience: time.Minute})
		d.post("n1")
		after(time.Minute - time.Second)
		equal(t, []any{len(host.Deliveries()), d.state("n1")}, []any{1, notice.Persisted})
		after(time.Second)
		equal(t, len(host.Deliveries()), 2)
	})
}

// A wake that outlives its time and has begun a turn is waited for; one that
// proved nothing has failed.
func TestWakeTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		proof notice.State
		again time.Duration // after the timeout
	}{"turn began": {notice.Woken, time.Minute}, "no proof": {notice.Persisted, 5 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				host := noticetest.NewHost("host")
				host.WakeFunc = func(ctx context.Context, _ notice.Delivery, proved func(notice.State)) (notice.State, error) {
					proved(tt.proof)
					<-ctx.Done()
					return "", ctx.Err()
				}
				d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host, Timeout: time.Hour, Patience: time.Minute})
				d.post("n1")
				after(time.Hour + tt.again - time.Second)
				equal(t, len(host.Deliveries()), 1)
				after(time.Second)
				equal(t, len(host.Deliveries()), 2)
			})
		})
	}
}

// D-5: a busy agent is waited for, and its kick is never missed.
func TestBusyAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host, other := noticetest.NewHost("host"), noticetest.NewHost("other")
		var busy atomic.Bool
		busy.Store(true)
		host.ReachFunc = func(string) error {
			if busy.Load() {
				return &notice.BusyError{Reason: "a turn runs", Retry: time.Hour}
			}
			return nil
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host}, notice.Route{Waker: other})
		d.post("n1")
		after(59 * time.Minute)
		equal(t, len(host.Deliveries())+len(other.Deliveries()), 0)
		busy.Store(false)
		d.Kick("a")
		synctest.Wait()
		equal(t, host.Shown(), []string{"n1"})
		busy.Store(true)
		d.post("n2")
		after(time.Minute)
		busy.Store(false)
		after(time.Hour) // nobody kicks: its Retry does
		equal(t, host.Shown(), []string{"n1", "n2"})
	})
}

// A host that turns out busy when it is woken costs neither an offer nor the
// budget.
func TestBusyWhenWoken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		refusals := 0
		host.WakeFunc = func(_ context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
			if refusals++; refusals <= 30 {
				return "", &notice.BusyError{Reason: "a turn runs", Retry: time.Second}
			}
			host.Show(d)
			return notice.Seen, nil
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		d.post("n1")
		after(29 * time.Second)
		equal(t, len(host.Shown()), 0)
		after(time.Second)
		equal(t, host.Shown(), []string{"n1"})
		status, err := d.Status(t.Context(), "a")
		equal(t, []any{status.Spent.WakesHour, status.Hold.Reason, err, d.record("n1").Offers}, []any{1, "", nil, 0})
	})
}

// D-6, D-9: an adapter that does not reach is passed over; when none does, the
// notice waits and counts nothing.
func TestUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := noticetest.NewHost("first"), noticetest.NewHost("second")
		var asked atomic.Int32
		first.ReachFunc = func(string) error { asked.Add(1); return errors.New("no session") }
		var up atomic.Bool
		second.ReachFunc = func(string) error {
			if up.Load() {
				return nil
			}
			return errors.New("connection refused")
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: first}, notice.Route{Waker: second})
		d.post("n1")
		after(30*time.Second + time.Minute + 2*time.Minute)
		equal(t, asked.Load(), int32(4)) // at once and after 30 s, 1 min and 2 min more
		after(24 * time.Hour)
		if n := asked.Load(); n > 105 {
			t.Errorf("asked %d times in a day", n)
		}
		equal(t, d.record("n1").Offers, 0)
		up.Store(true)
		d.Kick("a")
		synctest.Wait()
		equal(t, second.Shown(), []string{"n1"})
		up.Store(false) // and again, as impatient as the first time
		d.post("n2")
		synctest.Wait()
		asked.Store(0)
		after(30 * time.Second)
		equal(t, asked.Load(), int32(1))
	})
}

// A notice whose adapter is away holds up nobody else's.
func TestNoHeadOfLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := noticetest.NewHost("first"), noticetest.NewHost("second")
		first.WakeFunc = func(_ context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
			if d.Notices[0].ID == "n1" {
				return "", errors.New("refused")
			}
			first.Show(d)
			return notice.Seen, nil
		}
		second.ReachFunc = func(string) error { return errors.New("away") }
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: first, Tries: 1}, notice.Route{Waker: second})
		d.post("n1")
		synctest.Wait()
		d.post("n2")
		synctest.Wait()
		equal(t, first.Shown(), []string{"n2"})
		equal(t, d.state("n1"), notice.Persisted)
	})
}

// D-2, D-5: proof from another side frees the agent for the next wake.
func TestSeenFromOutside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := swallower("host")
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host, Patience: time.Hour})
		d.post("n1")
		synctest.Wait()
		d.post("n2")
		after(time.Minute)
		equal(t, batches(host), [][]string{{"n1"}})
		if err := d.Seen(t.Context(), "a", "tool", "n1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, batches(host), [][]string{{"n1"}, {"n2"}})
		equal(t, d.record("n1").Steps[2].Adapter, "tool")
	})
}

// A batch is bounded, and many notices are one digest.
func TestBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		var ready atomic.Bool
		host.ReachFunc = func(string) error {
			if !ready.Load() {
				return &notice.BusyError{Reason: "not yet"}
			}
			return nil
		}
		d := newDesk(t, noticetest.NewStore(), &notice.Options{Batch: 20}, notice.Route{Waker: host})
		for i := range 50 {
			d.post(fmt.Sprintf("n%d", i))
		}
		ready.Store(true)
		d.Kick("a")
		synctest.Wait()
		sizes := []int{}
		for _, b := range batches(host) {
			sizes = append(sizes, len(b))
		}
		equal(t, sizes, []int{20, 20, 10})
		equal(t, len(host.Shown()), 50)
	})
}

// D-5: an idle inbox costs nothing at all, and one that waits for something
// looks only when it is time.
func TestNoPolling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := noticetest.NewStore()
		d := newDesk(t, store, nil, notice.Route{Waker: swallower("host"), Patience: time.Hour})
		synctest.Wait()
		var calls atomic.Int32
		store.SetFail(func(string) error { calls.Add(1); return nil })
		after(100 * time.Hour)
		equal(t, calls.Load(), int32(0))
		d.post("n1")
		synctest.Wait()
		if calls.Swap(0) == 0 {
			t.Fatal("nothing is counted")
		}
		after(59 * time.Minute)
		equal(t, calls.Load(), int32(0))
	})
}

// Every notice that is attached while Run runs is served; Detach ends it.
func TestAttachAndDetach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, noticetest.NewStore(), nil)
		d.post("n1")
		after(time.Hour)
		equal(t, d.state("n1"), notice.Persisted) // no routes: it waits for a pull
		host := noticetest.NewHost("host")
		host.WakeFunc = func(ctx context.Context, _ notice.Delivery, _ func(notice.State)) (notice.State, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		if err := d.Attach(t.Context(), "a", notice.Route{Waker: host}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, len(host.Deliveries()), 1)
		d.Detach("a")
		equal(t, d.Attached(), []string(nil))
		d.post("n2")
		after(time.Hour)
		equal(t, len(host.Deliveries()), 1)
		if err := d.Run(t.Context()); err == nil {
			t.Error("a second Run began")
		}
	})
}

// Run can end and begin again.
func TestRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		in := notice.New(noticetest.NewStore(), nil)
		if err := in.Attach(t.Context(), "a", notice.Route{Waker: host}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := in.Post(t.Context(), notice.Notice{ID: fmt.Sprintf("n%d", i), Agent: "a", Source: notice.SourceSystem}); err != nil {
				t.Fatal(err)
			}
			if err := in.Run(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		equal(t, host.Shown(), []string{"n0", "n1", "n2"})
		in.Detach("a")
	})
}

// The store comes and goes; a proof that could not be written is written before
// anything else, and the notice is not offered twice.
func TestStoreFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, host := noticetest.NewStore(), noticetest.NewHost("host")
		d := newDesk(t, store, nil, notice.Route{Waker: host, Timeout: time.Minute, Patience: time.Minute})
		full := errors.New("disk full")
		var down atomic.Value // the method that fails
		down.Store("")
		store.SetFail(func(method string) error {
			if m := down.Load(); m == method || m == "all" {
				return full
			}
			return nil
		})
		down.Store("Move")
		d.post("n1")
		after(time.Hour)
		equal(t, []any{host.Shown(), d.state("n1")}, []any{[]string{"n1"}, notice.Persisted})
		down.Store("")
		after(time.Minute)
		equal(t, []any{host.Shown(), d.state("n1")}, []any{[]string{"n1"}, notice.Seen})
		down.Store("all")
		if _, err := d.Post(t.Context(), notice.Notice{Agent: "a", Source: notice.SourceFeed}); !errors.Is(err, full) {
			t.Fatalf("got %v", err)
		}
		d.Kick("a")
		after(time.Hour)
		down.Store("")
		after(time.Minute)
		d.post("n2")
		synctest.Wait()
		equal(t, host.Shown(), []string{"n1", "n2"})
	})
}

// An adapter that stands in for one that is away has its own tries.
func TestStandIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := swallower("first"), swallower("second")
		var away atomic.Bool
		first.ReachFunc = func(string) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}
		d := newDesk(t, noticetest.NewStore(), nil,
			notice.Route{Waker: first, Tries: 2, Patience: time.Minute}, notice.Route{Waker: second, Tries: 2, Patience: time.Minute})
		d.post("n1")
		synctest.Wait()
		away.Store(true)
		after(time.Hour)
		equal(t, []any{len(first.Deliveries()), len(second.Deliveries())}, []any{1, 2})
	})
}

// Deleting what an adapter has in hand frees the agent.
func TestDeleteOutstanding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := swallower("host")
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host, Patience: time.Hour})
		d.post("n1")
		synctest.Wait()
		d.post("n2")
		synctest.Wait()
		if n, err := d.Delete(t.Context(), "a", "n1"); n != 1 || err != nil {
			t.Fatalf("got %d, %v", n, err)
		}
		synctest.Wait()
		equal(t, batches(host), [][]string{{"n1"}, {"n2"}})
	})
}

// Attaching anew ends what was attached before, with its wake.
func TestAttachTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		old, young := noticetest.NewHost("old"), noticetest.NewHost("young")
		ended := false
		old.WakeFunc = func(ctx context.Context, _ notice.Delivery, _ func(notice.State)) (notice.State, error) {
			<-ctx.Done()
			ended = true
			return "", ctx.Err()
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: old})
		d.post("n1")
		synctest.Wait()
		if err := d.Attach(t.Context(), "a", notice.Route{Waker: young}); err != nil {
			t.Fatal(err)
		}
		if !ended {
			t.Error("the old wake still runs")
		}
		synctest.Wait()
		equal(t, young.Shown(), []string{"n1"})
	})
}

// D-2: what was proved while everything shuts down is still recorded.
func TestProofAtShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		host.WakeFunc = func(ctx context.Context, _ notice.Delivery, _ func(notice.State)) (notice.State, error) {
			<-ctx.Done()
			return notice.Seen, nil
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		d.post("n1")
		synctest.Wait()
		d.stop()
		equal(t, d.state("n1"), notice.Seen)
	})
}
