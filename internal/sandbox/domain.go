//go:build linux

package sandbox

import (
	"fmt"
	"os/exec"
	"sync"
	"syscall"

	"github.com/ossicle/ossicle/worker/tools"
)

// domain is a Landlock domain with one command and all that it started, held by
// a thread that waits in it.
type domain struct {
	kills chan chan struct{}
	stop  chan struct{}
	once  sync.Once
	done  chan struct{} // closed when the thread's work is over
}

// start starts a command in a new domain. It ends with the thread, hence with
// us.
func (r *ruleset) start(cmd *exec.Cmd) (tools.Tree, error) {
	d := &domain{kills: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	alone(func() { d.hold(r, cmd, started) })
	if err := <-started; err != nil {
		<-d.done
		return nil, err
	}
	return d, nil
}

// hold is the thread.
func (d *domain) hold(r *ruleset, cmd *exec.Cmd, started chan<- error) {
	defer close(d.done)
	err := r.enter()
	if err == nil {
		err = filterThread()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- fmt.Errorf("start command in a domain: %w", err)
		return
	}
	started <- nil
	for {
		select {
		case killed := <-d.kills:
			killDomain()
			close(killed)
		case <-d.stop:
			killDomain()
			return
		}
	}
}

// Kill implements tools.Tree.
func (d *domain) Kill() {
	killed := make(chan struct{})
	select {
	case d.kills <- killed:
		<-killed
	case <-d.done:
	}
}

// Close implements tools.Tree.
func (d *domain) Close() {
	d.once.Do(func() { close(d.stop) })
	<-d.done
}
