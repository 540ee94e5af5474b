package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// workerEnv makes the test binary a host process that ends the session "a"; it
// holds a DSN. workerStepEnv is at which of its steps it kills itself.
const (
	workerEnv     = "POSTGRES_TEST_WORKER"
	workerStepEnv = "POSTGRES_TEST_WORKER_STEP"
)

// TestWorkerHostProcess is no test: it is the other process of the one below.
func TestWorkerHostProcess(t *testing.T) {
	dsn := os.Getenv(workerEnv)
	if dsn == "" {
		t.Skip("only as a child of another test")
	}
	last, err := strconv.Atoi(os.Getenv(workerStepEnv))
	if err != nil {
		t.Fatal(err)
	}
	db := openAt(t, dsn, &Options{Connections: 2})
	rec, err := db.Workers().Load(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	db.stepped = func() {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	epoch := rec.Epoch
	rec.Epoch, rec.Owner, rec.State = epoch+1, "child", worker.StateReleased
	if err := db.Workers().Save(t.Context(), rec, epoch); err != nil {
		t.Fatal(err)
	}
	fmt.Println("took")
}

// AMB-21: a host is killed at each of its steps in turn, with a write on its way:
// the record is the old one or the new one, what was acknowledged is there, and the
// next host is not held up.
func TestWorkerHostKilledAtEachStep(t *testing.T) {
	t.Parallel()
	dsn := fresh(t)
	s := openAt(t, dsn, &Options{Connections: 2}).Workers()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	rec := worker.Record{ID: "a", Profile: worker.Light(), State: worker.StateRunning}
	if err := s.Create(ctx, rec); err != nil {
		t.Fatal(err)
	}
	for step := 1; ; step++ {
		before, err := s.Load(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestWorkerHostProcess$")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", workerEnv+"="+dsn, fmt.Sprint(workerStepEnv, "=", step))
		out, err := cmd.Output()
		var exit *exec.ExitError
		died := errors.As(err, &exit) && exit.ExitCode() == -1
		if err != nil && !died {
			t.Fatalf("host process: %v: %s", err, out)
		}
		// The next host comes at once: what the dead one had sent may still arrive, and
		// then one of both has lost.
		next := before
		next.Epoch, next.Owner = before.Epoch+1, "next"
		err = s.Save(ctx, next, before.Epoch)
		after, loadErr := s.Load(ctx, "a")
		if loadErr != nil {
			t.Fatal(loadErr)
		}
		acknowledged := strings.Contains(string(out), "took")
		switch {
		case err == nil && after.Owner == "next" && after.State == worker.StateRunning && !acknowledged:
		case errors.Is(err, worker.ErrConflict) && after.Owner == "child" && after.State == worker.StateReleased && after.Epoch == before.Epoch+1:
		default:
			t.Fatalf("killed at step %d: %v, %s of %s at %d after %d, acknowledged %t", step, err, after.State, after.Owner, after.Epoch, before.Epoch, acknowledged)
		}
		if !died {
			if step < 3 || !acknowledged {
				t.Errorf("it lived at step %d", step)
			}
			t.Logf("killed at %d steps", step-1)
			return
		}
		after.State = worker.StateRunning
		if err := s.Save(ctx, after, after.Epoch); err != nil {
			t.Fatal(err)
		}
	}
}
