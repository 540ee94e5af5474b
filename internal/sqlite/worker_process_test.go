package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// workerEnv makes the test binary a host process: "path:takings:step". It takes the
// session "a" over so often, and kills itself at a step if that is not 0.
const workerEnv = "SQLITE_TEST_WORKER"

// TestWorkerHostProcess is no test: it is the other process of those below.
func TestWorkerHostProcess(t *testing.T) {
	said := strings.Split(os.Getenv(workerEnv), ":")
	if len(said) != 3 {
		t.Skip("only as a child of other tests")
	}
	takings, err := strconv.Atoi(said[1])
	mustWork(t, err)
	last, err := strconv.Atoi(said[2])
	mustWork(t, err)
	db, err := Open(t.Context(), said[0], nil)
	mustWork(t, err)
	defer db.Close()
	steps := 0
	db.stepped = func() {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	for won := 0; won < takings; {
		rec, err := db.Workers().Load(t.Context(), "a")
		mustWork(t, err)
		epoch := rec.Epoch
		rec.Epoch, rec.Owner = epoch+1, fmt.Sprint(os.Getpid())
		rec.State = worker.StateRunning
		if last != 0 { // the longest way: one more that is over
			rec.State = worker.StateReleased
		}
		switch err := db.Workers().Save(t.Context(), rec, epoch); {
		case err == nil:
			won++
			fmt.Println("took", epoch+1)
		case !errors.Is(err, worker.ErrConflict):
			t.Fatal(err)
		}
	}
}

func hostProcess(t *testing.T, path string, takings, step int) (took []string, died bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestWorkerHostProcess$")
	cmd.Env = append(os.Environ(), fastExit, fmt.Sprintf("%s=%s:%d:%d", workerEnv, path, takings, step))
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		if epoch, ok := strings.CutPrefix(strings.TrimSpace(line), "took "); ok {
			took = append(took, epoch)
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == -1 {
		return took, true
	}
	if err != nil {
		t.Errorf("host process: %v: %s", err, out)
	}
	return took, false
}

// ONE-9, AMB-21: hosts in processes of their own take a session from each other on
// one file: each epoch has one winner.
func TestWorkerHostsInProcesses(t *testing.T) {
	t.Parallel()
	const hosts, each = 3, 40
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path, nil)
	mustWork(t, db.Workers().Create(t.Context(), worker.Record{ID: "a", Profile: worker.Light(), State: worker.StateRunning}))
	var racing sync.WaitGroup
	all := make([][]string, hosts)
	for i := range hosts {
		racing.Go(func() { all[i], _ = hostProcess(t, path, each, 0) })
	}
	racing.Wait()
	winner := map[string]bool{}
	for _, took := range all {
		for _, epoch := range took {
			if winner[epoch] {
				t.Errorf("two hosts won epoch %s", epoch)
			}
			winner[epoch] = true
		}
	}
	rec, err := db.Workers().Load(t.Context(), "a")
	if err != nil || rec.Epoch != hosts*each || len(winner) != hosts*each {
		t.Errorf("epoch %d with %d winners, %v", rec.Epoch, len(winner), err)
	}
}

// AMB-21: a host is killed at each instruction of a write in turn: the record is the
// old one or the new one, what was acknowledged is there, and the next host is not
// held up.
func TestWorkerHostKilledAtEachStep(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path, nil)
	s := db.Workers()
	mustWork(t, s.Create(t.Context(), worker.Record{ID: "a", Profile: worker.Light(), State: worker.StateRunning}))
	for step := 1; ; step++ {
		before, err := s.Load(t.Context(), "a")
		mustWork(t, err)
		took, died := hostProcess(t, path, 1, step)
		after, err := s.Load(t.Context(), "a")
		mustWork(t, err)
		old, fresh := after.Epoch == before.Epoch && after.State == before.State, after.Epoch == before.Epoch+1 && after.State == worker.StateReleased
		if !old && !fresh || len(took) > 0 && !fresh {
			t.Errorf("killed at step %d: epoch %d after %d, %s, acknowledged %v", step, after.Epoch, before.Epoch, after.State, took)
		}
		live, err := s.List(t.Context(), worker.Filter{Live: true})
		mustWork(t, err)
		if (len(live) == 0) != after.State.Final() {
			t.Errorf("killed at step %d: %d live ones, and the record is %s", step, len(live), after.State)
		}
		if !died {
			if step < 5 || !fresh {
				t.Errorf("it lived at step %d, and the record is %s", step, after.State)
			}
			t.Logf("killed at %d steps", step-1)
			return
		}
		after.State = worker.StateRunning
		mustWork(t, s.Save(t.Context(), after, after.Epoch))
	}
}

func mustWork(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
