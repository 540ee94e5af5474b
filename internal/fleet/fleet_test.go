package fleet_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/worker"
)

// storeName is the store of a test in its directory.
const storeName = "store.db"

func testConfig(dir string, change func(*config.Config)) *config.Config {
	c := config.Default()
	c.Home, c.Sandboxes = dir, fleettest.Kinds()
	if change != nil {
		change(c)
	}
	return c
}

// rig is a fleet on a directory, whose sandboxes are fake.
type rig struct {
	*fleet.Fleet

	boxes  *fleettest.Boxes
	config *config.Config
	store  worker.Store
}

func open(t *testing.T, c *config.Config) (*rig, error) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(c.Home, storeName), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{boxes: &fleettest.Boxes{}, config: c, store: db.Workers()}
	r.Fleet, err = fleet.Open(t.Context(), c, &fleet.Options{
		Data: c.Home, Drivers: r.boxes.Drivers(), Records: &fleet.Records{Store: r.store, Audit: db.WorkerAudit(nil), Close: db.Close},
	})
	return r, err
}

func mustOpen(t *testing.T, dir string, change func(*config.Config)) *rig {
	t.Helper()
	r, err := open(t, testConfig(dir, change))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		r.boxes.Wait()
	})
	return r
}

// What an earlier process left is taken up: sandboxes that ended with it are failed
// with the reason, what has been over stays as it was, and the keys are those of
// before.
func TestGatewayAfterDeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := mustOpen(t, dir, nil)
	fleettest.Start(t, g.Fleet, "lost", "slow")
	done := fleettest.Start(t, g.Fleet, "done", "slow")
	if _, err := done.Release(t.Context(), worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, g.config); err == nil || !strings.Contains(err.Error(), "another process has the gateway") {
		t.Fatalf("two gateways of one directory: %v", err)
	}
	copied := t.TempDir()
	for _, name := range []string{storeName, storeName + "-wal", storeName + "-shm", "gateway/owner", "gateway/keys.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // a store that has written all has no second file
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(copied, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := mustOpen(t, copied, nil) // as after a kill: nothing was ended
	lost, err := next.Show(t.Context(), "lost")
	if err != nil || lost.State != worker.StateFailed || lost.Failure != worker.FailureExited || !strings.Contains(lost.Detail, "the process that had made it") {
		t.Errorf("%+v, %v", lost, err)
	}
	if info, err := next.Show(t.Context(), "done"); err != nil || info.State != worker.StateReleased {
		t.Errorf("%+v, %v", info, err)
	}
	token, err := g.Keys().Tokens().Issue("done", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := next.Keys().Authenticate(t.Context(), token); err != nil || id != "done" || !lost.Here {
		t.Errorf("the next process is another host, or has other keys: %q, %v", id, err)
	}
	if list, err := next.List(t.Context(), false); err != nil || len(list) != 0 {
		t.Errorf("live: %+v, %v", list, err)
	}
}

// A gateway that ends releases what ends with it.
func TestGatewayReleasesAtItsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := mustOpen(t, dir, nil)
	s := fleettest.Start(t, g.Fleet, "one", "slow")
	if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rec := s.Record(); rec.State != worker.StateReleased || rec.Release != worker.ReasonExplicit || !rec.Reported {
		t.Errorf("%+v", rec)
	}
	if _, err := g.Start(t.Context(), "late", "slow", ""); err == nil {
		t.Error("a gateway that ends makes sandboxes")
	}
	if _, err := os.Stat(g.Dir()); !os.IsNotExist(err) {
		t.Errorf("its directory stays: %v", err)
	}
}

// Whoever listens hears that a sandbox is other than it was, and nothing once he has
// stopped.
func TestListen(t *testing.T) {
	t.Parallel()
	f := mustOpen(t, t.TempDir(), nil)
	s := fleettest.Start(t, f.Fleet, "one", "slow")
	changed := make(chan struct{}, 1)
	stop := f.Listen(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if _, err := s.Release(t.Context(), worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody heard of the end")
	}
	stop()
	select {
	case <-changed: // of before
	default:
	}
	fleettest.Start(t, f.Fleet, "two", "slow")
	select {
	case <-changed:
		t.Error("heard after the stop")
	default:
	}
}
