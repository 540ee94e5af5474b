package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/process"
)

// TestMain also plays the parent that is killed: see TestDiesWithParent.
func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_PARENT") != "" {
		p, err := process.Start(process.Options{Args: []string{"sh", "-c", "sleep 300 & echo $! $$; wait"}})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
		fmt.Print(line)
		select {}
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, script string, o process.Options) *process.Process {
	t.Helper()
	o.Args = []string{"sh", "-c", script}
	p, err := process.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// awaitGone waits until the process is no more than a zombie. The kernel tells
// nobody about a process that is not a child, so this one test looks again and
// again, with a deadline.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs: %s", pid, stat)
		}
	}
}

func readPIDs(t *testing.T, line string, n int) []int {
	t.Helper()
	fields := strings.Fields(line)
	if len(fields) != n {
		t.Fatalf("got %q, want %d process ids", line, n)
	}
	pids := make([]int, n)
	for i, f := range fields {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids[i] = pid
	}
	return pids
}

// M-17: a child that ends on the end of its input is never signalled.
func TestStopClosesStdinFirst(t *testing.T) {
	p := start(t, "cat >/dev/null; echo polite >&2; exit 7", process.Options{Grace: 10 * time.Second})
	p.Stop()
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("got %v, want exit code 7", err)
	}
	if got := p.Stderr(); got != "polite\n" {
		t.Fatalf("stderr %q", got)
	}
}

// M-17: SIGTERM follows, then SIGKILL.
func TestStopEscalates(t *testing.T) {
	// The time between SIGTERM and SIGKILL is also what a busy machine has to run the trap.
	term := start(t, "trap 'echo term >&2; exit 3' TERM; echo up; while :; do sleep 0.05; done", process.Options{Grace: 3 * time.Second})
	if _, err := bufio.NewReader(term.Stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	term.Stop()
	if got := term.Stderr(); !strings.Contains(got, "term") {
		t.Fatalf("stderr %q: SIGTERM was not tried", got)
	}
	deaf := start(t, "trap '' TERM; echo up; while :; do sleep 0.05; done", process.Options{Grace: 100 * time.Millisecond})
	if _, err := bufio.NewReader(deaf.Stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	deaf.Stop()
	deaf.Stop()
	var exit *exec.ExitError
	if err := deaf.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("got %v, want death by SIGKILL", err)
	}
}

// M-17: what the child left in its group ends with it.
func TestExitEndsTheGroup(t *testing.T) {
	p := start(t, "sleep 300 >/dev/null 2>&1 & echo $!", process.Options{})
	line, err := bufio.NewReader(p.Stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	awaitGone(t, readPIDs(t, line, 1)[0])
}

// M-17: children and their children die with us when we are killed.
func TestDiesWithParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), "PROCESS_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pids := readPIDs(t, line, 2)
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, pid := range pids {
		awaitGone(t, pid)
	}
}

func TestStderrIsBounded(t *testing.T) {
	p := start(t, "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done >&2", process.Options{StderrLimit: 1000})
	_ = p.Wait()
	got := p.Stderr()
	if len(got) > 1000 || !strings.HasPrefix(got, "line ") || !strings.HasSuffix(got, "line 1999\n") {
		t.Fatalf("%d bytes, %.20q … %q", len(got), got, got[max(0, len(got)-20):])
	}
}

func TestStartErrors(t *testing.T) {
	if _, err := process.Start(process.Options{}); !errors.Is(err, process.ErrNoCommand) {
		t.Fatalf("got %v", err)
	}
	if _, err := process.Start(process.Options{Args: []string{"no-such-program-anywhere"}}); !errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	// The program is named once.
	for program, want := range map[string]string{
		"no-such-program-anywhere": "start no-such-program-anywhere: executable file not found in $PATH",
		"/nosuch/program":          "start /nosuch/program: no such file or directory",
	} {
		_, err := process.Start(process.Options{Args: []string{program}})
		if _, found := process.Find(program); err == nil || err.Error() != want || found == nil || found.Error() != want {
			t.Errorf("%v, %v; want %s", err, found, want)
		}
	}
	dir := t.TempDir()
	if _, err := process.Start(process.Options{Args: []string{dir}}); err == nil {
		t.Fatal("a directory was started")
	}
}

// No descriptor, process or goroutine is left after many short lives.
func TestNothingIsLeft(t *testing.T) {
	count := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(files)
	}
	before := count()
	for range 50 {
		p := start(t, "sleep 300 & cat", process.Options{})
		p.Kill()
	}
	if after := count(); after > before+2 {
		t.Fatalf("descriptors: %d before, %d after", before, after)
	}
}
