package tools

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Defaults of Options.
const (
	DefaultTimeout = 2 * time.Minute
	MaxTimeout     = 10 * time.Minute
	// DefaultOutput is how much of a command's output is kept, in bytes: the first
	// half and the last half of it.
	DefaultOutput = 30_000
	DefaultJobs   = 16
	// keptJobs is how many times as many jobs are kept that are over as may run: whoever
	// follows one reads the rest of it after its end.
	keptJobs = 4

	// drainTime is how long output is awaited after a command has ended: a helper
	// that it left behind may hold the pipe open for ever.
	drainTime = 200 * time.Millisecond
	killTime  = 2 * time.Second
	// sizeEvery and sizeEntries bound what measuring the workspace costs.
	sizeEvery   = 30 * time.Second
	sizeEntries = 20_000
)

// Errors of commands that callers branch on.
var (
	ErrBusy      = errors.New("another command runs; wait for it, or run it in the background")
	ErrNoJob     = errors.New("there is no such job")
	ErrManyJobs  = errors.New("too many jobs run in the background")
	ErrStopped   = errors.New("the sandbox is ending")
	errWorkspace = errors.New("the workspace is not a directory")
)

// Options configure a [Shell]. The zero value is usable.
type Options struct {
	// Env is the environment in which a shell begins, beside PATH, HOME, LANG and
	// TERM. Nothing of the worker's own environment is passed on.
	Env []string
	// Timeout is the time of a command that asks for none.
	Timeout time.Duration
	// Output bounds what is kept of a command's output, in bytes.
	Output int
	// Jobs bounds the commands in the background.
	Jobs int
	// Wrap is a program with its arguments that runs each command, for instance one
	// that hides the worker from it; the command's own program and arguments follow.
	// It must pass descriptor 3 on.
	Wrap []string
	// Start starts a command instead of its own Start, for instance where the
	// command sees nothing of the worker. What it started is awaited as always; the
	// tree is closed after that.
	Start func(*exec.Cmd) (Tree, error)
}

// Tree is a command with all that it started, wherever that went.
type Tree interface {
	// Kill ends all of it. It can be repeated.
	Kill()
	// Close ends what is left and gives up what held it. Kill does nothing then.
	Close()
}

// Shell runs commands in a workspace. The working directory and the exported
// variables that one command leaves are those of the next; what else a shell
// remembers, for instance functions, is not kept. It is safe for concurrent use.
type Shell struct {
	workspace string
	bash      string // its path
	o         Options
	// state holds a token; whoever has it may look at what follows. A channel and
	// not a mutex, so that waiting for it ends with a context.
	state   chan struct{}
	cwd     string
	env     []string
	running bool // a command in the foreground
	jobs    map[string]*job
	places  chan struct{} // holds a token for each job that runs in the background
	next    int
	stopped bool
	work    sync.WaitGroup

	sized time.Time
	size  int64
}

// NewShell returns a shell that begins in workspace, which must exist.
func NewShell(workspace string, o *Options) (*Shell, error) {
	dir, err := filepath.Abs(workspace)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("open workspace: %w", errors.Join(err, errWorkspace))
	}
	s := &Shell{workspace: dir, state: make(chan struct{}, 1), jobs: map[string]*job{}}
	if o != nil {
		s.o = *o
	}
	if s.o.Timeout <= 0 {
		s.o.Timeout = DefaultTimeout
	}
	if s.o.Output <= 0 {
		s.o.Output = DefaultOutput
	}
	if s.o.Jobs <= 0 {
		s.o.Jobs = DefaultJobs
	}
	s.places = make(chan struct{}, s.o.Jobs)
	if s.bash, err = exec.LookPath("bash"); err != nil {
		return nil, fmt.Errorf("find the shell: %w", err)
	}
	s.restart()
	return s, nil
}

// restart forgets what commands have left. The caller has the state, or is the
// first.
func (s *Shell) restart() {
	s.cwd = s.workspace
	s.env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + s.workspace, "LANG=C.UTF-8", "TERM=dumb",
	}, s.o.Env...)
}

// lock takes the state within ctx.
func (s *Shell) lock(ctx context.Context) error {
	select {
	case s.state <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the shell: %w", context.Cause(ctx))
	}
}

func (s *Shell) unlock() { <-s.state }

// Pulse proves that a command could be started now, and measures the workspace
// in bytes, at most every half minute. Its error is for executors that hang and
// for a workspace that is gone.
func (s *Shell) Pulse(ctx context.Context) (int64, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.unlock()
	if info, err := os.Stat(s.workspace); err != nil || !info.IsDir() {
		return 0, fmt.Errorf("look at the workspace: %w", errors.Join(err, errWorkspace))
	}
	if time.Since(s.sized) > sizeEvery {
		s.size, s.sized = measure(s.workspace), time.Now()
	}
	return s.size, nil
}

// measure adds up the files of a tree, as far as its bound goes.
func measure(dir string) (size int64) {
	seen := 0
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if seen++; err != nil || seen > sizeEntries {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}

// Stop kills every command and job and refuses further ones. It returns when
// they have ended, or with ctx.
func (s *Shell) Stop(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	s.stopped = true
	for _, j := range s.jobs {
		j.kill()
	}
	s.unlock()
	ended := make(chan struct{})
	go func() {
		s.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop commands: %w", context.Cause(ctx))
	}
}

// dir resolves a working directory: one below the last, as cd does. If the last
// is gone, the workspace is where to begin.
func (s *Shell) dir(cwd string) (string, error) {
	if info, err := os.Stat(s.cwd); err != nil || !info.IsDir() {
		s.cwd = s.workspace
	}
	dir := cwd
	switch {
	case cwd == "":
		return s.cwd, nil
	case !filepath.IsAbs(cwd):
		dir = filepath.Join(s.cwd, cwd)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("run in %s: not a directory", dir)
	}
	return dir, nil
}

// with returns an environment with more variables.
func with(env []string, more map[string]string) ([]string, error) {
	out := slices.Clone(env)
	for name, value := range more {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("the variable %q cannot be set", name)
		}
		out = append(out, name+"="+value)
	}
	return out, nil
}

// newMark is a value that only one command's processes have in their
// environment. It finds those that left its process group.
func newMark() string { return rand.Text() }
