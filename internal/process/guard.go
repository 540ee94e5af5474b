package process

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript keeps the set of our children's groups and kills them when its
// standard input ends, which the kernel sees to when we die in any way. It
// ignores the signals of a terminal, for it must act after we are gone.
const guardScript = `trap '' INT TERM HUP
g=
while read -r op id; do
  case $op in
  +) g="$g $id" ;;
  -) n=; for i in $g; do [ "$i" = "$id" ] || n="$n $i"; done; g=$n ;;
  esac
done
for i in $g; do kill -s KILL -- "-$i"; done 2>/dev/null`

// guard is the one process per process that ends groups after our death. It
// runs while there is at least one child. It is package state because it
// stands for the life of this process, not of any value.
var guard struct {
	mu    sync.Mutex
	count int
	in    io.WriteCloser
	cmd   *exec.Cmd
}

// guardGroup has the guard kill the group should we die before release is
// called. Where no shell exists there is no guard, and the parent-death signal
// alone must do.
func guardGroup(pgid int) (release func()) {
	guard.mu.Lock()
	defer guard.mu.Unlock()
	if guard.count == 0 {
		startGuard()
	}
	guard.count++
	tellGuard("+", pgid)
	return func() {
		guard.mu.Lock()
		defer guard.mu.Unlock()
		tellGuard("-", pgid)
		if guard.count--; guard.count == 0 && guard.cmd != nil {
			_ = guard.in.Close()
			_ = guard.cmd.Wait()
			guard.cmd, guard.in = nil, nil
		}
	}
}

func startGuard() {
	cmd := exec.Command("/bin/sh", "-c", guardScript) //nolint:noctx // lives exactly as long as we do
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	if err := cmd.Start(); err != nil {
		_ = in.Close()
		return
	}
	guard.cmd, guard.in = cmd, in
}

func tellGuard(op string, pgid int) {
	if guard.in != nil {
		_, _ = fmt.Fprintf(guard.in, "%s %d\n", op, pgid)
	}
}
