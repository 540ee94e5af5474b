package notice_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// D-8: pending notices expire at their time, with nothing else going on.
func TestExpiry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		host := noticetest.NewHost("host")
		host.ReachFunc = func(string) error { return &notice.BusyError{Reason: "for ever", Retry: 1000 * time.Hour} }
		d := newDesk(t, noticetest.NewStore(), &notice.Options{Retention: notice.Retention{PendingAge: 10 * time.Hour}}, notice.Route{Waker: host})
		d.post("n1")
		after(5 * time.Hour)
		d.post("n2")
		after(5*time.Hour - time.Second)
		equal(t, d.state("n1"), notice.Persisted)
		after(2 * time.Second)
		equal(t, []any{d.state("n1"), d.state("n2")}, []any{notice.Expired, notice.Persisted})
		after(5 * time.Hour)
		equal(t, d.state("n2"), notice.Expired)
		status, err := d.Status(t.Context(), "a")
		equal(t, []any{status.String(), err}, []any{"0 pending, 2 expired", nil})
	})
}

// A notice in an adapter's hand does not expire under it.
func TestExpirySparesClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, noticetest.NewStore(), &notice.Options{Retention: notice.Retention{PendingAge: time.Hour}},
			notice.Route{Waker: swallower("host"), Patience: 3 * time.Hour, Tries: 1})
		d.post("n1")
		after(2 * time.Hour)
		equal(t, d.state("n1"), notice.Notified)
		after(time.Hour + time.Minute)
		equal(t, d.state("n1"), notice.Expired)
	})
}

// D-8: an inbox is bounded in number, done notices go first.
func TestKeep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, noticetest.NewStore(), &notice.Options{Retention: notice.Retention{Keep: 10}})
		for i := range 200 {
			d.post(fmt.Sprintf("n%d", i))
			if i == 5 {
				d.pull(nil)
			}
		}
		page, err := d.List(t.Context(), notice.Query{Agent: "a", Limit: 500})
		if err != nil || len(page.Records) > 10+64+64 {
			t.Fatalf("%d kept, %v", len(page.Records), err)
		}
		equal(t, d.state("n199"), notice.Persisted)
		if _, err := d.Get(t.Context(), "", "n1"); !errors.Is(err, notice.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

// D-8: what is done is deleted by age, at the latest when delivery begins.
func TestDoneAge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := noticetest.NewStore()
		d := newDesk(t, store, nil)
		d.post("n1")
		d.pull(nil)
		d.stop()
		after(31 * 24 * time.Hour)
		d = newDesk(t, store, nil)
		synctest.Wait()
		if _, err := d.Get(t.Context(), "", "n1"); !errors.Is(err, notice.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

// D-8: whatever happens to a notice, no log says what it says.
func TestPayloadIsNeverLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		host := noticetest.NewHost("host")
		var works, near atomic.Bool
		host.WakeFunc = func(_ context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
			if !works.Load() {
				return "", &notice.HostError{Op: "push", Code: 500, Detail: d.Text}
			}
			return notice.Notified, nil
		}
		host.ReachFunc = func(string) error {
			if near.Load() {
				return nil
			}
			return errors.New("away")
		}
		d := newDesk(t, noticetest.NewStore(), &notice.Options{Logger: logger, Budget: notice.Budget{WakesPerMinute: 2}}, notice.Route{Waker: host, Patience: time.Minute})
		n := notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceWatch, Title: "S3CRET-title", Text: "S3CRET-text", Meta: map[string]string{"S3CRET-k": "S3CRET-v"}, DedupeKey: "S3CRET-key"}
		d.postNotice(n)
		after(time.Minute)
		near.Store(true)
		d.Kick("a")
		after(time.Minute)
		works.Store(true)
		after(time.Hour)
		n.ID, n.DedupeKey, n.Depth = "n2", "", 99
		d.postNotice(n)
		after(time.Hour)
		if err := d.Reset(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		d.pull(&notice.PullOptions{User: true})
		after(240 * time.Hour)
		logger.InfoContext(t.Context(), "value", slog.Any("notice", n))
		logger.InfoContext(t.Context(), "pointer", slog.Any("notice", &n))
		synctest.Wait()
		got := log.String()
		if strings.Contains(got, "S3CRET") {
			t.Errorf("a log says what a notice says:\n%s", got)
		}
		for _, msg := range []string{"notice.persisted", "notice.offered", "notice.offer_failed", "notice.moved", "notice.unreachable", "notice.too_deep", "notice.budget_reset", "state=seen"} {
			if !strings.Contains(got, msg) {
				t.Errorf("%s is not logged", msg)
			}
		}
		if t.Failed() {
			t.Log(got)
		}
	})
}
