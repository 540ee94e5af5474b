package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

// wakeFlags name the adapters that reach an agent which somebody else started.
type wakeFlags struct{ specs []string }

func (f *wakeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.specs, "wake", nil, "adapter that reaches the agent (repeatable, in the order of trying): "+app.WakerKinds)
}

func (f *wakeFlags) wakers(e *env) ([]notice.Waker, error) {
	split := func(line string) ([]string, error) {
		return shell.Fields(line, func(name string) string {
			v, _ := e.getenv(name)
			return v
		})
	}
	var wakers []notice.Waker
	for _, text := range f.specs {
		w, err := app.ParseWaker(text, split, e.getenv)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--wake: %w", err)}
		}
		wakers = append(wakers, w)
	}
	return wakers, nil
}

func newDoctor(e *env) *cobra.Command {
	var (
		agent agentFlags
		wakes wakeFlags
		host  hostFlags
		data  string
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what keeps ossicle, an agent or an adapter from working",
		Long: `Check the data directory and the Python interpreter; with --agent, --model or
--profile start that agent once, without a prompt, and end it; with --wake ask
each adapter whether it reaches its host; with --claude-channel find out what keeps
notices from a running Claude Code, with --hook whether a host runs ossicle digest
as a hook. Each check that fails names the cause and what to do; the exit code is
then 1.`,
		Example: `  ossicle doctor
  ossicle doctor --agent codex-acp
  ossicle doctor --claude-channel --hook codex
  ossicle doctor --wake opencode:http://127.0.0.1:4096/ses_1`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.load()
			if err != nil {
				return err
			}
			if err := host.check(); err != nil {
				return err
			}
			var spec *app.AgentSpec
			if agent.command != "" || agent.model != "" || agent.profile != "" {
				spec = &app.AgentSpec{}
				if err := agent.apply(e, c, spec); err != nil {
					return &usageError{err}
				}
			}
			wakers, err := wakes.wakers(e)
			if err != nil {
				return err
			}
			checks := app.Doctor(cmd.Context(), c, data, spec, wakers)
			more, err := host.checks(cmd.Context(), e, c, data)
			if err != nil {
				return err
			}
			return e.printChecks(cmd.Context(), append(checks, more...))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&agent.command, "agent", "", "command of an agent that speaks the Agent Client Protocol, in one argument")
	flags.StringVar(&agent.model, "model", "", "URL of an OpenAI-compatible model server")
	flags.StringVar(&agent.keyEnv, "api-key-env", "", "environment variable that holds the key of the model server")
	flags.StringVar(&agent.profile, "profile", "", "profile of the configuration file")
	flags.StringVar(&data, "data", "", "data directory (default $OSSICLE_HOME)")
	wakes.register(cmd)
	host.register(cmd)
	return cmd
}

// hostFlags name hosts of agents that somebody else started.
type hostFlags struct {
	channel bool
	claude  string
	hooks   []string
}

func (f *hostFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.channel, "claude-channel", false, "check what ossicle mcp --claude-channel needs: Claude Code, its configuration, running sessions")
	flags.StringVar(&f.claude, "claude", "", "Claude Code's program (default \"claude\" on the path)")
	flags.StringArrayVar(&f.hooks, "hook", nil, "host whose settings should run ossicle digest: claude, codex or gemini (repeatable)")
}

// check refuses hosts that nobody knows.
func (f *hostFlags) check() error {
	for _, host := range f.hooks {
		if err := oneOf(wake.HookFormat(host), []wake.HookFormat{wake.HookClaude, wake.HookCodex, wake.HookGemini}); err != nil {
			return &usageError{fmt.Errorf("--hook %.80q: %w", host, err)}
		}
	}
	return nil
}

// checks looks at the hosts from the working directory, as they would.
func (f *hostFlags) checks(ctx context.Context, e *env, c *config.Config, data string) ([]notice.Check, error) {
	if !f.channel && len(f.hooks) == 0 {
		return nil, nil
	}
	project, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	home, _ := e.getenv("HOME")
	var checks []notice.Check
	if f.channel {
		found := app.DoctorChannel(ctx, c, data, wake.ClaudeSetup{Command: f.claude, Home: home, Project: project, Getenv: e.getenv})
		checks = append(checks, named("claude-channel", found)...)
	}
	for _, host := range f.hooks {
		checks = append(checks, named(host, wake.CheckHook(wake.HookFormat(host), home, project))...)
	}
	return checks, nil
}

// named puts the subject before the names of its checks.
func named(subject string, checks []notice.Check) []notice.Check {
	for i := range checks {
		checks[i].Name = subject + ": " + checks[i].Name
	}
	return checks
}

// errUnwell ends a doctor that has found something.
var errUnwell = errors.New("something is wrong")

func (e *env) printChecks(ctx context.Context, checks []notice.Check) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	bad := 0
	for _, c := range checks {
		if !c.OK {
			bad++
		}
	}
	if err := e.showChecks(checks); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%w: %d of %d checks failed", errUnwell, bad, len(checks))
	}
	return nil
}

func (e *env) showChecks(checks []notice.Check) error {
	if e.json {
		return writeJSON(e.Out, checks)
	}
	for _, c := range checks {
		word := "ok    "
		if !c.OK {
			word = "FAILED"
		}
		text := fmt.Sprintf("%s  %s\n", word, printable(c.Name))
		if c.Cause != "" {
			text += "          " + printable(c.Cause) + "\n"
		}
		if c.Fix != "" {
			text += "          do: " + printable(c.Fix) + "\n"
		}
		if _, err := fmt.Fprint(e.Out, text); err != nil {
			return err
		}
	}
	return nil
}
