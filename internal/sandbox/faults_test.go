//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/worker"
)

// victim is a sandbox with a command under way.
func victim(t *testing.T, s *worker.Session, command string) <-chan error {
	t.Helper()
	args, err := jsontext.AppendQuote(nil, command)
	must(t, err)
	call := make(chan error, 1)
	go func() {
		_, err := s.CallTool(context.WithoutCancel(t.Context()), "exec", jsontext.Value(fmt.Sprintf(`{"command":%s}`, args)), nil)
		call <- err
	}()
	return call
}

// ended waits for the end of a worker and of its session, as whoever wires a
// driver to a host tells the one of the other.
func (p *place) ended(t *testing.T, s *worker.Session, call <-chan error) (sandbox.Exit, worker.Record) {
	t.Helper()
	var e sandbox.Exit
	select {
	case e = <-p.exits:
	case <-within(t).Done():
		t.Fatal("the worker does not end")
	}
	s.Exited(e.String())
	// Whatever became of the command, nobody makes a result up.
	if err := <-call; !errors.Is(err, worker.ErrOver) && !errors.Is(err, worker.ErrUnknownOutcome) {
		t.Errorf("the call: %v", err)
	}
	<-s.Left()
	return e, s.Record()
}

// A worker that is killed in the middle of a command: the session fails at once
// with what is known of the process, the call has no result, and the command is
// gone.
func TestKilledWorker(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		p, nap := open(t, tier, sandbox.LocalOptions{}), napOf(t)
		s := p.start(t)
		call := victim(t, s, "setsid env -i "+nap+" & "+nap)
		for deadline := time.Now().Add(20 * time.Second); len(running(t, nap)) < 2 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // the kernel starts them when it likes
		}
		must(t, syscall.Kill(workerOf(t, p), syscall.SIGKILL))
		e, rec := p.ended(t, s, call)
		if e.Code == 0 || e.OutOfMemory || rec.Failure != worker.FailureExited || rec.Detail != e.String() {
			t.Errorf("%s: %s %s %q", e, rec.State, rec.Failure, rec.Detail)
		}
		if pids := marked(t, nap); len(pids) != 0 {
			t.Errorf("the command outlived its worker: %v", pids)
		}
	})
}

// A sandbox that is out of memory, whose worker is what the kernel takes: the
// record says why.
func TestWorkerOutOfMemory(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		p := open(t, tier, sandbox.LocalOptions{Memory: 128 << 20})
		if p.driver.Probe().Memory != "cgroup" {
			t.Skip("no control group bounds memory here")
		}
		s := p.start(t)
		pid := workerOf(t, p)                                                             // before there is a child that looks the same
		nap := fmt.Sprintf("sleep 5.%d%s", os.Getpid(), strings.Repeat("0", len(tier)-8)) // each its own
		call := victim(t, s, nap+"; exec tail /dev/zero")
		for deadline := time.Now().Add(20 * time.Second); len(running(t, nap)) == 0 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // the kernel starts it when it likes
		}
		// Of all that could go, the worker; what runs already does not inherit that.
		if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte("1000"), 0); err != nil {
			t.Skip(err)
		}
		e, rec := p.ended(t, s, call)
		if e.Code == 0 || !e.OutOfMemory || rec.Failure != worker.FailureExited || !strings.Contains(rec.Detail, "out of memory") {
			t.Errorf("%s: %s %s %q", e, rec.State, rec.Failure, rec.Detail)
		}
	})
}
