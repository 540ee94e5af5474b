package tools_test

import (
	"errors"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ossicle/ossicle/worker/tools"
)

// tree counts what is asked of it.
type tree struct {
	cmd           *exec.Cmd
	kills, closes atomic.Int64
}

func (f *tree) Kill() { f.kills.Add(1); _ = f.cmd.Process.Kill() }

func (f *tree) Close() { f.closes.Add(1) }

// Commands that are started in a way of their own are awaited as always, killed by
// their tree when their time is over, and their tree is given up once, after them.
// One that cannot be started that way is not started otherwise.
func TestStartsInATree(t *testing.T) {
	t.Parallel()
	var last *tree
	var broken error
	shell, err := tools.NewShell(t.TempDir(), &tools.Options{Start: func(cmd *exec.Cmd) (tools.Tree, error) {
		if broken != nil {
			return nil, broken
		}
		last = &tree{cmd: cmd}
		return last, cmd.Start()
	}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := shell.Run(t.Context(), tools.Command{Text: "echo hello; exit 3"}, nil)
	if err != nil || o.Stdout != "hello\n" || o.Exit == nil || *o.Exit != 3 || last.kills.Load() != 0 || last.closes.Load() != 1 {
		t.Errorf("%+v, %v, %d kills, %d closes", o, err, last.kills.Load(), last.closes.Load())
	}
	o, err = shell.Run(t.Context(), tools.Command{Text: "exec sleep 600", Timeout: 50 * time.Millisecond}, nil)
	if err != nil || !o.TimedOut || o.Exit != nil || last.kills.Load() != 1 || last.closes.Load() != 1 {
		t.Errorf("%+v, %v, %d kills, %d closes", o, err, last.kills.Load(), last.closes.Load())
	}
	broken = errors.New("no domain")
	if o, err := shell.Run(t.Context(), tools.Command{Text: "echo escaped"}, nil); !errors.Is(err, broken) || o.Stdout != "" {
		t.Errorf("%+v, %v", o, err)
	}
	if err := shell.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
