package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/irc"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/openai"
	"github.com/ossicle/ossicle/internal/pty"
	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/internal/supervise"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/watch"
)

// Times of an agent.
const (
	turnsBudget   = agent.DefaultGrace + agent.DefaultStopWait + time.Second
	clientBudget  = 10 * time.Second
	briefingTime  = 5 * time.Second  // for servers to say what can be watched
	readyWait     = 60 * time.Second // of the first turn, for saved watches
	attachedRoute = 2 * time.Minute  // patience after a turn whose end is unknown
)

// Model is where a model loop of our own finds its model.
type Model struct {
	URL  string // of an OpenAI-compatible server
	Name string // empty: the first that the server lists
	Key  string // bearer token; empty sends none
}

// AgentSpec says what agent to host.
type AgentSpec struct {
	ID string // of the session and of its inbox
	// Profile without a Command means a model loop over Model; without a Dir it
	// works where this process does.
	Profile agent.Profile
	Model   Model
	Mode    string // session mode to set where the agent has one
	// Passthrough: the command is a CLI agent that is shown in a terminal, of a kind
	// that its name tells, or Kind.
	Passthrough bool
	Kind        string
	// Engine makes an engine for each life of the agent. Nil means by Profile and
	// Model.
	Engine  func() (agent.Engine, error)
	Servers []mcpclient.Spec
	// Watches are started with the agent, after those of StatePath.
	Watches   []watch.StartRequest
	StatePath string
	// Topics of the feed that the agent listens to.
	Topics []TopicSpec
	// Signals is the collaboration session that the agent takes part in, under its
	// own id. Empty is none.
	Signals string
	// Sandbox is the kind of sandbox whose tools the agent gets, as an MCP server of
	// that name. Empty is none.
	Sandbox  string
	Channels []agent.Channel
	Chat     *Chat // nil: the agent is in none
	Asks     bool  // a person can be asked
	Attended bool  // a person sees what happens, beside the log
	// Authorize shows a person where to authorize us at a server.
	Authorize func(server, url string)
}

// Agent is one agent that we host: its session, the servers that it reaches,
// its watches, and its Python scope.
type Agent struct {
	Session *agent.Session
	Client  *Client

	agents   *Agents
	code     *agent.CodeMode
	ears     *listeners // nil: it listens to no topic
	seat     *seat      // nil: it is in no collaboration session
	box      *agentBox  // nil: it has no sandbox
	report   *sessionReport
	terminal *pty.Terminal // nil: it is shown in none
	ready    chan struct{} // closed when the first turn need not wait any more
	once     sync.Once
	gate     restoreGate
	down     teardown.Stack
	chats    bool
	// inProcess: the agent is a model loop of our own, which calls our tools itself.
	inProcess bool
	failed    chan error // capacity 1
	closed    chan struct{}
	ending    sync.Once
	err       error // of Close, after closed
}

// Start starts an agent: its session runs, its watches stand or the error says
// which does not. It outlives ctx; close it, or its Agents.
func (a *Agents) Start(ctx context.Context, spec AgentSpec) (started *Agent, err error) {
	if err := checkSession(spec.ID); err != nil {
		return nil, err
	}
	if err := a.reserve(spec.ID); err != nil {
		return nil, err
	}
	one := &Agent{agents: a, ready: make(chan struct{}), failed: make(chan error, 1), closed: make(chan struct{})}
	one.gate.open = one.open
	if err = one.hold(ctx, spec.ID); err == nil {
		err = one.build(ctx, &spec)
	}
	if err == nil {
		err = a.install(spec.ID, one)
	} else {
		_ = a.install(spec.ID, nil)
	}
	if err == nil {
		err = one.watch(ctx, &spec)
	}
	if err != nil {
		return nil, errors.Join(err, one.Close(context.WithoutCancel(ctx)))
	}
	return one, nil
}

// hold keeps other processes from running the session: they would answer its notices,
// too. A process that is killed holds nothing any more.
func (o *Agent) hold(ctx context.Context, id string) error {
	release, err := holdSession(ctx, sessionLockPath(o.agents.data, id), id)
	if err == nil {
		o.down.Push("lock", time.Second, func(context.Context) error { release(); return nil })
	}
	return err
}

// Who tells whether a session runs (filelock.Held) is in the way of who begins it, for
// far less than holdPause; so it is tried again.
const (
	holdTries = 5
	holdPause = 10 * time.Millisecond
)

// holdSession takes the lock of a session.
func holdSession(ctx context.Context, path, id string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("hold session: %w", err)
	}
	for try := 1; ; try++ {
		release, err := filelock.Hold(path)
		switch {
		case err == nil:
			return release, nil
		case !errors.Is(err, filelock.ErrHeld):
			return nil, fmt.Errorf("hold session: %w", err)
		case try == holdTries:
			return nil, &RunningError{ID: id, Elsewhere: true}
		}
		if !supervise.Sleep(ctx, holdPause) {
			return nil, ctx.Err()
		}
	}
}

// build makes the parts from the ground up; the teardown reads in the opposite
// order: watches first, then turns, then what turns need.
func (o *Agent) build(ctx context.Context, spec *AgentSpec) error {
	a := o.agents
	// An agent that cannot start fails at each of its turns; so its directory is
	// made whole now.
	dir, err := filepath.Abs(spec.Profile.Dir)
	if err != nil {
		return fmt.Errorf("find working directory: %w", err)
	}
	spec.Profile.Dir = dir
	if err := a.Inbox.Register(ctx, spec.ID); err != nil {
		return err
	}
	sink := &inboxSink{inbox: a.Inbox, agent: spec.ID, log: a.log, told: o.told}
	client, err := NewClient(a.config, ofOssicle(spec), &ClientOptions{
		Sink: sink, StatePath: spec.StatePath, Toolless: toolless(spec), Authorize: spec.Authorize, Logger: a.log,
	})
	if err != nil {
		return err
	}
	o.Client = client
	o.down.Push("client", clientBudget, client.Close)

	if err := o.openBox(ctx, spec); err != nil {
		return err
	}
	o.code = agent.NewCodeMode(o.python(ctx), o.servers(), client.Watches, &agent.CodeOptions{
		OnNoReply: func() { o.Session.EndTurn() }, Log: a.log,
	})
	o.box.onChange(o.code.Invalidate)
	o.down.Push("code", pythonBudget, func(context.Context) error { o.code.Close(); return nil })

	if err := o.listen(spec); err != nil {
		return err
	}
	o.sit(ctx, spec)
	var chat *irc.Client
	if spec.Chat != nil {
		if chat, err = o.newChat(spec.Chat); err != nil {
			return err
		}
	}
	if err := o.openTerminal(spec); err != nil {
		return err
	}
	if err := o.keepReport(ctx, spec); err != nil {
		return err
	}
	if err := o.newSession(ctx, spec, channels(chat, spec.Channels)); err != nil {
		return err
	}
	o.down.Push("attachment", endpointBudget, func(context.Context) error { a.endpoint.Detach(spec.ID); return nil })
	waker := o.waker()
	err = a.Inbox.Attach(ctx, spec.ID, o.route(waker))
	if err != nil {
		return err
	}
	o.down.Push("delivery", deliveryBudget, func(context.Context) error { a.Inbox.Detach(spec.ID); return nil })

	if chat != nil {
		o.chats = true
		o.runChat(ctx, chat)
	}
	ran := make(chan error, 1)
	go func() { ran <- o.Session.Run(context.WithoutCancel(ctx)) }()
	<-o.Session.Begun()
	o.down.Push("turns", turnsBudget, func(context.Context) error {
		o.Session.Close()
		return <-ran
	})
	o.down.Push("watches", watchesBudget, func(context.Context) error { return client.Watches.Close() })
	o.hear(ctx)
	return o.join(ctx, spec)
}

// listen makes the listeners of the topics.
func (o *Agent) listen(spec *AgentSpec) (err error) {
	if len(spec.Topics) == 0 {
		return nil
	}
	a := o.agents
	if a.feed == nil {
		return errNoFeed
	}
	o.ears, err = newListeners(a.feed.Hub, a.Inbox, spec.ID, listenersPath(a.data, spec.ID), spec.Topics, a.log)
	return err
}

var errNoFeed = errors.New("listen to topics: this process has no feed")

// hear runs the listeners.
func (o *Agent) hear(ctx context.Context) {
	if o.ears == nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		o.ears.run(ctx)
	}()
	o.down.Push("listeners", deliveryBudget, func(context.Context) error {
		stop()
		<-ran
		return nil
	})
}

// pull fetches what waits for a run that is due anyway.
func (o *Agent) pull(ctx context.Context, user bool) []agent.Waiting {
	waiting := append(o.box.pull(ctx), o.waker().pull(ctx, user)...)
	if user && o.ears != nil {
		waiting = append(waiting, o.ears.pull()...)
	}
	return waiting
}

// python is the interpreter for run_code, nil where none is installed: the
// plain tools are there all the same.
func (o *Agent) python(ctx context.Context) python.Engine {
	if _, err := o.Client.python.open(); err != nil {
		o.agents.log.LogAttrs(ctx, slog.LevelWarn, "no run_code, only the plain tools", logattr.Err(err))
		return nil
	}
	return o.Client.python
}

func (o *Agent) waker() *sessionWaker {
	return &sessionWaker{inbox: o.agents.Inbox, session: o.Session, log: o.agents.log, gate: &o.gate}
}

func (o *Agent) newSession(ctx context.Context, spec *AgentSpec, places []agent.Channel) error {
	a, p := o.agents, &spec.Profile
	briefing := agent.Briefing{CodeMode: o.Client.python.ready(), Watches: len(o.Client.Servers.Servers()) > 0, Extra: p.System}
	if spec.Chat != nil {
		briefing.Nick, briefing.Chatter = spec.Chat.Nick, spec.Chat.Chatter
	}
	if briefing.Watches {
		ask, cancel := context.WithTimeout(ctx, briefingTime)
		briefing.Recipes = agent.Recipes(ask, o.Client.Watches)
		cancel()
	}
	session, err := agent.NewSession(spec.ID, o.report.report(o.engine(spec)), a.Store, frame, &agent.Options{
		Profile: p.Name, Dir: p.Dir, Env: p.Env, System: o.standing(spec, briefing), OnStart: p.OnStart,
		Ready: o.ready, ReadyWait: readyWait,
		OnReset: o.report.reset, Tools: o.tools, Channels: places,
		Attached: func(ctx context.Context) error { return a.endpoint.AwaitListed(ctx, spec.ID) },
		Pull:     o.pulls(),
		OnIdle:   func() { a.Inbox.Kick(spec.ID); o.seat.turnOver() },
		Context:  o.code.ScopeNote,
		Missing:  missing(spec), Scrub: o.report.clean.Summary,
		Policy: p.Policy, Asks: spec.Asks, Attended: spec.Attended, MidTurn: p.MidTurn, Warm: spec.Passthrough, Log: a.log,
	})
	if err != nil {
		return err
	}
	o.Session = session
	return nil
}

// engine makes an engine for each life of the agent.
func (o *Agent) engine(spec *AgentSpec) func() (agent.Engine, error) {
	if spec.Engine != nil {
		return spec.Engine
	}
	log, p, m, mode := o.agents.log, spec.Profile, spec.Model, spec.Mode
	return func() (agent.Engine, error) {
		switch {
		case spec.Passthrough && len(p.Command) > 0:
			return o.typed(spec), nil
		case len(p.Command) > 0:
			return acp.New(p.Command, &acp.Options{Mode: mode, Logger: log}), nil
		case m.URL != "":
			return openai.New(m.URL, m.Name, &openai.Options{Key: m.Key, Logger: log}), nil
		}
		return nil, errors.New("make engine: neither an agent nor a model is given")
	}
}

// tools are what the agent can call: its code mode and its inbox.
func (o *Agent) tools(ctx context.Context) []agent.Tool {
	tools := append(o.code.Tools(ctx), inboxTools(o.agents.Inbox, o.Session.ID())...)
	if o.ears != nil {
		tools = append(tools, o.ears.tools()...)
	}
	if o.inProcess {
		tools = append(tools, o.box.plain()...) // others find them at a server of their own
	}
	return append(tools, o.seat.tools()...)
}

// open lets the first turn begin.
func (o *Agent) open() { o.once.Do(func() { close(o.ready) }) }

// told looks after the gate when the notice of restored watches is in the inbox:
// it opens at once when that will never come, or no wake will bring it.
func (o *Agent) told(ctx context.Context, n watch.Notice, err error) {
	if n.Kind != watch.KindRestored {
		return
	}
	o.gate.post()
	if status, serr := o.agents.Inbox.Status(ctx, o.Session.ID()); err != nil || serr != nil || status.Hold.Reason != "" {
		o.open()
	}
}

// watch restarts the saved watches and starts the given ones. What was restored
// is told in a notice, which the first turn waits for, so that it is one turn
// and not two (specification N-16).
func (o *Agent) watch(ctx context.Context, spec *AgentSpec) error {
	told := false
	if spec.StatePath != "" {
		r := o.Client.Watches.Restore(ctx)
		told = len(r.Running)+len(r.Kept)+len(r.Dropped) > 0 || r.Problem != ""
	}
	for _, req := range spec.Watches {
		if _, err := o.Client.Watches.Start(ctx, req); err != nil {
			return fmt.Errorf("watch %s: %w", req.Name, err)
		}
	}
	if !told {
		o.open()
	}
	return nil
}

// Watching counts the watches that run, and the topics that it listens to.
func (o *Agent) Watching() int {
	n := 0
	if o.ears != nil {
		n = len(o.ears.all)
	}
	for _, s := range o.Client.Watches.List() {
		if !s.Failed && !s.RestoreFailed {
			n++
		}
	}
	return n
}

// Closed is closed when Close has ended the agent.
func (o *Agent) Closed() <-chan struct{} { return o.closed }

// Close ends the agent: watches, then turns (finished within their grace time,
// then cancelled), then what turns need. What was not shown stays in the inbox.
// It is idempotent, and waits for the end also when another call has begun it.
func (o *Agent) Close(ctx context.Context) error {
	o.ending.Do(func() {
		defer close(o.closed)
		o.err = o.down.Run(ctx)
		if o.Session != nil {
			o.agents.remove(o)
		}
	})
	<-o.closed
	return o.err
}

// codeServers are the servers as code mode sees them.
func codeServers(pool *mcpclient.Pool) []agent.Server {
	var servers []agent.Server
	for _, s := range pool.Servers() {
		servers = append(servers, codeServer{s})
	}
	return servers
}

// codeServer adapts a connection to the port of the agent room.
type codeServer struct{ *mcpclient.Server }

// Tools implements agent.Server.
func (s codeServer) Tools(ctx context.Context) ([]agent.RemoteTool, error) {
	tools, err := s.Server.Tools(ctx)
	var out []agent.RemoteTool
	for _, t := range tools {
		out = append(out, agent.RemoteTool{Name: t.Name, Description: t.Description, Schema: t.Parameters})
	}
	return out, err
}

// CallTool implements agent.Server.
func (s codeServer) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	return s.Server.CallTool(ctx, name, args)
}
