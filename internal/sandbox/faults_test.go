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
func victim(t *testing.T, p *place, command string) (*worker.Session, <-chan error) {
	t.Helper()
	s := p.start(t)
	args, err := jsontext.AppendQuote(nil, command)
	must(t, err)
	call := make(chan error, 1)
	go func() {
		_, err := s.CallTool(context.WithoutCancel(t.Context()), "exec", jsontext.Value(fmt.Sprintf(`{"command":%s}`, args)), nil)
		call <- err
	}()
	return s, call
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
		s, call := victim(t, p, "setsid env -i "+nap+" & "+nap)
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
		s, call := victim(t, p, "sleep 1; exec tail /dev/zero")
		// Of all that could go, the worker.
		adj := filepath.Join("/proc", strconv.Itoa(workerOf(t, p)), "oom_score_adj")
		if err := os.WriteFile(adj, []byte("1000"), 0); err != nil {
			t.Skip(err)
		}
		e, rec := p.ended(t, s, call)
		if e.Code == 0 || !e.OutOfMemory || rec.Failure != worker.FailureExited || !strings.Contains(rec.Detail, "out of memory") {
			t.Errorf("%s: %s %s %q", e, rec.State, rec.Failure, rec.Detail)
		}
	})
}
