package monty_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/monty"
	"github.com/ossicle/ossicle/internal/python"
)

// value runs a program that must not fail and returns its value.
func value(t *testing.T, s python.Scope, source string) string {
	t.Helper()
	r, err := s.Run(t.Context(), source, nil, python.Limits{Time: time.Minute})
	if err != nil {
		t.Fatalf("run %q: %v", source, err)
	}
	return string(r.Value)
}

func want(t *testing.T, s python.Scope, source, expected string) {
	t.Helper()
	if got := value(t, s, source); got != expected {
		t.Errorf("%q = %s, want %s", source, got, expected)
	}
}

func limitOf(err error) string {
	if le, ok := errors.AsType[*python.LimitError](err); ok {
		return le.Limit
	}
	return fmt.Sprint(err)
}

// A thousand scopes need no more children than there are workers, and none at
// rest.
func TestManyScopesFewProcesses(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 3})
	scopes := make([]python.Scope, 1000)
	for i := range scopes {
		scopes[i] = newScope(t, e, python.ScopeOptions{})
	}
	if n := e.Processes(); n != 0 {
		t.Errorf("%d processes before the first run", n)
	}
	for round := range 2 {
		next := make(chan int)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for i := range next {
					r, err := scopes[i].Run(t.Context(), filter, event(), python.Limits{Time: time.Minute})
					if err != nil || !strings.HasPrefix(r.Text, fmt.Sprintf("%d: prod/", round+1)) {
						t.Errorf("scope %d: %q, %v", i, r.Text, err)
					}
					if n := e.Processes(); n > 3 {
						t.Errorf("%d processes", n)
					}
				}
			})
		}
		for i := range scopes {
			next <- i
		}
		close(next)
		wg.Wait()
	}
	total := 0
	for _, s := range scopes {
		total += monty.StateSize(s)
	}
	if per := total / len(scopes); per > 16<<10 {
		t.Errorf("%d bytes a scope at rest", per)
	}
}

// A filter that runs for weeks stays small: its source takes the place of its
// last copy, and what it defines again does not pile up.
func TestScopeStaysSmall(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 2})
	for name, c := range map[string]struct {
		source string
		runs   int
		limit  int
		seen   string
	}{
		"plain":   {"n += 1\nlast = event['object']['metadata']['name']\nseen.add(last)\nf'{n} {last}' if n < 0 else None", 1500, 16 << 10, "['web-7d4b9c6f5-x2x7q', 'x', 'y']"},
		"defines": {"import re\ndef short(s):\n    return s[:3]\nclass P:\n    def __init__(self, x): self.x = x\n    def double(self): return self.x * 2\nkey = lambda c: c['name']\nn += P(1).double() // 2\nlast = sorted([short(key(c)) for c in event['object']['status']['containerStatuses']])\nbig += 10**30\nf'{n}'", 1500, 40 << 10, "['x', 'y']"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, e, python.ScopeOptions{})
			value(t, s, "n = 0\nbig = 10**40\nseen = {'x', 'y'}\nconf = {(1, 2.5): [None, True, b'\\x00', -0.0], 'z': 1, 'a': {}}\nlen = 5")
			for range c.runs {
				if _, err := s.Run(t.Context(), c.source, event(), python.Limits{Time: time.Minute}); err != nil {
					t.Fatal(err)
				}
				if size := monty.StateSize(s); size > c.limit {
					t.Fatalf("%d bytes", size)
				}
			}
			want(t, s, "n", fmt.Sprint(c.runs))
			want(t, s, "[repr(conf), repr(sorted(seen)), len]", `["{(1, 2.5): [None, True, b'\\x00', -0.0], 'z': 1, 'a': {}}","`+c.seen+`",5]`)
		})
	}
}

// A large input is not part of what a scope keeps.
func TestLargeInputGoes(t *testing.T) {
	t.Parallel()
	s := newScope(t, newEngine(t, nil), python.ScopeOptions{})
	in := map[string]json.RawMessage{"v": json.RawMessage(`"abc` + strings.Repeat("x", 1<<20) + `"`), "w": json.RawMessage("[1]")}
	for range 2 {
		if _, err := s.Run(t.Context(), "head = v[:3]\n[head, w]", in, python.Limits{Time: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if size := monty.StateSize(s); size > 4<<10 {
			t.Errorf("%d bytes", size)
		}
	}
	want(t, s, "head", `"abc"`)
}

// An error in a function of an earlier program quotes that program, whatever ran
// since: no two programs go under one number.
func TestErrorsQuoteTheirProgram(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 1})
	s, other := newScope(t, e, python.ScopeOptions{}), newScope(t, e, python.ScopeOptions{})
	value(t, s, "fs = []")
	const define = "def f(x):\n    return 1 / x\nfs.append(f)"
	for i := range 8 {
		value(t, s, define)
		if i == 5 {
			value(t, other, "0") // s has to be loaded again
		}
	}
	for i := range 3 {
		value(t, s, fmt.Sprintf("%d\n%d", i, i))
	}
	value(t, other, "0")
	value(t, s, "'a'\n'b'")
	for i := range 8 {
		_, err := s.Run(t.Context(), fmt.Sprintf("fs[%d](0)", i), nil, python.Limits{Time: time.Minute})
		pe, ok := errors.AsType[*python.Error](err)
		if !ok || pe.SourceLine != "    return 1 / x" || pe.Line != 2 || pe.Func != "f" {
			t.Errorf("function %d: %+v", i, pe)
		}
	}
}

// What a rebuild would change is not rebuilt: shared lists stay shared, and
// instances, closures and functions of earlier programs stay.
func TestRebuildChangesNothing(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 2})
	for name, c := range map[string]struct{ setup, check, value string }{
		"shared":        {"a = b = [1]", "b.append(2)\na", "[1,2]"},
		"shared within": {"a = [1]\nb = {'k': [a]}", "b['k'][0].append(2)\na", "[1,2]"},
		"cycle":         {"a = [1]\na.append(a)", "a[1] is a", "true"},
		"instance":      {"class P:\n    def __init__(self): self.x = 1\np = P()", "p.x", "1"},
		"function":      {"def f(x): return x + 1", "f(1)", "2"},
		"closure":       {"def make():\n    n = [0]\n    def step():\n        n[0] += 1\n        return n[0]\n    return step\nstep = make()\nstep()", "step()", "2"},
		"defaultdict":   {"from collections import defaultdict\nd = defaultdict(list)", "d['x'].append(1)\nd['x']", "[1]"},
		"module":        {"import json as j", "j.dumps([1])", `"[1]"`},
		"date":          {"import datetime\nd = datetime.date(2026, 1, 2)", "str(d)", `"2026-01-02"`},
		"built-in":      {"show = repr\nkind = int", "[show(1), kind('2')]", `["1",2]`},
		"conditional":   {"n = 0", "n", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, e, python.ScopeOptions{})
			value(t, s, c.setup)
			grow := "x1 = [(lambda q: q)(i) for i in range(3)]\nclass Big:\n    def a(self): return 1\n    def b(self): return 2\n"
			if name == "conditional" {
				grow += "if n == 0:\n    def once(): return 1\nn += once()\n"
			}
			for range 400 {
				value(t, s, grow)
			}
			if size := monty.StateSize(s); size < 32<<10 {
				t.Errorf("%d bytes: it was rebuilt, or the test does not make it grow", size)
			}
			want(t, s, c.check, c.value)
		})
	}
}

// After a storm of kills there is nothing left: no process, no descriptor, and
// (TestMain) no goroutine.
func TestStormOfKills(t *testing.T) {
	fds, children := countFDs(t), countChildren(t)
	path := binary(t)
	e, err := monty.New(path, &monty.Options{Workers: 4})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var killed atomic.Int32
	for i := range 8 {
		s, err := e.NewScope(python.ScopeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			value(t, s, "n = 0")
			for range 25 {
				_, err := s.Run(t.Context(), "n += 1\nwhile True: pass", nil, python.Limits{Time: time.Duration(1+i) * time.Millisecond})
				if limitOf(err) != python.LimitTime {
					t.Errorf("endless loop: %v", err)
				}
				killed.Add(1)
			}
			want(t, s, "n", "0")
		})
	}
	wg.Wait()
	if n := e.Processes(); n > 4 {
		t.Errorf("%d processes", n)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if killed.Load() != 200 || e.Processes() != 0 {
		t.Errorf("%d killed, %d left", killed.Load(), e.Processes())
	}
	if n := countChildren(t); n != children {
		t.Errorf("%d children before, %d after", children, n)
	}
	if n := countFDs(t); n > fds {
		t.Errorf("%d descriptors before, %d after", fds, n)
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(fds)
}

func countChildren(t *testing.T) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("no /proc")
	}
	n := 0
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // gone by now
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(os.Getpid()) {
			n++
		}
	}
	return n
}

// A child that dies while it waits is replaced without anybody noticing; one
// that dies in a run costs that run only.
func TestChildDies(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 1})
	var pid int
	var late bool
	s := newScope(t, e, python.ScopeOptions{Functions: []string{"die"}, Call: func(context.Context, python.Call) (json.RawMessage, error) {
		err := syscall.Kill(pid, syscall.SIGKILL)
		// Its pipes are closed by then, or not yet: it was killed either way.
		for reaped := false; late && !reaped && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			reaped = syscall.Kill(pid, 0) != nil
		}
		return nil, err
	}})
	value(t, s, "n = 1")
	other := newScope(t, e, python.ScopeOptions{})
	value(t, other, "n = 2")
	for range 10 {
		for _, pid := range monty.IdlePIDs(e) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		want(t, s, "n", "1") // in a child that has nothing of it
		for _, pid := range monty.IdlePIDs(e) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		want(t, s, "n", "1") // in a child that still had it
		want(t, other, "n", "2")
	}
	for _, late = range []bool{false, true} {
		pid = monty.IdlePIDs(e)[0]
		_, err := s.Run(t.Context(), "n = 2\ndie()\nwhile True: pass", nil, python.Limits{Time: time.Minute})
		if limitOf(err) != python.LimitCrash || !strings.Contains(err.Error(), "killed") {
			t.Errorf("run whose child was killed: %v", err)
		}
		want(t, s, "n", "1")
	}
}

// The child has no environment, no directory of ours, and bounded resources.
func TestChildIsConfined(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	e := newEngine(t, &monty.Options{Workers: 1})
	value(t, newScope(t, e, python.ScopeOptions{}), "1")
	dir := fmt.Sprintf("/proc/%d/", monty.IdlePIDs(e)[0])
	if env, err := os.ReadFile(dir + "environ"); err != nil || len(env) != 0 {
		t.Errorf("environment %q, %v", env, err)
	}
	if cwd, err := os.Readlink(dir + "cwd"); err != nil || cwd != "/" {
		t.Errorf("directory %q, %v", cwd, err)
	}
	limits, err := os.ReadFile(dir + "limits")
	if err != nil {
		t.Fatal(err)
	}
	for name, bound := range map[string]string{"Max core file size": "0 0", "Max file size": "0 0", "Max open files": "16 16", "Max address space": "469762048 unlimited"} {
		_, line, _ := strings.Cut(string(limits), name)
		line, _, _ = strings.Cut(line, "\n")
		if got := strings.Join(strings.Fields(line)[:2], " "); got != bound {
			t.Errorf("%s: %s, want %s", name, got, bound)
		}
	}
}

// Time in the queue for a child is not the program's time, and a queue can be
// left.
func TestQueue(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 1})
	hog := newScope(t, e, python.ScopeOptions{})
	value(t, hog, "1")
	hogging, release := context.WithCancel(t.Context())
	defer release()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := hog.Run(hogging, "while True: pass", nil, python.Limits{Time: time.Minute}); !errors.Is(err, context.Canceled) {
			t.Errorf("hog: %v", err)
		}
	})
	for len(monty.IdlePIDs(e)) > 0 {
		runtime.Gosched() // until the hog has the child
	}
	patient := newScope(t, e, python.ScopeOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := patient.Run(ctx, "1", nil, python.Limits{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("impatient run: %v", err)
	}
	const limit = 4 * time.Second // in which a busy machine runs it
	time.AfterFunc(limit+limit/4, release)
	if _, err := patient.Run(t.Context(), "1", nil, python.Limits{Time: limit}); err != nil {
		t.Errorf("patient run: %v", err)
	}
	wg.Wait()
}

// Long runs leave a child for short ones (W-085).
func TestLongRunsLeaveRoom(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 2})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		s := newScope(t, e, python.ScopeOptions{})
		wg.Go(func() {
			if _, err := s.Run(ctx, "while True: pass", nil, python.Limits{Time: time.Minute}); !errors.Is(err, context.Canceled) {
				t.Errorf("long run: %v", err)
			}
		})
	}
	for e.Processes() == 0 {
		runtime.Gosched()
	}
	s := newScope(t, e, python.ScopeOptions{})
	for range 20 {
		if _, err := s.Run(t.Context(), "1", nil, python.Limits{Time: 4 * time.Second}); err != nil {
			t.Errorf("short run: %v", err)
		}
	}
	cancel()
	wg.Wait()
}

// A host function that ignores its context cannot hold a run for ever.
func TestDeafHostFunction(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 1, HostGrace: 50 * time.Millisecond})
	release := make(chan struct{})
	var made, returned atomic.Int32
	s := newScope(t, e, python.ScopeOptions{Functions: []string{"deaf"}, Call: func(context.Context, python.Call) (json.RawMessage, error) {
		defer returned.Add(1)
		made.Add(1)
		<-release
		return nil, nil
	}})
	// On a busy machine the time may be over before the program has come to its call.
	for limit := 50 * time.Millisecond; made.Load() == 0; limit *= 2 {
		if limit > time.Minute {
			t.Fatalf("no call in %v", limit/2)
		}
		if _, err := s.Run(t.Context(), "deaf()", nil, python.Limits{Time: limit}); limitOf(err) != python.LimitTime {
			t.Errorf("run: %v", err)
		}
	}
	want(t, s, "1", "1")
	if made.Load() != 1 || returned.Load() != 0 {
		t.Errorf("%d calls made, %d returned before they were let go", made.Load(), returned.Load())
	}
	close(release) // TestMain sees whether the call has gone
}

// Scopes with much data find their child again, and lose nothing when they do
// not.
func TestLargeScopes(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &monty.Options{Workers: 2})
	var scopes []python.Scope
	for range 3 {
		s := newScope(t, e, python.ScopeOptions{})
		value(t, s, "d = {str(i): [i] for i in range(3000)}\nn = 0")
		scopes = append(scopes, s)
	}
	for i := range 60 {
		s := scopes[(i*i)%3]
		value(t, s, "n += 1\nd[str(n)].append(n)")
	}
	var total int
	for _, s := range scopes {
		var n int
		if err := json.Unmarshal([]byte(value(t, s, "n if all(len(d[str(i)]) == (2 if 0 < i <= n else 1) for i in range(3000)) else -1000")), &n); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 60 {
		t.Errorf("%d of 60 runs are in the scopes", total)
	}
}
