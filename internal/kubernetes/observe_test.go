package kubernetes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	statusRunning = `{"phase":"Running",` + statusContainer + `{"running":{}}}]}`
	// statusContainer is followed by the state, and closed by }]}.
	statusContainer = `"containerStatuses":[{"name":"worker","image":"","imageID":"","ready":false,"restartCount":0,"state":`
)

func terminated(code int, reason, message string) string {
	text, _ := json.Marshal(message)
	return fmt.Sprintf(`{"phase":"Failed",%s{"terminated":{"exitCode":%d,"reason":%q,"message":%s}}}]}`, statusContainer, code, reason, text)
}

func waitingFor(reason, message string) string {
	return fmt.Sprintf(`{"phase":"Pending",%s{"waiting":{"reason":%q,"message":%q}}}]}`, statusContainer, reason, message)
}

// The exit code of the worker arrives with what it means to an operator.
func TestExitCodesArrive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code    int
		meaning string
	}{{0, "released"}, {75, "the gateway fell silent"}, {77, "token or session refused"}, {78, "version or configuration"}, {1, "exit code 1"}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.create(t, "a")
			r.api.pod("a", "agt-a-x", statusRunning)
			if e := r.exited("a"); len(e) > 0 {
				t.Fatalf("%v", e)
			}
			status := terminated(c.code, "Error", "worker ended:\n\x1b[31mno way\x07")
			r.api.pod("a", "agt-a-x", status)
			r.api.pod("a", "agt-a-x", status) // told once
			r.api.drop("pods", "agt-a-x")
			r.api.drop("jobs", "agt-a")
			want := []Exit{{Reason: ReasonExited, Code: c.code, Pod: "agt-a-x", Detail: "worker ended: [31mno way"}}
			got := r.exited("a")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if s := got[0].String(); !strings.Contains(s, c.meaning) || !strings.HasPrefix(s, "exited: ") {
				t.Error(s)
			}
		})
	}
}

// Whatever the cluster does to a sandbox is told by its own reason.
func TestEndsByTheCluster(t *testing.T) {
	t.Parallel()
	disrupted := `"conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler","message":"another is more urgent"}],`
	for _, c := range []struct {
		name   string
		does   func(r *rig)
		reason Reason
		code   int
		detail string
	}{
		{"memory", func(r *rig) { r.api.pod("a", "p", terminated(137, "OOMKilled", "")) }, ReasonMemory, 137, ""},
		{"disk", func(r *rig) {
			r.api.pod("a", "p", `{"phase":"Failed","reason":"Evicted","message":"Pod ephemeral local storage usage exceeds the total limit of containers 2Gi."}`)
		}, ReasonEvicted, -1, "exceeds"},
		{"preempted", func(r *rig) {
			r.api.pod("a", "p", strings.Replace(terminated(143, "Error", ""), "{", "{"+disrupted, 1))
		}, ReasonDisrupted, 143, "PreemptionByScheduler: another is more urgent"},
		{"node lost", func(r *rig) { r.api.pod("a", "p", `{"phase":"Failed","reason":"NodeLost","message":"gone"}`) }, ReasonDisrupted, -1, "NodeLost: gone"},
		{"pod deleted", func(r *rig) { r.api.drop("pods", "p") }, ReasonDeleted, -1, ""},
		{"pod deleted for a drain", func(r *rig) {
			r.api.pod("a", "p", strings.Replace(statusRunning, "{", "{"+disrupted, 1))
			r.api.drop("pods", "p")
		}, ReasonDisrupted, -1, "Preemption"},
		{"deadline", func(r *rig) {
			r.api.jobStatus("a", `{"conditions":[{"type":"FailureTarget","status":"True","reason":"DeadlineExceeded","message":"Job was active longer than specified deadline"}]}`)
			synctest.Wait()
			r.api.pod("a", "p", terminated(75, "Error", "sigterm"))
		}, ReasonDeadline, 75, "longer than"},
		{"job deleted", func(r *rig) { r.api.drop("jobs", "agt-a") }, ReasonDeleted, -1, ""},
		{"no start", func(r *rig) { r.api.pod("a", "p", terminated(128, "StartError", "exec: no such file")) }, ReasonExited, 128, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.create(t, "a")
				r.api.pod("a", "p", statusRunning)
				synctest.Wait()
				c.does(r)
				got := r.exited("a")
				if len(got) != 1 || got[0].Reason != c.reason || got[0].Code != c.code || !strings.Contains(got[0].Detail, c.detail) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// A Job that never had a pod ends, too.
func TestEndsWithoutAPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does   func(r *rig)
		reason Reason
	}{
		"deleted": {func(r *rig) { r.api.drop("jobs", "agt-a") }, ReasonDeleted},
		"failed": {func(r *rig) {
			r.api.jobStatus("a", `{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}`)
		}, ReasonFailed},
		"deadline": {func(r *rig) {
			r.api.jobStatus("a", `{"conditions":[{"type":"Failed","status":"True","reason":"DeadlineExceeded"}]}`)
		}, ReasonDeadline},
	} {
		bubble(t, func(t *testing.T, r *rig) {
			r.create(t, "a")
			c.does(r)
			if got := r.exited("a"); len(got) != 1 || got[0].Reason != c.reason {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
}

// What keeps a worker from calling home is told before the wait for it ends, with
// its own reason; and what passes is waited for.
func TestWhatKeepsASandboxFromBeginning(t *testing.T) {
	t.Parallel()
	unschedulable := `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available: 3 Insufficient memory."}]}`
	dial := spec("a").Profile.Dial
	late := dial - dial/10
	for _, c := range []struct {
		name   string
		does   func(r *rig)
		reason Reason
		after  time.Duration
		detail string
	}{
		{"no such image", func(r *rig) { r.api.pod("a", "p", waitingFor("ErrImagePull", "manifest unknown")) }, ReasonImage, pullPatience, "ErrImagePull: manifest unknown"},
		{"pull is tried again", func(r *rig) {
			r.api.pod("a", "p", waitingFor("ErrImagePull", "x"))
			time.Sleep(10 * time.Second)
			r.api.pod("a", "p", waitingFor("ImagePullBackOff", "back-off pulling"))
		}, ReasonImage, pullPatience, "ImagePullBackOff: back-off pulling"},
		{"no image name", func(r *rig) { r.api.pod("a", "p", waitingFor("InvalidImageName", "x")) }, ReasonImage, 0, ""},
		{"image is never pulled", func(r *rig) { r.api.pod("a", "p", waitingFor("ErrImageNeverPull", "x")) }, ReasonImage, 0, ""},
		{"runs as root", func(r *rig) {
			r.api.pod("a", "p", waitingFor("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"))
		}, ReasonContainer, shortPatience, "root"},
		{"no node", func(r *rig) { r.api.pod("a", "p", unschedulable) }, ReasonUnschedulable, late, "Insufficient memory"},
		{"quota of pods", func(r *rig) {
			r.api.failedCreate("a", `Error creating: pods "agt-a-x" is forbidden: exceeded quota: small, requested: pods=1`)
		}, ReasonQuota, late, "exceeded quota: small"},
		{"pod security", func(r *rig) {
			r.api.failedCreate("a", `Error creating: pods "agt-a-x" is forbidden: violates PodSecurity "restricted:latest"`)
		}, ReasonRefused, shortPatience, "PodSecurity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.create(t, "a")
				start := time.Now()
				c.does(r)
				if notes := r.noted("a"); c.after > 0 && (len(notes) != 1 || notes[0].Reason != c.reason) {
					t.Errorf("%+v", notes)
				}
				if c.after > 0 {
					time.Sleep(c.after - time.Since(start) - time.Millisecond)
					if got := r.exited("a"); len(got) != 0 {
						t.Fatalf("already: %+v", got)
					}
					time.Sleep(time.Millisecond)
				}
				got := r.exited("a")
				if len(got) != 1 || got[0].Reason != c.reason || got[0].Code != -1 || !strings.Contains(got[0].Detail, c.detail) || time.Since(start) >= dial {
					t.Errorf("after %s: %+v", time.Since(start), got)
				}
				time.Sleep(time.Hour)
				if got := r.exited("a"); len(got) != 1 {
					t.Errorf("told again: %+v", got)
				}
			})
		})
	}
}

func TestTroubleThatPasses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		r.api.failedCreate("a", "Error creating: exceeded quota: small")
		time.Sleep(80 * time.Second)
		r.api.pod("a", "p", waitingFor("ContainerCreating", ""))
		time.Sleep(5 * time.Second)
		r.api.pod("a", "p", waitingFor("ErrImagePull", "EOF"))
		time.Sleep(15 * time.Second)
		r.api.pod("a", "p", statusRunning)
		time.Sleep(time.Hour)
		if got := r.exited("a"); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		if notes := r.noted("a"); len(notes) != 2 || notes[0].Reason != ReasonQuota || notes[1].Reason != ReasonImage {
			t.Errorf("%+v", notes)
		}
	})
}

// The cluster makes two pods for one Job, the gateway refuses the second, and the
// first goes on. The end of one is not the end.
func TestTwoPodsForOneJob(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		r.api.pod("a", "agt-a-1", statusRunning)
		r.api.pod("a", "agt-a-2", statusRunning)
		r.api.pod("a", "agt-a-2", statusRunning)
		if notes := r.noted("a"); len(notes) != 1 || notes[0].Reason != ReasonSecondPod || notes[0].Detail != "agt-a-1, agt-a-2" {
			t.Errorf("%+v", notes)
		}
		r.api.pod("a", "agt-a-2", terminated(77, "Error", "refused"))
		r.api.drop("pods", "agt-a-2")
		time.Sleep(time.Hour)
		if got := r.exited("a"); len(got) != 0 {
			t.Fatalf("the session ended with the pod that was refused: %+v", got)
		}
		r.api.pod("a", "agt-a-1", terminated(0, "Completed", ""))
		if got := r.exited("a"); len(got) != 1 || got[0].Pod != "agt-a-1" || got[0].Code != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A driver tells of sandboxes that another one made, which is how a gateway that
// took a session over hears of its end; and only of what is really a session's.
func TestSandboxesOfOthers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		other := newRig(t, nil)
		defer other.close(t)
		other.api = r.api
		other.driver.o.Transport, other.driver.c.over = r.net.Transport(), r.net.Transport()
		if err := other.driver.Create(t.Context(), spec("b")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for name, change := range map[string]func(o map[string]any){
			"no owner":       func(o map[string]any) { delete(metaOf(o), "ownerReferences") },
			"no annotation":  func(o map[string]any) { delete(metaOf(o), "annotations") },
			"another's name": func(o map[string]any) { metaOf(o)["annotations"] = map[string]any{annotationSession: "a"} },
			"no label":       func(o map[string]any) { delete(metaOf(o), "labels") },
		} {
			r.api.pod("b", "stranger", terminated(1, "Error", ""))
			o := r.api.get("pods", "stranger")
			r.api.drop("pods", "stranger")
			synctest.Wait()
			r.mu.Lock()
			clear(r.exits)
			r.mu.Unlock()
			metaOf(o)["name"] = "stranger-2"
			change(o)
			r.api.add("pods", o)
			if got := append(r.exited("a"), r.exited("b")...); len(got) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			r.api.drop("pods", "stranger-2")
		}
		r.api.pod("a", "p", terminated(75, "Error", ""))
		if got := other.exited("a"); len(got) != 1 || got[0].Code != 75 {
			t.Errorf("%+v", got)
		}
	})
}

// A gateway that starts again hears of the sandboxes of the one before it, and of
// those that ended in between.
func TestWatchTakesSandboxesUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		r.create(t, "b")
		r.api.pod("a", "pa", statusRunning)
		r.api.pod("b", "pb", statusRunning)
		synctest.Wait()
		if err := r.driver.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.api.pod("a", "pa", terminated(75, "Error", ""))
		next := newRig(t, nil)
		defer next.close(t)
		next.driver.c.over = r.net.Transport()
		if err := next.driver.Watch(); err != nil {
			t.Fatal(err)
		}
		if got := next.exited("a"); len(got) != 1 || got[0].Code != 75 || len(next.exited("b")) != 0 {
			t.Errorf("%+v, %+v", got, next.exited("b"))
		}
		r.api.pod("b", "pb", terminated(78, "Error", ""))
		if got := next.exited("b"); len(got) != 1 || got[0].Code != 78 || len(r.exited("b")) != 0 {
			t.Errorf("%+v, %+v", got, r.exited("b"))
		}
	})
}
