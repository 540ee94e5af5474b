package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// running starts a session and its worker.
func running(t *testing.T, r *rig, box *toolbox, change func(*worker.Environment, *worker.Options)) (*worker.Session, *process) {
	t.Helper()
	s := mustCreate(t, r, "s1")
	p := r.start("s1", box.server, change)
	must(t, s.Running(t.Context()))
	return s, p
}

// RC-1, RC-3, ONE-8, HB-11, CC-8: a half-open link, with a command running: the
// worker notices first, its redial takes over although the host believes in the
// old connection, and the call returns its one result.
func TestHalfOpenLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		box := newToolbox()
		s, p := running(t, r, box, nil)
		done := make(chan string, 1)
		go func() {
			res, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"survived","sleep":45}`), nil)
			if err != nil {
				done <- err.Error()
				return
			}
			done <- textOf(res)
		}()
		time.Sleep(5 * time.Second)
		r.net.Swallow()
		begun := time.Now()
		if got := <-done; got != "survived" {
			t.Fatalf("the call returned %q", got)
		}
		if took := time.Since(begun); took > 41*time.Second {
			t.Errorf("the call took %v more", took)
		}
		rec := s.Record()
		if rec.State != worker.StateRunning || rec.Attempt != 1 || box.started.Load() != 1 {
			t.Errorf("%s, attempt %d, %d runs", rec.State, rec.Attempt, box.started.Load())
		}
		p.stop()
		p.wait()
	})
}

// RC-1, RC-3: a reset, and an outage of 20 s, under a running command.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		box := newToolbox()
		s, p := running(t, r, box, nil)
		done := make(chan string, 1)
		go func() {
			res, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"survived","sleep":45}`), nil)
			if err != nil {
				done <- err.Error()
				return
			}
			done <- textOf(res)
		}()
		synctest.Wait()
		r.net.SetDown(true)
		r.net.Reset()
		synctest.Wait()
		if rec := s.Record(); rec.State != worker.StateDetached {
			t.Errorf("state %s", rec.State)
		}
		time.Sleep(20 * time.Second)
		r.net.SetDown(false)
		if got := <-done; got != "survived" || box.started.Load() != 1 || box.stopped.Load() != 0 {
			t.Errorf("the call returned %q; %d runs, %d stopped", got, box.started.Load(), box.stopped.Load())
		}
		p.stop()
		p.wait()
	})
}

// DL-9, RC-5, EX-2, CON-2: a host that never comes back. The worker ends with 75
// after its window and uploads first; the host fails the session later.
func TestHostNeverBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		flushed := false
		s, p := running(t, r, newToolbox(), func(_ *worker.Environment, o *worker.Options) {
			o.Executors.Flush = func(context.Context) (worker.Report, error) { flushed = true; return worker.Report{}, nil }
		})
		r.net.SetDown(true)
		r.net.Reset()
		begun := time.Now()
		if exit := p.wait(); exit.Code != worker.ExitTempFail || time.Since(begun) != 60*time.Second || !flushed {
			t.Errorf("%+v after %v, flushed %t", exit, time.Since(begun), flushed)
		}
		<-s.Left()
		if rec := s.Record(); rec.Failure != worker.FailureLost || time.Since(begun) != 70*time.Second {
			t.Errorf("%s %s after %v", rec.State, rec.Failure, time.Since(begun))
		}
	})
}

// HB-4, EX-2, CC-4: executors that hang: the socket answers pings, the process
// runs, and no heartbeat leaves. The host ends it at 40 s and its exit is 75.
func TestWedgedExecutors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		pool := make(chan struct{}, 1) // one executor
		s, p := running(t, r, newToolbox(), func(_ *worker.Environment, o *worker.Options) {
			o.Executors.Pulse = func(ctx context.Context) (int64, error) {
				select {
				case pool <- struct{}{}:
					<-pool
					return 7, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
		})
		time.Sleep(25 * time.Second)
		rec := s.Record()
		if rec.Beat.WorkspaceBytes != 7 {
			t.Errorf("heartbeat %+v", rec.Beat)
		}
		pool <- struct{}{}
		if exit := p.wait(); exit.Code != worker.ExitTempFail {
			t.Errorf("%+v", exit)
		}
		if got := time.Since(rec.LastBeat); got != 40*time.Second || s.Record().Failure != worker.FailureHeartbeat {
			t.Errorf("%s %v after the last heartbeat", s.Record().Failure, got)
		}
	})
}

// HB-4: executors that say that they are broken let no heartbeat out either.
func TestBrokenExecutors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		begun := time.Now()
		s, p := running(t, r, newToolbox(), func(_ *worker.Environment, o *worker.Options) {
			o.Executors.Pulse = func(context.Context) (int64, error) {
				if time.Since(begun) > 25*time.Second {
					return 0, errors.New("the workspace is gone")
				}
				return 7, nil
			}
		})
		if exit := p.wait(); exit.Code != worker.ExitTempFail {
			t.Errorf("%+v", exit)
		}
		if rec := s.Record(); rec.Failure != worker.FailureHeartbeat || rec.LastBeat.Sub(begun) != 20*time.Second {
			t.Errorf("%s, last heartbeat after %v", rec.Failure, rec.LastBeat.Sub(begun))
		}
	})
}

// REL-5, DL-10, HB-5: nobody calls anything; the host reaps by the worker's
// clock, and the worker ends with 0.
func TestIdleSessionIsReaped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s, p := running(t, r, newToolbox(), nil)
		begun := time.Now()
		if exit := p.wait(); exit.Code != worker.ExitReleased || time.Since(begun) != 90*time.Second {
			t.Errorf("%+v after %v", exit, time.Since(begun))
		}
		<-s.Left()
		if rec := s.Record(); rec.Release != worker.ReasonIdle || rec.State != worker.StateReleased {
			t.Errorf("%s for %s", rec.State, rec.Release)
		}
	})
}

// DL-11, REL-7: a command that runs into the ceiling is stopped by the release
// for the deadline, and outputs are still uploaded.
func TestCeiling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		box := newToolbox()
		s, p := running(t, r, box, func(_ *worker.Environment, o *worker.Options) {
			o.Executors.Flush = func(context.Context) (worker.Report, error) {
				return worker.Report{OutputsFlushed: true, Outputs: []worker.Output{{URI: "store://art_1", Name: "x"}}}, nil
			}
		})
		begun := time.Now()
		_, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"sleep":5000}`), nil)
		exit := p.wait()
		synctest.Wait() // the tool learns of its end beside the worker
		if exit.Code != worker.ExitReleased || box.stopped.Load() != 1 {
			t.Errorf("%+v, %d stopped, call %v", exit, box.stopped.Load(), err)
		}
		if took := time.Since(begun); took > 900*time.Second || took < 860*time.Second {
			t.Errorf("ended after %v", took)
		}
		if rec := s.Record(); rec.Release != worker.ReasonDeadline || !rec.OutputsFlushed || len(rec.Outputs) != 1 {
			t.Errorf("%+v", rec)
		}
	})
}

// CC-7, RC-6, ONE-9: a rolling restart: the draining host refuses upgrades,
// waits for the call, sends the worker away with 4008, and another host of the
// same store takes it over; the session never fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newRig(store, nil), newRig(store, nil)
		defer b.close()
		box := newToolbox()
		s := mustCreate(t, a, "s1")
		e := env("s1")
		route := &switchTransport{to: a.net}
		o := worker.Options{Transport: route}
		exit := make(chan worker.Exit, 1)
		go func() { exit <- worker.New(box.server, e, &o).Run(t.Context()) }()
		must(t, s.Running(t.Context()))
		time.Sleep(time.Second)
		call := make(chan error, 1)
		go func() {
			_, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"sleep":4}`), nil)
			call <- err
		}()
		synctest.Wait()
		route.set(b.net)
		must(t, a.host.Drain(t.Context()))
		must(t, <-call)
		if _, err := s.CallTool(t.Context(), "exec", nil, nil); !errors.Is(err, worker.ErrDraining) {
			t.Errorf("a call on a drained host: %v", err)
		}
		if _, resp, err := workertest.DialPeer(t.Context(), a.net, "t-s1", worker.Subprotocol); err == nil || resp.Status != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("a draining host answered %v", resp)
		}
		a.close()
		time.Sleep(2 * time.Second)
		moved, err := b.host.Session("s1")
		must(t, err)
		must(t, moved.Running(t.Context()))
		if _, err := moved.CallTool(t.Context(), "exec", nil, nil); err != nil {
			t.Error(err)
		}
		rec := moved.Record()
		if rec.Epoch != 2 || rec.Attempt < 1 {
			t.Errorf("epoch %d attempt %d", rec.Epoch, rec.Attempt)
		}
		if _, err := moved.Release(t.Context(), worker.ReasonExplicit); err != nil {
			t.Error(err)
		}
		if got := <-exit; got.Code != worker.ExitReleased {
			t.Errorf("%+v", got)
		}
	})
}

// ONE-9: what goes wrong at a host that does not hold a session is not the
// session's: it fails nothing there and deletes no sandbox.
func TestGuestHarmsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newRig(store, nil), newRig(store, nil)
		defer a.close()
		defer b.close()
		s := mustCreate(t, a, "s1")
		p := dialPeer(t, b, "s1")
		m, err := p.Read()
		must(t, err)
		must(t, p.Send(workertest.Welcome(m.ID, "s2", "1.0.0", "i", 0)))
		if end := p.End(); end.Code != worker.CloseSession {
			t.Error(end)
		}
		synctest.Wait()
		rec, err := store.Load(t.Context(), "s1")
		if err != nil || rec.State.Final() || s.Record().State != worker.StateAwaitingDial || b.deleted.n.Load() != 0 || len(b.host.Sessions()) != 0 {
			t.Errorf("%s in the store, %s at its host, %d deleted, %d left", rec.State, s.Record().State, b.deleted.n.Load(), len(b.host.Sessions()))
		}
		_ = dialPeer(t, b, "s1").WS.CloseNow() // one that says nothing leaves nothing
		synctest.Wait()
		if n := len(b.host.Sessions()); n != 0 {
			t.Errorf("%d sessions left at the other host", n)
		}
	})
}

// A peer that reads nothing costs a bounded memory: when its queue is full it is
// cut off, long before a write would time out.
func TestPeerThatNeverReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
		must(t, s.Running(t.Context()))
		args := jsontext.Value(`{"say":"` + strings.Repeat("x", 3<<20) + `"}`)
		for range 4 {
			go func() { _, _ = s.CallTool(t.Context(), "exec", args, nil) }()
		}
		synctest.Wait()
		if rec := s.Record(); rec.State != worker.StateDetached {
			t.Errorf("state %s with 12 MiB to write", rec.State)
		}
		_ = p.WS.CloseNow()
	})
}

// A result that no message can hold is an error of its call and of nothing else
// (AMB-17).
func TestResultTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s, p := running(t, r, newToolbox(), nil)
		_, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"size":4200000}`), nil)
		var remote *worker.RemoteError
		if !errors.As(err, &remote) || !strings.Contains(remote.Message, "larger than a message") {
			t.Errorf("a result of 4.2 MB: %v", err)
		}
		res, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"size":200000}`), nil)
		if err != nil || len(textOf(res)) != 200_000 {
			t.Errorf("a result of 200 kB: %v", err)
		}
		if _, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"`+strings.Repeat("x", worker.MaxMessage)+`"}`), nil); err == nil {
			t.Error("arguments larger than a message were sent")
		}
		p.stop()
		p.wait()
	})
}

// What SIGTERM leaves of time belongs to the uploads: they are not cancelled with
// the process (AMB-31).
func TestSignalledWorkerUploads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		uploaded := errors.New("never called")
		var left time.Duration
		_, p := running(t, r, newToolbox(), func(_ *worker.Environment, o *worker.Options) {
			o.TerminationGrace = 12 * time.Second
			o.Executors.Flush = func(ctx context.Context) (worker.Report, error) {
				deadline, _ := ctx.Deadline()
				left = time.Until(deadline)
				time.Sleep(9 * time.Second)
				uploaded = ctx.Err()
				return worker.Report{OutputsFlushed: true}, nil
			}
		})
		p.stop()
		if exit := p.wait(); exit.Code != worker.ExitTempFail || uploaded != nil || left != 10*time.Second {
			t.Errorf("%+v, uploaded %v with %v", exit, uploaded, left)
		}
	})
}

// RC-6: a call that is longer than a host drains is not lost: repeated by its id
// at the next host, it returns the result of its one run.
func TestCallAcrossHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newRig(store, nil), newRig(store, nil)
		defer b.close()
		box := newToolbox()
		s := mustCreate(t, a, "s1")
		route := &switchTransport{to: a.net}
		exit := make(chan worker.Exit, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			exit <- worker.New(box.server, env("s1"), &worker.Options{Transport: route}).Run(ctx)
		}()
		must(t, s.Running(t.Context()))
		args, o := jsontext.Value(`{"say":"once","sleep":45}`), &worker.CallOptions{ID: "call-1"}
		call := make(chan error, 1)
		go func() {
			_, err := s.CallTool(t.Context(), "exec", args, o)
			call <- err
		}()
		synctest.Wait()
		if _, err := s.CallTool(t.Context(), "exec", args, o); err == nil {
			t.Error("two calls of one id at once")
		}
		route.set(b.net)
		must(t, a.host.Drain(t.Context()))
		if err := <-call; !errors.Is(err, worker.ErrDraining) {
			t.Errorf("the first host: %v", err)
		}
		a.close()
		time.Sleep(2 * time.Second)
		moved, err := b.host.Session("s1")
		must(t, err)
		res, err := moved.CallTool(t.Context(), "exec", args, o)
		synctest.Wait()
		if err != nil || textOf(res) != "once" || box.started.Load() != 1 || box.stopped.Load() != 0 {
			t.Errorf("%v %v: %d runs, %d stopped", res, err, box.started.Load(), box.stopped.Load())
		}
		stop()
		<-exit
	})
}

// REL-6, DL-17: a host that dies and is not replaced: another one fails its
// sessions when their last deadline is past, once, and deletes the sandboxes. It
// touches no session that somebody holds.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b, c := newRig(store, nil), newRig(store, nil), newRig(store, nil)
		defer b.close()
		defer c.close()
		s := mustCreate(t, a, "s1")
		p := a.start("s1", newToolbox().server, nil)
		must(t, s.Running(t.Context()))
		mustCreate(t, a, "s2")
		sweep := func(want int) {
			t.Helper()
			n, err := b.host.Sweep(t.Context())
			m, err2 := c.host.Sweep(t.Context())
			if n+m != want || err != nil || err2 != nil {
				t.Errorf("after %v: swept %d, want %d: %v %v", time.Since(s.Record().Created), n+m, want, err, err2)
			}
		}
		sweep(0)
		a.close() // as a crash
		p.wait()
		sweep(0)
		time.Sleep(4 * time.Minute)
		sweep(1) // s2, which never ran
		time.Sleep(15 * time.Minute)
		sweep(1)
		sweep(0)
		synctest.Wait()
		if n := b.deleted.n.Load() + c.deleted.n.Load(); n != 2 {
			t.Errorf("%d sandboxes deleted", n)
		}
		rec, err := store.Load(t.Context(), "s1")
		if err != nil || rec.Failure != worker.FailureLost {
			t.Errorf("%+v %v", rec, err)
		}
	})
}

// ONE-9: two hosts of one store. The worker's link to the first is half-open; it
// comes back by the second, which wins the session; the first must not fail it.
func TestOtherHostWins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newRig(store, nil), newRig(store, nil)
		defer a.close()
		defer b.close()
		s := mustCreate(t, a, "s1")
		route := &switchTransport{to: a.net}
		exit := make(chan worker.Exit, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			exit <- worker.New(newToolbox().server, env("s1"), &worker.Options{Transport: route}).Run(ctx)
		}()
		must(t, s.Running(t.Context()))
		a.net.Swallow()
		route.set(b.net)
		time.Sleep(50 * time.Second) // the first host has heard nothing for more than 40 s
		if !errors.Is(s.Running(t.Context()), worker.ErrConflict) || a.deleted.n.Load() != 0 {
			t.Errorf("the first host: %s, %d teardowns", s.Record().State, a.deleted.n.Load())
		}
		moved, err := b.host.Session("s1")
		must(t, err)
		if rec := moved.Record(); rec.State != worker.StateRunning || rec.Failure != "" {
			t.Errorf("%s %s", rec.State, rec.Failure)
		}
		stop()
		<-exit
	})
}

// countingStore counts writes.
type countingStore struct {
	worker.Memory
	saves atomic.Int64
}

func (s *countingStore) Save(ctx context.Context, rec worker.Record, epoch int64) error {
	s.saves.Add(1)
	return s.Memory.Save(ctx, rec, epoch)
}

// Heartbeats are not written to the store: a thousand idle workers cost a
// database nothing.
func TestHeartbeatsAreNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{}
		r := newRig(store, nil)
		defer r.close()
		s, p := running(t, r, newToolbox(), nil)
		go func() { _, _ = s.CallTool(t.Context(), "exec", jsontext.Value(`{"sleep":600}`), nil) }()
		time.Sleep(time.Second)
		before := store.saves.Load()
		time.Sleep(5 * time.Minute)
		if n := store.saves.Load() - before; n != 0 || before > 8 {
			t.Errorf("%d writes in five minutes of heartbeats, %d until running", n, before)
		}
		p.stop()
		p.wait()
	})
}

// A host that comes back under its name takes its sessions up with what is left
// of their windows (AMB-21).
func TestHostRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a := newRig(store, func(o *worker.HostOptions) { o.Owner = "gw" })
		s := mustCreate(t, a, "s1")
		route := &switchTransport{to: a.net}
		exit := make(chan worker.Exit, 1)
		go func() {
			exit <- worker.New(newToolbox().server, env("s1"), &worker.Options{Transport: route}).Run(t.Context())
		}()
		must(t, s.Running(t.Context()))
		a.close() // as a crash, but for the sockets
		time.Sleep(15 * time.Second)
		b := newRig(store, func(o *worker.HostOptions) { o.Owner = "gw" })
		defer b.close()
		must(t, b.host.Restore(t.Context()))
		route.set(b.net)
		back, err := b.host.Session("s1")
		must(t, err)
		must(t, back.Running(t.Context()))
		_, err = back.Release(t.Context(), worker.ReasonExplicit)
		must(t, err)
		if got := <-exit; got.Code != worker.ExitReleased {
			t.Errorf("%+v", got)
		}
	})
}

// A sandbox that cannot be deleted is tried again, then said to be leaked.
func TestTeardownIsRetried(t *testing.T) {
	t.Parallel()
	for fails, leaked := range map[int64]int{2: 0, 100: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(nil, nil)
			r.deleted.fail.Store(fails)
			mustCreate(t, r, "s1")
			time.Sleep(10 * time.Minute)
			if r.audit.count("leaked") != leaked || (r.deleted.n.Load() == 1) == (leaked == 1) {
				t.Errorf("%d failures: leaked %d, deleted %d", fails, r.audit.count("leaked"), r.deleted.n.Load())
			}
			r.close()
		})
	}
}

// Many workers dial at once: those beyond the limit get 503 and come back, and
// every one is bound before its handshake's deadline.
func TestManyDialsAtOnce(t *testing.T) {
	t.Parallel()
	const workers = 150
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, func(o *worker.HostOptions) { o.MaxHandshakes, o.HandshakeRate = 16, 50 })
		defer r.close()
		ps := make([]*process, workers)
		for i := range workers {
			id := fmt.Sprintf("s%d", i)
			mustCreate(t, r, id)
			ps[i] = r.start(id, newToolbox().server, nil)
		}
		for _, s := range r.host.Sessions() {
			must(t, s.Running(t.Context()))
			if rec := s.Record(); rec.Failure != "" {
				t.Errorf("%s: %s", rec.ID, rec.Failure)
			}
		}
		if n := r.net.Dials(); n < workers+20 {
			t.Errorf("%d dials: the limit did not bite", n)
		}
		if took := time.Since(r.host.Sessions()[0].Record().Created); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		for _, p := range ps {
			p.stop()
		}
		for _, p := range ps {
			p.wait()
		}
	})
}
