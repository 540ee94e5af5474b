package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/worker"
)

// faultsEnv makes the longer variants of tests run: 200 worker processes instead of
// 80, with the deadlines of the contract, and so many rounds of restarts.
const faultsEnv = "OSSICLE_FAULTS"

// herdPart bounds the thundering herd: of the workers that a gateway had, at most
// this part dials in any 100 ms. Without spreading it is nearly all of them.
const herdPart = 0.5

// audience calls a command in each session, one after the other, until it is told
// to stop.
type audience struct {
	calls, worst atomic.Int64 // number, and the longest beyond its command in ms
	stop         chan struct{}
	once         sync.Once
	calling      sync.WaitGroup
}

// play calls in a session. Each command writes its name down, so that what ran
// twice or never is seen.
func (a *audience) play(t *testing.T, th *theater, id string) {
	t.Helper()
	a.calling.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-a.stop:
				return
			default:
			}
			name := fmt.Sprintf("%s-%d", id, n)
			sleep := 2 + 4*rand.Float64()
			args := jsontext.Value(fmt.Sprintf(`{"command":"echo %s >> ran; sleep %.2f; echo did-%s"}`, name, sleep, name))
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), rollingPatience)
			begun := time.Now()
			raw, err := th.calls.CallRaw(ctx, id, "exec", args, &worker.CallOptions{ID: name})
			cancel()
			if err != nil || !strings.Contains(string(raw), "did-"+name) {
				t.Errorf("call %s: %.300s, %v", name, raw, err)
				return
			}
			a.calls.Add(1)
			late := time.Since(begun).Milliseconds() - int64(sleep*1000)
			for {
				if worst := a.worst.Load(); late <= worst || a.worst.CompareAndSwap(worst, late) {
					break
				}
			}
		}
	})
}

// halt waits for the calls under way.
func (a *audience) halt() {
	a.once.Do(func() { close(a.stop) })
	a.calling.Wait()
}

// end waits for the calls under way, and compares what ran with what was called.
func (a *audience) end(t *testing.T, th *theater, ids []string) {
	t.Helper()
	a.halt()
	ran := 0
	for _, id := range ids {
		text, err := os.ReadFile(filepath.Join(th.dir, "w-"+id, "ran"))
		if err != nil {
			t.Errorf("nothing ran in %s: %v", id, err)
			continue
		}
		for i, line := range strings.Fields(string(text)) {
			if line != fmt.Sprintf("%s-%d", id, i) {
				t.Errorf("in %s the run %d is %s", id, i, line)
				break
			}
			ran++
		}
	}
	if int64(ran) != a.calls.Load() {
		t.Errorf("%d commands ran for %d calls", ran, a.calls.Load())
	}
}

// leave ends a gateway and waits until its sessions run at others; it says how they
// dialed.
func (th *theater) leave(t *testing.T, g *gatewayProcess, ids []string, how string, end func()) {
	t.Helper()
	had := 0
	for _, rec := range th.records(t) {
		if rec.Owner == g.name && !rec.State.Final() {
			had++
		}
	}
	begun := time.Now()
	end()
	ended := time.Since(begun)
	th.await(t, "running elsewhere than at "+g.name, func(r worker.Record) bool { return r.State == worker.StateRunning && r.Owner != g.name }, ids...)
	all, most, rate := th.balancer.herd(begun)
	t.Logf("gateway %s with %d sessions %s in %v, all run after %v: %d dials, at most %d in 100 ms, in each second %v",
		g.name, had, how, ended.Round(10*time.Millisecond), time.Since(begun).Round(10*time.Millisecond), all, most, rate)
	if bound := int(float64(had)*herdPart) + 1; most > bound {
		t.Errorf("%d of %d workers dialed within 100 ms, more than %d", most, had, bound)
	}
}

// RC-6, AMB-16, AMB-18, AMB-21, AMB-40, CC-7, ONE-9: two gateway processes on one
// PostgreSQL behind one address, local worker processes that run commands all the
// time. One gateway is killed and replaced, then each is restarted in turn. No call
// is lost and none runs twice, every worker is back within its window, no session
// fails but those whose worker died with its gateway, and the dials are spread.
func TestRollingRestartOfProcesses(t *testing.T) {
	workers, rounds := 80, 1
	if n, err := strconv.Atoi(os.Getenv(faultsEnv)); err == nil {
		workers, rounds = 200, max(1, n)
	}
	rollingRestart(t, newTheater(t, gatewayConfig{DSN: testserver.PostgreSQL(t).Database(t)}), workers, rounds)
}

// ONE-9, AMB-21: the same with fewer workers, on a SQLite file that the gateways share.
func TestRollingRestartOnSQLite(t *testing.T) {
	if os.Getenv(faultsEnv) == "" {
		t.Skip("takes a minute; set " + faultsEnv)
	}
	rollingRestart(t, newTheater(t, gatewayConfig{File: filepath.Join(t.TempDir(), "x.db")}), 40, 1)
}

func rollingRestart(t *testing.T, th *theater, workers, rounds int) {
	t.Helper()
	var ids, doomed []string
	for i := range workers {
		ids = append(ids, fmt.Sprintf("s%03d", i))
	}
	for i := range 3 {
		doomed = append(doomed, fmt.Sprintf("doomed%d", i))
	}
	a, b := th.start(t, "a0", ids[:workers/2], doomed), th.start(t, "b0", ids[workers/2:], nil)
	begun := time.Now()
	for _, id := range ids {
		th.hire(t, id, rollingProfile())
	}
	runs := func(r worker.Record) bool { return r.State == worker.StateRunning }
	th.await(t, "running", runs, ids...)
	t.Logf("%d worker processes run after %v", workers, time.Since(begun).Round(10*time.Millisecond))
	crowd := &audience{stop: make(chan struct{})}
	t.Cleanup(crowd.halt)
	for _, id := range ids {
		crowd.play(t, th, id)
	}

	// kill -9, with the workers of some sessions at the same moment.
	th.balancer.only(a.addr, func() {
		for _, id := range doomed {
			th.hire(t, id, doomedProfile())
		}
		th.await(t, "running at "+a.name, func(r worker.Record) bool { return runs(r) && r.Owner == a.name }, doomed...)
	})
	killed := time.Now()
	th.leave(t, a, ids, "was killed", func() {
		th.kill(t, a)
		for _, id := range doomed {
			th.workers[id].Kill()
		}
	})
	a = th.start(t, "a1", nil, nil)

	for round := range rounds {
		th.leave(t, b, ids, "drained", func() { th.term(t, b) })
		b = th.start(t, fmt.Sprint("b", round+1), nil, nil)
		th.leave(t, a, ids, "drained", func() { th.term(t, a) })
		a = th.start(t, fmt.Sprint("a", round+2), nil, nil)
	}
	th.await(t, "failed", func(r worker.Record) bool { return r.State == worker.StateFailed && r.Failure == worker.FailureLost }, doomed...)
	t.Logf("%d sessions whose workers died with their gateway failed within %v", len(doomed), time.Since(killed).Round(10*time.Millisecond))

	begun = time.Now()
	crowd.end(t, th, ids)
	t.Logf("the calls under way ended within %v", time.Since(begun).Round(10*time.Millisecond))
	away := th.away(t, ids)
	if len(away) == 0 {
		t.Fatal("nobody was ever away")
	}
	t.Logf("%d calls, each run once; the longest took %v more than its command", crowd.calls.Load(), time.Duration(crowd.worst.Load())*time.Millisecond)
	t.Logf("away %d times: half of them %v, 99 %% %v, all %v at most", len(away), away[len(away)/2].Round(time.Millisecond), away[len(away)*99/100].Round(time.Millisecond), away[len(away)-1].Round(time.Millisecond))
	if last := away[len(away)-1]; last > rollingProfile().Budgets.ReconnectWindow {
		t.Errorf("a worker was away for %v", last)
	}

	begun = time.Now()
	var ending sync.WaitGroup
	for _, id := range ids {
		ending.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), rollingPatience)
			defer cancel()
			rec, err := th.calls.Release(ctx, id, worker.ReasonExplicit)
			if err != nil || rec.State != worker.StateReleased || !rec.OutputsFlushed || len(rec.Outputs) != 1 {
				t.Errorf("released %s: %s %s %+v, %v", id, rec.State, rec.Failure, rec.Outputs, err)
			}
			select {
			case <-th.workers[id].Done():
				if err := th.workers[id].Wait(); err != nil {
					t.Errorf("worker %s: %v: %s", id, err, th.workers[id].Stderr())
				}
			case <-ctx.Done():
				t.Errorf("worker %s does not end", id)
			}
		})
	}
	ending.Wait()
	t.Logf("all were released and have ended within %v", time.Since(begun).Round(10*time.Millisecond))
}
