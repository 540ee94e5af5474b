package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ossicle/ossicle/internal/process"
)

// DefaultExecTime bounds one run of the --exec command.
const DefaultExecTime = 60 * time.Second

const (
	// execGrace is given to a command that must end, after its standard input was
	// closed and again after SIGTERM. Both, and execDrain, fit into the time that
	// the watch engine waits for its sink when it closes.
	execGrace = 500 * time.Millisecond
	// execDrain bounds the wait for more output after a command's end: what it
	// left running outside its process group may hold the pipe open.
	execDrain = 300 * time.Millisecond
	// execRest bounds that output, in bytes: more than a pipe holds is not the
	// command's.
	execRest = 1 << 20
)

// command runs a person's shell command for each notice or event. The command
// line is the person's own; what changed reaches it on standard input and in
// variables, and is never part of the line.
type command struct {
	line     string
	limit    time.Duration
	out, err io.Writer
}

// run runs the command once, with further variables and its standard input, and
// waits for it. Errors: how it exited, or that it was ended by the limit or by
// ctx.
func (c *command) run(ctx context.Context, variables []string, input string) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	p, err := process.Start(process.Options{
		Args:   []string{"/bin/sh", "-c", c.line},
		Env:    append(os.Environ(), variables...),
		Stderr: c.err,
		Grace:  execGrace,
	})
	if err != nil {
		return fmt.Errorf("run --exec command: %w", err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		c.copyOutput(p)
	}()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_, _ = io.WriteString(p.Stdin, input)
		_ = p.Stdin.Close()
	}()
	select {
	case <-p.Done():
		err = p.Wait()
	case <-ctx.Done():
		p.Stop()
		err = fmt.Errorf("ended before it was done: %w", ctx.Err())
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("ended after %s: %w", c.limit, ctx.Err())
		}
	}
	limitRead(p.Stdout)
	<-copied
	<-fed // the process has closed the pipe
	_ = p.Stdout.Close()
	if err != nil {
		return fmt.Errorf("run --exec command: %w", err)
	}
	return nil
}

// copyOutput passes on what the command prints, to the end of the pipe, or
// until the command has ended and nothing more comes.
func (c *command) copyOutput(p *process.Process) {
	buf := make([]byte, 32<<10)
	for rest := execRest; rest > 0; {
		n, err := p.Stdout.Read(buf)
		_, _ = c.out.Write(buf[:n])
		if err != nil {
			return
		}
		select {
		case <-p.Done():
			rest -= n
			limitRead(p.Stdout) // anew, for the write may have taken long
		default:
		}
	}
}

func limitRead(r io.Reader) {
	if file, ok := r.(*os.File); ok {
		_ = file.SetReadDeadline(time.Now().Add(execDrain))
	}
}
