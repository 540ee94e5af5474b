package notice_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// D-7: over budget nothing wakes the agent, time does not help, a restart does
// not forget; a user turn takes what waits, and only Reset lets wakes go on.
func TestBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		budget notice.Budget
		gap    time.Duration
		wakes  int
	}{
		"per minute": {notice.Budget{WakesPerMinute: 3}, time.Second, 3},
		"per hour":   {notice.Budget{WakesPerHour: 5}, time.Minute, 5},
		"tokens":     {notice.Budget{TokensPerHour: 90}, time.Minute, 2}, // each is more than 45
		"not over":   {notice.Budget{WakesPerMinute: 3}, 20 * time.Second, 12},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store, host := noticetest.NewStore(), noticetest.NewHost("host")
				o := &notice.Options{Budget: tt.budget}
				d := newDesk(t, store, o, notice.Route{Waker: host})
				for i := range 12 {
					d.post(fmt.Sprintf("n%d", i))
					after(tt.gap)
				}
				equal(t, len(host.Deliveries()), tt.wakes)
				if tt.wakes == 12 {
					return
				}
				d.stop()
				d = newDesk(t, store, o, notice.Route{Waker: host})
				after(24 * time.Hour)
				status, err := d.Status(t.Context(), "a")
				if err != nil || status.Hold.Reason == "" || status.Pending != 12-tt.wakes {
					t.Fatalf("got %+v, %v", status, err)
				}
				if ok, err := d.MayWake(t.Context(), "a", 1); ok || err != nil {
					t.Fatalf("got %v, %v", ok, err)
				}
				equal(t, len(d.pull(&notice.PullOptions{User: true})), 12-tt.wakes)
				d.post("late")
				after(time.Hour)
				equal(t, len(host.Deliveries()), tt.wakes)
				if err := d.Reset(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				equal(t, len(host.Deliveries()), tt.wakes+1)
			})
		})
	}
}

// D-7: two agents that wake each other come to rest at the greatest depth.
func TestDepth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		d := newDesk(t, noticetest.NewStore(), nil, notice.Route{Waker: host})
		for depth := range 12 {
			d.postNotice(notice.Notice{ID: fmt.Sprintf("n%d", depth), Depth: depth})
			synctest.Wait()
		}
		equal(t, len(host.Deliveries()), 9) // 0 to 8
		after(time.Hour)
		equal(t, d.pull(nil), []string{}) // a tool's result is no user turn
		equal(t, d.pull(&notice.PullOptions{User: true}), []string{"n9", "n10", "n11"})
	})
}

// A hook that begins turns is held to the same budget.
func TestMayWake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, noticetest.NewStore(), &notice.Options{Budget: notice.Budget{WakesPerMinute: 2}})
		var got []bool
		for range 4 {
			ok, err := d.MayWake(t.Context(), "a", 10)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ok)
		}
		equal(t, got, []bool{true, true, false, false})
	})
}
