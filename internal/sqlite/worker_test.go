package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

func TestWorkers(t *testing.T) { // AMB-21, ONE-9
	t.Parallel()
	workertest.RunStore(t, func(t *testing.T) func() worker.Store {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.db")
		return func() worker.Store { return open(t, path, nil).Workers() }
	})
}

func TestWorkerAudit(t *testing.T) {
	t.Parallel()
	workertest.RunAudit(t, func(t *testing.T) func(*worker.AuditLimits) worker.AuditStore {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.db")
		return func(l *worker.AuditLimits) worker.AuditStore { return open(t, path, nil).WorkerAudit(l) }
	})
}
