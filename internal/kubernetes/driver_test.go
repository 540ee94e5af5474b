package kubernetes

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The policy is there before anything that it must keep in, and the Secret before
// the pod that needs it.
func TestCreateMakesTheWallFirst(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		writes := func() (out []string) {
			for _, what := range r.api.asked("") {
				if !strings.HasPrefix(what, "LIST") && !strings.HasPrefix(what, "WATCH") {
					out = append(out, what)
				}
			}
			return out
		}
		first := []string{"GET networkpolicies", "POST networkpolicies", "POST secrets", "POST jobs", "PATCH secrets"}
		if diff := cmp.Diff(first, writes()); diff != "" {
			t.Error(diff)
		}
		r.create(t, "b")
		if diff := cmp.Diff(append(first, "GET networkpolicies", "POST secrets", "POST jobs", "PATCH secrets"), writes()); diff != "" {
			t.Error(diff)
		}
		secrets := r.api.there("secrets")
		if len(secrets) != 2 || !slices.Equal(r.api.there("jobs"), []string{"agt-a", "agt-b"}) {
			t.Fatalf("%v, %v", secrets, r.api.there("jobs"))
		}
		job := r.api.get("jobs", "agt-a")
		owners, _ := metaOf(r.api.get("secrets", secrets[0]))["ownerReferences"].([]any)
		if len(owners) != 1 || owners[0].(map[string]any)["uid"] != metaOf(job)["uid"] || owners[0].(map[string]any)["kind"] != "Job" {
			t.Errorf("the secret is owned by %v", owners)
		}
	})
}

// What the API refuses is told by its kind, and nothing is left behind.
func TestCreateThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, reason, message string
		code                  int
		want                  error
	}{
		{"POST networkpolicies", "Forbidden", "cannot create resource", 403, ErrForbidden},
		{"GET networkpolicies", "Forbidden", "cannot get resource", 403, ErrForbidden},
		{"POST secrets", "Forbidden", `exceeded quota: small, requested: secrets=1, used: secrets=5, limited: secrets=5`, 403, ErrQuota},
		{"POST jobs", "Forbidden", "cannot create resource", 403, ErrForbidden},
		{"POST jobs", "Forbidden", `jobs.batch "agt-a" is forbidden: exceeded quota: few, requested: count/jobs.batch=1`, 403, ErrQuota},
		{"POST jobs", "NotFound", `namespaces "sandboxes" not found`, 404, ErrNotFound},
		{"POST jobs", "Invalid", "spec.template is wrong", 422, ErrInvalid},
		{"POST jobs", "BadRequest", `strict decoding error: unknown field "spec.template.spec.hostUsers"`, 400, ErrInvalid},
		{"POST jobs", "Unauthorized", "Unauthorized", 401, ErrUnauthorized},
		{"POST jobs", "InternalError", "webhook does not answer", 500, nil},
		{"POST jobs", "TooManyRequests", "slow down", 429, ErrBusy},
		{"POST jobs", "", "no healthy upstream", 503, ErrBusy},
		{"PATCH secrets", "Forbidden", "cannot patch resource", 403, ErrForbidden},
	} {
		t.Run(c.what+" "+c.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.api.refuse(c.what, c.code, c.reason, c.message)
				start := time.Now()
				err := r.driver.Create(t.Context(), spec("a"))
				var refused *APIError
				if !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(err.Error(), c.message) || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
				for _, other := range []error{ErrForbidden, ErrQuota, ErrNotFound, ErrInvalid, ErrUnauthorized, ErrBusy, ErrExists} {
					if !errors.Is(c.want, other) && errors.Is(err, other) {
						t.Errorf("%v is %v, too", err, other)
					}
				}
				if took := time.Since(start); took > createTime+cleanTime {
					t.Errorf("took %s", took)
				}
				if len(r.api.there("jobs"))+len(r.api.there("secrets")) > 0 {
					t.Errorf("left: %v %v", r.api.there("jobs"), r.api.there("secrets"))
				}
				if strings.HasSuffix(c.what, "networkpolicies") && len(r.api.asked("POST secrets"))+len(r.api.asked("POST jobs")) > 0 {
					t.Error("something was made without a policy")
				}
			})
		})
	}
}

// A server that hangs costs what the deadlines say, at each step.
func TestCreateWithAServerThatHangs(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"GET networkpolicies", "POST secrets", "POST jobs", "PATCH secrets"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.api.setHook(func(_ http.ResponseWriter, q *http.Request, got string) bool {
					if got == what {
						<-q.Context().Done()
					}
					return got == what
				})
				start := time.Now()
				err := r.driver.Create(t.Context(), spec("a"))
				if took := time.Since(start); !errors.Is(err, ErrTimeout) || took < DefaultRequestTime || took > createTime+cleanTime {
					t.Errorf("after %s: %v", took, err)
				}
				if len(r.api.there("jobs"))+len(r.api.there("secrets")) > 0 {
					t.Errorf("left: %v %v", r.api.there("jobs"), r.api.there("secrets"))
				}
			})
		})
	}
}

// A server that is slow is waited for.
func TestCreateWithASlowServer(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.api.setHook(func(http.ResponseWriter, *http.Request, string) bool {
			time.Sleep(5 * time.Second)
			return false
		})
		start := time.Now()
		r.create(t, "a")
		if took := time.Since(start); took != 25*time.Second || len(r.api.there("jobs")) != 1 {
			t.Errorf("after %s: %v", took, r.api.there("jobs"))
		}
	})
}

// Who gives up waiting leaves nothing behind.
func TestCreateThatIsCancelled(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("somebody pressed a key")
		r.api.setHook(func(_ http.ResponseWriter, q *http.Request, what string) bool {
			if what == "PATCH secrets" {
				cancel(why)
				<-q.Context().Done()
			}
			return what == "PATCH secrets"
		})
		if err := r.driver.Create(ctx, spec("a")); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		if len(r.api.there("jobs"))+len(r.api.there("secrets")) > 0 {
			t.Errorf("left: %v %v", r.api.there("jobs"), r.api.there("secrets"))
		}
	})
}

// An answer that is lost is asked for again, and what the first request made is
// known as ours: there is one of each.
func TestCreateWithAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"POST secrets", "POST jobs", "PATCH secrets"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				lost := 0
				r.api.after = func(_ http.ResponseWriter, got string) bool {
					if got == what && lost == 0 {
						lost++
						panic(http.ErrAbortHandler)
					}
					return false
				}
				r.create(t, "a")
				if lost != 1 || len(r.api.there("jobs")) != 1 || len(r.api.there("secrets")) != 1 {
					t.Errorf("%d lost; %v %v", lost, r.api.there("jobs"), r.api.there("secrets"))
				}
			})
		})
	}
}

// What a second try finds may be somebody else's: another gateway that was faster
// for the same session.
func TestCreateThatAnotherOvertakes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		overtaken := false
		r.api.setHook(func(_ http.ResponseWriter, _ *http.Request, what string) bool {
			if what != "POST jobs" || overtaken {
				return false
			}
			overtaken = true
			m, err := build("sandboxes", inCluster(), spec("a"), "theirs")
			if err != nil {
				t.Error(err)
			}
			var job map[string]any
			if err := stdjson.Unmarshal(encode(t, m.Job), &job); err != nil {
				t.Error(err)
			}
			r.api.add("jobs", job)
			panic(http.ErrAbortHandler)
		})
		if err := r.driver.Create(t.Context(), spec("a")); !errors.Is(err, ErrExists) {
			t.Errorf("%v", err)
		}
		if len(r.api.there("jobs")) != 1 || len(r.api.there("secrets")) != 0 {
			t.Errorf("%v %v", r.api.there("jobs"), r.api.there("secrets"))
		}
	})
}

// A busy server says when to come back, and is not asked before.
func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		var first, second time.Time
		r.api.setHook(func(w http.ResponseWriter, _ *http.Request, what string) bool {
			switch {
			case what != "POST jobs":
			case first.IsZero():
				first = time.Now()
				w.Header().Set("Retry-After", "7")
				reply(w, 429, statusOf(429, "TooManyRequests", "slow down"))
				return true
			case second.IsZero():
				second = time.Now()
			}
			return false
		})
		r.create(t, "a")
		if d := second.Sub(first); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("came back after %s", d)
		}
	})
}

// A session that has a sandbox keeps it when somebody makes another.
func TestASecondSandboxIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		before := r.api.there("secrets")
		if err := r.driver.Create(t.Context(), spec("a")); !errors.Is(err, ErrExists) {
			t.Errorf("%v", err)
		}
		if got := r.api.there("secrets"); !slices.Equal(got, before) || len(r.api.there("jobs")) != 1 {
			t.Errorf("%v became %v; %v", before, got, r.api.there("jobs"))
		}
	})
}

// A Job of somebody else that has the name is neither taken nor deleted.
func TestAForeignJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.api.add("jobs", map[string]any{"metadata": map[string]any{"name": "agt-a"}})
		if err := r.driver.Create(t.Context(), spec("a")); !errors.Is(err, ErrExists) {
			t.Errorf("%v", err)
		}
		if err := r.driver.Delete(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if len(r.api.there("jobs")) != 1 || len(r.api.there("secrets")) != 0 {
			t.Errorf("%v %v", r.api.there("jobs"), r.api.there("secrets"))
		}
	})
}

// A server may repeat what it refuses. The token stays out of the error.
func TestTheTokenIsNotRepeated(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		s := spec("a")
		r.api.refuse("POST secrets", 422, "Invalid", "data.token: "+s.Token+" is wrong")
		if err := r.driver.Create(t.Context(), s); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), s.Token) {
			t.Errorf("%v", err)
		}
	})
}

// A policy that is not as it must be is replaced before a sandbox is made.
func TestAWidenedPolicyIsMended(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		p := r.api.get("networkpolicies", policyName)
		want := p["spec"]
		p["spec"] = map[string]any{"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"}}
		r.api.add("networkpolicies", p)
		conflicts := 1 // somebody is faster than we are
		r.api.setHook(func(w http.ResponseWriter, _ *http.Request, what string) bool {
			if what == "PUT networkpolicies" && conflicts > 0 {
				conflicts--
				reply(w, 409, statusOf(409, "Conflict", "the object has been modified"))
				return true
			}
			return false
		})
		r.create(t, "b")
		if diff := cmp.Diff(want, r.api.get("networkpolicies", policyName)["spec"]); diff != "" {
			t.Error(diff)
		}
		p = r.api.get("networkpolicies", policyName)
		metaOf(p)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		r.api.add("networkpolicies", p)
		if err := r.driver.Create(t.Context(), spec("c")); err == nil || len(r.api.there("jobs")) != 2 {
			t.Errorf("a sandbox was made under a policy that goes: %v", err)
		}
	})
}

// Two gateways that come first at the same time make one policy.
func TestThePolicyIsMadeOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.api.setHook(func(_ http.ResponseWriter, _ *http.Request, what string) bool {
			if what == "POST networkpolicies" && len(r.api.there("networkpolicies")) == 0 {
				r.api.add("networkpolicies", clonePolicy(t))
			}
			return false
		})
		r.create(t, "a")
		if n := len(r.api.asked("PUT")); n != 0 || len(r.api.there("networkpolicies")) != 1 {
			t.Errorf("%d replaced, %v", n, r.api.there("networkpolicies"))
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		if err := r.driver.Check(t.Context()); err != nil {
			t.Error(err)
		}
		r.api.setHook(func(w http.ResponseWriter, _ *http.Request, what string) bool {
			reply(w, 201, map[string]any{"status": map[string]any{"allowed": false}})
			return strings.HasPrefix(what, "POST selfsubject")
		})
		err := r.driver.Check(t.Context())
		if !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "create jobs") || strings.Contains(err.Error(), "events") {
			t.Errorf("%v", err)
		}
		if writes := r.api.asked("POST jobs"); len(writes) > 0 {
			t.Error("a check made something")
		}
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		for range 2 {
			if err := r.driver.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := r.driver.Create(t.Context(), spec("b")); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if len(r.api.there("jobs")) != 1 {
			t.Error("the sandboxes of sessions went with the driver")
		}
		if err := r.driver.Delete(t.Context(), "a"); err != nil { // a host deletes to the last
			t.Error(err)
		}
	})
}

// Making a driver asks nobody, and a driver that nobody uses has no goroutine.
func TestANewDriverIsIdle(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		if r.net.Dials() != 0 || r.driver.cancel != nil {
			t.Error("it is not")
		}
	})
}

func clonePolicy(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := stdjson.Unmarshal(encode(t, buildPolicy("sandboxes", inCluster())), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
