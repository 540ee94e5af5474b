package app

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/worker"
)

// ownerOf is the host that holds a sandbox.
func ownerOf(t *testing.T, f *fleet.Fleet, id string) string {
	t.Helper()
	info, err := f.Find(t.Context(), id)
	if err != nil || info.Owner == "" {
		t.Fatalf("%+v, %v", info, err)
	}
	return info.Owner
}

// Daemons whose log is on one PostgreSQL server see each other's sandboxes, and who
// holds one; each has its own name.
func TestGatewaysShareRecords(t *testing.T) {
	t.Parallel()
	dsn := testserver.PostgreSQL(t).Database(t)
	shared := func(c *config.Config) { c.Feed.Store = dsn }
	dir := t.TempDir()
	here, _ := testSandboxes(t, t.TempDir(), shared)
	there, _ := testSandboxes(t, dir, shared)
	fleettest.Start(t, here, "one", "slow")
	owner := ownerOf(t, here, "one")
	if _, err := there.Start(t.Context(), "one", "slow", ""); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("an id of another daemon: %v", err)
	}
	s := serveWith(t, testAgents(t, dir), dir, there)
	status, body := s.ask("GET", "/v1/sandboxes", "")
	if status != http.StatusOK || !strings.Contains(body, `"id":"one"`) || !strings.Contains(body, `"here":false`) || !strings.Contains(body, owner) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.ask("POST", "/v1/sandboxes/one/exec", `{"command":"x"}`); status != http.StatusConflict || !strings.Contains(body, owner) {
		t.Errorf("%d %s", status, body)
	}
	if info, err := there.Show(t.Context(), "one"); err != nil || info.State != worker.StateRunning || len(info.Audit) == 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Daemons that share their keys, and know where the others are, use each other's
// sandboxes: a command goes to the one that holds it, and so does the release.
func TestGatewaysUseEachOther(t *testing.T) {
	t.Parallel()
	dsn := testserver.PostgreSQL(t).Database(t)
	keys := filepath.Join(t.TempDir(), "keys.json")
	shared := func(c *config.Config) {
		c.Feed.Store, c.Gateway.KeyFile = dsn, keys
		c.Gateway.Listen = testserver.Addr(t)
		c.Gateway.Address = "http://" + c.Gateway.Listen
	}
	dir := t.TempDir()
	here, _ := testSandboxes(t, t.TempDir(), shared)
	there, _ := testSandboxes(t, dir, shared)
	held := fleettest.Start(t, here, "one", "slow")
	owner := ownerOf(t, here, "one")
	s := serveWith(t, testAgents(t, dir), dir, there)
	if status, body := s.ask("POST", "/v1/sandboxes/one/exec", `{"command":"ls","detach":true}`); status != http.StatusOK || body != `{"job":"ls in one"}`+"\n" {
		t.Fatalf("exec: %d %s", status, body)
	}
	// Whoever comes to a peer's way in without a gateway's token is sent away.
	if status, body := s.ask("POST", "/v1/peers/sessions/one/record", "{}"); status != http.StatusUnauthorized || strings.Contains(body, "running") {
		t.Errorf("the API's token at a peer's way in: %d %s", status, body)
	}
	if status, body := s.ask("POST", "/v1/sandboxes/one/kill", "{}"); status != http.StatusConflict || !strings.Contains(body, owner) {
		t.Errorf("kill: %d %s", status, body)
	}
	status, body := s.ask("POST", "/v1/sandboxes/one/release", "{}")
	if status != http.StatusOK || !strings.Contains(body, `"state":"released"`) || !strings.Contains(body, `"reported":true`) {
		t.Errorf("release: %d %s", status, body)
	}
	if rec := held.Record(); rec.State != worker.StateReleased {
		t.Errorf("%+v", rec)
	}
}
