package worker_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// A host of two majors takes workers of both, speaks to each the version of its
// major, and refuses others with the list of what it takes; one that has dropped the
// older refuses that too. A worker offers exactly one. There is one major so far,
// so the other is made up: what is held is how a host deals with two.
//
// VER-10.
func TestHostAcceptsTwoMajors(t *testing.T) {
	t.Parallel()
	both, newer := []string{"2.0.0", "1.2.0"}, []string{"2.0.0"}
	for _, tc := range []struct {
		name      string
		host      []string
		major     string
		version   string
		says      string // the host, in initialize
		effective string
		status    int              // of a refusal
		closed    worker.CloseCode // of a refusal
	}{
		{"N", both, "agentfy.worker.v2", "2.0.0", "2.0.0", "2.0.0", 0, 0},
		{"N, a later minor", both, "agentfy.worker.v2", "2.3.1", "2.0.0", "2.0.0", 0, 0},
		{"N-1", both, "agentfy.worker.v1", "1.2.0", "1.2.0", "1.2.0", 0, 0},
		{"N-1, an older minor", both, "agentfy.worker.v1", "1.0.0", "1.2.0", "1.0.0", 0, 0},
		{"N+1", both, "agentfy.worker.v3", "3.0.0", "", "", http.StatusUpgradeRequired, 0},
		{"N-2", both, "agentfy.worker.v0", "0.9.0", "", "", http.StatusUpgradeRequired, 0},
		{"N on the upgrade, N-1 in the frame", both, "agentfy.worker.v2", "1.2.0", "2.0.0", "", 0, worker.CloseVersion},
		{"N-1 on the upgrade, N in the frame", both, "agentfy.worker.v1", "2.0.0", "1.2.0", "", 0, worker.CloseVersion},
		{"N-1 after it was dropped", newer, "agentfy.worker.v1", "1.2.0", "", "", http.StatusUpgradeRequired, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(nil, func(o *worker.HostOptions) { o.Channels = tc.host })
				defer r.close()
				s := mustCreate(t, r, "s1")
				p, resp, err := workertest.DialPeer(t.Context(), r.net, "t-s1", tc.major)
				if tc.status != 0 {
					var list []string
					for _, v := range tc.host {
						list = append(list, "agentfy.worker.v"+v[:1])
					}
					if err == nil || resp.Status != tc.status || resp.Header.Get("Sec-WebSocket-Protocol") != strings.Join(list, ", ") {
						t.Errorf("%+v, %v", resp, err)
					}
					if rec := s.Record(); rec.Failure != worker.FailureVersion || rec.Versions.Worker != tc.major {
						t.Errorf("%+v", rec)
					}
					return
				}
				must(t, err)
				m, err := p.Read()
				must(t, err)
				if !strings.Contains(m.Raw, `"channelVersion":"`+tc.says+`"`) {
					t.Errorf("the host says %s", m.Raw)
				}
				must(t, p.Send(workertest.Welcome(m.ID, "s1", tc.version, "i", 0)))
				if tc.closed != 0 {
					for err = nil; err == nil; {
						_, err = p.Read()
					}
					var closed workertest.Closed
					if !errors.As(err, &closed) || closed.Code != tc.closed || !strings.Contains(closed.Reason, tc.says) || !strings.Contains(closed.Reason, tc.version) {
						t.Errorf("closed with %v", err)
					}
					return
				}
				must(t, p.Send(workertest.Ready("s1")))
				for {
					m, err = p.Read()
					must(t, err)
					if m.Method == "tools/list" {
						break
					}
				}
				must(t, p.Send(workertest.Tools(m.ID, "exec", "file")))
				must(t, s.Running(t.Context()))
				if v := s.Record().Versions; v.Effective != tc.effective || v.Host != tc.says || v.Worker != tc.version {
					t.Errorf("%+v", v)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var offered []string
		r := newRig(nil, nil)
		defer r.close()
		r.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			offered = req.Header.Values("Sec-WebSocket-Protocol")
			r.host.ServeHTTP(w, req)
		})
		s := mustCreate(t, r, "s1")
		process := r.start("s1", newToolbox().server, nil)
		must(t, s.Running(t.Context()))
		if len(offered) != 1 || offered[0] != worker.Subprotocol {
			t.Errorf("a worker offers %q", offered)
		}
		_, err := s.Release(t.Context(), worker.ReasonExplicit)
		must(t, err)
		process.wait()
	})
}

// Of a roll-out in the right order no step has a worker that meets a host which
// refuses it: first every host takes both majors, then workers become newer, then
// hosts drop the older. Workers first, or hosts that drop it too early, have one.
//
// VER-11.
func TestRollOutOfMajors(t *testing.T) {
	t.Parallel()
	const v1, v2 = "agentfy.worker.v1", "agentfy.worker.v2"
	older, both, newer := []string{"1.2.0"}, []string{"2.0.0", "1.2.0"}, []string{"2.0.0"}
	for _, step := range []struct {
		name    string
		hosts   [][]string // that serve at the same time
		workers []string   // that may be scheduled, or run
		right   bool
	}{
		{"before", [][]string{older}, []string{v1}, true},
		{"hosts learn the newer", [][]string{older, both}, []string{v1}, true},
		{"workers become newer", [][]string{both}, []string{v1, v2}, true},
		{"hosts drop the older", [][]string{both, newer}, []string{v2}, true},
		{"after", [][]string{newer}, []string{v2}, true},
		{"workers before hosts", [][]string{older, both}, []string{v1, v2}, false},
		{"dropped too early", [][]string{both, newer}, []string{v1, v2}, false},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			right := true
			for _, host := range step.hosts {
				for _, major := range step.workers {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(nil, func(o *worker.HostOptions) { o.Channels = host })
						defer r.close()
						s := mustCreate(t, r, "s1")
						_, resp, err := workertest.DialPeer(t.Context(), r.net, "t-s1", major)
						if err != nil {
							right = false
							if resp.Status != http.StatusUpgradeRequired || s.Record().Failure != worker.FailureVersion {
								t.Errorf("%v", err)
							}
							return
						}
					})
				}
			}
			if right != step.right {
				t.Errorf("every worker meets hosts that take it: %v", right)
			}
		})
	}
}
