//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ossicle/ossicle/worker/tools"
)

// ShellOptions is how a worker in a sandbox of the tier runs its commands: apart
// from the worker, its token and its connection. workspace is what commands work
// on, temp a directory for their temporary files or empty. A worker that cannot
// keep its tier gets an error and must not run: the error wraps ErrNoSandbox.
func ShellOptions(t Tier, workspace, temp string, limits Limits) (tools.Options, error) {
	switch t {
	case Bubblewrap:
		return tools.Options{Wrap: slices.Concat(limits.together(), wrap(), limits.wrap())}, nil
	case Landlock:
		return landlocked(workspace, temp, limits)
	case Plain:
		return tools.Options{Wrap: limits.wrap()}, nil
	}
	return tools.Options{}, fmt.Errorf("%w: there is no tier %.40q", ErrNoSandbox, t)
}

// spare is how many threads a worker may have beyond the processes of a sandbox:
// commands that use all of those up must not leave it without, for it dies of
// that.
const spare = 64

// wrap runs a command within the limits.
func (l Limits) wrap() []string {
	args := []string{"prlimit"}
	if l.Processes > 0 {
		args = append(args, fmt.Sprintf("--nproc=%d", l.Processes))
	}
	if l.Memory > 0 {
		args = append(args, fmt.Sprintf("--data=%d", l.Memory))
	}
	if len(args) == 1 {
		return nil
	}
	return append(args, "--")
}

// together bounds the processes of all commands, for those that follow, in a user
// namespace of its own, bound each alone: the kernel holds what is counted outside of
// a namespace to the limit of whoever made it. There the worker's threads count, too;
// some of the spare ones are for that, the others are left when commands have theirs.
func (l Limits) together() []string {
	if l.Processes <= 0 {
		return nil
	}
	return []string{"prlimit", fmt.Sprintf("--nproc=%d", l.Processes+spare/2), "--"}
}

func landlocked(workspace, temp string, limits Limits) (tools.Options, error) {
	if err := canLandlock(); err != nil {
		return tools.Options{}, fmt.Errorf("%w: %w", ErrNoSandbox, err)
	}
	own, env := []string{workspace}, []string(nil)
	if temp != "" {
		own, env = append(own, temp), []string{"TMPDIR=" + temp}
	}
	rules, err := newCommands(own...)
	if err != nil {
		return tools.Options{}, fmt.Errorf("%w: %w", ErrNoSandbox, err)
	}
	return tools.Options{Env: env, Wrap: limits.wrap(), Start: rules.start}, nil
}

// canLandlock says what this kernel lacks for the tier; nil is nothing.
func canLandlock() error {
	switch abi := landlockABI(); {
	case abi == 0:
		return errors.New("this kernel has no Landlock, or it is not enabled")
	case abi < leastABI:
		return fmt.Errorf("this kernel's Landlock is version %d; the tier needs %d (Linux 6.12)", abi, leastABI)
	}
	return canFilter()
}
