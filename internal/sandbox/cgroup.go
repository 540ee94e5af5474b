package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Control groups of version 1, where they are writable: found, never assumed.
// Version 2 is not used; a machine that has only that has rlimits.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is where groups can be made; empty where they cannot.
type hierarchy struct {
	memory, pids string
	own          map[string]string // controller → the group that we are in
}

// findGroups tries to make a group of each controller.
func findGroups() hierarchy {
	h := hierarchy{own: map[string]string{}}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for c := range strings.SplitSeq(parts[1], ",") {
				h.own[c] = parts[2]
			}
		}
	}
	usable := func(controller, file string) string {
		own, ok := h.own[controller]
		if !ok {
			return ""
		}
		at := filepath.Join(cgroupRoot, controller, own)
		trial := filepath.Join(at, fmt.Sprintf("ossicle-probe-%d", os.Getpid()))
		if err := os.Mkdir(trial, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return ""
		}
		defer func() { _ = os.Remove(trial) }()
		if _, err := os.Stat(filepath.Join(trial, file)); err != nil {
			return ""
		}
		return at
	}
	h.memory = usable("memory", "memory.limit_in_bytes")
	h.pids = usable("pids", "pids.max")
	return h
}

// groups are those of one sandbox.
type groups struct {
	paths []string // of the sandbox
	back  []string // of this thread before
}

// enter puts the calling thread, which must be locked, into new groups, so that
// what it starts is in them from its first instruction. leave takes it out.
func (h hierarchy) enter(name string, memory int64, processes int) (*groups, error) {
	g := &groups{}
	var errs []error
	for _, c := range []struct{ at, file, value string }{
		{h.memory, "memory.limit_in_bytes", strconv.FormatInt(memory, 10)},
		{h.pids, "pids.max", strconv.Itoa(processes)},
	} {
		if c.at == "" {
			continue
		}
		path := filepath.Join(c.at, "ossicle-"+name)
		err := os.Mkdir(path, 0o755)
		if err == nil || errors.Is(err, os.ErrExist) {
			err = os.WriteFile(filepath.Join(path, c.file), []byte(c.value), 0o600)
		}
		if err == nil {
			g.paths, g.back = append(g.paths, path), append(g.back, c.at)
			err = moveThread(path)
		}
		errs = append(errs, err)
	}
	return g, errors.Join(errs...)
}

func moveThread(group string) error {
	return os.WriteFile(filepath.Join(group, "tasks"), []byte(strconv.Itoa(syscall.Gettid())), 0o600)
}

// leave takes the thread back to where it was.
func (g *groups) leave() {
	if g != nil {
		for _, at := range g.back {
			_ = moveThread(at)
		}
	}
}

// kill ends every process of the groups.
func (g *groups) kill() {
	if g == nil {
		return
	}
	for _, path := range g.paths {
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// Removing a group fails while the kernel still takes its last process apart.
const (
	removeTries = 50
	removePause = 20 * time.Millisecond
)

// remove ends what is left in the groups and removes them.
func (g *groups) remove() {
	if g == nil {
		return
	}
	for _, path := range g.paths {
		for range removeTries {
			g.kill()
			if err := os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			time.Sleep(removePause)
		}
	}
}
