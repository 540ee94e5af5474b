package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/worker"
)

// Daemons whose log is on one PostgreSQL server see each other's sandboxes, and who
// holds one; each has its own name.
//
// AMB-21.
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
