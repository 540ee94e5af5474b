package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

func newShell(t *testing.T, o *Options) *Shell {
	t.Helper()
	s, err := NewShell(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func run(t *testing.T, s *Shell, text string) Outcome {
	t.Helper()
	o, err := s.Run(t.Context(), Command{Text: text}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What a command leaves is there for the next: the directory and the exported
// variables, also after one that failed.
func TestShellState(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	o := run(t, s, "mkdir -p a/b && cd a/b && export X='one\ntwo' && false")
	if o.Exit == nil || *o.Exit != 1 || !strings.HasSuffix(o.Cwd, "/a/b") {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, `printf '%s|%s' "$X" "$PWD"`); o.Stdout != "one\ntwo|"+s.workspace+"/a/b" {
		t.Errorf("%q", o.Stdout)
	}
	if o = run(t, s, "unset X; cd .."); o.Cwd != filepath.Join(s.workspace, "a") {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, "echo ${X-unset}; exit 7"); o.Stdout != "unset\n" || *o.Exit != 7 {
		t.Errorf("%+v", o)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o = run(t, s, "pwd"); o.Stdout != s.workspace+"\n" {
		t.Errorf("after a restart: %q", o.Stdout)
	}
}

// A command cannot say for the script where it left off: the descriptor is not
// its own, and what it prints is output.
func TestShellStateIsNotForged(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	o := run(t, s, `printf '/etc\0PATH=/evil\0' >&3; printf '/etc\0'; PWD=/x`)
	if o.Cwd != s.workspace {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, "mkdir d; cd d; rmdir ../d"); *o.Exit != 0 {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, "pwd"); o.Stdout != s.workspace+"\n" {
		t.Errorf("after the directory is gone: %q", o.Stdout)
	}
	if o := run(t, s, "echo $PATH"); strings.Contains(o.Stdout, "evil") {
		t.Errorf("%q", o.Stdout)
	}
}

// Nothing of the worker's environment reaches a command.
func TestShellEnvironment(t *testing.T) {
	t.Setenv("WORKER_TOKEN", "secret")
	s := newShell(t, &Options{Env: []string{"GIVEN=yes"}})
	o, err := s.Run(t.Context(), Command{Text: "env", Env: map[string]string{"ONCE": "1"}}, nil)
	if err != nil || strings.Contains(o.Stdout, "secret") || !strings.Contains(o.Stdout, "GIVEN=yes\n") || !strings.Contains(o.Stdout, "ONCE=1\n") {
		t.Errorf("%v %s", err, o.Stdout)
	}
	for _, bad := range []map[string]string{{"": "x"}, {"A=B": "x"}, {"A": "x\x00y"}} {
		if _, err := s.Run(t.Context(), Command{Text: "true", Env: bad}, nil); err == nil {
			t.Errorf("%v was set", bad)
		}
	}
}

// The result of a command is what happened: exit code, signal, both streams.
func TestShellOutcome(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	o := run(t, s, "echo out; echo err >&2; exit 3")
	if *o.Exit != 3 || o.Stdout != "out\n" || o.Stderr != "err\n" || len(o.Output) != 8 || o.Signal != "" {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, "kill -SEGV $$"); o.Exit != nil || o.Signal != syscall.SIGSEGV.String() {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, "no-such-command"); *o.Exit != 127 {
		t.Errorf("%+v", o)
	}
	if o = run(t, s, "if then"); *o.Exit == 0 {
		t.Errorf("a syntax error: %+v", o)
	}
	o, err := s.Run(t.Context(), Command{Text: "cat; read x || echo end", Stdin: "in\n"}, nil)
	if err != nil || o.Stdout != "in\nend\n" {
		t.Errorf("%v %+v", err, o)
	}
	if o = run(t, s, "cat"); o.Stdout != "" {
		t.Errorf("no input: %+v", o)
	}
	if _, err := s.Run(t.Context(), Command{Text: "true\x00"}, nil); err == nil {
		t.Error("a NUL in a command")
	}
	if _, err := s.Run(t.Context(), Command{Text: "true", Cwd: "missing"}, nil); err == nil {
		t.Error("a directory that is not there")
	}
}

// A helper that holds the output does not hold the result, and is not killed.
func TestShellDoesNotWaitForHelpers(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	begun := time.Now()
	o := run(t, s, "sleep 60 & echo $!")
	if took := time.Since(begun); took > 30*time.Second || !o.Held || o.Exit == nil || *o.Exit != 0 {
		t.Errorf("%v %+v", took, o)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(o.Stdout))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the helper is gone: %v", err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// A command that runs out of time is killed with its whole tree, one that left
// its group by setsid too, and the outcome says so.
func TestShellTimeout(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	file := filepath.Join(s.workspace, "pids")
	begun := time.Now()
	o, err := s.Run(t.Context(), Command{Text: "echo $$ > pids; setsid sleep 61 & echo $! >> pids; (sleep 62 & echo $! >> pids); sleep 63", Timeout: 3 * time.Second}, nil)
	if err != nil || !o.TimedOut || o.Exit != nil || time.Since(begun) > 30*time.Second {
		t.Fatalf("%v %+v", err, o)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(text))
	if len(pids) != 3 {
		t.Fatalf("pids %q", text)
	}
	for _, p := range pids {
		pid, _ := strconv.Atoi(p)
		if !gone(pid) {
			t.Errorf("process %d survived", pid)
		}
	}
	if o := run(t, s, "pwd"); *o.Exit != 0 {
		t.Errorf("the shell after it: %+v", o)
	}
}

// gone waits until a process has ended or is a zombie that somebody else must
// reap. Only the real clock will do: the kernel ends processes.
func gone(pid int) bool {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return true
		}
	}
	return false
}

// A caller that gives up ends its command.
func TestShellCanceled(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	o, err := s.Run(ctx, Command{Text: "sleep 60"}, nil)
	if err != nil || !o.Canceled || o.Exit != nil {
		t.Errorf("%v %+v", err, o)
	}
}

// Endless output costs a bounded memory; what is left out is counted.
func TestShellOutputIsBounded(t *testing.T) {
	t.Parallel()
	s := newShell(t, &Options{Output: 1000})
	o := run(t, s, "echo begin; head -c 50000000 /dev/zero | tr '\\0' 'é'; echo; echo end")
	if len(o.Output) > 1200 || !strings.HasPrefix(o.Output, "begin\n") || !strings.HasSuffix(o.Output, "end\n") || !utf8.ValidString(o.Output) {
		t.Errorf("%d bytes: %.50q … %q", len(o.Output), o.Output, o.Output[len(o.Output)-20:])
	}
	if o.Omitted < 40_000_000 || !strings.Contains(o.Output, fmt.Sprintf("%d bytes omitted", o.Omitted)) {
		t.Errorf("%d omitted", o.Omitted)
	}
	o, err := s.Run(t.Context(), Command{Text: "yes", Timeout: 2 * time.Second}, nil)
	if err != nil || !o.TimedOut || o.Omitted == 0 {
		t.Errorf("%v %+v", err, o.TimedOut)
	}
}

// One command in the foreground at a time; heartbeats go on beside it.
func TestShellBusy(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	started := make(chan struct{})
	done := make(chan Outcome, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		first := true
		o, _ := s.Run(ctx, Command{Text: "echo on; sleep 60"}, func(int64, string) {
			if first {
				first = false
				close(started)
			}
		})
		done <- o
	}()
	<-started
	if _, err := s.Run(t.Context(), Command{Text: "true"}, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("a second command: %v", err)
	}
	if _, err := s.Pulse(t.Context()); err != nil { // HB-4: a command that runs is no wedge
		t.Errorf("pulse: %v", err)
	}
	cancel()
	<-done
}

// HB-4: a shell that hangs fails its pulse, and so does one without its
// workspace.
func TestPulse(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	run(t, s, "head -c 12345 /dev/zero > f")
	if n, err := s.Pulse(t.Context()); err != nil || n != 12345 {
		t.Errorf("%d, %v", n, err)
	}
	if err := s.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Pulse(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wedged shell: %v", err)
	}
	s.unlock()
	if err := os.RemoveAll(s.workspace); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pulse(t.Context()); err == nil {
		t.Error("a workspace that is gone")
	}
}

// One stream of a job is read by its own bytes, also where they are no text, and
// is all there once the job is over.
func TestTailOfOneStream(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	j, err := s.Background(t.Context(), Command{Text: `printf 'a\377\376b'; echo oops >&2; printf 'last'`})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var offset int64
	for deadline := time.Now().Add(30 * time.Second); ; {
		p, err := s.tail(t.Context(), j.ID, "stdout", offset, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		text, offset = text+p.text, p.next
		if !p.job.Running && p.text == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no end; so far %q", text)
		}
	}
	if got := strings.ReplaceAll(text, "��", "�"); got != "a�blast" || offset != 8 {
		t.Errorf("%q, %d bytes", text, offset)
	}
	if p, err := s.tail(t.Context(), j.ID, "stdout", 0, 0); err != nil || p.next != 8 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := s.tail(t.Context(), j.ID, "stderr", 0, time.Minute); err != nil || p.text != "oops\n" || p.next != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := s.tail(t.Context(), j.ID, "stdin", 0, 0); err == nil {
		t.Error("a stream that is none")
	}
}

// Jobs outlive their call, can be looked at and killed, and their exit code is
// theirs.
func TestJobs(t *testing.T) {
	t.Parallel()
	s := newShell(t, &Options{Jobs: 2})
	quick, err := s.Background(t.Context(), Command{Text: "echo hello; exit 4"})
	if err != nil || quick.Running == (quick.Exit != nil) { // it may have ended
		t.Fatalf("%v %+v", err, quick)
	}
	part, from, j, err := s.Tail(t.Context(), quick.ID, 0, 30*time.Second)
	if err != nil || part != "hello\n" || from != 0 {
		t.Errorf("%q from %d, %v", part, from, err)
	}
	for deadline := time.Now().Add(30 * time.Second); j.Running && time.Now().Before(deadline); {
		if _, _, j, err = s.Tail(t.Context(), quick.ID, 6, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if j.Exit == nil || *j.Exit != 4 {
		t.Errorf("%+v", j)
	}
	long, err := s.Background(t.Context(), Command{Text: "while :; do sleep 60; done"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Background(t.Context(), Command{Text: "sleep 60"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Background(t.Context(), Command{Text: "true"}); !errors.Is(err, ErrManyJobs) || !strings.Contains(err.Error(), ": 2, as many as may; try again when one has ended") {
		t.Errorf("a third job: %v", err)
	}
	if _, err := s.Background(t.Context(), Command{Text: "true", Wait: time.Millisecond}); !errors.Is(err, ErrManyJobs) {
		t.Errorf("a third job that waits in vain: %v", err)
	}
	if o := run(t, s, "echo foreground"); *o.Exit != 0 {
		t.Errorf("%+v", o)
	}
	killed, err := s.Kill(t.Context(), long.ID)
	if err != nil || killed.Running || killed.Exit != nil || !killed.Canceled {
		t.Errorf("%v %+v", err, killed)
	}
	if _, err := s.Kill(t.Context(), "job-99"); !errors.Is(err, ErrNoJob) {
		t.Error(err)
	}
}

// Where as many jobs run as may, the next one waits for a place, and each is started
// once; what they wrote is there when their turn to be read comes.
func TestJobsWaitForAPlace(t *testing.T) {
	t.Parallel()
	s := newShell(t, &Options{Jobs: 2})
	const crowd = 8 // as many as are kept
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			j, err := s.Background(t.Context(), Command{Text: fmt.Sprintf("sleep 0.05; echo %d", i), Wait: time.Minute})
			if err != nil {
				t.Errorf("job %d: %v", i, err)
				return
			}
			var text string
			for deadline := time.Now().Add(time.Minute); text == "" && j.Running && time.Now().Before(deadline); {
				if text, _, j, err = s.Tail(t.Context(), j.ID, 0, time.Minute); err != nil {
					t.Errorf("job %d: %v", i, err)
					return
				}
			}
			if want := fmt.Sprintf("%d\n", i); text != want {
				t.Errorf("job %d wrote %q", i, text)
			}
		})
	}
	wg.Wait()
	for range 2 {
		if _, err := s.Background(t.Context(), Command{Text: "sleep 60", Wait: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("nobody wants it any more"))
	if _, err := s.Background(ctx, Command{Text: "true", Wait: time.Minute}); err == nil || !strings.Contains(err.Error(), "nobody wants it") {
		t.Errorf("a wait that nobody wants: %v", err)
	}
}

// REL-7: what runs is ended by Stop, in time, and nothing starts after it.
func TestStop(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	j, err := s.Background(t.Context(), Command{Text: "trap '' TERM INT; setsid sleep 60 & sleep 60"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if after, err := s.find(ctx, j.ID); err != nil || !after.over() {
		t.Errorf("%v", err)
	}
	if _, err := s.Run(t.Context(), Command{Text: "true"}, nil); !errors.Is(err, ErrStopped) {
		t.Errorf("a command after the end: %v", err)
	}
}

func TestSpoolAfter(t *testing.T) {
	t.Parallel()
	s := newSpool(4)
	for _, c := range []struct {
		write    string
		offset   int64
		want     string
		wantFrom int64
	}{
		{"abc", 0, "abc", 0}, {"", 2, "c", 2}, {"defg", 0, "abcdefg", 0}, {"", 5, "fg", 5}, {"hijklmnop", 4, "mnop", 12}, {"", 99, "", 16},
	} {
		_, _ = s.Write([]byte(c.write))
		if got, from := s.after(c.offset, 100); got != c.want || from != c.wantFrom {
			t.Errorf("after %q from %d: %q at %d, want %q at %d", c.write, c.offset, got, from, c.want, c.wantFrom)
		}
	}
	if got := cutText([]byte("aé€"), 4); got != "aé" {
		t.Errorf("cut to %q", got)
	}
}
