package sandbox

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/tools"
)

// outputs is the directory of a workspace whose files become artifacts.
const outputs = "out"

// RunWorker is the process in a sandbox: it reads its environment through lookup,
// dials the gateway and serves exec and file until it is released or ctx ends.
// The code of what it returns is the process's exit code.
func RunWorker(ctx context.Context, lookup func(string) (string, bool), o *WorkerOptions) worker.Exit {
	if o == nil {
		o = &WorkerOptions{}
	}
	env, err := worker.ReadEnvironment(lookup)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	dir, tier := worker.DefaultWorkspace, Plain
	if v, ok := lookup(EnvWorkspace); ok && v != "" {
		dir = v
	}
	if v, ok := lookup(EnvTier); ok && v != "" {
		tier = Tier(v)
	}
	temp, _ := lookup("TMPDIR")
	limits, err := ReadLimits(lookup)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	commands, err := ShellOptions(tier, dir, temp, limits)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	commands.Output = o.Output
	shell, err := tools.NewShell(dir, &commands)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	files, err := tools.OpenFiles(dir)
	if err != nil {
		return worker.Exit{Code: worker.ExitConfig, Reason: err.Error()}
	}
	defer func() { _ = files.Close() }()
	server := mcp.NewServer(&mcp.Implementation{Name: version.Name, Version: version.Number()}, nil)
	offered := func(name string) bool { return env.Tools == nil || slices.Contains(env.Tools, name) }
	if offered("exec") {
		tools.AddExec(server, shell)
	}
	if offered("file") {
		tools.AddFile(server, files)
	}
	return worker.New(server, env, &worker.Options{
		Logger: o.Logger, Image: version.Name + " " + version.Number(), Workspace: dir,
		Executors: worker.Executors{
			Pulse: shell.Pulse,
			Flush: func(ctx context.Context) (worker.Report, error) {
				if err := shell.Stop(ctx); err != nil {
					return worker.Report{}, err
				}
				return worker.Upload(ctx, env, filepath.Join(dir, outputs), nil)
			},
		},
	}).Run(ctx)
}
