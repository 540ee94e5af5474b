package app

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/worker"
)

// Daemons whose log is on one PostgreSQL server see each other's sandboxes, and who
// holds one; each has its own name.
func TestGatewaysShareRecords(t *testing.T) {
	t.Parallel()
	dsn := testserver.PostgreSQL(t).Database(t)
	shared := func(c *config.Config) { c.Feed.Store = dsn }
	dir := t.TempDir()
	here, _ := testGateway(t, t.TempDir(), shared)
	there, _ := testGateway(t, dir, shared)
	mustStart(t, here, "one", "slow")
	if _, err := there.Start(t.Context(), "one", "slow", ""); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("an id of another daemon: %v", err)
	}
	s := serveWith(t, testAgents(t, dir), dir, there)
	status, body := s.ask("GET", "/v1/sandboxes", "")
	if status != http.StatusOK || !strings.Contains(body, `"id":"one"`) || !strings.Contains(body, `"here":false`) || !strings.Contains(body, here.owner) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.ask("POST", "/v1/sandboxes/one/exec", `{"command":"x"}`); status != http.StatusConflict || !strings.Contains(body, here.owner) {
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
	here, _ := testGateway(t, t.TempDir(), shared)
	there, _ := testGateway(t, dir, shared)
	held := mustStart(t, here, "one", "slow")
	s := serveWith(t, testAgents(t, dir), dir, there)
	box, err := there.caller(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	res, err := box.CallTool(t.Context(), "exec", jsontext.Value(`{"command":"ls"}`), nil)
	if err != nil || textsOf(res) != "ls in one" {
		t.Fatalf("%+v, %v", res, err)
	}
	// Whoever comes to a peer's way in without a gateway's token is sent away.
	if status, body := s.ask("POST", "/v1/peers/sessions/one/record", "{}"); status != http.StatusUnauthorized || strings.Contains(body, "running") {
		t.Errorf("the API's token at a peer's way in: %d %s", status, body)
	}
	if status, body := s.ask("POST", "/v1/sandboxes/one/kill", "{}"); status != http.StatusConflict || !strings.Contains(body, here.owner) {
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
