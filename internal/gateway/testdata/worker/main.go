// Command worker is the process in a sandbox, without the sandbox: the tools exec
// and file in the directory WORKSPACE. Tests run hundreds of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	exit := run(ctx, os.Getenv("WORKSPACE"))
	stop()
	fmt.Fprintln(os.Stderr, exit.Reason)
	os.Exit(int(exit.Code))
}

func run(ctx context.Context, dir string) worker.Exit {
	env, err := worker.ReadEnvironment(os.LookupEnv)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	shell, err := tools.NewShell(dir, nil)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	files, err := tools.OpenFiles(dir)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "worker", Version: "1"}, nil)
	tools.AddExec(server, shell)
	tools.AddFile(server, files)
	return worker.New(server, env, &worker.Options{Image: "worker:test", Workspace: dir, Executors: worker.Executors{
		Pulse: shell.Pulse,
		Flush: func(ctx context.Context) (worker.Report, error) {
			if err := shell.Stop(ctx); err != nil {
				return worker.Report{}, err
			}
			return worker.Upload(ctx, env, filepath.Join(dir, "out"), nil)
		},
	}}).Run(ctx)
}
