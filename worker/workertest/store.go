package workertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/worker"
)

// RunStore is the suite of worker.Store. open makes an empty store and returns
// what opens it: each call is another host, of this process or one more, on the
// same records. It is called once per part.
func RunStore(t *testing.T, open func(t *testing.T) func() worker.Store) { // AMB-21
	t.Run("keeps every field", func(t *testing.T) {
		t.Parallel()
		store, rec := open(t), fullRecord("a")
		s, other := store(), store()
		must(t, s.Create(t.Context(), rec))
		got, err := other.Load(t.Context(), "a")
		must(t, err)
		if diff := cmp.Diff(rec, got, cmpopts.EquateApproxTime(time.Microsecond), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("loaded (-want +got):\n%s", diff)
		}
		rec.State, rec.Reported, rec.Owner = worker.StateReleasing, true, "host-1"
		rec.Detail = "a\x00b \u2028 </script> 🦴"
		must(t, s.Save(t.Context(), rec, rec.Epoch))
		if got, err = other.Load(t.Context(), "a"); err != nil || !cmp.Equal(rec, got, cmpopts.EquateApproxTime(time.Microsecond), cmpopts.EquateEmpty()) {
			t.Errorf("after saving: %+v, %v", got, err)
		}
	})
	t.Run("keeps instants, not the clocks of hosts", func(t *testing.T) {
		t.Parallel()
		s, rec := open(t)(), fullRecord("a")
		rec.Deadline.Exec = time.Date(2026, 11, 29, 23, 59, 59, 999999000, time.FixedZone("Nepal", 20700))
		rec.Deadline.Release = time.Time{}
		must(t, s.Create(t.Context(), rec))
		got, err := s.Load(t.Context(), "a")
		if err != nil || !got.Deadline.Exec.Equal(rec.Deadline.Exec) || !got.Deadline.Release.IsZero() {
			t.Errorf("%+v, %v", got.Deadline, err)
		}
	})
	t.Run("is not shared with its callers", func(t *testing.T) {
		t.Parallel()
		s, rec := open(t)(), fullRecord("a")
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
		s := open(t)()
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
	t.Run("gives up with its caller", func(t *testing.T) {
		t.Parallel()
		s := open(t)()
		if _, memory := s.(*worker.Memory); memory {
			t.Skip("it never waits")
		}
		must(t, s.Create(t.Context(), fullRecord("a")))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rec := fullRecord("a")
		rec.Owner = "late"
		if err := s.Save(ctx, rec, rec.Epoch); !errors.Is(err, context.Canceled) {
			t.Errorf("save: %v", err)
		}
		if got, err := s.Load(t.Context(), "a"); err != nil || got.Owner != "host-0" {
			t.Errorf("%s, %v", got.Owner, err)
		}
	})
	t.Run("lists by id", func(t *testing.T) { t.Parallel(); testList(t, open(t)()) })
	t.Run("lets one of many hosts bind", func(t *testing.T) { t.Parallel(); testEpochs(t, open(t)) })
	t.Run("is never seen half written", func(t *testing.T) { t.Parallel(); testWhole(t, open(t)) })
	t.Run("forgets the oldest that are over", func(t *testing.T) { t.Parallel(); testForgets(t, open(t)()) })
	t.Run("keeps ten thousand", func(t *testing.T) { t.Parallel(); testMany(t, open(t)) })
	t.Run("knows which hosts live", func(t *testing.T) { t.Parallel(); testHosts(t, open(t)) })
}

func testList(t *testing.T, s worker.Store) {
	t.Helper()
	for id, change := range map[string]func(*worker.Record){
		"b": func(*worker.Record) {},
		"a": func(r *worker.Record) { r.Owner = "host-1" },
		"c": func(r *worker.Record) { r.State = worker.StateFailed },
		"B": func(r *worker.Record) { r.State = worker.StateReleased; r.Owner = "host-1" },
		"й": func(r *worker.Record) { r.State = worker.StateReleasing },
	} {
		rec := fullRecord(id)
		change(&rec)
		must(t, s.Create(t.Context(), rec))
	}
	for _, c := range []struct {
		f    worker.Filter
		want string
	}{
		{worker.Filter{}, "B a b c й"},
		{worker.Filter{Live: true}, "a b й"},
		{worker.Filter{Owner: "host-1"}, "B a"},
		{worker.Filter{Live: true, Owner: "host-1"}, "a"},
		{worker.Filter{Owner: "nobody"}, ""},
	} {
		recs, err := s.List(t.Context(), c.f)
		must(t, err)
		ids := []string{}
		for _, r := range recs {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.f, got, c.want)
		}
	}
	rec := fullRecord("b")
	rec.State = worker.StateReleased
	must(t, s.Save(t.Context(), rec, rec.Epoch))
	if recs, err := s.List(t.Context(), worker.Filter{Live: true}); err != nil || len(recs) != 2 {
		t.Errorf("%d live ones after an end, %v", len(recs), err)
	}
}

// testWhole reads while hosts take a session from each other: what is read is one
// of the states that were written.
func testWhole(t *testing.T, open func() worker.Store) {
	t.Helper()
	const takings = 100
	s, other := open(), open()
	rec := fullRecord("a")
	rec.Epoch, rec.Owner, rec.Attempt = 0, "host-0", 0
	must(t, s.Create(t.Context(), rec))
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for last := int64(0); ; {
			select {
			case <-done:
				return
			default:
			}
			all, err := other.List(t.Context(), worker.Filter{Live: true})
			if err != nil || len(all) != 1 {
				t.Errorf("%d records, %v", len(all), err)
				return
			}
			got := all[0]
			if got.Owner != fmt.Sprintf("host-%d", got.Epoch) || got.Attempt != got.Epoch || got.Epoch < last {
				t.Errorf("after epoch %d: %s at %d, attempt %d", last, got.Owner, got.Epoch, got.Attempt)
				return
			}
			last = got.Epoch
		}
	})
	for n := range int64(takings) {
		rec.Epoch, rec.Owner, rec.Attempt = n+1, fmt.Sprintf("host-%d", n+1), n+1
		must(t, s.Save(t.Context(), rec, n))
	}
	close(done)
	reading.Wait()
}

// testForgets ends sessions in order, more than are kept.
func testForgets(t *testing.T, s worker.Store) {
	t.Helper()
	const beyond = 5
	live := fullRecord("live")
	must(t, s.Create(t.Context(), live))
	for i := range worker.KeepFinal + beyond {
		rec := fullRecord(fmt.Sprintf("s%05d", i))
		if i%10 != 0 { // most are created so, for speed
			rec.State = worker.StateFailed
		}
		must(t, s.Create(t.Context(), rec))
		if !rec.State.Final() {
			rec.State = worker.StateReleased
			must(t, s.Save(t.Context(), rec, rec.Epoch))
		}
	}
	recs, err := s.List(t.Context(), worker.Filter{})
	must(t, err)
	if len(recs) != worker.KeepFinal+1 || recs[0].ID != "live" || recs[1].ID != fmt.Sprintf("s%05d", beyond) {
		t.Errorf("%d records, the first are %s and %s", len(recs), recs[0].ID, recs[1].ID)
	}
	if _, err := s.Load(t.Context(), "s00000"); !errors.Is(err, worker.ErrUnknownSession) {
		t.Errorf("the oldest: %v", err)
	}
}

// testMany is for the long variant of the tests.
func testMany(t *testing.T, open func() worker.Store) {
	t.Helper()
	if os.Getenv("OSSICLE_FAULTS") == "" {
		t.Skip("takes seconds; set OSSICLE_FAULTS")
	}
	const records, hosts = 10_000, 4
	var filling sync.WaitGroup
	for h := range hosts {
		s := open()
		filling.Go(func() {
			for i := h; i < records; i += hosts {
				rec := fullRecord(fmt.Sprintf("s%05d", i))
				rec.Owner = fmt.Sprintf("host-%d", h)
				if err := s.Create(t.Context(), rec); err != nil {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	filling.Wait()
	s := open()
	begun := time.Now()
	all, err := s.List(t.Context(), worker.Filter{Live: true})
	must(t, err)
	whole := time.Since(begun)
	begun = time.Now()
	mine, err := s.List(t.Context(), worker.Filter{Live: true, Owner: "host-1"})
	must(t, err)
	if len(all) != records || all[0].ID != "s00000" || all[records-1].ID != "s09999" || len(mine) != records/hosts || mine[0].ID != "s00001" {
		t.Errorf("%d records, %d of a host", len(all), len(mine))
	}
	t.Logf("%d records listed in %v, those of one of %d hosts in %v", records, whole.Round(time.Millisecond), hosts, time.Since(begun).Round(time.Millisecond))
}

func testHosts(t *testing.T, open func() worker.Store) {
	t.Helper()
	s, other := open(), open()
	announce := func(owner string, ttl time.Duration, want bool) {
		t.Helper()
		lapsed, err := s.Announce(t.Context(), worker.HostRecord{Owner: owner, Addr: "http://" + owner, Image: "api:1"}, ttl)
		if err != nil || lapsed != want {
			t.Errorf("announce %s: lapsed %t, want %t; %v", owner, lapsed, want, err)
		}
	}
	hosts := func() string {
		t.Helper()
		all, err := other.Hosts(t.Context())
		must(t, err)
		var text strings.Builder
		for _, h := range all {
			if h.Addr != "http://"+h.Owner || h.Image != "api:1" {
				t.Errorf("%+v", h)
			}
			fmt.Fprintf(&text, "%s %t ", h.Owner, h.Alive)
		}
		return text.String()
	}
	announce("b", time.Hour, true)
	announce("a", time.Hour, true)
	announce("b", time.Hour, false)
	if got := hosts(); got != "a true b true " {
		t.Errorf("announced: %s", got)
	}
	for id, owner := range map[string]string{"of a": "a", "of b": "b", "of nobody": "nobody", "over": "b"} {
		rec := fullRecord(id)
		rec.Owner = owner
		if id == "over" {
			rec.State = worker.StateReleased
		}
		must(t, s.Create(t.Context(), rec))
	}
	orphans := func() string {
		t.Helper()
		recs, err := other.List(t.Context(), worker.Filter{Live: true, Orphaned: true})
		must(t, err)
		ids := []string{}
		for _, r := range recs {
			ids = append(ids, r.ID)
		}
		return strings.Join(ids, " ")
	}
	if got := orphans(); got != "" {
		t.Errorf("orphans of hosts that live: %s", got)
	}
	must(t, s.Retire(t.Context(), "b"))
	must(t, s.Retire(t.Context(), "nobody"))
	if got := orphans(); got != "of b" {
		t.Errorf("orphans: %s", got)
	}
	if got := hosts(); got != "a true b false " {
		t.Errorf("retired: %s", got)
	}
	announce("b", 20*time.Millisecond, true)
	// The clock is the store's, so it is waited for.
	for deadline := time.Now().Add(10 * time.Second); hosts() != "a true b false "; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a lease of 20 ms: %s", hosts())
		}
	}
	announce("b", time.Hour, true)
	announce("b", time.Hour, false)
}

// testEpochs has hosts race for a session: each epoch has one winner.
func testEpochs(t *testing.T, open func() worker.Store) {
	t.Helper()
	const hosts, rounds = 8, 5
	s := open()
	stores := []worker.Store{s, open(), open()}
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
				switch err := stores[i%len(stores)].Save(t.Context(), mine, now.Epoch); {
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
