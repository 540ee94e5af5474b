// Command ossicle gives LLM agents ears: it turns changes in MCP servers into
// bounded, filtered notices.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ossicle/ossicle/internal/cli"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	// The first signal asks for a clean end; with the handler gone, the second
	// one ends the process at once.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.LookupEnv)
	stop()
	os.Exit(code)
}
