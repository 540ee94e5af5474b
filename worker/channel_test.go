package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	workertest.RunStore(t, func(*testing.T) func() worker.Store {
		s := &worker.Memory{}
		return func() worker.Store { return s }
	})
}

func TestMemoryAudit(t *testing.T) {
	t.Parallel()
	workertest.RunAudit(t, func(*testing.T) func(*worker.AuditLimits) worker.AuditStore {
		s := &worker.MemoryAudit{}
		return func(l *worker.AuditLimits) worker.AuditStore {
			s.Limits = l
			return s
		}
	})
}

// A store in memory does not grow with the sessions that were.
func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	var s worker.Memory
	for i := range 1500 {
		rec := worker.Record{ID: fmt.Sprint(i), State: worker.StateRunning}
		must(t, s.Create(t.Context(), rec))
		if i%3 != 0 { // every third goes on
			rec.State = worker.StateReleased
			must(t, s.Save(t.Context(), rec, 0))
		}
	}
	for range 2 {
		rec := worker.Record{ID: "last", State: worker.StateRunning}
		must(t, s.Create(t.Context(), rec))
		rec.State = worker.StateFailed
		must(t, s.Save(t.Context(), rec, 0))
		must(t, s.Delete(t.Context(), "last"))
	}
	recs, err := s.List(t.Context(), worker.Filter{})
	must(t, err)
	if len(recs) != 500+998 {
		t.Errorf("%d records", len(recs))
	}
}

func mustCreate(t *testing.T, r *rig, id string) *worker.Session {
	t.Helper()
	s, err := r.host.Create(t.Context(), id, worker.Light())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// CON-1, CON-6, CON-7, REL-1, REL-2, REL-3, EX-1: the whole good path, in
// virtual time: dial, running, a call, release, exit 0.
func TestGoodPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		box := newToolbox()
		p := r.start("s1", box.server, nil)
		if err := s.Running(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names := s.Record().Tools; len(names) != 2 {
			t.Errorf("tools %v", names)
		}
		var seen []float64
		res, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"hello","steps":50}`), &worker.CallOptions{Progress: func(p worker.Progress) { seen = append(seen, p.Progress) }})
		if err != nil || textOf(res) != "hello" {
			t.Fatalf("%+v, %v", res, err)
		}
		if box.session.Load() != "s1" { // IDN-1: one id, MCP's too
			t.Errorf("the MCP session is %v", box.session.Load())
		}
		if len(seen) != 50 || seen[49] != 50 {
			t.Errorf("saw %d updates before the result: %v", len(seen), seen)
		}
		if res, err := s.CallTool(t.Context(), "file", nil, nil); err != nil || !res.IsError {
			t.Errorf("a failing tool: %+v, %v", res, err)
		}
		if _, err := s.CallTool(t.Context(), "other", nil, nil); !errors.Is(err, worker.ErrUnknownTool) {
			t.Errorf("unknown tool: %v", err)
		}
		rec, err := s.Release(t.Context(), worker.ReasonExplicit)
		if err != nil || rec.State != worker.StateReleased || !rec.Reported || !rec.OutputsFlushed {
			t.Errorf("released: %+v, %v", rec, err)
		}
		if exit := p.wait(); exit.Code != worker.ExitReleased {
			t.Errorf("exit %+v", exit)
		}
		synctest.Wait()
		if n := r.deleted.n.Load(); n != 1 {
			t.Errorf("%d teardowns", n)
		}
		if _, err := s.CallTool(t.Context(), "exec", nil, nil); !errors.Is(err, worker.ErrOver) {
			t.Errorf("a call after the end: %v", err)
		}
	})
}

// CON-12, HB-1, SCO-8: an hour of a connected session with a long call.
func TestHourOfHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		profile := worker.Light()
		profile.Budgets.MaxExec, profile.ActiveDeadline = 3*time.Hour, 4*time.Hour
		s, err := r.host.Create(t.Context(), "s1", profile)
		if err != nil {
			t.Fatal(err)
		}
		p := r.start("s1", newToolbox().server, func(e *worker.Environment, _ *worker.Options) { e.Budgets.MaxExec = 3 * time.Hour })
		start := time.Now()
		res, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"done","sleep":3605}`), nil)
		if err != nil || textOf(res) != "done" {
			t.Fatalf("%+v, %v", res, err)
		}
		if took := time.Since(start); took < time.Hour || took > time.Hour+time.Minute {
			t.Errorf("took %v", took)
		}
		if rec := s.Record(); rec.State != worker.StateRunning || time.Since(rec.LastBeat) > 11*time.Second || rec.Beat.ActiveToolCalls != 1 {
			t.Errorf("after an hour: %+v", rec)
		}
		p.stop()
		if exit := p.wait(); exit.Code != worker.ExitTempFail {
			t.Errorf("exit %+v", exit)
		}
	})
}
