package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// gateway is a host whose sandboxes the driver makes, on a network of its own.
type gateway struct {
	*rig
	host   *worker.Host
	net    *workertest.Net
	server *http.Server
	served chan struct{}
}

// tokens says that the token "t-ID" is for the session ID.
type tokens struct{}

func (tokens) Authenticate(_ context.Context, token string) (string, error) {
	return strings.TrimPrefix(token, "t-"), nil
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{net: workertest.NewNet(), served: make(chan struct{})}
	g.rig = newRig(t, func(o *Options) {
		// As the wiring does it: what a driver tells goes to the session.
		o.Exited = func(session string, e Exit) {
			if s, err := g.host.Session(session); err == nil {
				s.Exited(e.String())
			}
		}
	})
	g.host = worker.NewHost(tokens{}, nil, &worker.HostOptions{Image: "api:1", Sandboxes: g.driver})
	g.server = &http.Server{Handler: g.host}
	go func() {
		defer close(g.served)
		_ = g.server.Serve(g.net)
	}()
	return g
}

func (g *gateway) close(t *testing.T) {
	t.Helper()
	g.host.Close()
	_ = g.server.Close()
	<-g.served
	g.net.Reset()
	g.rig.close(t)
}

// begin creates a session and its sandbox.
func (g *gateway) begin(t *testing.T, id string) *worker.Session {
	t.Helper()
	s := spec(id)
	s.Token = "t-" + id
	s.Env[worker.EnvBudgets] = "{}"
	session, err := g.host.Create(t.Context(), id, s.Profile)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.driver.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return session
}

// kubelet runs what a Job asks for: a worker with the environment of its manifest
// and the token of its Secret. The result is for whoever waits for the pod.
func (g *gateway) kubelet(t *testing.T, session, pod string) <-chan worker.Exit {
	t.Helper()
	var m struct {
		Spec struct {
			Template struct {
				Spec podSpec `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	b, _ := json.Marshal(g.api.get("jobs", objectName(session)))
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	p := m.Spec.Template.Spec
	env := map[string]string{}
	for _, v := range p.Containers[0].Env {
		env[v.Name] = strings.ReplaceAll(v.Value, "$$", "$")
	}
	secret := g.api.get("secrets", p.Volumes[2].Projected.Sources[0].Secret.Name)
	token, err := base64.StdEncoding.DecodeString(secret["data"].(map[string]any)[secretKey].(string))
	if err != nil {
		t.Fatal(err)
	}
	env[worker.EnvTokenFile] = write(t, t.TempDir()+"/token", string(token))
	e, err := worker.ReadEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	e.ControlURL = "ws://127.0.0.1/" // the network in memory has no TLS
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range e.Tools {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "from " + pod}}}, nil
		})
	}
	g.api.pod(session, pod, statusRunning)
	done := make(chan worker.Exit, 1)
	go func() {
		exit := worker.New(server, e, &worker.Options{Transport: g.net.Transport()}).Run(context.WithoutCancel(t.Context()))
		g.api.ended(pod, terminated(int(exit.Code), "Error", exit.Reason))
		done <- exit
	}()
	return done
}

// A session over a sandbox of the cluster, from the creation to the last object.
func TestSessionInACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		defer g.close(t)
		session := g.begin(t, "ses_1")
		done := g.kubelet(t, "ses_1", "pod-1")
		if err := session.Running(t.Context()); err != nil {
			t.Fatal(err)
		}
		result, err := session.CallTool(t.Context(), "exec", jsontext.Value(`{}`), nil)
		if err != nil || result.Content[0].(*mcp.TextContent).Text != "from pod-1" {
			t.Fatalf("%v, %v", result, err)
		}
		rec, err := session.Release(t.Context(), worker.ReasonExplicit)
		if exit := <-done; err != nil || rec.State != worker.StateReleased || exit.Code != worker.ExitReleased {
			t.Errorf("%v, %v, %v", rec.State, err, exit)
		}
		time.Sleep(time.Second)
		if left := append(g.api.there("jobs"), g.api.there("secrets")...); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// What keeps a sandbox from beginning ends the session before the wait for its
// worker does, and the record says why.
func TestFailureOfTheClusterIsRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does func(g *gateway)
		want string
	}{
		"image": {func(g *gateway) { g.api.pod("a", "p", waitingFor("ImagePullBackOff", "no such tag")) }, "image_pull: the image cannot be pulled: ImagePullBackOff: no such tag"},
		"node": {func(g *gateway) {
			g.api.pod("a", "p", `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes"}]}`)
		}, "unschedulable: no node takes the pod: Unschedulable: 0/3 nodes"},
		"quota":   {func(g *gateway) { g.api.failedCreate("a", "exceeded quota: few") }, "quota: a quota of the namespace is exhausted: exceeded quota: few"},
		"memory":  {func(g *gateway) { g.api.pod("a", "p", terminated(137, "OOMKilled", "")) }, "oom_killed: the worker used more memory than it may, exit code 137"},
		"refused": {func(g *gateway) { g.api.pod("a", "p", terminated(78, "Error", "no such version")) }, "exited: the worker ended, exit code 78 (version or configuration): no such version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t)
				defer g.close(t)
				start := time.Now()
				session := g.begin(t, "a")
				c.does(g)
				err := session.Running(t.Context())
				rec := session.Record()
				if err == nil || rec.State != worker.StateFailed || rec.Failure != worker.FailureExited || rec.Detail != c.want {
					t.Errorf("%v; %s %s %q", err, rec.State, rec.Failure, rec.Detail)
				}
				if took := time.Since(start); took >= spec("a").Profile.Dial {
					t.Errorf("after %s", took)
				}
				time.Sleep(time.Second)
				if left := append(g.api.there("jobs"), g.api.there("secrets")...); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// ONE-6: of two pods that a cluster made for one Job the gateway takes the
// first, the other ends with 77, and the session goes on in the first.
func TestTwoPodsForOneSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		defer g.close(t)
		session := g.begin(t, "a")
		first := g.kubelet(t, "a", "pod-1")
		if err := session.Running(t.Context()); err != nil {
			t.Fatal(err)
		}
		if exit := <-g.kubelet(t, "a", "pod-2"); exit.Code != worker.ExitNoPerm {
			t.Errorf("the second pod: %+v", exit)
		}
		if notes := g.noted("a"); len(notes) != 1 || notes[0].Reason != ReasonSecondPod {
			t.Errorf("%+v", notes)
		}
		time.Sleep(30 * time.Second)
		result, err := session.CallTool(t.Context(), "exec", jsontext.Value(`{}`), nil)
		if err != nil || result.Content[0].(*mcp.TextContent).Text != "from pod-1" {
			t.Fatalf("%v, %v", result, err)
		}
		if _, err := session.Release(t.Context(), worker.ReasonExplicit); err != nil {
			t.Error(err)
		}
		<-first
	})
}

// Nobody tells of the end: a session whose cluster is silent still ends by the
// gateway's own wait, and its sandbox is deleted.
func TestASilentClusterHoldsNoSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		defer g.close(t)
		session := g.begin(t, "a")
		g.api.setHook(func(_ http.ResponseWriter, q *http.Request, what string) bool {
			quiet := strings.HasPrefix(what, "WATCH") || strings.HasPrefix(what, "LIST")
			if quiet {
				<-q.Context().Done()
			}
			return quiet
		})
		g.api.breakWatches(func(http.ResponseWriter) {})
		err := session.Running(t.Context())
		if rec := session.Record(); err == nil || rec.Failure != worker.FailureDial {
			t.Errorf("%v; %s", err, rec.Failure)
		}
		time.Sleep(time.Second)
		if left := append(g.api.there("jobs"), g.api.there("secrets")...); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
