package app

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/worker"
)

// testSandboxes are those of a daemon on a directory. They are fake.
func testSandboxes(t *testing.T, dir string, change func(*config.Config)) (*fleet.Fleet, *fleettest.Boxes) {
	t.Helper()
	c := config.Default()
	c.Home, c.Sandboxes = dir, fleettest.Kinds()
	if change != nil {
		change(c)
	}
	fake := &fleettest.Boxes{}
	f, err := OpenSandboxes(t.Context(), c, &fleet.Options{Data: dir, Drivers: fake.Drivers()}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		fake.Wait()
	})
	return f, fake
}

// A daemon without a gateway says what to start.
func TestNoGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/x/exec"} {
		if status, body := s.ask("POST", path, "{}"); status != http.StatusNotFound || !strings.Contains(body, "--worker-gateway") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Sandbox: "light"}); err == nil || !strings.Contains(err.Error(), "--worker-gateway") {
		t.Errorf("an agent that wants a sandbox: %v", err)
	}
}

// Workers of other machines come in at the daemon's own address, past the API's
// tokens, and are there for every caller.
func TestWorkersComeInAtTheAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, fake := testSandboxes(t, dir, nil)
	s := serveWith(t, testAgents(t, dir), dir, f)
	fake.Control = strings.Replace(s.url, "http", "ws", 1) + worker.DialPath
	fleettest.Start(t, f, "far", "slow")
	if status, body := s.ask("GET", "/v1/sandboxes/far", ""); status != http.StatusOK || !strings.Contains(body, `"state":"running"`) || !strings.Contains(body, `"tools":["exec","file"]`) {
		t.Errorf("%d %s", status, body)
	}
}
