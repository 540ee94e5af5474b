package kubernetes

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		for _, session := range []string{"a", "a.b", "ses_1"} {
			r.create(t, session)
		}
		r.api.pod("a", "agt-a-x", `{"phase":"Running","containerStatuses":[{"name":"worker","image":"","imageID":"","ready":true,"restartCount":0,"state":{"running":{}}}]}`)
		for range 2 { // it is idempotent
			if err := r.driver.Delete(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.api.there("jobs")) != 2 || len(r.api.there("secrets")) != 2 || len(r.api.there("pods")) != 0 {
			t.Errorf("%v %v %v", r.api.there("jobs"), r.api.there("secrets"), r.api.there("pods"))
		}
		for _, session := range []string{"a.b", "ses_1", "never was"} {
			if err := r.driver.Delete(t.Context(), session); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.api.there("jobs"))+len(r.api.there("secrets")) > 0 || len(r.api.there("networkpolicies")) != 1 {
			t.Errorf("%v %v %v", r.api.there("jobs"), r.api.there("secrets"), r.api.there("networkpolicies"))
		}
	})
}

// Kill does not give a worker the time that Delete does, and none to another's.
func TestKill(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		var grace []string
		r.api.setHook(func(_ http.ResponseWriter, q *http.Request, what string) bool {
			if what == "DELETE pods" {
				grace = append(grace, q.Header.Get("X-Grace"))
			}
			return false
		})
		for _, session := range []string{"a", "b"} {
			r.create(t, session)
			r.api.pod(session, "pod-"+session, statusRunning)
		}
		for range 2 {
			if err := r.driver.Kill(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.exited("a"); len(got) != 1 || !slices.Equal(r.api.there("pods"), []string{"pod-b"}) || !slices.Equal(r.api.there("jobs"), []string{"agt-b"}) {
			t.Errorf("%v; %v", got, r.api.there("pods"))
		}
		if !slices.Equal(grace, []string{"1", "1"}) {
			t.Errorf("grace %q", grace)
		}
	})
}

func TestDeleteThatFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		times int // 0: always
		code  int
		ok    bool
	}{{"not there", 0, 404, true}, {"passing", 3, 500, true}, {"busy", 2, 429, true}, {"conflict", 1, 409, true}, {"forbidden", 0, 403, false}, {"for ever", 0, 500, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.create(t, "a")
				n := 0
				r.api.setHook(func(w http.ResponseWriter, _ *http.Request, what string) bool {
					if what != "DELETE jobs" || c.times > 0 && n >= c.times {
						return false
					}
					n++
					reply(w, c.code, statusOf(c.code, map[int]string{409: "Conflict"}[c.code], "no"))
					return true
				})
				start := time.Now()
				err := r.driver.Delete(t.Context(), "a")
				if (err == nil) != c.ok || time.Since(start) > deleteTime {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
				if len(r.api.there("secrets")) > 0 { // the token goes whatever happens to the Job
					t.Errorf("%v", r.api.there("secrets"))
				}
			})
		})
	}
}

// What a finalizer keeps is the cluster's to end: Delete does not wait for it.
func TestDeleteDoesNotWaitForFinalizers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		r.api.keep = true
		start := time.Now()
		for range 2 {
			if err := r.driver.Delete(t.Context(), "a"); err != nil || time.Since(start) > 0 {
				t.Errorf("after %s: %v", time.Since(start), err)
			}
		}
		if len(r.api.there("jobs")) != 1 {
			t.Error("the finalizer kept nothing")
		}
	})
}

// A request names what it deletes by label; a session that is no label cannot
// select others'.
func TestDeleteSelectsOneSession(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		for _, session := range []string{"", "a,app=agentfy-worker", "a)", "b\nsession=a", "!session", "x-" + digest("a")} {
			if err := r.driver.Delete(t.Context(), session); err != nil {
				t.Errorf("%q: %v", session, err)
			}
		}
		if len(r.api.there("jobs")) != 1 || len(r.api.there("secrets")) != 1 {
			t.Errorf("%v %v", r.api.there("jobs"), r.api.there("secrets"))
		}
	})
}
