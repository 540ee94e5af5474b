//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func put(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// Where control groups are, in the words of kernels: hybrid, unified, none, and a
// part of a hierarchy that is mounted alone.
func TestFindsHierarchies(t *testing.T) {
	t.Parallel()
	own := ownGroups("9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/user.slice/x\nbroken\n")
	if own["memory"] != "/a/b" || own["cpuacct"] != "/c" || own[""] != "/user.slice/x" || own["pids"] != "" {
		t.Errorf("%v", own)
	}
	const hybrid = "25 21 0:22 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n33 22 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
	for mounts, want := range map[string]string{
		hybrid: "/sys/fs/cgroup/unified",
		"33 22 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n":   "/sys/fs/cgroup",
		"33 22 0:30 /part /mnt/part rw - cgroup2 cgroup2 rw\n":                      "",
		"25 21 0:22 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\nx\n- y\n": "",
	} {
		if got := unifiedMount(mounts); got != want {
			t.Errorf("%q: %q, want %q", mounts, got, want)
		}
	}
}

// The files of version 2 that a sandbox is bounded by, in a tree that stands for
// one: a machine has its controllers in one version only.
func TestUnifiedLimits(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	put(t, at, "memory.swap.max", "max")
	two := filepath.Join(at, "ossicle-x")
	h := hierarchy{unified: at, unifiedMemory: true, unifiedPids: true, kill: true}
	if !h.boundsMemory() || !h.boundsProcesses() {
		t.Error("nothing is bounded")
	}
	attr := &syscall.SysProcAttr{}
	g, err := h.enter("x", 1<<20, 7, attr)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "7"} {
		if got := text(t, two, file); got != want {
			t.Errorf("%s is %q", file, got)
		}
	}
	if !attr.UseCgroupFD || attr.CgroupFD <= 0 {
		t.Errorf("%+v", attr)
	}
	g.leave()
	put(t, two, "memory.events", "low 0\noom 3\noom_kill 0\n")
	if g.outOfMemory() {
		t.Error("out of memory without a kill")
	}
	put(t, two, "memory.events", "oom 3\noom_kill 2\n")
	if !g.outOfMemory() {
		t.Error("a kill was not seen")
	}
	if g.kill(); text(t, two, "cgroup.kill") != "1" {
		t.Error("not killed at once")
	}
	// A limit that cannot be written is no limit: nothing is started.
	h.unified = filepath.Join(at, "not there")
	if g, err := h.enter("x", 1, 1, &syscall.SysProcAttr{}); err == nil || len(g.paths()) != 0 {
		t.Errorf("%v %v", g, err)
	}
}

// Controllers are given to our groups only where that takes nobody's group apart.
func TestEnable(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	put(t, at, "cgroup.controllers", "cpu memory pids\n")
	put(t, at, "cgroup.subtree_control", "memory\n")
	enable(at, "memory", "pids", "hugetlb")
	if got := text(t, at, "cgroup.subtree_control"); got != "+pids" {
		t.Errorf("wrote %q", got)
	}
	put(t, at, "cgroup.subtree_control", "memory pids\n")
	if enable(at, "memory", "pids"); text(t, at, "cgroup.subtree_control") != "memory pids\n" {
		t.Error("wrote for nothing")
	}
}

// On the real thing: a process starts in its group, all of it dies at once,
// whatever it did, and the group is gone. The rule that a group has processes or
// controllers is the kernel's, so we move out of the way only when we are alone.
func TestUnifiedForReal(t *testing.T) {
	t.Parallel()
	h := findGroups()
	if h.unified == "" || !h.kill {
		t.Skip("no control group of version 2 can be made here")
	}
	name := fmt.Sprintf("test-%d", os.Getpid())
	h.memory, h.pids = "", "" // this thread stays where it is
	attr := &syscall.SysProcAttr{}
	g, err := h.enter(name, 1<<30, 100, attr)
	if err != nil {
		t.Fatal(err)
	}
	defer g.remove()
	cmd := exec.Command("bash", "-c", "setsid env -i sleep 600 & (setsid env -i sleep 600 &); echo up; sleep 600")
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	g.leave()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(words(filepath.Join(g.two, "cgroup.procs"))) < 3 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // the kernel forks when it likes
	}
	if n := len(words(filepath.Join(g.two, "cgroup.procs"))); n != 3 {
		t.Errorf("%d processes in the group", n)
	}
	g.kill()
	_ = cmd.Wait()
	g.remove()
	if has(g.two, "cgroup.procs") {
		t.Errorf("the group is there: %v", words(filepath.Join(g.two, "cgroup.procs")))
	}
}

// A group that has other processes than ours keeps them: a service manager, not
// we, decides where they are.
func TestEnableLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	h := findGroups()
	if h.unified == "" {
		t.Skip("no control group of version 2 can be made here")
	}
	there := words(filepath.Join(h.unified, "cgroup.controllers"))
	if len(there) == 0 {
		t.Skip("version 2 has no controllers here")
	}
	on := text(t, h.unified, "cgroup.subtree_control")
	enable(h.unified, there[0]) // as far as our own parent lets us
	if !strings.Contains(on, there[0]) {
		defer func() { _ = os.WriteFile(filepath.Join(h.unified, "cgroup.subtree_control"), []byte("-"+there[0]), 0) }()
	}
	at := filepath.Join(h.unified, fmt.Sprintf("ossicle-others-%d", os.Getpid()))
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		g := groups{two: at}
		g.remove()
	}()
	enable(at, there[0])
	if got := words(filepath.Join(at, "cgroup.procs")); len(got) != 1 || got[0] != strconv.Itoa(cmd.Process.Pid) || has(at, leaf) {
		t.Errorf("%v", got)
	}
	if got := text(t, at, "cgroup.subtree_control"); strings.TrimSpace(got) != "" {
		t.Errorf("enabled %q", got)
	}
}

// Groups of drivers that died are removed; those of others, and what is none of
// ours, are not.
func TestSweep(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	keep := []string{fmt.Sprintf("ossicle-%d-a", os.Getpid()), "ossicle-test-1", "other-999999999-a", "ossicle-999999998-full"}
	for _, name := range append(keep, "ossicle-999999999-a") {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(at, keep[3]), "cgroup.procs", "1\n")
	sweep(at)
	sweep("")
	left, err := os.ReadDir(at)
	if err != nil || len(left) != len(keep) || has(at, "ossicle-999999999-a") {
		t.Errorf("%v %v", left, err)
	}
}
