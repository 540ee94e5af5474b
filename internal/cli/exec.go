package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/watch"
)

// DefaultExecTime bounds one run of the --exec command.
const DefaultExecTime = 60 * time.Second

// command runs a person's shell command for each notice. The command line is
// the person's own; what was watched reaches it on standard input and in
// variables, and is never part of the line.
type command struct {
	line     string
	limit    time.Duration
	out, err io.Writer
}

// run runs the command for one notice and waits for it. Errors: how it exited,
// or that it was ended by the limit or by ctx.
func (c *command) run(ctx context.Context, n watch.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	p, err := process.Start(process.Options{
		Args:   []string{"/bin/sh", "-c", c.line},
		Env:    append(os.Environ(), variables(n)...),
		Stderr: c.err,
	})
	if err != nil {
		return fmt.Errorf("run --exec command: %w", err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(c.out, p.Stdout)
	}()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_, _ = io.WriteString(p.Stdin, strings.Join(n.Lines, "\n")+"\n")
		_ = p.Stdin.Close()
	}()
	select {
	case <-p.Done():
		err = p.Wait()
	case <-ctx.Done():
		p.Stop()
		err = fmt.Errorf("ended after %s: %w", c.limit, ctx.Err())
	}
	// The group is gone, so both pipes are at their end.
	<-copied
	<-fed
	_ = p.Stdout.Close()
	if err != nil {
		return fmt.Errorf("run --exec command: %w", err)
	}
	return nil
}

// variables describe the notice to the command. Environment strings cannot hold
// NUL, which no notice has.
func variables(n watch.Notice) []string {
	return []string{
		"OSSICLE_WATCH=" + n.Watch,
		"OSSICLE_URI=" + n.URI,
		"OSSICLE_TIME=" + n.Time.UTC().Format(time.RFC3339Nano),
	}
}
