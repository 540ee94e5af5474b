package notice_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// checker is a host that can tell what became of a delivery.
type checker struct {
	*noticetest.Host
	check func(notice.Delivery) (notice.State, error)
}

func (c checker) Check(_ context.Context, d notice.Delivery) (notice.State, error) { return c.check(d) }

// D-4: what a process that died had in hand is found out, not guessed.
func TestRecovery(t *testing.T) {
	for name, tt := range map[string]struct {
		check  func(notice.Delivery) (notice.State, error) // nil: the host cannot tell
		pushes []time.Duration                             // when the next life pushes
		state  notice.State                                // at once
	}{
		"it never arrived": {func(notice.Delivery) (notice.State, error) { return notice.Persisted, nil }, []time.Duration{0}, notice.Seen},
		"it was shown":     {func(notice.Delivery) (notice.State, error) { return notice.Seen, nil }, nil, notice.Seen},
		"its turn began":   {func(notice.Delivery) (notice.State, error) { return notice.Woken, nil }, []time.Duration{time.Minute}, notice.Woken},
		"no answer":        {func(notice.Delivery) (notice.State, error) { return "", errors.New("away") }, []time.Duration{time.Minute}, notice.Persisted},
		"nobody can tell":  {nil, []time.Duration{time.Minute}, notice.Persisted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := noticetest.NewStore()
				dying := noticetest.NewHost("host")
				dying.WakeFunc = func(ctx context.Context, _ notice.Delivery, _ func(notice.State)) (notice.State, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}
				first := newDesk(t, store, nil, notice.Route{Waker: dying})
				first.post("n1")
				synctest.Wait()
				first.stop()
				equal(t, first.state("n1"), notice.Persisted)

				start := time.Now()
				var pushes []time.Duration
				host := noticetest.NewHost("host")
				host.WakeFunc = func(_ context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
					pushes = append(pushes, time.Since(start))
					if tt.state == notice.Seen && d.ID != dying.Deliveries()[0].ID {
						t.Errorf("delivery %s was repeated as %s", dying.Deliveries()[0].ID, d.ID)
					}
					return notice.Seen, nil
				}
				var waker notice.Waker = host
				if tt.check != nil {
					waker = checker{host, tt.check}
				}
				second := newDesk(t, store, nil, notice.Route{Waker: waker, Patience: time.Minute})
				synctest.Wait()
				equal(t, second.state("n1"), tt.state)
				after(time.Hour)
				equal(t, pushes, tt.pushes)
				equal(t, second.state("n1"), notice.Seen)
			})
		})
	}
}

// A delivery whose adapter is configured no more starts afresh.
func TestRecoveryWithoutAdapter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := noticetest.NewStore()
		first := newDesk(t, store, nil, notice.Route{Waker: swallower("old"), Patience: time.Hour})
		first.post("n1")
		synctest.Wait()
		first.stop()
		host := noticetest.NewHost("new")
		newDesk(t, store, nil, notice.Route{Waker: host})
		synctest.Wait()
		equal(t, host.Shown(), []string{"n1"})
	})
}

// A notice of a route that is configured no more waits for a pull.
func TestFewerRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := noticetest.NewStore()
		away := noticetest.NewHost("second")
		away.ReachFunc = func(string) error { return errors.New("away") }
		first := newDesk(t, store, nil, notice.Route{Waker: swallower("first"), Patience: time.Minute, Tries: 1}, notice.Route{Waker: away})
		first.post("n1")
		after(2 * time.Minute)
		first.stop()
		second := newDesk(t, store, &notice.Options{PullWait: time.Hour}, notice.Route{Waker: swallower("first")})
		after(time.Hour - time.Minute)
		equal(t, second.state("n1"), notice.Notified)
		after(time.Minute)
		equal(t, second.state("n1"), notice.Dead)
	})
}

// Two processes that deliver for one agent: the newer one does, the older one
// stops.
func TestFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := noticetest.NewStore()
		old, young := noticetest.NewHost("host"), noticetest.NewHost("host")
		first := newDesk(t, store, nil, notice.Route{Waker: old})
		synctest.Wait()
		second := newDesk(t, store, nil, notice.Route{Waker: young})
		first.post("n1") // only the first hears of it
		synctest.Wait()
		equal(t, len(old.Deliveries()), 0)
		second.post("n2")
		synctest.Wait()
		equal(t, young.Shown(), []string{"n1", "n2"})
		first.post("n3")
		synctest.Wait() // it tries once, and is told again
		var claims atomic.Int32
		store.SetFail(func(method string) error {
			if method == "Claim" {
				claims.Add(1)
			}
			return nil
		})
		after(time.Hour)
		equal(t, []any{len(old.Deliveries()), claims.Load()}, []any{0, int32(0)}) // nor does it go on trying
	})
}

// The same inbox run again also finds out what it had in hand.
func TestRecoveryOfOneself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		host.WakeFunc = func(ctx context.Context, _ notice.Delivery, _ func(notice.State)) (notice.State, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: checker{host, func(notice.Delivery) (notice.State, error) { return notice.Seen, nil }}})
		d.post("n1")
		synctest.Wait()
		d.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Run(ctx); err != nil {
			t.Fatal(err)
		}
		equal(t, d.state("n1"), notice.Seen)
	})
}
