//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// guardScript ends everything in its domain when its standard input ends, which
// the kernel sees to when we die in any way. In a domain that is not one it could
// signal us, and then it does nothing.
const guardScript = `kill -0 "$PPID" 2>/dev/null && exit 1
trap '' INT TERM HUP
read -r _
kill -s KILL -- -1`

// guard is a process in the domain of a worker that outlives us by a moment. What
// a command left behind would outlive us for good.
type guard struct {
	cmd *exec.Cmd
	in  *os.File
}

// startGuard starts the guard of the calling thread's domain.
func startGuard(user *syscall.Credential) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	g := &guard{in: w, cmd: exec.Command("/bin/sh", "-c", guardScript)} //nolint:noctx // lives exactly as long as the domain
	g.cmd.Env, g.cmd.Dir, g.cmd.Stdin = []string{}, "/", r
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: user}
	if err := g.cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return g, nil
}

// wait waits for a guard that was killed with its domain.
func (g *guard) wait() {
	_ = g.cmd.Process.Kill() // if the domain was none, the guard is there
	_ = g.cmd.Wait()
	_ = g.in.Close()
}

// end ends the guard of a domain with nobody else in it; nil is none.
func (g *guard) end() {
	if g != nil {
		g.wait()
	}
}
