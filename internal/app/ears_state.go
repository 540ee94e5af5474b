package app

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

// earsDir has a file for each channel that runs, in the data directory.
const earsDir = "ears"

// earsState is what a running channel says of itself, for the doctor.
type earsState struct {
	PID int `json:"pid"`
	// Flags says whether its host was started with channels: "yes", "no", or
	// empty where that cannot be seen.
	Flags string `json:"flags,omitzero"`
	wake.ChannelState
}

func earsPath(c *config.Config, data, agent string) string {
	if data == "" {
		data = c.Home
	}
	return filepath.Join(data, earsDir, agent+".json")
}

// tell writes down what the channel knows of its host. Best effort: who asks is
// a doctor.
func (e *Ears) tell() {
	e.telling.Lock()
	defer e.telling.Unlock()
	text, err := json.Marshal(earsState{PID: os.Getpid(), Flags: e.flags, ChannelState: e.channel.State()})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(e.state), 0o700)
	}
	if err == nil {
		next := e.state + ".new"
		if err = os.WriteFile(next, append(text, '\n'), 0o600); err == nil {
			err = os.Rename(next, e.state)
		}
	}
	if err != nil {
		e.log.Debug("channel state not written", logattr.Err(err))
	}
}

// untell removes it.
func (e *Ears) untell(context.Context) error {
	e.telling.Lock()
	defer e.telling.Unlock()
	if err := os.Remove(e.state); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hostFlags says whether our parent was started with channels, where the system
// tells.
func hostFlags(parent int) string {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(parent), "cmdline"))
	if err != nil || len(line) == 0 {
		return ""
	}
	for arg := range strings.SplitSeq(string(line), "\x00") {
		name, _, _ := strings.Cut(arg, "=")
		if name == "--channels" || name == "--dangerously-load-development-channels" {
			return "yes"
		}
	}
	return "no"
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission) // it is another user's
}

// DoctorChannel finds out what keeps notices from running sessions of Claude
// Code: what their channels in the data directory know, and how Claude Code is
// set up.
func DoctorChannel(ctx context.Context, c *config.Config, data string, setup wake.ClaudeSetup) []notice.Check {
	checks := wake.CheckClaudeChannel(ctx, setup)
	files, _ := filepath.Glob(earsPath(c, data, "*")) // the pattern is well formed
	slices.Sort(files)
	for _, path := range files {
		text, err := os.ReadFile(path)
		var s earsState
		if err != nil || json.Unmarshal(text, &s) != nil || !alive(s.PID) {
			continue // of one that was killed
		}
		agent := strings.TrimSuffix(filepath.Base(path), ".json")
		if s.Flags == "no" {
			checks = append(checks, notice.Check{
				Name: "running channel of " + agent + ": host", Cause: "Claude Code was started without channels",
				Fix: "start it with --dangerously-load-development-channels server:NAME, the name in its MCP configuration",
			})
		}
		for _, one := range s.Checks() {
			one.Name = "running channel of " + agent + ": " + one.Name
			checks = append(checks, one)
		}
	}
	return checks
}
