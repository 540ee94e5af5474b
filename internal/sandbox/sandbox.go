package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/ossicle/ossicle/worker"
)

// Defaults of LocalOptions.
const (
	DefaultWorkspace = 512 << 20 // bytes
	DefaultMemory    = 1 << 30   // bytes
	DefaultProcesses = 256
	// DefaultUser runs sandboxes of bubblewrap when we are root: nobody, on every
	// Linux. In the other tiers each sandbox is a user of its own, see
	// LocalOptions.User.
	DefaultUser = 65534
)

// Variables that tell the worker's program where it is, beside those of the
// contract.
const (
	EnvTier      = "OSSICLE_SANDBOX"
	EnvWorkspace = "OSSICLE_WORKSPACE"
	EnvProcesses = "OSSICLE_PROCESSES" // see Limits
	EnvMemory    = "OSSICLE_MEMORY"
)

// Tier is how well a sandbox keeps what is in it.
type Tier string

// Tiers, best first.
const (
	Bubblewrap Tier = "bubblewrap"
	// Landlock is a worker outside of any sandbox, which runs each command in a
	// Landlock domain of its own: only the workspace and the machine's programs, no
	// sockets at all, no signals and no sight of others, an end with the command.
	Landlock Tier = "landlock"
	// Plain is no sandbox: a process of this machine with limits. It is for tests
	// and for machines that are sandboxes themselves.
	Plain Tier = "plain"
)

// ErrNoSandbox is wrapped by the error of a machine that cannot keep a sandbox.
var ErrNoSandbox = errors.New("this machine cannot keep a sandbox")

// LocalOptions configure a [Local]. The zero value is usable.
type LocalOptions struct {
	Logger *slog.Logger // nil discards
	// Tier is the only one that will do; the error of a machine that cannot keep it
	// wraps ErrNoSandbox. Empty is the best that the machine can keep, and never
	// Plain.
	Tier Tier
	// AllowPlain runs workers without a sandbox where there can be none. Plain by
	// Tier needs it too: it is asked for twice or not had.
	AllowPlain bool
	// Workspace bounds /workspace, in bytes. With bubblewrap, and with Landlock if we
	// are root, it is in memory, and counts as such; else it is on disk, and this
	// bounds each file, not their sum.
	Workspace int64
	// Memory bounds a sandbox, in bytes, where the machine has control groups, and
	// else each process of it.
	Memory int64
	// Processes bounds the processes of a sandbox.
	Processes int
	// User is the user and group id of sandboxes when we are root; as anybody else
	// they are ours. Zero is DefaultUser with bubblewrap, and in the other tiers an
	// id of its own for each sandbox, so that the kernel tells them apart.
	User int
	// Exited is told when a worker's process has ended. It must not block.
	Exited func(session string, e Exit)
	// Audit is told in which tier each sandbox was made, and what bounds it; nil is
	// not.
	Audit worker.Auditor
}

// Exit is how a worker's process ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // that ended it
	// OutOfMemory is whether the kernel ended a process of the sandbox because its
	// memory was used up: maybe this one, maybe a command before.
	OutOfMemory bool
	Stderr      string // the end of its standard error; from the sandbox
}

// String is one line.
func (e Exit) String() string {
	text := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != "" {
		text = "ended by signal: " + e.Signal
	}
	if e.OutOfMemory {
		text += "; the sandbox had run out of memory"
	}
	return text
}

// Limits bound the commands of a worker, and not the worker. Zero bounds nothing.
type Limits struct {
	Processes int   // of a command with all others of its user
	Memory    int64 // of each process, in bytes
}

// ReadLimits reads the limits that a driver has set for a worker through lookup,
// for instance os.LookupEnv.
func ReadLimits(lookup func(string) (string, bool)) (l Limits, err error) {
	for _, v := range []struct {
		name string
		set  func(int64)
	}{
		{EnvProcesses, func(n int64) { l.Processes = int(n) }},
		{EnvMemory, func(n int64) { l.Memory = n }},
	} {
		text, ok := lookup(v.name)
		if !ok || text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return Limits{}, fmt.Errorf("read limits: %s is not a positive number", v.name)
		}
		v.set(n)
	}
	return l, nil
}

// Spec is a sandbox to make.
type Spec struct {
	Session string
	// Env is the worker's environment without the token and the control URL, which
	// the driver knows.
	Env map[string]string
	// Token becomes a file that only the worker reads.
	Token string
}

// Probe is what a machine offers to sandboxes.
type Probe struct {
	Tier Tier
	// Reason says why the tier is not a better one; empty for the best.
	Reason string
	// Memory and Processes say what holds these limits: "cgroup" the sandbox,
	// "rlimit" each process or each user, or nothing.
	Memory, Processes string
	// Gaps says, a line each, what the tier does not keep on this machine.
	Gaps []string

	groups hierarchy
	mounts bool // the workspace is a file system of its own, also without bubblewrap
}

// String is one line for people: the tier and what bounds it.
func (p Probe) String() string {
	or := func(s string) string {
		if s == "" {
			return "nothing"
		}
		return s
	}
	return fmt.Sprintf("%s; memory bounded by %s, processes by %s", p.Tier, or(p.Memory), or(p.Processes))
}

// WorkerOptions configure the process in a sandbox. The zero value is usable.
type WorkerOptions struct {
	Logger *slog.Logger // nil discards
	Output int          // bytes that are kept of a command's output; zero is the tool's default
}
