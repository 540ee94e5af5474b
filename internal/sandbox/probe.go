//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// probeTime bounds the trial of a sandbox.
const probeTime = 10 * time.Second

// tryAll tries the tiers, best first, each as it will be used, and stops at the
// first that the machine can keep. It never says more than what it saw.
func (l *Local) tryAll(ctx context.Context) Probe {
	p := Probe{Tier: Plain, Memory: "rlimit", Processes: "rlimit", groups: findGroups()}
	if p.groups.boundsMemory() {
		p.Memory = "cgroup"
	}
	if p.groups.boundsProcesses() {
		p.Processes = "cgroup"
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var reasons []string
	for _, t := range []struct {
		tier Tier
		try  func(context.Context) error
	}{{Bubblewrap, l.tryBubblewrap}, {Landlock, l.tryLandlock}} {
		if l.o.Tier != "" && l.o.Tier != t.tier {
			reasons = append(reasons, string(t.tier)+" is not asked for")
			continue
		}
		if err := t.try(ctx); err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		p.Tier, p.mounts = t.tier, t.tier == Landlock && canMount(l.dir)
		break
	}
	p.Reason = strings.Join(reasons, "; ")
	p.Gaps = l.gaps(p)
	return p
}

func need(programs ...string) error {
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return errors.New(program + " is not installed")
		}
	}
	return nil
}

// tryBubblewrap tries a sandbox in a sandbox.
func (l *Local) tryBubblewrap(ctx context.Context) error {
	if err := need("bwrap", "prlimit", "bash"); err != nil {
		return err
	}
	args := append(isolation(), "--setenv", "PATH", "/usr/bin:/bin", "--")
	args = append(args, wrap()...)
	args = append(args, "bash", "-c", "test ! -e /run/agentfy && echo kept")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.credential(Bubblewrap, l.dir)}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "kept\n" {
		line, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("bubblewrap does not work here: %.200q, %w", line, err)
	}
	return nil
}

// landlockTrial is what a command must and must not be able to do: in that order
// write where it may, read what it may not, open a socket, signal us.
const landlockTrial = `cd "$1" && echo x >own && rm own || exit 2
{ read -r _ <"$2"; } 2>/dev/null && exit 3
{ exec 3<>/dev/udp/127.0.0.1/9; } 2>/dev/null && exit 4
kill -0 "$3" 2>/dev/null && exit 5
echo kept`

// tryLandlock runs a command in a domain.
func (l *Local) tryLandlock(ctx context.Context) (err error) {
	if err := errors.Join(canLandlock(), need("prlimit", "bash")); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(l.dir, "probe")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	own, secret := filepath.Join(dir, "own"), filepath.Join(dir, "secret")
	err = errors.Join(os.Chmod(dir, 0o711), os.Mkdir(own, 0o700), os.WriteFile(secret, []byte("x\n"), 0o600))
	as := l.credential(Landlock, dir)
	if as != nil {
		err = errors.Join(err, os.Chown(own, int(as.Uid), int(as.Gid)), os.Chown(secret, int(as.Uid), int(as.Gid)))
	}
	if err != nil {
		return err
	}
	rules, err := newCommands(own)
	if err != nil {
		return err
	}
	defer rules.close()
	bash, err := exec.LookPath("bash")
	if err != nil {
		return err
	}
	var out tail
	out.limit = stderrTail
	cmd := &exec.Cmd{
		Path: bash, Args: []string{"bash", "--noprofile", "--norc", "-c", landlockTrial, "bash", own, secret, strconv.Itoa(os.Getpid())},
		Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdout: &out, Stderr: &out, WaitDelay: time.Second,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Credential: as},
	}
	tree, err := rules.start(cmd)
	if err != nil {
		return fmt.Errorf("landlock does not work here: %w", err)
	}
	stop := context.AfterFunc(ctx, tree.Kill)
	err = cmd.Wait()
	stop()
	tree.Close()
	if err != nil || out.String() != "kept\n" {
		line, _, _ := strings.Cut(out.String(), "\n")
		return fmt.Errorf("landlock does not work here: %.200q, %w", line, err)
	}
	return nil
}

// gaps says what the tier found does not keep.
func (l *Local) gaps(p Probe) (gaps []string) {
	if p.Memory != "cgroup" {
		gaps = append(gaps, "memory is bounded for each process, not for the sandbox: no control group is writable")
	}
	root := os.Geteuid() == 0
	if p.Processes != "cgroup" && (p.Tier != Landlock || !root) {
		gaps = append(gaps, "processes are counted for the user, not for the sandbox: no control group is writable")
	}
	if p.Tier == Bubblewrap {
		return gaps
	}
	if !p.mounts {
		gaps = append(gaps, "the workspace is on disk: each file is bounded, their sum is not")
	}
	if p.Tier == Landlock {
		gaps = append(gaps, "commands have no sockets but pairs, no /tmp of their own beside TMPDIR, and no /proc about processes",
			"mode, owner, times and attributes of files outside that are the sandbox's user's can be changed, and what is about files can be seen; so can the priority of that user's processes")
		if !root {
			gaps = append(gaps, "the sandbox's user is ours, so those files are ours")
		}
		return gaps
	}
	gaps = append(gaps, "there is no sandbox: commands see the token, the worker, the network and all that their user may")
	if !p.groups.kill && p.groups.pids == "" && p.groups.memory == "" {
		gaps = append(gaps, "processes that leave their group may outlive the worker")
	}
	return gaps
}
