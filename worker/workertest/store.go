package workertest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/worker"
)

// RunStore is the suite of worker.Store. open returns an empty store; it is
// called once per part.
func RunStore(t *testing.T, open func(t *testing.T) worker.Store) {
	t.Run("keeps every field", func(t *testing.T) {
		t.Parallel()
		s, rec := open(t), fullRecord("a")
		must(t, s.Create(t.Context(), rec))
		got, err := s.Load(t.Context(), "a")
		must(t, err)
		if diff := cmp.Diff(rec, got, cmpopts.EquateApproxTime(time.Microsecond), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("loaded (-want +got):\n%s", diff)
		}
		rec.State, rec.Reported = worker.StateReleasing, true
		must(t, s.Save(t.Context(), rec, rec.Epoch))
		if got, err = s.Load(t.Context(), "a"); err != nil || got.State != worker.StateReleasing || !got.Reported {
			t.Errorf("after saving: %+v, %v", got, err)
		}
	})
	t.Run("is not shared with its callers", func(t *testing.T) {
		t.Parallel()
		s, rec := open(t), fullRecord("a")
		must(t, s.Create(t.Context(), rec))
		rec.Tools[0] = "changed"
		got, err := s.Load(t.Context(), "a")
		must(t, err)
		got.Profile.Tools[0] = "changed"
		again, err := s.Load(t.Context(), "a")
		must(t, err)
		if again.Tools[0] != "exec" || again.Profile.Tools[0] != "exec" {
			t.Errorf("a caller changed the store: %+v", again)
		}
	})
	t.Run("knows what is not there", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		if _, err := s.Load(t.Context(), "x"); !errors.Is(err, worker.ErrUnknownSession) {
			t.Errorf("load: %v", err)
		}
		if err := s.Save(t.Context(), fullRecord("x"), 0); !errors.Is(err, worker.ErrUnknownSession) {
			t.Errorf("save: %v", err)
		}
		must(t, s.Delete(t.Context(), "x"))
		must(t, s.Create(t.Context(), fullRecord("x")))
		if err := s.Create(t.Context(), fullRecord("x")); !errors.Is(err, worker.ErrConflict) {
			t.Errorf("create twice: %v", err)
		}
		must(t, s.Delete(t.Context(), "x"))
		must(t, s.Create(t.Context(), fullRecord("x")))
	})
	t.Run("lists by id", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, id := range []string{"b", "a", "c"} {
			must(t, s.Create(t.Context(), fullRecord(id)))
		}
		recs, err := s.List(t.Context(), worker.Filter{})
		must(t, err)
		var ids []string
		for _, r := range recs {
			ids = append(ids, r.ID)
		}
		if diff := cmp.Diff([]string{"a", "b", "c"}, ids); diff != "" {
			t.Errorf("listed (-want +got):\n%s", diff)
		}
	})
	t.Run("lets one of many hosts bind", func(t *testing.T) { t.Parallel(); testEpochs(t, open(t)) })
}

// testEpochs has hosts race for a session: each epoch has one winner.
func testEpochs(t *testing.T, s worker.Store) {
	const hosts, rounds = 8, 5
	must(t, s.Create(t.Context(), fullRecord("a")))
	for range rounds {
		now, err := s.Load(t.Context(), "a")
		must(t, err)
		var wg sync.WaitGroup
		won := make(chan string, hosts)
		for i := range hosts {
			wg.Go(func() {
				mine := now
				mine.Epoch, mine.Owner = now.Epoch+1, fmt.Sprintf("host-%d", i)
				switch err := s.Save(t.Context(), mine, now.Epoch); {
				case err == nil:
					won <- mine.Owner
				case !errors.Is(err, worker.ErrConflict):
					t.Errorf("save: %v", err)
				}
			})
		}
		wg.Wait()
		close(won)
		if len(won) != 1 {
			t.Fatalf("%d hosts won epoch %d", len(won), now.Epoch+1)
		}
		after, err := s.Load(t.Context(), "a")
		must(t, err)
		if winner := <-won; after.Owner != winner || after.Epoch != now.Epoch+1 {
			t.Errorf("the store has %s at %d, the winner is %s", after.Owner, after.Epoch, winner)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fullRecord has a value in every field, so that a store that forgets one fails.
func fullRecord(id string) worker.Record {
	at := func(n int) time.Time { return time.Date(2026, 11, 29, 8, 0, n, 123456000, time.UTC) }
	return worker.Record{
		ID: id, Profile: worker.Light(), State: worker.StateDetached, Owner: "host-0", Epoch: 7,
		InstanceID: "ins", Attempt: 3, Created: at(0), EverRan: true,
		Deadline: worker.Deadlines{Dial: at(1), Outer: at(2), Reconnect: at(3), Release: at(4), Exec: at(5)},
		Failure:  worker.FailureLost, Detail: "why \"quoted\" й",
		Versions: worker.Versions{Host: "1.1.0", Worker: "1.0.0", Effective: "1.0.0", HostImage: "api:1", WorkerImage: "img:2", MCP: "2025-06-18"},
		Release:  worker.ReasonIdle, Reported: false, OutputsFlushed: true,
		Outputs:  []worker.Output{{URI: "store://art_1", Name: "n", MIMEType: "text/plain", Size: 1 << 40}},
		Tools:    []string{"exec", "file"},
		LastBeat: at(6), Beat: worker.Heartbeat{SessionID: id, Idle: time.Second, Exec: time.Minute, ActiveToolCalls: 1, WorkspaceBytes: 1 << 40, ChannelVersion: "1.0.0"},
		IdleBudget: 90 * time.Second, ExecBudget: 900 * time.Second,
	}
}
