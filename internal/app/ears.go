package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
)

// EarsOptions say whose ears an MCP server over stdio is.
type EarsOptions struct {
	Agent string // name of the inbox
	Data  string // data directory; empty means that of the configuration
	// Channel pushes notices into the running session as Claude Code's channels
	// do; the server then speaks only versions before 2026-07-28.
	Channel bool
	// StatePath keeps watches over restarts; empty keeps none.
	StatePath string
	// Session is the collaboration session that the agent joins; without one it
	// can by a tool. Limits are its own.
	Session string
	Limits  mailbox.Limits
	Logger  *slog.Logger
}

// Ears is ossicle as one MCP server in an agent that somebody else started: the
// agent sets up watches with its tools, notices gather in its inbox, and reach it
// at the end of the next tool result or, through a channel, at once (D-11, D-12).
type Ears struct {
	delivery *Delivery
	client   *Client
	server   *mcpserver.Server
	channel  *wake.ClaudeChannel // nil without
	seat     *seat
	agent    string
	log      *slog.Logger
	down     teardown.Stack

	state   string     // file that tells of the channel
	flags   string     // see earsState
	telling sync.Mutex // held over a write of that file
}

// NewEars builds the server. The caller closes it.
func NewEars(ctx context.Context, c *config.Config, servers []mcpclient.Spec, o EarsOptions) (_ *Ears, err error) {
	e := &Ears{agent: o.Agent, log: o.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			_ = e.down.Run(context.WithoutCancel(ctx))
		}
	}()
	var wakers []notice.Waker
	if o.Channel {
		e.channel = wake.NewClaudeChannel(o.Agent, func() { e.delivery.Inbox.Kick(o.Agent) })
		wakers = append(wakers, e.channel)
		e.state, e.flags = earsPath(c, o.Data, o.Agent), hostFlags(os.Getppid())
		e.channel.Follow(e.tell)
	}
	if e.delivery, err = NewDelivery(ctx, c, o.Data, o.Agent, wakers, e.log); err != nil {
		return nil, err
	}
	e.down.Push("delivery", serverBudget+storeBudget, e.delivery.Close)
	if o.Channel {
		e.tell()
		e.down.Push("channel state", deliveryBudget, e.untell)
	}
	if e.client, err = NewClient(c, servers, &ClientOptions{Sink: e.delivery, StatePath: o.StatePath, Logger: e.log}); err != nil {
		return nil, err
	}
	e.down.Push("client", clientBudget, e.client.Close)
	code := agent.NewCodeMode(e.client.python, codeServers(e.client.Servers), e.client.Watches, &agent.CodeOptions{Log: e.log})
	e.down.Push("code", pythonBudget, func(context.Context) error { code.Close(); return nil })
	if o.StatePath != "" {
		e.client.Watches.Restore(ctx)
	}
	e.seat = e.newSeat(ctx, c, &o)
	if err = e.serve(append(code.Tools(ctx), inboxTools(e.delivery.Inbox, o.Agent)...)); err != nil {
		return nil, err
	}
	e.down.Push("signals", mailboxBudget, e.seat.close)
	if o.Session != "" {
		err = e.seat.join(ctx, o.Session)
	}
	return e, err
}

func (e *Ears) serve(tools []agent.Tool) error {
	sources := listen.NewRegistry(&listen.RegistryOptions{Logger: e.log})
	e.down.Push("sources", registryBudget, func(context.Context) error { sources.Close(); return nil })
	if err := sources.Mount(mcpserver.SignalSource(e.seat.Seat)); err != nil {
		return err
	}
	opts := &mcpserver.Options{
		Name: version.Name, Instructions: agent.SystemPrompt(agent.Briefing{CodeMode: true, Watches: true, Extra: signalsBriefing}), Logger: e.log,
	}
	if e.channel != nil {
		opts.Configure = e.channel.Options
	}
	mounted := make([]mcpserver.Tool, len(tools))
	for i, t := range tools {
		mounted[i] = mount(t)
	}
	mounted = append(mounted, mcpserver.SignalTools(e.seat.Seat)...)
	server, err := mcpserver.New(sources, listen.NewHub(sources, &listen.HubOptions{Logger: e.log}), mounted, opts)
	if err != nil {
		return err
	}
	server.SDK().AddReceivingMiddleware(piggyback(e.delivery.Inbox, e.agent, e.log))
	e.server = server
	e.down.Push("server", serverBudget, server.Shutdown)
	return nil
}

// Serve serves the one peer on the pipe until its input ends or ctx does.
func (e *Ears) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	if e.channel == nil {
		return e.server.ServeStdio(ctx, in, out)
	}
	session, err := e.server.SDK().Connect(ctx, e.channel.Transport(&mcp.IOTransport{Reader: in, Writer: out}), nil)
	if err != nil {
		return fmt.Errorf("serve channel: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	if err := session.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve channel: %w", err)
	}
	return nil
}

// Close ends the watches and the delivery.
func (e *Ears) Close(ctx context.Context) error { return e.down.Run(ctx) }
