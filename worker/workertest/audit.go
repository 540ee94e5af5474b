package workertest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/worker"
)

// RunAudit is the suite of worker.AuditStore. open makes an empty store and
// returns what opens it, with limits. It is called once per part.
func RunAudit(t *testing.T, open func(t *testing.T) func(*worker.AuditLimits) worker.AuditStore) {
	t.Run("keeps every field, in order", func(t *testing.T) {
		t.Parallel()
		store := open(t)
		s, other := store(nil), store(nil)
		all := []worker.AuditEntry{fullEntry("a", 1), fullEntry("b", 2), fullEntry("a", 3)}
		must(t, s.Append(t.Context(), all))
		last := fullEntry("a", 4)
		must(t, other.Append(t.Context(), []worker.AuditEntry{last}))
		got, err := s.Read(t.Context(), "a", 0, 100)
		must(t, err)
		want := []worker.AuditEntry{all[0], all[2], last}
		if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(time.Millisecond), cmpopts.IgnoreFields(worker.AuditEntry{}, "Seq")); diff != "" {
			t.Fatalf("read (-want +got):\n%s", diff)
		}
		if got[0].Seq <= 0 || got[1].Seq <= got[0].Seq || got[2].Seq <= got[1].Seq {
			t.Errorf("numbered %d %d %d", got[0].Seq, got[1].Seq, got[2].Seq)
		}
		rest, err := other.Read(t.Context(), "a", got[0].Seq, 1)
		if err != nil || len(rest) != 1 || rest[0].Seq != got[1].Seq {
			t.Errorf("after the first, one: %+v, %v", rest, err)
		}
		none, err := s.Read(t.Context(), "nobody", 0, 100)
		if err != nil || len(none) != 0 {
			t.Errorf("of nobody: %+v, %v", none, err)
		}
	})
	t.Run("keeps the newest of a session", func(t *testing.T) {
		t.Parallel()
		s := open(t)(&worker.AuditLimits{Session: 5})
		must(t, s.Append(t.Context(), []worker.AuditEntry{fullEntry("b", 100), fullEntry("b", 101)}))
		for i := range 4 {
			must(t, s.Append(t.Context(), []worker.AuditEntry{fullEntry("a", 2*i), fullEntry("a", 2*i+1)}))
		}
		expect(t, s, "a", 3, 4, 5, 6, 7)
		expect(t, s, "b", 100, 101)
	})
	t.Run("keeps the newest of all", func(t *testing.T) {
		t.Parallel()
		s := open(t)(&worker.AuditLimits{Total: 4})
		for i := range 6 {
			must(t, s.Append(t.Context(), []worker.AuditEntry{fullEntry(fmt.Sprint(i%2), i)}))
		}
		expect(t, s, "0", 2, 4)
		expect(t, s, "1", 3, 5)
	})
	t.Run("keeps none that is too old", func(t *testing.T) {
		t.Parallel()
		s := open(t)(&worker.AuditLimits{Age: time.Hour})
		old := fullEntry("a", 1)
		old.Time = time.Now().Add(-2 * time.Hour)
		must(t, s.Append(t.Context(), []worker.AuditEntry{old, fullEntry("a", 2)}))
		expect(t, s, "a", 2)
	})
	t.Run("takes hosts that write at once", func(t *testing.T) {
		t.Parallel()
		const hosts, each = 4, 20
		store := open(t)
		follower, writers := store(nil), make([]worker.AuditStore, hosts)
		for h := range writers {
			writers[h] = store(nil)
		}
		var wg sync.WaitGroup
		for h, s := range writers {
			wg.Go(func() {
				for i := range each {
					must(t, s.Append(t.Context(), []worker.AuditEntry{fullEntry("a", h*each+i)}))
				}
			})
		}
		// Whoever follows by number misses none.
		seen := map[int64]bool{}
		var after int64
		for deadline := time.Now().Add(30 * time.Second); len(seen) < hosts*each && time.Now().Before(deadline); {
			got, err := follower.Read(t.Context(), "a", after, 3)
			must(t, err)
			for _, e := range got {
				seen[e.Attempt], after = true, e.Seq
			}
		}
		wg.Wait()
		if len(seen) != hosts*each {
			t.Errorf("a follower saw %d of %d", len(seen), hosts*each)
		}
	})
}

func expect(t *testing.T, s worker.AuditStore, session string, want ...int64) {
	t.Helper()
	entries, err := s.Read(t.Context(), session, 0, 1000)
	must(t, err)
	got := []int64{}
	for _, e := range entries {
		got = append(got, e.Attempt)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries of %s (-want +got):\n%s", session, diff)
	}
}

// fullEntry has a value in every field but Seq; n is its Attempt.
func fullEntry(session string, n int) worker.AuditEntry {
	return worker.AuditEntry{
		Time: time.Now(), Session: session, Host: "host-0", Event: "bound", Detail: "a\x00b \u2028 \"й\"",
		From: worker.StateHandshaking, To: worker.StateReadying, Reason: "idle", Close: worker.CloseSuperseded,
		Versions:   worker.Versions{Host: "1.1.0", Worker: "1.0.0", Effective: "1.0.0", HostImage: "api:1", WorkerImage: "img:2", MCP: "2025-06-18"},
		InstanceID: "ins", Attempt: int64(n), Epoch: 7,
	}
}
