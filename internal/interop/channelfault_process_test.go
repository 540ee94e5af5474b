package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// stop stops a process for a while.
func stop(t *testing.T, c *child, d time.Duration) {
	t.Helper()
	if err := syscall.Kill(c.p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d) // the fault itself
	if err := syscall.Kill(c.p.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// record asks a gateway for its session.
func record(gw *child) string {
	gw.t.Helper()
	gw.say("record")
	return gw.await("record ")
}

// A gateway that is stopped, for longer and for shorter than the waits on its
// workers: nothing that passed while it could not listen is held against them. The
// worker's command goes on and its one result comes.
//
// RC-3.
func TestStoppedGateway(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{faultTime(5500*time.Millisecond, 43*time.Second), faultTime(12*time.Second, 60*time.Second)} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, faultProfile())
			gw, w := f.both(t)
			once := filepath.Join(f.dir, "once")
			gw.say(fmt.Sprintf(`call {"command":"echo x >> %s; sleep %.1f; echo survived"}`, once, d.Seconds()/2))
			awaitFile(t, once)
			stop(t, gw, d)
			if got := gw.await(""); !strings.HasPrefix(got, `result "survived\n`) {
				t.Errorf("%s; %s; the worker: %s", got, record(gw), w.output())
			}
			gw.say(`call {"command":"echo after"}`)
			if got := gw.await(""); !strings.HasPrefix(got, `result "after\n`) {
				t.Errorf("%s; %s; the worker: %s", got, record(gw), w.output())
			}
			if text, _ := os.ReadFile(once); string(text) != "x\n" {
				t.Errorf("the command ran %d times", len(text)/2)
			}
			if got := record(gw); !strings.HasPrefix(got, "record running ") {
				t.Error(got)
			}
		})
	}
}

// faultTime is a wait of a short profile, or one of life.
func faultTime(short, long time.Duration) time.Duration {
	if faultsWanted() {
		return long
	}
	return short
}

// awaitFile waits until a command has begun, as its file says.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // no event tells
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not appear", path)
		}
	}
}

// A worker that is stopped: shorter than the wait for its heartbeat it is as if
// nothing had been; longer the session fails for that reason, the call has no
// result, and the worker that wakes ends with a code that says so.
func TestStoppedWorkerProcess(t *testing.T) {
	t.Parallel()
	t.Run("short", func(t *testing.T) {
		t.Parallel()
		profile := faultProfile()
		if !faultsWanted() {
			profile.Budgets.HeartbeatGrace = 14 * time.Second // a busy machine stops it for longer
		}
		f := newFaulty(t, profile)
		gw, w := f.both(t)
		gw.say(`call {"command":"sleep 1; echo survived"}`)
		stop(t, w, faultTime(time.Second, 20*time.Second))
		if got := gw.await(""); !strings.HasPrefix(got, `result "survived\n`) {
			t.Error(got)
		}
		if got := record(gw); !strings.HasPrefix(got, "record running 0 ") {
			t.Error(got)
		}
	})
	t.Run("long", func(t *testing.T) {
		t.Parallel()
		f := newFaulty(t, faultProfile())
		gw, w := f.both(t)
		gw.say(`call {"command":"sleep 600"}`)
		begun := time.Now()
		stop(t, w, faultTime(10*time.Second, 60*time.Second))
		if got := gw.await(""); !strings.HasPrefix(got, "lost ") || !strings.Contains(got, string(worker.FailureHeartbeat)) {
			t.Errorf("%s after %v", got, time.Since(begun))
		}
		if got := record(gw); !strings.HasPrefix(got, "record failed 0 ") || !strings.Contains(got, strconv.Quote(string(worker.FailureHeartbeat))) {
			t.Error(got)
		}
		// It reads 4004, or noticed by itself and is refused: both are an end.
		if code := w.code(); code != int(worker.ExitTempFail) && code != int(worker.ExitNoPerm) {
			t.Errorf("exit %d: %s", code, w.output())
		}
	})
}

// A gateway that is killed outright and comes back under its name: its session and
// its worker go on, with what the worker had begun; one that does not come back
// leaves a worker that gives up after its window, and says why.
//
// EX-2.
func TestKilledGateway(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, faultProfile())
	gw, w := f.both(t)
	done := filepath.Join(f.dir, "done")
	gw.say(fmt.Sprintf(`call {"command":"touch %s.begun; sleep 3; touch %s"}`, done, done))
	awaitFile(t, done+".begun")
	gw.p.Kill()
	gw = f.gateway(t)
	gw.say("running")
	if got := gw.await("running"); got != "running <nil>" {
		t.Fatalf("%s; the worker: %s", got, w.output())
	}
	gw.say(`call {"command":"echo back"}`) // waits for the shell, or finds it busy
	if got := gw.await(""); !strings.Contains(got, "back") && !strings.Contains(got, "another command runs") {
		t.Error(got)
	}
	awaitFile(t, done)
	// How often it dialled until the next one listened is the machine's.
	if got := record(gw); !regexp.MustCompile(`^record running [1-9]\d* `).MatchString(got) {
		t.Error(got)
	}
	gw.p.Kill()
	begun := time.Now()
	if code := w.code(); code != int(worker.ExitTempFail) || time.Since(begun) < f.c.Profile.Budgets.ReconnectWindow-time.Second {
		t.Errorf("exit %d after %v: %s", code, time.Since(begun), w.output())
	}
	if !strings.Contains(w.output(), "worker ended:") {
		t.Errorf("no reason: %s", w.output())
	}
}

// A gateway whose memory is used up: the kernel takes it, and what it had written
// down is enough for the next one, whose worker comes back.
func TestGatewayOutOfMemory(t *testing.T) {
	t.Parallel()
	group := memoryGroup(t, 64<<20)
	f := newFaulty(t, faultProfile())
	gw, w := f.both(t)
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(gw.p.Pid())), 0); err != nil {
		t.Fatal(err)
	}
	gw.say("eat")
	if code := gw.code(); code != -1 {
		t.Fatalf("exit %d: %s", code, gw.output())
	}
	if n := kernelKills(t, group); n == 0 {
		t.Error("it was not the kernel that killed it")
	}
	gw = f.gateway(t)
	gw.say("running")
	if got := gw.await("running"); got != "running <nil>" {
		t.Fatalf("%s; the worker: %s", got, w.output())
	}
	gw.say(`call {"command":"echo after"}`)
	if got := gw.await(""); !strings.HasPrefix(got, `result "after\n`) {
		t.Error(got)
	}
}

// memoryGroup is a control group whose memory is bounded; a machine that gives
// none skips the test.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		at, file := filepath.Join("/sys/fs/cgroup/memory", parts[2]), "memory.limit_in_bytes"
		switch parts[1] {
		case "memory":
		case "":
			at, file = filepath.Join("/sys/fs/cgroup", parts[2]), "memory.max"
		default:
			continue
		}
		group := filepath.Join(at, fmt.Sprintf("ossicle-test-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0); err == nil {
			return group
		}
	}
	lacks(t, "no control group that bounds memory can be made here")
	return ""
}

// lacks skips a test for what this machine does not let it do, or fails it where
// everything has to be tried.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// kernelKills counts processes that the kernel has killed for the group's limit.
func kernelKills(t *testing.T, group string) (n int) {
	t.Helper()
	for _, file := range []string{"memory.oom_control", "memory.events"} {
		text, err := os.ReadFile(filepath.Join(group, file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, _ = strconv.Atoi(strings.TrimSpace(count))
			}
		}
	}
	return n
}
