package worker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// How a peer can fail to say what is waited for. A slow one says it at the last
// moment, and nothing happens.
const (
	silent   = "silent"
	halfOpen = "half-open"
	reset    = "reset"
	slow     = "slow"
)

var faults = []string{silent, halfOpen, reset, slow}

// breakLink applies a fault to the open connections.
func breakLink(r *rig, fault string) {
	switch fault {
	case halfOpen:
		r.net.Swallow()
	case reset:
		r.net.Reset()
	}
}

// DL-2, DL-5, DL-6, RC-1, RC-2, VER-7: every wait of the worker against every way
// in which its host can fall silent: when it dials again, to the second in which
// its first delay is drawn.
func TestWorkerWaits(t *testing.T) {
	t.Parallel()
	for _, stage := range []struct {
		name  string
		reach func(t *testing.T, h *workertest.Peer) // what the host says before it falls silent
		late  string                                 // what a slow host says at the last moment; of heartbeats it answers the third
		limit time.Duration
	}{
		{"initialize", func(*testing.T, *workertest.Peer) {}, workertest.Initialize("s1", worker.ChannelVersion), 10 * time.Second},
		{"initialized", func(t *testing.T, h *workertest.Peer) {
			must(t, h.Send(workertest.Initialize("s1", worker.ChannelVersion)))
			_, err := h.Read()
			must(t, err)
		}, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 10 * time.Second},
		{"tools/list", func(t *testing.T, h *workertest.Peer) {
			must(t, h.Send(workertest.Initialize("s1", worker.ChannelVersion)))
			_, err := h.Read()
			must(t, err)
			must(t, h.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
			_, err = h.Until("notifications/agentfy/ready")
			must(t, err)
		}, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, 15 * time.Second},
		{"heartbeat", func(t *testing.T, h *workertest.Peer) { must(t, h.Host("s1")) }, `{"jsonrpc":"2.0","id":3,"result":{"continue":true,"idleBudgetSeconds":90,"execBudgetSeconds":900}}`, 30 * time.Second},
	} {
		for _, fault := range faults {
			t.Run(stage.name+" "+fault, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newScripted()
					defer r.close()
					p := r.start("s1", newToolbox().server, nil)
					h := <-r.peers
					stage.reach(t, h)
					begun := time.Now()
					go func() { _ = h.End() }() // it reads, and says nothing
					breakLink(r.rig, fault)
					if fault == slow {
						time.Sleep(stage.limit - time.Millisecond)
						must(t, h.Send(stage.late))
					}
					want := map[string]time.Duration{silent: stage.limit, halfOpen: stage.limit, reset: 0, slow: stage.limit}[fault]
					var again *workertest.Peer
					select {
					case again = <-r.peers:
					case <-time.After(want + time.Second + time.Millisecond):
					}
					took := time.Since(begun)
					if fault == slow {
						// The wait is over; the next one has only begun.
						if again != nil && took < want+time.Second/2 && stage.name != "initialize" {
							t.Errorf("dialed again after %v although the host spoke in time", took)
						}
					} else if again == nil || took < want || took > want+time.Second {
						t.Errorf("dialed again: %t after %v, want %v and at most a second", again != nil, took, want)
					}
					p.stop()
					if again != nil {
						_ = again.WS.CloseNow()
					}
					if exit := p.wait(); exit.Code != worker.ExitTempFail {
						t.Errorf("%+v", exit)
					}
					_ = h.WS.CloseNow()
				})
			})
		}
	}
}

// DL-3, DL-4, DL-7, DL-8, DL-16, HB-10, VER-7: every wait of the host against
// every way in which a worker can fall silent: when the session ends, how, and
// with which close code.
func TestHostWaits(t *testing.T) {
	t.Parallel()
	welcome := func(t *testing.T, p *workertest.Peer) {
		m, err := p.Until("initialize")
		must(t, err)
		must(t, p.Send(workertest.Welcome(m.ID, "s1", "1.0.0", "i", 0)))
		_, err = p.Until("notifications/initialized")
		must(t, err)
	}
	for _, stage := range []struct {
		name  string
		reach func(t *testing.T, p *workertest.Peer, s *worker.Session)
		late  string
		limit time.Duration
		code  worker.CloseCode
		why   worker.Failure
		lost  time.Duration // after a reset
		gone  worker.Failure
	}{
		{
			"initialize", func(*testing.T, *workertest.Peer, *worker.Session) {}, workertest.Welcome([]byte("1"), "s1", "1.0.0", "i", 0),
			20 * time.Second, worker.CloseStartup, worker.FailureHandshake, 170 * time.Second, worker.FailureDial,
		},
		{
			"ready", func(t *testing.T, p *workertest.Peer, _ *worker.Session) { welcome(t, p) }, "",
			30 * time.Second, worker.CloseStartup, worker.FailureReady, 170 * time.Second, worker.FailureDial,
		},
		{
			"tools/list", func(t *testing.T, p *workertest.Peer, _ *worker.Session) {
				welcome(t, p)
				must(t, p.Send(workertest.Ready("s1")))
				_, err := p.Until("tools/list")
				must(t, err)
			}, workertest.Tools([]byte("2"), "exec", "file"),
			30 * time.Second, worker.CloseStartup, worker.FailureReady, 170 * time.Second, worker.FailureDial,
		},
		{
			"heartbeat", func(t *testing.T, p *workertest.Peer, s *worker.Session) {
				must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
				must(t, s.Running(t.Context()))
			}, `{"jsonrpc":"2.0","id":1,"method":"agentfy/heartbeat","params":{"sessionId":"s1","idleSeconds":0,"execSeconds":1,"activeToolCalls":0,"workspaceBytes":0,"channelVersion":"1.0.0"}}`,
			40 * time.Second, worker.CloseHeartbeat, worker.FailureHeartbeat, 70 * time.Second, worker.FailureLost,
		},
		{
			"release", func(t *testing.T, p *workertest.Peer, s *worker.Session) {
				must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
				must(t, s.Running(t.Context()))
				go func() { _, _ = s.Release(t.Context(), worker.ReasonExplicit) }()
				_, err := p.Until("agentfy/release")
				must(t, err)
			}, `{"jsonrpc":"2.0","id":3,"result":{"accepted":true,"outputsFlushed":true,"outputs":[]}}`,
			30 * time.Second, worker.CloseReleased, "", 30 * time.Second, "",
		},
	} {
		for _, fault := range faults {
			if fault == slow && stage.late == "" {
				continue
			}
			t.Run(stage.name+" "+fault, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(nil, nil)
					defer r.close()
					s := mustCreate(t, r, "s1")
					p := dialPeer(t, r, "s1")
					stage.reach(t, p, s)
					begun := time.Now()
					ended := make(chan workertest.Closed, 1)
					go func() { ended <- p.End() }()
					breakLink(r, fault)
					if fault == slow {
						time.Sleep(stage.limit - time.Millisecond)
						must(t, p.Send(stage.late))
						synctest.Wait()
						time.Sleep(2 * time.Millisecond)
						if rec := s.Record(); rec.State == worker.StateFailed || (stage.name == "release" && !rec.OutputsFlushed) {
							t.Errorf("%s %s although the worker spoke in time", rec.State, rec.Failure)
						}
						_ = p.WS.CloseNow()
						return
					}
					limit, why := stage.limit, stage.why
					if fault == reset {
						limit, why = stage.lost, stage.gone
					}
					<-s.Left()
					rec := s.Record()
					if took := time.Since(begun); took != limit || rec.Failure != why {
						t.Errorf("%s %q after %v, want %q after %v", rec.State, rec.Failure, took, why, limit)
					}
					if stage.name == "release" && rec.OutputsFlushed {
						t.Error("a flush was invented")
					}
					if end := fmt.Sprint((<-ended).Code); fault == silent && end != fmt.Sprint(stage.code) {
						t.Errorf("closed with %s, want %d", end, stage.code)
					}
					synctest.Wait()
					if n := r.deleted.n.Load(); n != 1 {
						t.Errorf("%d sandboxes deleted", n)
					}
				})
			})
		}
	}
}
