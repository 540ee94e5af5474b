package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/mailbox"
)

func newMCP(e *env) *cobra.Command {
	var (
		servers serverFlags
		o       app.EarsOptions
	)
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Be an MCP server over stdio that gives the agent of another host ears",
		Long: `Serve one agent that another host started, as an MCP server over stdio: the agent
gets run_code, watch_start and the like over the given servers, and its inbox. What
is pending comes at the end of the next result of any of these tools. With
--claude-channel notices are pushed into a running Claude Code that was started with
its channels on (research preview; a push is not acknowledged, so notices stay
pending until a tool call shows them).

With --session it joins other agents in a collaboration session under the id that
--agent names: the tools signal, read_signals and so on, and the session's resources
to subscribe to. Of two processes that want one id, the second is refused.`,
		Example: `  ossicle mcp --agent me --mcp-config servers.json
  ossicle mcp --session 20260821_011758_54e1cab9 --agent lead.critic
  claude mcp add ears -- ossicle mcp --agent me --claude-channel --mcp-config servers.json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.mcp(cmd.Context(), &servers, o) },
	}
	servers.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Agent, "agent", "", "name of the agent's inbox, and its id in a session (default $OSSICLE_AGENT)")
	flags.StringVar(&o.Session, "session", "", "collaboration session to join (default $OSSICLE_SESSION)")
	flags.IntVar(&o.Limits.Signals, "signals-per-minute", 0, "signals that the agent may send in a minute (default 10)")
	flags.IntVar(&o.Limits.Escalations, "escalations-per-minute", 0, "turns that signals may begin in a minute (default 2)")
	flags.IntVar(&o.Limits.Tokens, "escalation-tokens", 0, "tokens of the answer to a sampling request (default 300, at most 400)")
	flags.StringVar(&o.Data, "data", "", "data directory (default $OSSICLE_HOME, else by the XDG rules)")
	flags.BoolVar(&o.Channel, "claude-channel", false, "push notices into the running Claude Code session")
	flags.StringVar(&o.StatePath, "watch-state", "", "file that keeps the watches; they are restarted from it")
	return cmd
}

func (e *env) mcp(ctx context.Context, servers *serverFlags, o app.EarsOptions) (err error) {
	e.fromEnvironment(&o.Session, EnvSession)
	e.fromEnvironment(&o.Agent, EnvAgent)
	switch {
	case o.Agent == "" && o.Session == "":
		return &usageError{errors.New("--agent is missing: whose ears?")}
	case o.Agent == "":
		o.Agent = mailbox.NewAgentID("mcp", mailbox.NewRunToken())
	}
	c, err := e.load()
	if err != nil {
		return err
	}
	specs, err := servers.specs(e, c)
	if err != nil && (o.Session == "" || !errors.Is(err, errNoServers)) { // signals need none
		return err
	}
	out, err := mcpserver.GuardStdout()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	o.Logger = e.log
	ears, err := app.NewEars(ctx, c, specs, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ears.Close(context.WithoutCancel(ctx))) }()
	if err := ears.Serve(ctx, e.In, out); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
