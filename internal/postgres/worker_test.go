package postgres

import (
	"testing"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

func TestWorkers(t *testing.T) { // AMB-21, ONE-9
	t.Parallel()
	workertest.RunStore(t, func(t *testing.T) func() worker.Store {
		t.Helper()
		dsn := fresh(t)
		return func() worker.Store { return openAt(t, dsn, &Options{Connections: 2}).Workers() }
	})
}

func TestWorkerAudit(t *testing.T) {
	t.Parallel()
	workertest.RunAudit(t, func(t *testing.T) func(*worker.AuditLimits) worker.AuditStore {
		t.Helper()
		dsn := fresh(t)
		return func(l *worker.AuditLimits) worker.AuditStore {
			return openAt(t, dsn, &Options{Connections: 2}).WorkerAudit(l)
		}
	})
}
