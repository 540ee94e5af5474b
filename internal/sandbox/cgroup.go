//go:build linux

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Control groups, of version 1 and of version 2, where they are writable: found
// by trying, never assumed. Each controller belongs to one of the two.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is where groups can be made; empty where they cannot.
type hierarchy struct {
	memory, pids string // of version 1
	unified      string // of version 2
	// What groups in unified can bound, and whether they can be killed at once.
	unifiedMemory, unifiedPids, kill bool
}

func (h hierarchy) boundsMemory() bool    { return h.memory != "" || h.unifiedMemory }
func (h hierarchy) boundsProcesses() bool { return h.pids != "" || h.unifiedPids }

// findGroups tries to make a group of each controller.
func findGroups() hierarchy {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return hierarchy{}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}
	}
	own := ownGroups(string(cgroups))
	var h hierarchy
	if mount := unifiedMount(string(mounts)); mount != "" && !strings.HasPrefix(own[""], "/..") {
		h.findUnified(filepath.Join(mount, own[""]))
	}
	if !h.unifiedMemory {
		h.memory = usableOne(own, "memory", "memory.limit_in_bytes")
	}
	if !h.unifiedPids {
		h.pids = usableOne(own, "pids", "pids.max")
	}
	for _, at := range []string{h.memory, h.pids, h.unified} {
		sweep(at)
	}
	return h
}

// sweep removes the empty groups of drivers that died without doing so.
func sweep(at string) {
	if at == "" {
		return
	}
	left, err := filepath.Glob(filepath.Join(at, "ossicle-*-*"))
	if err != nil {
		return
	}
	for _, path := range left {
		parts := strings.Split(filepath.Base(path), "-")
		if _, err := strconv.Atoi(parts[1]); err == nil && !has("/proc", parts[1]) {
			_ = os.Remove(path) // which fails if anybody is in it
		}
	}
}

// ownGroups are the groups that we are in, by controller; that of version 2 has
// an empty name.
func ownGroups(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for c := range strings.SplitSeq(parts[1], ",") {
				own[c] = parts[2]
			}
		}
	}
	return own
}

// unifiedMount is where version 2 is mounted as a whole; empty if it is not.
func unifiedMount(mountinfo string) string {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4]
		}
	}
	return ""
}

// trial makes a group below at, looks at it and removes it.
func trial(at string, look func(group string)) {
	group := filepath.Join(at, fmt.Sprintf("ossicle-probe-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return
	}
	look(group)
	_ = os.Remove(group)
}

func has(group, file string) bool {
	_, err := os.Stat(filepath.Join(group, file))
	return err == nil
}

func usableOne(own map[string]string, controller, file string) (at string) {
	path, ok := own[controller]
	if !ok {
		return ""
	}
	trial(filepath.Join(cgroupRoot, controller, path), func(group string) {
		if has(group, file) {
			at = filepath.Dir(group)
		}
	})
	return at
}

// findUnified has groups below at bound what they can.
func (h *hierarchy) findUnified(at string) {
	enable(at, "memory", "pids")
	trial(at, func(group string) {
		if has(group, "cgroup.procs") {
			h.unified = at
			h.unifiedMemory, h.unifiedPids, h.kill = has(group, "memory.max"), has(group, "pids.max"), has(group, "cgroup.kill")
		}
	})
}

// leaf is where we go so that our own group may have groups with controllers: a
// group has either those or processes.
const leaf = "ossicle"

// enable gives controllers to the groups below at, as far as it can. If nothing
// but we is in the group, which is what a service manager that delegates one
// makes, we move into a leaf of it.
func enable(at string, controllers ...string) {
	there := words(filepath.Join(at, "cgroup.controllers"))
	on := words(filepath.Join(at, "cgroup.subtree_control"))
	var want []string
	for _, c := range controllers {
		if slices.Contains(there, c) && !slices.Contains(on, c) {
			want = append(want, "+"+c)
		}
	}
	if len(want) == 0 {
		return
	}
	control := filepath.Join(at, "cgroup.subtree_control")
	write := func() error { return os.WriteFile(control, []byte(strings.Join(want, " ")), 0o600) }
	if err := write(); !errors.Is(err, unix.EBUSY) {
		return
	}
	self := strconv.Itoa(os.Getpid())
	if in := words(filepath.Join(at, "cgroup.procs")); len(in) != 1 || in[0] != self {
		return
	}
	to := filepath.Join(at, leaf)
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return
	}
	if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(self), 0o600); err == nil {
		_ = write()
	}
}

func words(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// groups are those of one sandbox.
type groups struct {
	h    hierarchy
	one  []string // of version 1
	back []string // of this thread before
	two  string   // of version 2
	dir  *os.File // two, open: the kernel starts the process in it
}

// enter makes groups for what the calling thread, which must be locked, starts
// with attr: from its first instruction it is in them. leave takes the thread out
// again. After an error the caller leaves and removes them.
func (h hierarchy) enter(name string, memory int64, processes int, attr *syscall.SysProcAttr) (*groups, error) {
	g := &groups{h: h}
	for _, c := range []struct{ at, file, value string }{
		{h.memory, "memory.limit_in_bytes", strconv.FormatInt(memory, 10)},
		{h.pids, "pids.max", strconv.Itoa(processes)},
	} {
		if c.at == "" {
			continue
		}
		path := filepath.Join(c.at, "ossicle-"+name)
		if err := makeGroup(path, map[string]string{c.file: c.value}); err != nil {
			return g, err
		}
		g.one, g.back = append(g.one, path), append(g.back, c.at)
		if err := moveThread(path); err != nil {
			return g, fmt.Errorf("enter control group: %w", err)
		}
	}
	if h.unified == "" {
		return g, nil
	}
	limits := map[string]string{}
	if h.unifiedMemory {
		limits["memory.max"] = strconv.FormatInt(memory, 10)
		if has(h.unified, "memory.swap.max") || has(filepath.Join(h.unified, leaf), "memory.swap.max") {
			limits["memory.swap.max"] = "0"
		}
	}
	if h.unifiedPids {
		limits["pids.max"] = strconv.Itoa(processes)
	}
	two := filepath.Join(h.unified, "ossicle-"+name)
	if err := makeGroup(two, limits); err != nil {
		return g, err
	}
	g.two = two
	dir, err := os.Open(two)
	if err != nil {
		return g, fmt.Errorf("open control group: %w", err)
	}
	g.dir = dir
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return g, nil
}

func makeGroup(path string, limits map[string]string) error {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make control group: %w", err)
	}
	for file, value := range limits {
		if err := os.WriteFile(filepath.Join(path, file), []byte(value), 0o600); err != nil {
			_ = os.Remove(path)
			return fmt.Errorf("limit control group: %w", err)
		}
	}
	return nil
}

func moveThread(group string) error {
	return os.WriteFile(filepath.Join(group, "tasks"), []byte(strconv.Itoa(syscall.Gettid())), 0o600)
}

// leave takes the thread back to where it was.
func (g *groups) leave() {
	for _, at := range g.back {
		_ = moveThread(at)
	}
	if g.dir != nil {
		_ = g.dir.Close()
		g.dir = nil
	}
}

// kill ends every process of the groups.
func (g *groups) kill() {
	if g.two != "" && g.h.kill {
		_ = os.WriteFile(filepath.Join(g.two, "cgroup.kill"), []byte("1"), 0o600)
	}
	for _, path := range g.paths() {
		for _, word := range words(filepath.Join(path, "cgroup.procs")) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

func (g *groups) paths() []string {
	if g.two == "" {
		return g.one
	}
	return append(slices.Clone(g.one), g.two)
}

// outOfMemory reports whether the kernel killed a process for the group's limit.
func (g *groups) outOfMemory() bool {
	for _, path := range g.paths() {
		for _, file := range []string{"memory.oom_control", "memory.events"} {
			text, err := os.ReadFile(filepath.Join(path, file))
			if err != nil {
				continue
			}
			for line := range bytes.Lines(text) {
				if n, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill ")); ok && string(n) != "0" {
					return true
				}
			}
		}
	}
	return false
}

// Removing a group fails while the kernel still takes its last process apart.
const (
	removeTries = 50
	removePause = 20 * time.Millisecond
)

// remove ends what is left in the groups and removes them.
func (g *groups) remove() {
	for _, path := range g.paths() {
		for range removeTries {
			g.kill()
			if err := os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			time.Sleep(removePause)
		}
	}
}
