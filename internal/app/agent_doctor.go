package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/monty"
	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

// doctorTime bounds one check of a doctor; that of an agent has its own bounds.
const doctorTime = 20 * time.Second

// Doctor finds out what keeps this machine from working: the data directory,
// the Python interpreter, the agent or model of spec, if it names one, and the
// adapters. It changes nothing but the store's own files, and starts and ends
// the agent once, without a prompt.
func Doctor(ctx context.Context, c *config.Config, data string, spec *AgentSpec, wakers []notice.Waker) []notice.Check {
	checks := []notice.Check{checkStore(ctx, c, data), checkPython(ctx, c)}
	if spec != nil {
		checks = append(checks, checkAgent(ctx, spec)...)
	}
	return append(checks, wake.Examine(ctx, wakers...)...)
}

func failed(name string, err error, fix string) notice.Check {
	return notice.Check{Name: name, Cause: notice.Plain(err.Error(), 500), Fix: fix}
}

func checkStore(ctx context.Context, c *config.Config, data string) notice.Check {
	const name = "data directory"
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	db, err := openStore(ctx, c, data)
	if err != nil {
		return failed(name, err, "make it writable, or name another one with --data or "+config.EnvHome)
	}
	agents, err := db.Notices().Agents(ctx)
	if err = errors.Join(err, db.Close()); err != nil {
		return failed(name, err, "the file may be damaged: keep it, and name another directory with --data")
	}
	inboxes := "inboxes"
	if len(agents) == 1 {
		inboxes = "inbox"
	}
	return notice.Check{Name: fmt.Sprintf("%s: %s, %d %s", name, storePath(c, data), len(agents), inboxes), OK: true}
}

// checkPython runs a program in the interpreter.
func checkPython(ctx context.Context, c *config.Config) notice.Check {
	const name = "python"
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	path, err := monty.Find(&monty.FindOptions{Path: c.Python.Monty})
	if err != nil {
		return failed(name, err, "install the interpreter; watches without a filter and the plain tools work without it")
	}
	engine, err := monty.New(path, nil)
	if err == nil {
		err = errors.Join(tryPython(ctx, engine), engine.Close())
	}
	if err != nil {
		return failed(name, err, "install the interpreter that this version needs, "+monty.Version)
	}
	return notice.Check{Name: name + ": " + path, OK: true}
}

func tryPython(ctx context.Context, engine python.Engine) error {
	scope, err := engine.NewScope(python.ScopeOptions{Name: "doctor.py"})
	if err != nil {
		return err
	}
	defer scope.Close()
	result, err := scope.Run(ctx, "1 + 1", nil, python.Limits{Time: doctorTime})
	if err != nil {
		return err
	}
	if string(result.Value) != "2" {
		return fmt.Errorf("run program: 1 + 1 is %s", result.Value)
	}
	return nil
}

// checkAgent starts the agent, or finds the model, and ends it again.
func checkAgent(ctx context.Context, spec *AgentSpec) []notice.Check {
	name, fix := "model", "start the model server, and give its address"
	if len(spec.Profile.Command) > 0 {
		name, fix = "agent", "install the agent and log in to it; its command must speak the Agent Client Protocol on standard output"
	}
	dir, err := os.MkdirTemp("", "ossicle-doctor")
	if err != nil {
		return []notice.Check{failed(name, err, "make room in the directory for temporary files")}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	one := &Agent{agents: &Agents{}}
	engine, err := one.engine(spec)()
	if err != nil {
		return []notice.Check{failed(name, err, fix)}
	}
	began := time.Now()
	info, err := engine.Start(ctx, agent.StartOptions{Dir: dir, Env: spec.Profile.Env}, func(agent.Event) {})
	took := time.Since(began).Round(time.Millisecond)
	if cerr := engine.Close(); cerr != nil && !errors.Is(cerr, agent.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	if exit := (*agent.ExitError)(nil); errors.As(err, &exit) && exit.Stderr != "" {
		err = fmt.Errorf("%w; its standard error ends with: %s", err, strings.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return []notice.Check{failed(name, err, fix)}
	}
	what := strings.TrimSpace(info.Name + " " + info.Version)
	checks := []notice.Check{{Name: fmt.Sprintf("%s: %s, %s, started in %s", name, notice.Plain(what, 100), info.Protocol, took), OK: true}}
	if len(spec.Profile.Command) > 0 && info.Conversation == "" {
		checks = append(checks, notice.Check{Name: "resume", OK: true, Cause: "the agent cannot go on with a conversation after its end"})
	}
	return checks
}
