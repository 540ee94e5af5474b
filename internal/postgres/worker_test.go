package postgres

import (
	"testing"
	"time"

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

// Entries are numbered in the order of their commits: one that was given its number
// and is not committed yet holds up the next, so whoever follows by number misses
// none.
func TestWorkerAuditQueues(t *testing.T) {
	t.Parallel()
	dsn := fresh(t)
	s := openAt(t, dsn, &Options{Connections: 2}).WorkerAudit(nil)
	r := newRig(t, dsn, nil)
	tx, err := r.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err := tx.Exec(t.Context(), `SELECT ossicle.worker_audit_append(ARRAY['a'], ARRAY[$1::bigint], ARRAY['{"Event":"first"}'], 10, 10, 1000000)`, now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	appended := make(chan error, 1)
	go func() {
		appended <- s.Append(t.Context(), []worker.AuditEntry{{Session: "a", Event: "second", Time: now}})
	}()
	for waiting := 0; waiting == 0; {
		select {
		case err := <-appended:
			t.Fatalf("it did not queue: %v", err)
		default:
		}
		if err := r.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ossicle.worker_audit'::regclass`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(t.Context(), "a", 0, 10)
	if err != nil || len(got) != 2 || got[0].Event != "first" || got[1].Event != "second" {
		t.Errorf("%+v, %v", got, err)
	}
}
