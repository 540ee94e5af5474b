package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// moodyAudit fails while it is away, and takes its time.
type moodyAudit struct {
	worker.MemoryAudit

	away atomic.Bool
	slow time.Duration
}

func (s *moodyAudit) Append(ctx context.Context, entries []worker.AuditEntry) error {
	time.Sleep(s.slow)
	if s.away.Load() {
		return errAway
	}
	return s.MemoryAudit.Append(ctx, entries)
}

func runTrail(t *testing.T, store worker.AuditStore) (*worker.AuditTrail, func()) {
	t.Helper()
	trail := worker.NewAuditTrail(store, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := trail.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return trail, func() { cancel(); running.Wait() }
}

// An audit that fails stops no session: what is lost is counted, and said in the
// trail of its session once the store is back.
func TestFailingAudit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &moodyAudit{}
		store.away.Store(true)
		trail, stop := runTrail(t, store)
		r := newRig(nil, func(o *worker.HostOptions) { o.Audit = trail })
		defer r.close()
		s, p := running(t, r, newToolbox(), nil)
		time.Sleep(time.Minute)
		if st := trail.Stats(); st.Lost != 4 || st.Written != 0 || st.Failed < 3 {
			t.Errorf("%+v", st)
		}
		store.away.Store(false)
		if _, err := s.Release(t.Context(), worker.ReasonExplicit); err != nil {
			t.Error(err)
		}
		p.wait()
		stop()
		got, err := store.Read(t.Context(), "s1", 0, 100)
		must(t, err)
		if len(got) != 3 || got[0].Event != "audit_gap" || got[0].Detail != "4 entries were lost" || got[2].Event != "released" {
			t.Errorf("%+v", got)
		}
		if st := trail.Stats(); st.Written != 2 || st.Lost != 4 {
			t.Errorf("%+v", st)
		}
	})
}

// A store that is slower than sessions are makes the trail lose the newest, not
// wait and not grow.
func TestSlowAudit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &moodyAudit{slow: time.Second}
		store.Limits = &worker.AuditLimits{Session: 100_000}
		trail, stop := runTrail(t, store)
		trail.Audit(worker.AuditEntry{Session: "s1", Event: "first", Time: time.Now()})
		synctest.Wait()
		begun := time.Now()
		for i := range 6000 {
			trail.Audit(worker.AuditEntry{Session: "s1", Event: fmt.Sprint(i), Time: time.Now()})
		}
		if time.Since(begun) != 0 {
			t.Errorf("it waited %v", time.Since(begun))
		}
		time.Sleep(time.Minute)
		trail.Audit(worker.AuditEntry{Session: "s1", Event: "last", Time: time.Now()})
		stop() // writes what waits
		st := trail.Stats()
		if st.Lost != 6000-4096 || st.Written != 4096+2 || st.Failed != 0 {
			t.Errorf("%+v", st)
		}
		got, err := store.Read(t.Context(), "s1", 0, 100_000)
		must(t, err)
		gap := 0
		for _, e := range got {
			if e.Event == "audit_gap" {
				gap++
			}
		}
		if len(got) != 4096+2+1 || gap != 1 || got[len(got)-1].Event != "last" {
			t.Errorf("%d entries, %d gaps", len(got), gap)
		}
	})
}
