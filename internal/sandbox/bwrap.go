//go:build linux

package sandbox

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

const (
	envTokenFile  = "WORKER_TOKEN_FILE"
	envControlURL = "CONTROL_URL"
)

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
	for _, file := range etcFiles {
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
	for _, name := range slices.Sorted(maps.Keys(set)) {
		args = append(args, "--setenv", name, set[name])
	}
	return append(args, "--")
}

// wrap is what a worker in bubblewrap runs each command with: a second sandbox in
// which the worker's process, its token and the gateway's socket do not exist.
// Everything that a command starts ends with it.
func wrap() []string {
	return []string{
		"bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--die-with-parent", "--cap-drop", "ALL",
		"--dev-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/run", "--",
	}
}
