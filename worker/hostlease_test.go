package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// moodyStore does not answer while it is away.
type moodyStore struct {
	worker.Store

	away atomic.Bool
}

var errAway = errors.New("the store does not answer")

func (s *moodyStore) Announce(ctx context.Context, h worker.HostRecord, ttl time.Duration) (bool, error) {
	if s.away.Load() {
		return false, errAway
	}
	return s.Store.Announce(ctx, h, ttl)
}

func (s *moodyStore) Retire(ctx context.Context, owner string) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Retire(ctx, owner)
}

func (s *moodyStore) Save(ctx context.Context, rec worker.Record, epoch int64) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Save(ctx, rec, epoch)
}

// living is a host whose lease is kept until the test stops it.
type living struct {
	*rig

	store *moodyStore
	stop  func()
}

func newLiving(t *testing.T, shared worker.Store, name string) *living {
	t.Helper()
	l := &living{store: &moodyStore{Store: shared}}
	l.rig = newRig(l.store, func(o *worker.HostOptions) { o.Owner = name })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.host.Run(ctx); err != nil && !errors.Is(err, errAway) {
			t.Error(err)
		}
	})
	l.stop = func() { cancel(); running.Wait() }
	return l
}

// die ends the host without a word to the store or the workers.
func (l *living) die() {
	l.store.away.Store(true)
	l.stop()
	l.close()
}

func (l *living) end() {
	l.stop()
	l.close()
}

// roaming runs a worker that dials what route says.
func roaming(t *testing.T, box *toolbox, route *switchTransport) (stop func() worker.Exit) {
	t.Helper()
	exit := make(chan worker.Exit, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { exit <- worker.New(box.server, env("s1"), &worker.Options{Transport: route}).Run(ctx) }()
	return func() worker.Exit { cancel(); return <-exit }
}

// AMB-21, DL-17: a host that dies without a word, and its worker with it: another
// host takes the session over when the lease is out, waits as long as for any lost
// worker, and fails it with the reason. It does not wait for the ceiling.
func TestDeadHostIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newLiving(t, store, "a"), newLiving(t, store, "b")
		defer b.end()
		s := mustCreate(t, a.rig, "s1")
		p := a.start("s1", newToolbox().server, nil)
		must(t, s.Running(t.Context()))
		mustCreate(t, a.rig, "s2") // never dialed
		time.Sleep(time.Minute)
		if n := len(b.host.Sessions()); n != 0 {
			t.Fatalf("%d sessions of a living host were taken", n)
		}
		p.stop()
		a.die()
		p.wait()
		if _, err := b.host.Session("s2"); err == nil {
			t.Error("taken before the lease was out")
		}
		begun := time.Now()
		time.Sleep(2*worker.DefaultLease + time.Second)
		moved, err := b.host.Session("s1")
		must(t, err)
		if rec, err := store.Load(t.Context(), "s1"); err != nil || rec.Owner != "b" || rec.State != worker.StateDetached {
			t.Errorf("%s of %s, %v", rec.State, rec.Owner, err)
		}
		<-moved.Left()
		took := time.Since(begun)
		if rec := moved.Record(); rec.Failure != worker.FailureLost || took > 2*worker.DefaultLease+71*time.Second || took < 70*time.Second {
			t.Errorf("%s %s after %v", rec.State, rec.Failure, took)
		}
		synctest.Wait()
		if b.deleted.n.Load() != 2 { // nobody dialed for s2
			t.Errorf("%d sandboxes deleted", b.deleted.n.Load())
		}
	})
}

// RC-6, AMB-21: a host dies, its worker lives: wherever it dials it goes on, also
// when a third host has taken the session over meanwhile. Its call runs once.
func TestWorkerOfDeadHostGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b, c := newLiving(t, store, "a"), newLiving(t, store, "b"), newLiving(t, store, "c")
		defer b.end()
		s, box := mustCreate(t, a.rig, "s1"), newToolbox()
		route := &switchTransport{to: a.net}
		stop := roaming(t, box, route)
		must(t, s.Running(t.Context()))
		args, o := jsontext.Value(`{"say":"once","sleep":100}`), &worker.CallOptions{ID: "call-1"}
		call := make(chan error, 1)
		go func() {
			_, err := s.CallTool(t.Context(), "exec", args, o)
			call <- err
		}()
		synctest.Wait()
		c.end() // whoever it dials first is down
		route.set(c.net)
		a.die()
		if err := <-call; err == nil {
			t.Error("a call of a dead host has a result")
		}
		time.Sleep(2*worker.DefaultLease + time.Second)
		moved, err := b.host.Session("s1")
		must(t, err)
		route.set(b.net)
		must(t, moved.Running(t.Context()))
		res, err := moved.CallTool(t.Context(), "exec", args, o)
		if err != nil || textOf(res) != "once" || box.started.Load() != 1 {
			t.Errorf("%v %v: %d runs", res, err, box.started.Load())
		}
		if exit := stop(); exit.Code != worker.ExitTempFail {
			t.Errorf("%+v", exit)
		}
	})
}

// AMB-21: a host that the store did not hear of for a minute is not dead: its
// worker is with it. Another takes the session over, and gives it back when the
// first is heard again; nobody ends the sandbox.
func TestLapsedHostKeepsItsWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newLiving(t, store, "a"), newLiving(t, store, "b")
		defer b.end()
		defer a.end()
		s, box := mustCreate(t, a.rig, "s1"), newToolbox()
		p := a.start("s1", box.server, nil)
		must(t, s.Running(t.Context()))
		busy := make(chan error, 1)
		go func() {
			_, err := s.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"x","sleep":300}`), nil)
			busy <- err
		}()
		synctest.Wait()
		a.store.away.Store(true)
		time.Sleep(time.Minute)
		if rec, err := store.Load(t.Context(), "s1"); err != nil || rec.Owner != "b" {
			t.Fatalf("the store has %s, %v", rec.Owner, err)
		}
		a.store.away.Store(false)
		time.Sleep(5 * time.Minute)
		if err := <-busy; err != nil {
			t.Error(err)
		}
		rec, err := store.Load(t.Context(), "s1")
		if err != nil || rec.Owner != "a" || rec.State != worker.StateRunning || a.audit.count("retaken") != 1 {
			t.Errorf("%s of %s, %v", rec.State, rec.Owner, err)
		}
		if n := a.deleted.n.Load() + b.deleted.n.Load(); n != 0 {
			t.Errorf("%d sandboxes deleted", n)
		}
		// Taken over once more, and this time the session ends before the host is heard.
		a.store.away.Store(true)
		time.Sleep(time.Minute)
		if exit := p.wait(); exit.Code != worker.ExitReleased || s.Record().Release != worker.ReasonIdle {
			t.Errorf("%+v", exit)
		}
		a.store.away.Store(false)
		time.Sleep(11 * time.Second)
		if rec, err = store.Load(t.Context(), "s1"); err != nil || rec.State != worker.StateReleased || rec.Owner != "a" {
			t.Errorf("%s of %s, %v", rec.State, rec.Owner, err)
		}
		time.Sleep(5 * time.Minute)
		if rec, err = store.Load(t.Context(), "s1"); err != nil || rec.State != worker.StateReleased || b.deleted.n.Load() != 0 {
			t.Errorf("%s of %s, %v", rec.State, rec.Owner, err)
		}
	})
}

// AMB-21: what a host that drained has left is not forgotten: a worker that does
// not come anywhere has its window, and then its session fails.
func TestDrainedHostIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newLiving(t, store, "a"), newLiving(t, store, "b")
		defer b.end()
		s := mustCreate(t, a.rig, "s1")
		p := a.start("s1", newToolbox().server, nil)
		must(t, s.Running(t.Context()))
		must(t, a.host.Drain(t.Context()))
		a.end()
		if hosts, err := store.Hosts(t.Context()); err != nil || len(hosts) != 2 || hosts[0].Alive || !hosts[1].Alive {
			t.Errorf("%+v, %v", hosts, err)
		}
		if exit := p.wait(); exit.Code != worker.ExitTempFail {
			t.Errorf("%+v", exit)
		}
		time.Sleep(30 * time.Second)
		if rec, err := store.Load(t.Context(), "s1"); err != nil || rec.Failure != worker.FailureLost {
			t.Errorf("%s %s of %s, %v", rec.State, rec.Failure, rec.Owner, err)
		}
	})
}

// ONE-9: the host that created a session has it in memory still when the worker
// went to another one. When that one drains, the worker comes to the first, which
// must not send it away for good.
func TestWorkerComesToItsCreator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newLiving(t, store, "a"), newLiving(t, store, "b")
		defer a.end()
		mustCreate(t, a.rig, "s1")
		box, route := newToolbox(), &switchTransport{to: b.net}
		stop := roaming(t, box, route)
		time.Sleep(2 * time.Second)
		s, err := b.host.Session("s1")
		must(t, err)
		must(t, s.Running(t.Context()))
		route.set(a.net)
		must(t, b.host.Drain(t.Context()))
		b.end()
		time.Sleep(2 * time.Second)
		back, err := a.host.Session("s1")
		must(t, err)
		must(t, back.Running(t.Context()))
		if res, err := back.CallTool(t.Context(), "exec", jsontext.Value(`{"say":"x"}`), nil); err != nil || textOf(res) != "x" || back.Record().Attempt != 1 {
			t.Errorf("%v, %v, attempt %d", res, err, back.Record().Attempt)
		}
		stop()
	})
}

// ONE-9: a worker whose connection broke comes back by another host, while the
// first one lives and has its call: the call ends there soon, not with the window.
func TestCallOfMovedSessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a, b := newLiving(t, store, "a"), newLiving(t, store, "b")
		defer a.end()
		defer b.end()
		s, box, route := mustCreate(t, a.rig, "s1"), newToolbox(), &switchTransport{to: a.net}
		stop := roaming(t, box, route)
		must(t, s.Running(t.Context()))
		args, o := jsontext.Value(`{"say":"once","sleep":30}`), &worker.CallOptions{ID: "call-1"}
		call := make(chan error, 1)
		go func() {
			_, err := s.CallTool(t.Context(), "exec", args, o)
			call <- err
		}()
		synctest.Wait()
		route.set(b.net)
		a.net.Reset()
		begun := time.Now()
		if err := <-call; !errors.Is(err, worker.ErrConflict) || time.Since(begun) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		moved, err := b.host.Session("s1")
		must(t, err)
		if res, err := moved.CallTool(t.Context(), "exec", args, o); err != nil || textOf(res) != "once" || box.started.Load() != 1 {
			t.Errorf("%v, %v: %d runs", res, err, box.started.Load())
		}
		stop()
	})
}

// What a worker that comes back costs the store: its loss, its bind, and that it runs.
// Thousands come back at once.
func TestRedialIsThreeWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{}
		r := newRig(store, nil)
		defer r.close()
		s, p := running(t, r, newToolbox(), nil)
		before := store.saves.Load()
		r.net.Reset()
		time.Sleep(5 * time.Second)
		must(t, s.Running(t.Context()))
		if n := store.saves.Load() - before; n != 3 {
			t.Errorf("%d writes", n)
		}
		rec, err := store.Load(t.Context(), "s1")
		if err != nil || rec.State != worker.StateRunning || !rec.Deadline.Reconnect.IsZero() || rec.Attempt != 1 {
			t.Errorf("%+v, %v", rec, err)
		}
		p.stop()
		p.wait()
	})
}

// trail says what an audit has of a session, an entry a line.
func (a *auditLog) trail(session string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lines []string
	for _, e := range a.entries {
		if e.Session == session {
			line := e.Event
			if e.From != e.To {
				line += " " + string(e.From) + ">" + string(e.To)
			}
			if e.Close != 0 {
				line += " " + jsontext.Int(int64(e.Close)).String()
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// Every change of state is one entry, with what it needs to be understood.
func TestAuditOfChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &worker.Memory{}
		a := newRig(store, func(o *worker.HostOptions) { o.Owner = "a" })
		defer a.close()
		s, box := mustCreate(t, a, "s1"), newToolbox()
		route := &switchTransport{to: a.net}
		stop := roaming(t, box, route)
		must(t, s.Running(t.Context()))
		a.net.Reset()
		time.Sleep(5 * time.Second)
		must(t, s.Running(t.Context()))
		if _, err := s.Release(t.Context(), worker.ReasonExplicit); err != nil {
			t.Error(err)
		}
		stop()
		want := `created >awaiting_dial
handshaking awaiting_dial>handshaking
bound handshaking>readying
running readying>running
lost running>detached 1006
bound detached>readying
running readying>running
releasing running>releasing
released releasing>released 4005`
		if got := a.audit.trail("s1"); got != want {
			t.Errorf("the trail:\n%s\nwant:\n%s", got, want)
		}
		last := a.audit.entries[len(a.audit.entries)-1]
		v := last.Versions
		if last.Host != "a" || last.Reason != "explicit" || last.Attempt != 1 || last.InstanceID == "" || last.Epoch != 2 || last.Time.IsZero() ||
			v.Host != worker.ChannelVersion || v.Worker != worker.ChannelVersion || v.HostImage != "api:1" || v.WorkerImage == "" || v.MCP != worker.MCPVersion {
			t.Errorf("%+v", last)
		}
	})
}

// entry returns the one entry of an event in a session.
func (a *auditLog) entry(t *testing.T, session, event string) worker.AuditEntry {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []worker.AuditEntry
	for _, e := range a.entries {
		if e.Session == session && e.Event == event {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d entries %s of %s", len(found), event, session)
	}
	return found[0]
}

// SG-3, ONE-6, VER-8: what was blocked, who was refused, and what did not fit, with
// both versions and both image tags.
func TestAuditOfRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", worker.ChannelVersion, "i", 0, "exec", "file"))
		must(t, s.Running(t.Context()))
		must(t, p.Send(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}`))
		stray := dialPeer(t, r, "s1")
		m, err := stray.Until("initialize")
		must(t, err)
		must(t, stray.Send(workertest.Welcome(m.ID, "s1", worker.ChannelVersion, "j", 3)))
		_ = stray.End()
		synctest.Wait() // until what was sent has been read
		if e := r.audit.entry(t, "s1", "sampling_blocked"); e.From != worker.StateRunning || e.To != worker.StateRunning || !strings.Contains(e.Detail, "sampling/createMessage") {
			t.Errorf("%+v", e)
		}
		if e := r.audit.entry(t, "s1", "refused"); e.From != worker.StateRunning || e.To != worker.StateRunning || e.Close != worker.CloseSession || e.InstanceID != "i" {
			t.Errorf("%+v", e)
		}
		mustCreate(t, r, "s2")
		odd := dialPeer(t, r, "s2")
		m, err = odd.Until("initialize")
		must(t, err)
		must(t, odd.Send(workertest.Welcome(m.ID, "s2", "2.0.0", "i", 0)))
		_ = odd.End()
		synctest.Wait()
		e := r.audit.entry(t, "s2", "failed")
		v := e.Versions
		if e.From != worker.StateHandshaking || e.To != worker.StateFailed || e.Reason != string(worker.FailureVersion) || e.Close != worker.CloseVersion ||
			v.Host != worker.ChannelVersion || v.Worker != "2.0.0" || v.HostImage != "api:1" || v.WorkerImage != "peer:1" {
			t.Errorf("%+v", e)
		}
		_ = p.WS.CloseNow()
	})
}
