package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/pty"
	"github.com/ossicle/ossicle/watch"
)

// runFlags are the flags of ossicle run.
type runFlags struct {
	servers serverFlags
	watch   watchFlags // on-event, quiet, max-wait, watch-state, legacy
	agent   agentFlags
	chat    chatFlags
	watches []string
	prompt  string
	data    string
	session string
}

// agentFlags say which agent to run.
type agentFlags struct {
	command   string
	model     string
	modelName string
	keyEnv    string
	profile   string
	policy    string
	mode      string
	onStart   string
	dir       string
	midTurn   bool
	passed    bool // to be shown in a terminal
	kind      string
	topics    []string
	signals   string
	sandbox   string
}

func (f *agentFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.command, "agent", "", "command of an agent that speaks the Agent Client Protocol, in one argument")
	flags.StringVar(&f.model, "model", "", "URL of an OpenAI-compatible model server, instead of an agent")
	flags.StringVar(&f.modelName, "model-name", "", "name of the model (default: the first that the server lists)")
	flags.StringVar(&f.keyEnv, "api-key-env", "", "environment variable that holds the key of the model server")
	flags.StringVar(&f.profile, "profile", "", "profile of the configuration file; flags win over it")
	flags.StringVar(&f.policy, "policy", "", "who answers permission requests: ask, allow-read or allow (default ask)")
	flags.StringVar(&f.mode, "mode", "", "session mode to set, where the agent has one")
	flags.StringVar(&f.onStart, "on-start", "", "prompt of the first turn; what was restored is told in the same turn")
	flags.StringVar(&f.dir, "dir", "", "working directory of the agent (default: this one)")
	flags.BoolVar(&f.midTurn, "mid-turn", false, "offer notices to the running turn, where the agent has a way for it")
	flags.BoolVar(&f.passed, "passthrough", false, "the agent is a command line program: show it in a terminal, and type to it")
	flags.StringVar(&f.kind, "kind", "", "what --passthrough runs, where its name does not tell: claude, codex, gemini, opencode, qwen or other")
	flags.StringVar(&f.signals, "signals", "", "collaboration session of agents to take part in, under the id of the session; see 'ossicle start-session'")
	flags.StringVar(&f.sandbox, "sandbox", "", "kind of sandbox whose tools the agent gets: light, or one of the configuration file")
	flags.StringArrayVar(&f.topics, "topic", nil, "topic of the feed to listen to: TOPIC, or TOPIC=digest to be told before a person's next prompt, TOPIC=silent to be asked for (repeatable)")
}

func newRun(e *env) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run an agent in the terminal, with ears: notices of its watches become turns",
		Long: `Run an agent: any that speaks the Agent Client Protocol (--agent), or a model
behind an OpenAI-compatible server (--model). It gets run_code, in which every
tool of the MCP servers is a Python function, and watch_start; --watch starts
watches for it. What they notice becomes turns of the agent.

With --passthrough the agent is a command line program with a screen of its own,
shown as it is: notices are typed to it when the screen rests. The exit code is
then the program's, or 128 + N where signal N ended it.

Lines on standard input are for the agent. /cancel ends its turn, /reset its
conversation, /watches lists the watches, /quit ends. After the end of the input,
and without a terminal after --prompt, it goes on while a watch or a chat exists.

Notices are kept in the data directory until a turn has shown them. Give a
--session name to go on with them, and with the conversation, another time.`,
		Example: `  ossicle run --agent 'ossicle mock-agent' --mcp-stdio 'ossicle memo' --watch memo://notes
  ossicle run --agent codex-acp --mcp-config .mcp.json --prompt 'Watch the board for me.'
  ossicle run --agent codex-acp --mcp-config .mcp.json --irc irc.example.org --irc-tls --channel '#team'
  ossicle run --passthrough --agent claude --mcp-config .mcp.json --watch memo://notes
  ossicle run --model http://127.0.0.1:11434 --mcp-config .mcp.json --session home --json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e) },
	}
	f.agent.register(cmd)
	f.chat.register(cmd)
	f.servers.register(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.watches, "watch", nil, "URI to watch for the agent (repeatable)")
	flags.StringVar(&f.watch.onEvent, "on-event", "", "filter of --watch: Python source, or @FILE")
	flags.DurationVar(&f.watch.quiet, "quiet", 0, "a notice leaves this long after its last change (default 3s)")
	flags.DurationVar(&f.watch.maxWait, "max-wait", 0, "or this long after its first, if that is sooner (default 15s)")
	flags.StringVar(&f.watch.state, "watch-state", "", "file that keeps the watches; they are restarted from it")
	flags.BoolVar(&f.watch.legacy, "legacy-watch", false, "also watch servers older than MCP 2026-07-28, by resources/subscribe")
	flags.StringVar(&f.prompt, "prompt", "", "first message to the agent")
	flags.StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
	flags.StringVar(&f.session, "session", "", "name of the session; the same name goes on with it (default: a new one)")
	return cmd
}

func (f *runFlags) run(ctx context.Context, e *env) (err error) {
	c, err := e.load()
	if err != nil {
		return err
	}
	spec, err := f.spec(e, c)
	if err != nil {
		return err
	}
	if spec.Passthrough && terminal(e.Err) && screenOf(e) != nil {
		held := &heldLog{}
		e.log = loggerTo(held, c.Log)
		defer func() { err = errors.Join(err, held.write(e.Err)) }()
	}
	feed, stop, err := f.openFeed(ctx, e, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	boxes, end, err := f.openSandboxes(ctx, e, c, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	agents, err := app.NewAgents(ctx, c, &app.AgentsOptions{Data: f.data, Feed: feed, Sandboxes: boxes, Bridge: bridge(), Shim: relay(), Logger: e.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close(context.WithoutCancel(ctx))) }()
	t := newTalk(e)
	if spec.Chat, err = f.chat.chat(e); err != nil {
		return &usageError{err}
	}
	spec.Channels = []agent.Channel{t}
	spec.Asks, spec.Attended = terminal(e.In), true
	if f.servers.oauth {
		spec.Authorize = e.showAuthorization
	}
	leave, err := f.open(ctx, e, agents)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	one, err := agents.Start(ctx, *spec)
	if err != nil {
		return f.startError(ctx, err)
	}
	if term, ok := one.Terminal(); ok {
		if s := screenOf(e); s != nil {
			return s.show(ctx, one, term, f.prompt)
		}
	}
	return t.run(ctx, one, f.prompt)
}

// openFeed opens the feed where the agent listens to topics.
func (f *runFlags) openFeed(ctx context.Context, e *env, c *config.Config) (*app.Feed, func() error, error) {
	if len(f.agent.topics) == 0 {
		return nil, func() error { return nil }, nil
	}
	feed, err := app.OpenFeed(ctx, c, &app.FeedOptions{Data: f.data, Logger: e.log})
	if err != nil {
		return nil, nil, err
	}
	return feed, func() error { return feed.Close(context.WithoutCancel(ctx)) }, nil
}

// openSandboxes opens a gateway of this process for an agent that wants a sandbox.
func (f *runFlags) openSandboxes(ctx context.Context, e *env, c *config.Config, spec *app.AgentSpec) (*fleet.Fleet, func() error, error) {
	if spec.Sandbox == "" {
		return nil, func() error { return nil }, nil
	}
	if _, known := c.Sandbox(spec.Sandbox); !known {
		return nil, nil, &usageError{fmt.Errorf("--sandbox: there is no kind %q; there are %s", spec.Sandbox, strings.Join(c.SandboxNames(), ", "))}
	}
	home := f.data
	if home == "" {
		home = c.Home
	}
	g, err := fleet.Open(ctx, c, &fleet.Options{Artifacts: filepath.Join(home, fleet.ArtifactsDir), Quiet: true, Logger: e.log})
	if err != nil {
		return nil, nil, err
	}
	return g, func() error { return g.Close(context.WithoutCancel(ctx)) }, nil
}

// open lets ossicle session use a session that has a name. It also keeps a
// second process from going on with it.
func (f *runFlags) open(ctx context.Context, e *env, agents *app.Agents) (stop func() error, err error) {
	if f.session == "" {
		return func() error { return nil }, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- agents.Serve(ctx, app.ServeOptions{
			Data: f.data, Session: f.session, Logger: e.log, Ready: func(string) error { close(ready); return nil },
		})
	}()
	select {
	case <-ready:
		return func() error { cancel(); return <-ended }, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

// startError maps a signal during the start to an interruption.
func (f *runFlags) startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// spec puts together what to run: flags over the profile.
func (f *runFlags) spec(e *env, c *config.Config) (*app.AgentSpec, error) {
	if f.watch.quiet < 0 || f.watch.maxWait < 0 {
		return nil, &usageError{errors.New("--quiet and --max-wait take positive values")}
	}
	spec := &app.AgentSpec{ID: f.session, StatePath: f.watch.state}
	if spec.ID == "" {
		spec.ID = "run-" + strings.ToLower(rand.Text()[:8])
	}
	if err := f.agent.apply(e, c, spec); err != nil {
		return nil, &usageError{err}
	}
	if len(f.watches) > 0 {
		requests, err := f.watch.requests(f.watches)
		if err != nil {
			return nil, &usageError{err}
		}
		spec.Watches = requests
	} else if f.watch.onEvent != "" {
		return nil, &usageError{errors.New("--on-event goes with --watch")}
	}
	f.watch.adjust(c, len(f.watches)+watch.DefaultWatches) // the agent's own come on top
	servers, err := f.servers.specs(e, c)
	if err != nil && !errors.Is(err, errNoServers) {
		return nil, err
	}
	spec.Servers = servers
	return spec, addProfileServers(e, spec)
}

// addProfileServers adds the servers of the profile after the others.
func addProfileServers(e *env, spec *app.AgentSpec) error {
	if len(spec.Profile.Servers) == 0 {
		return nil
	}
	more, err := mcpclient.ParseServers(spec.Profile.Servers, e.getenv)
	if err != nil {
		return &usageError{fmt.Errorf("read mcpServers of profile %q: %w", spec.Profile.Name, err)}
	}
	spec.Servers = distinct(append(spec.Servers, more...))
	return nil
}

// apply lays the flags over the profile.
func (f *agentFlags) apply(e *env, c *config.Config, spec *app.AgentSpec) error {
	var p config.Profile
	if f.profile != "" {
		known, ok := c.Profiles[f.profile]
		if !ok {
			return fmt.Errorf("--profile %q is not in the configuration file", f.profile)
		}
		p = known
	}
	if f.command != "" && f.model != "" {
		return errors.New("--agent and --model exclude each other")
	}
	if err := f.chooseEngine(e, &p); err != nil {
		return err
	}
	if err := f.choosePassthrough(&p); err != nil {
		return err
	}
	if f.policy != "" {
		p.Policy = agent.Policy(f.policy)
		if err := p.Policy.Valid(); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	if f.onStart != "" {
		p.OnStart = f.onStart
	}
	p.MidTurn = p.MidTurn || f.midTurn
	if f.dir != "" || p.Dir == "" {
		dir, err := workDir(f.dir)
		if err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		p.Dir = dir
	}
	spec.Profile, spec.Mode = p.Profile, p.Mode
	spec.Passthrough, spec.Kind = p.Passthrough, p.Kind
	for _, text := range f.topics {
		topic, err := app.ParseTopicSpec(text)
		if err != nil {
			return fmt.Errorf("--topic: %w", err)
		}
		spec.Topics = append(spec.Topics, topic)
	}
	spec.Signals = f.signals
	if spec.Sandbox = p.Sandbox; f.sandbox != "" {
		spec.Sandbox = f.sandbox
	}
	if f.mode != "" {
		spec.Mode = f.mode
	}
	spec.Model = app.Model{URL: p.Model.URL, Name: p.Model.Name}
	if p.Model.APIKeyEnv != "" && p.Model.URL != "" {
		key, ok := e.getenv(p.Model.APIKeyEnv)
		if !ok || key == "" {
			return fmt.Errorf("the variable %s, which holds the key of the model server, is not set", p.Model.APIKeyEnv)
		}
		spec.Model.Key = key
	}
	return nil
}

// chooseEngine decides between an agent and a model.
func (f *agentFlags) chooseEngine(e *env, p *config.Profile) error {
	switch {
	case f.command != "":
		words, err := shell.Fields(f.command, func(name string) string {
			v, _ := e.getenv(name)
			return v
		})
		if err != nil {
			return fmt.Errorf("read --agent %q: %w", f.command, err)
		}
		if len(words) == 0 {
			return errors.New("read --agent: the command is empty")
		}
		p.Command, p.Model = words, config.Model{}
		p.Passthrough, p.Kind = false, ""
	case f.model != "":
		p.Command, p.Model.URL = nil, f.model
		p.Passthrough, p.Kind = false, ""
	}
	if f.modelName != "" {
		p.Model.Name = f.modelName
	}
	if f.keyEnv != "" {
		p.Model.APIKeyEnv = f.keyEnv
	}
	switch {
	case len(p.Command) == 0 && p.Model.URL == "":
		return errors.New("give --agent, --model, or a --profile that names one")
	case len(p.Command) > 0 && (f.modelName != "" || f.keyEnv != ""):
		return errors.New("--model-name and --api-key-env go with --model")
	}
	return nil
}

// choosePassthrough decides whether the agent is shown in a terminal.
func (f *agentFlags) choosePassthrough(p *config.Profile) error {
	p.Passthrough = p.Passthrough || f.passed
	if f.kind != "" {
		p.Kind = f.kind
	}
	switch {
	case p.Passthrough && len(p.Command) == 0:
		return errors.New("--passthrough goes with --agent")
	case p.Kind != "" && !p.Passthrough:
		return errors.New("--kind goes with --passthrough")
	}
	if _, err := pty.ParseKind(p.Kind); err != nil {
		return fmt.Errorf("--kind: %w", err)
	}
	return nil
}

func workDir(dir string) (string, error) {
	if dir == "" {
		return os.Getwd()
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is no directory", path)
	}
	return path, nil
}
