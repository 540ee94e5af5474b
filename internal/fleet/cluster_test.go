package fleet_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/worker"
)

// fakeCluster takes what it is told to make, and keeps it.
type fakeCluster struct {
	mu   sync.Mutex
	made map[string]string // the last object by kind
	gone []string
	seen chan struct{} // somebody asked for jobs; capacity 1
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.Method {
	case http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		var o struct {
			Kind string `json:"kind"`
		}
		_ = json.Unmarshal(body, &o)
		f.made[o.Kind] = string(body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"`+o.Kind+`","metadata":{"name":"x","uid":"u","resourceVersion":"1"}}`)
	case http.MethodDelete:
		f.gone = append(f.gone, r.URL.String())
		_, _ = io.WriteString(w, `{"kind":"Status","status":"Success"}`)
	case http.MethodPatch:
		_, _ = io.WriteString(w, `{"kind":"Secret","metadata":{"name":"x","uid":"u","resourceVersion":"2"}}`)
	default:
		if strings.HasSuffix(r.URL.Path, "/jobs") {
			select {
			case f.seen <- struct{}{}:
			default:
			}
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"no"}`)
	}
}

// newFakeCluster serves one, and configures a profile of it.
func newFakeCluster(t *testing.T) (*fakeCluster, func(*config.Config)) {
	t.Helper()
	fake := &fakeCluster{made: map[string]string{}, seen: make(chan struct{}, 1)}
	api := httptest.NewServer(fake)
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"` + api.URL + `"}}],"users":[{"name":"u","user":{"token":"t"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return fake, func(c *config.Config) {
		far := config.Sandbox{Profile: worker.Light(), Driver: config.DriverKubernetes, Image: "registry.example/worker:7", Namespace: "boxes", Tier: config.TierLandlock}
		far.Name = "far"
		c.Sandboxes = map[string]config.Sandbox{"far": far}
		c.Gateway.PublicURL = "wss://gw.example/v1/worker"
		c.Gateway.Cluster = config.Cluster{Kubeconfig: kubeconfig, CIDRs: []string{"192.0.2.7/32"}, Port: 8443, Address: "192.0.2.7"}
	}
}

// A gateway hears of the sandboxes that one before it made, though it makes none.
func TestClusterIsWatchedAfterRestart(t *testing.T) {
	t.Parallel()
	fake, change := newFakeCluster(t)
	dir := t.TempDir()
	g := mustOpen(t, dir, change)
	if _, err := g.Start(t.Context(), "one", "far", ""); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-fake.seen: // by the first one
	default:
	}
	mustOpen(t, dir, change)
	select {
	case <-fake.seen:
	case <-time.After(20 * time.Second): // a watch begins at once
		t.Error("nobody watches the cluster")
	}
}

// A profile of a cluster is a Job there, whose worker dials the public URL; its end
// is the Job's. Without a cluster the session says what is missing.
func TestClusterProfile(t *testing.T) {
	t.Parallel()
	fake, change := newFakeCluster(t)
	g := mustOpen(t, t.TempDir(), change)
	s, err := g.Start(t.Context(), "one", "far", "")
	if err != nil {
		t.Fatal(err)
	}
	fake.mu.Lock()
	job, secret := fake.made["Job"], fake.made["Secret"]
	fake.mu.Unlock()
	for _, want := range []string{`"registry.example/worker:7"`, `"wss://gw.example/v1/worker"`, `"OSSICLE_SANDBOX"`, `"landlock"`, `"exec,file"`} {
		if !strings.Contains(job, want) {
			t.Errorf("the job has no %s: %s", want, job)
		}
	}
	if strings.Contains(job, "eyJ") || !strings.Contains(secret, `"token"`) {
		t.Errorf("the token is in the job, or not in the secret")
	}
	if err := g.Kill(t.Context(), s, "a test"); err != nil {
		t.Fatal(err)
	}
	if err := g.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	fake.mu.Lock()
	gone := strings.Join(fake.gone, " ")
	fake.mu.Unlock()
	if !strings.Contains(gone, "/namespaces/boxes/jobs") || !strings.Contains(gone, "one") {
		t.Errorf("deleted: %s", gone)
	}
}

// A gateway that only this machine reaches has no workers elsewhere.
func TestClusterNeedsDaemon(t *testing.T) {
	t.Parallel()
	c := config.Default()
	far := config.Sandbox{Profile: worker.Light(), Driver: config.DriverKubernetes, Image: "x"}
	far.Name = "far"
	c.Sandboxes = map[string]config.Sandbox{"far": far}
	if _, err := fleet.Run(t.Context(), c, []string{"true"}, &fleet.RunOptions{Profile: "far"}); err == nil || !strings.Contains(err.Error(), "ossicle sandbox start") {
		t.Errorf("%v", err)
	}
}
