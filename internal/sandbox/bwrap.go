package sandbox

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Paths inside of a sandbox.
const (
	insideRun     = "/run/agentfy"
	insideWorker  = "/run/worker"
	insideSecrets = "/run/secrets/agentfy"
	insideSpace   = "/workspace"
)

// tmpSize bounds /tmp of a sandbox, in bytes.
const tmpSize = 64 << 20

// Variables that tell the worker's program where it is, beside those of the
// contract.
const (
	EnvTier      = "OSSICLE_SANDBOX"
	EnvWorkspace = "OSSICLE_WORKSPACE"

	envTokenFile  = "WORKER_TOKEN_FILE"
	envControlURL = "CONTROL_URL"
)

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// isolation is what every sandbox of ours begins with: nothing of the machine
// but its programs, no network, no capabilities, an end with its parent.
func isolation() []string {
	args := []string{
		"bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox",
		"--ro-bind", "/usr", "/usr",
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		if target, err := os.Readlink("/" + dir); err == nil {
			args = append(args, "--symlink", target, "/"+dir)
		} else if info, err := os.Stat("/" + dir); err == nil && info.IsDir() {
			args = append(args, "--ro-bind", "/"+dir, "/"+dir)
		}
	}
	for _, file := range []string{"alternatives", "ssl", "ca-certificates", "localtime", "ld.so.cache"} {
		args = append(args, "--ro-bind-try", "/etc/"+file, "/etc/"+file)
	}
	return append(args, "--proc", "/proc", "--dev", "/dev",
		"--size", strconv.Itoa(tmpSize), "--tmpfs", "/tmp", // a second bubblewrap needs it
		"--size", "65536", "--tmpfs", "/run", "--clearenv")
}

// bubblewrap is the sandbox of a worker, up to the program that it runs.
func bubblewrap(l *Local, vars map[string]string, token string) []string {
	args := append(isolation(),
		"--size", strconv.FormatInt(l.o.Workspace, 10), "--tmpfs", insideSpace,
		"--ro-bind", l.socket, filepath.Join(insideRun, "gw.sock"),
		"--ro-bind", l.worker[0], insideWorker,
		"--ro-bind", token, filepath.Join(insideSecrets, "token"),
		"--remount-ro", "/run",
		"--chdir", insideSpace,
	)
	set := maps.Clone(vars)
	set["PATH"], set["HOME"] = "/usr/local/bin:/usr/bin:/bin", insideSpace
	set[envTokenFile], set[envControlURL] = filepath.Join(insideSecrets, "token"), "unix://"+filepath.Join(insideRun, "gw.sock")
	set[EnvWorkspace], set[EnvTier] = insideSpace, string(Bubblewrap)
	for _, name := range slices.Sorted(keys(set)) {
		args = append(args, "--setenv", name, set[name])
	}
	return append(args, "--")
}

// Wrap is what a worker in a sandbox of the tier runs each command with: a
// second sandbox in which the worker's process, its token and the gateway's
// socket do not exist. Everything that a command starts ends with it. The
// result is for tools.Options.Wrap; nil is nothing.
func Wrap(t Tier) []string {
	if t != Bubblewrap {
		return nil
	}
	return []string{
		"bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--die-with-parent", "--cap-drop", "ALL",
		"--dev-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/run", "--",
	}
}

// Probe is what a machine offers to sandboxes.
type Probe struct {
	Tier Tier
	// Reason says why the tier is not a better one.
	Reason string
	// Memory and Processes say what holds these limits: "cgroup", "rlimit" or
	// nothing.
	Memory, Processes string

	groups hierarchy
}

// probeTime bounds the trial of a sandbox.
const probeTime = 10 * time.Second

// probe tries a sandbox in a sandbox, as it will be used.
func probe(ctx context.Context, as *syscall.Credential) Probe {
	p := Probe{Tier: Plain, Processes: "rlimit", groups: findGroups()}
	if p.groups.memory != "" {
		p.Memory = "cgroup"
	}
	if p.groups.pids != "" {
		p.Processes = "cgroup"
	}
	for _, program := range []string{"bwrap", "prlimit", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			p.Reason = program + " is not installed"
			return p
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	args := append(isolation(), "--setenv", "PATH", "/usr/bin:/bin", "--")
	args = append(args, Wrap(Bubblewrap)...)
	args = append(args, "bash", "-c", "test ! -e /run/agentfy && echo kept")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "kept\n" {
		line, _, _ := strings.Cut(string(out), "\n")
		p.Reason = fmt.Sprintf("bubblewrap does not work here: %.200q, %v", line, err)
		return p
	}
	p.Tier = Bubblewrap
	return p
}
