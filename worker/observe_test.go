package worker_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// counted keeps observations.
type counted struct {
	mu  sync.Mutex
	all []worker.Observation
}

func (c *counted) observe(o worker.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, o)
}

func (c *counted) of(kind worker.ObservationKind) []worker.Observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(o worker.Observation) bool { return o.Kind != kind })
}

// scriptedRun has a scripted worker come to running.
func scriptedRun(t *testing.T, p *workertest.Peer, s *worker.Session, instance string, attempt int) *workertest.Peer {
	t.Helper()
	for _, answer := range []func(m workertest.Message) string{
		func(m workertest.Message) string { return workertest.Welcome(m.ID, s.ID(), "1.0.0", instance, attempt) },
		func(workertest.Message) string { return workertest.Ready(s.ID()) },
		func(m workertest.Message) string { return workertest.Tools(m.ID, "exec", "file") },
	} {
		m, err := p.Read()
		must(t, err)
		must(t, p.Send(answer(m)))
	}
	must(t, s.Running(t.Context()))
	synctest.Wait()
	return p
}

// What a host counts is what happened: a handshake, a broken frame, a lost
// connection and the time without it, a late heartbeat, each close with its code,
// the end.
func TestObservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		r := newRig(nil, func(o *worker.HostOptions) { o.Observe = c.observe })
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := scriptedRun(t, dialPeer(t, r, "s1"), s, "i", 0)
		must(t, p.Send(`not json`))
		if _, err := p.Read(); err != nil {
			t.Fatal(err)
		}
		beat := `{"jsonrpc":"2.0","id":1,"method":"agentfy/heartbeat","params":{"sessionId":"s1","idleSeconds":0,"execSeconds":1,"activeToolCalls":0,"workspaceBytes":0,"channelVersion":"1.0.0"}}`
		for range 2 {
			must(t, p.Send(beat))
			if _, err := p.Read(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(13 * time.Second)
		}
		_ = p.WS.CloseNow()
		time.Sleep(7 * time.Second)
		p = scriptedRun(t, dialPeer(t, r, "s1"), s, "i", 1)
		s.Exited("gone")
		_, _ = p.Read()
		<-s.Left()
		synctest.Wait()

		if got := c.of(worker.ObservedHandshake); len(got) != 2 || got[0].Again || !got[1].Again {
			t.Errorf("handshakes %+v", got)
		}
		if got := c.of(worker.ObservedBroken); len(got) != 1 {
			t.Errorf("broken frames %+v", got)
		}
		if got := c.of(worker.ObservedBeat); len(got) != 1 || got[0].Duration != 3*time.Second {
			t.Errorf("heartbeats %+v", got)
		}
		if got := c.of(worker.ObservedBack); len(got) != 1 || got[0].Duration != 7*time.Second {
			t.Errorf("back %+v", got)
		}
		if got := c.of(worker.ObservedClosed); len(got) != 2 || got[0].Ours || got[0].Code != 1006 || !got[1].Ours || got[1].Code != worker.CloseSession {
			t.Errorf("closed %+v", got)
		}
		if got := c.of(worker.ObservedEnded); len(got) != 1 || got[0].Failure != worker.FailureExited {
			t.Errorf("ended %+v", got)
		}
	})
}

// A handshake is measured from its upgrade.
func TestObservedHandshakeTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		r := newRig(nil, func(o *worker.HostOptions) { o.Observe = c.observe })
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		time.Sleep(4 * time.Second)
		scriptedRun(t, p, s, "i", 0)
		if got := c.of(worker.ObservedHandshake); len(got) != 1 || got[0].Duration != 4*time.Second {
			t.Errorf("handshakes %+v", got)
		}
	})
}
