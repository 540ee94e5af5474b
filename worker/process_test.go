package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
)

// childEnv makes the test binary a real worker process, which exits as the
// contract says.
const childEnv = "OSSICLE_TEST_WORKER"

// TestWorkerProcess is no test: it is the worker of the tests below.
func TestWorkerProcess(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("only as a child of other tests")
	}
	e, err := worker.ReadEnvironment(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(int(worker.ExitConfig))
	}
	exit := worker.New(newToolbox().server, e, nil).Run(context.WithoutCancel(t.Context()))
	fmt.Fprintln(os.Stderr, exit.Reason)
	os.Exit(int(exit.Code))
}

// realWorker is a worker in a process of its own.
type realWorker struct {
	cmd    *exec.Cmd
	stderr strings.Builder
}

// startReal runs a worker process; change may alter its environment.
func startReal(t *testing.T, control string, change map[string]string) *realWorker {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("t-s1\n"), 0o600))
	env := map[string]string{
		childEnv: "1", worker.EnvSessionID: "s1", worker.EnvControlURL: strings.Replace(control, "http", "ws", 1), worker.EnvTokenFile: file,
	}
	for k, v := range change {
		if env[k] = v; v == "-" {
			delete(env, k)
		}
	}
	w := &realWorker{cmd: exec.Command(os.Args[0], "-test.run", "^TestWorkerProcess$")}
	w.cmd.Stderr = &w.stderr
	w.cmd.WaitDelay = 30 * time.Second
	for k, v := range env {
		w.cmd.Env = append(w.cmd.Env, k+"="+v)
	}
	must(t, w.cmd.Start())
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); _ = w.cmd.Wait() })
	return w
}

// exit waits for the process and returns its exit code, -1 for a signal.
func (w *realWorker) exit(t *testing.T) int {
	t.Helper()
	limit := time.AfterFunc(time.Minute, func() { _ = w.cmd.Process.Kill() })
	defer limit.Stop()
	err := w.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return w.cmd.ProcessState.ExitCode()
}

// quick is the profile light with waits that a test can await, and that a busy
// machine does not miss.
func quick() worker.Profile {
	p := worker.Light()
	p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace = time.Second, 3*time.Second
	p.Budgets.ReconnectWindow = 3500 * time.Millisecond
	p.TerminationGrace, p.ActiveDeadline = 0, 0
	return p
}

func realHost(t *testing.T) (*worker.Host, string) {
	t.Helper()
	host := worker.NewHost(tokens{}, nil, nil)
	server := httptest.NewServer(host)
	t.Cleanup(func() {
		host.Close()
		server.Close()
	})
	return host, server.URL
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// EX-1, EX-2, EX-3, EX-4, ENV-3, VER-9: exit codes of real processes, each by
// its cause, with both versions on standard error where a version was refused.
func TestExitCodesOfProcesses(t *testing.T) {
	t.Parallel()
	answer := func(status int, header ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i+1 < len(header); i += 2 {
					w.Header().Set(header[i], header[i+1])
				}
				w.WriteHeader(status)
			}))
			t.Cleanup(server.Close)
			return server.URL
		}
	}
	for name, c := range map[string]struct {
		control func(*testing.T) string
		env     map[string]string
		want    worker.ExitCode
		says    []string
	}{
		"401":        {answer(401), nil, worker.ExitNoPerm, nil},
		"426":        {answer(426, "Sec-WebSocket-Protocol", "agentfy.worker.v2"), nil, worker.ExitConfig, []string{"agentfy.worker.v1", "agentfy.worker.v2"}},
		"503":        {answer(503), map[string]string{worker.EnvBudgets: `{"reconnectWindowSeconds":1}`}, worker.ExitTempFail, nil},
		"no host":    {func(*testing.T) string { return "http://127.0.0.1:1" }, map[string]string{worker.EnvBudgets: `{"reconnectWindowSeconds":1}`}, worker.ExitTempFail, nil},
		"two tokens": {answer(500), map[string]string{worker.EnvToken: "t-s1"}, worker.ExitConfig, []string{worker.EnvToken, worker.EnvTokenFile}},
		"no token":   {answer(500), map[string]string{worker.EnvTokenFile: "-"}, worker.ExitConfig, nil},
		"plain":      {func(*testing.T) string { return "http://gw.example" }, nil, worker.ExitConfig, []string{worker.EnvControlURL}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startReal(t, c.control(t), c.env)
			if got := w.exit(t); got != int(c.want) {
				t.Errorf("exit %d, want %d: %s", got, c.want, w.stderr.String())
			}
			for _, part := range c.says {
				if !strings.Contains(w.stderr.String(), part) {
					t.Errorf("standard error lacks %s: %s", part, w.stderr.String())
				}
			}
			if strings.Contains(w.stderr.String(), "t-s1") {
				t.Errorf("standard error shows the token: %s", w.stderr.String())
			}
		})
	}
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		host, url := realHost(t)
		s, err := host.Create(t.Context(), "s1", quick())
		must(t, err)
		w := startReal(t, url, nil)
		must(t, s.Running(within(t)))
		_, err = s.Release(within(t), worker.ReasonExplicit)
		must(t, err)
		if got := w.exit(t); got != int(worker.ExitReleased) {
			t.Errorf("exit %d: %s", got, w.stderr.String())
		}
	})
}

// A worker that is killed: the host learns it at once from the transport, waits
// for a return that cannot be, and fails the session with the reason; the call
// that ran has no invented result.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	host, url := realHost(t)
	s, err := host.Create(t.Context(), "s1", quick())
	must(t, err)
	w := startReal(t, url, nil)
	must(t, s.Running(within(t)))
	call := make(chan error, 1)
	go func() {
		_, err := s.CallTool(within(t), "exec", jsontext.Value(`{"sleep":600}`), nil)
		call <- err
	}()
	time.Sleep(200 * time.Millisecond) // the call is on its way; earlier or later, it has no result
	must(t, w.cmd.Process.Kill())
	begun := time.Now()
	if err := <-call; !errors.Is(err, worker.ErrOver) {
		t.Errorf("the call: %v", err)
	}
	if rec := s.Record(); rec.Failure != worker.FailureLost || time.Since(begun) < 11*time.Second {
		t.Errorf("%s %s after %v", rec.State, rec.Failure, time.Since(begun))
	}
}

// A worker that is stopped, as a machine that swaps: its socket stays open, no
// heartbeat comes, and the host ends it. When it wakes it finds the refusal and
// exits 75.
func TestStoppedWorker(t *testing.T) {
	t.Parallel()
	host, url := realHost(t)
	s, err := host.Create(t.Context(), "s1", quick())
	must(t, err)
	w := startReal(t, url, nil)
	must(t, s.Running(within(t)))
	must(t, w.cmd.Process.Signal(syscall.SIGSTOP))
	select {
	case <-s.Left():
	case <-within(t).Done():
		t.Fatal("the host still believes")
	}
	if rec := s.Record(); rec.Failure != worker.FailureHeartbeat {
		t.Errorf("%s %s", rec.State, rec.Failure)
	}
	must(t, w.cmd.Process.Signal(syscall.SIGCONT))
	// It may read 4004 first, or notice by itself and be refused: both are an end.
	if got := w.exit(t); got != int(worker.ExitTempFail) && got != int(worker.ExitNoPerm) {
		t.Errorf("exit %d: %s", got, w.stderr.String())
	}
}
