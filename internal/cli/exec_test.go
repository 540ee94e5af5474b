package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/watch"
)

var aNotice = watch.Notice{Watch: "n", URI: "memo://notes", Lines: []string{"ADDED todo"}}

// A signal to us ends a command that would rather go on, within the time that
// the watch engine waits for its sink, and the error does not blame the limit.
func TestExecEndsWithContext(t *testing.T) {
	t.Parallel()
	if most := 2*execGrace + execDrain; most >= watch.DefaultCloseTime {
		t.Errorf("ending a command takes up to %s, and the engine waits for %s", most, watch.DefaultCloseTime)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var begin time.Time
	c := &command{line: `trap "" TERM INT; echo on; cat; while :; do sleep 60; done`, limit: time.Hour, out: writerFunc(func(b []byte) (int, error) {
		if begin.IsZero() {
			begin = time.Now()
			cancel()
		}
		return len(b), nil
	}), err: io.Discard}
	err := c.run(ctx, noticeVariables(aNotice), aNotice.Lines[0]+"\n")
	if took := time.Since(begin); took >= 2*process.DefaultGrace {
		t.Errorf("ended after %s", took)
	}
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "1h") {
		t.Errorf("error: %v", err)
	}
}

func TestExecEndsAtLimit(t *testing.T) {
	t.Parallel()
	c := &command{line: "sleep 60", limit: 100 * time.Millisecond, out: io.Discard, err: io.Discard}
	if err := c.run(t.Context(), noticeVariables(aNotice), aNotice.Lines[0]+"\n"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ended after 100ms") {
		t.Errorf("error: %v", err)
	}
}

// What a command leaves running in a session of its own holds the pipe open;
// that holds up neither the next notice nor our end.
func TestExecLeavesDaemon(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	for _, daemon := range []string{"sleep 20", "timeout 20 yes"} {
		var out bytes.Buffer
		c := &command{line: "cat; setsid " + daemon + " 2>/dev/null & sleep 0.1", limit: time.Minute, out: &out, err: io.Discard}
		begin := time.Now()
		if err := c.run(t.Context(), noticeVariables(aNotice), aNotice.Lines[0]+"\n"); err != nil {
			t.Errorf("%s: %v", daemon, err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: waited %s", daemon, took)
		}
		if !strings.HasPrefix(out.String(), "ADDED todo\n") {
			t.Errorf("%s: output %.40q", daemon, out.String())
		}
	}
}

// The output is whole, also where whoever reads it is slower than the command.
func TestExecOutputIsWhole(t *testing.T) {
	t.Parallel()
	const size = 60000 // fits into the pipe, so that the command ends first
	var got int
	c := &command{line: "head -c 60000 /dev/zero", limit: time.Minute, out: writerFunc(func(b []byte) (int, error) {
		if got == 0 {
			time.Sleep(2 * execDrain)
		}
		got += len(b)
		return len(b), nil
	}), err: io.Discard}
	if err := c.run(t.Context(), noticeVariables(aNotice), aNotice.Lines[0]+"\n"); err != nil || got != size {
		t.Errorf("%d bytes, %v", got, err)
	}
}

// A notice that comes when the command is ending is not taken for delivered:
// the engine logs it as unsent.
func TestNoticeAfterTheLast(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := &noticePrinter{left: 1, done: cancel, command: &command{line: "exit 0", limit: time.Minute, out: io.Discard, err: io.Discard}}
	n := aNotice
	n.Kind = watch.KindEvents
	if err := p.Notify(ctx, n); err != nil {
		t.Errorf("the last: %v", err)
	}
	if err := p.Notify(ctx, n); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
