package wake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/notice"
)

// What a server and Claude Code say to each other about channels.
const (
	channelCapability = "claude/channel"
	channelMethod     = "notifications/claude/channel"
	// firstModern is the first MCP version that has no way for a notification
	// that nobody asked for; Claude Code takes no channel on it.
	firstModern = "2026-07-28"
)

// ClaudeChannel pushes into the running session of a Claude Code that started
// us as a stdio MCP server (specification D-12, N-18). A push is never
// acknowledged, and one into a session that was started without the channel is
// dropped in silence; so it proves notice.Notified and no more. That the model
// saw it, a call of one of our tools can tell.
type ClaudeChannel struct {
	agent   string
	ready   func()
	changed func() // the state has

	mu      sync.Mutex
	conn    *channelConn
	client  mcp.Implementation
	version string
	pushes  int  // since the client last called a tool
	writing bool // a write is under way; a host that does not read holds it up
}

var (
	_ notice.Waker  = (*ClaudeChannel)(nil)
	_ notice.Doctor = (*ClaudeChannel)(nil)
)

// NewClaudeChannel returns the adapter of the agent whose session is on the
// other side of the pipe. ready, if it is not nil, is called when the session
// can be pushed to; Inbox.Kick belongs there.
func NewClaudeChannel(agent string, ready func()) *ClaudeChannel {
	if ready == nil {
		ready = func() {}
	}
	return &ClaudeChannel{agent: agent, ready: ready, changed: func() {}}
}

// Options makes a server one that Claude Code takes for a channel: it declares
// the capability, and speaks only versions that know initialize.
func (c *ClaudeChannel) Options(o *mcp.ServerOptions) {
	caps := &mcp.ServerCapabilities{}
	if o.Capabilities != nil {
		copied := *o.Capabilities
		caps = &copied
	}
	experimental := map[string]any{channelCapability: map[string]any{}}
	maps.Copy(experimental, caps.Experimental)
	caps.Experimental = experimental
	o.Capabilities = caps
	o.SupportedProtocolVersions = slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v >= firstModern })
}

// Transport wraps the transport that the server is connected to, because the
// SDK sends no notifications of others' making.
func (c *ClaudeChannel) Transport(inner mcp.Transport) mcp.Transport {
	return &channelTransport{inner: inner, channel: c}
}

// Name implements notice.Waker.
func (c *ClaudeChannel) Name() string { return "claude-channel" }

// Reach implements notice.Waker.
func (c *ClaudeChannel) Reach(_ context.Context, agent string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case agent != c.agent:
		return fmt.Errorf("reach session: this pipe is %s's", c.agent)
	case c.conn == nil:
		return errors.New("reach session: no client is connected")
	case c.version == "":
		return errors.New("reach session: the client has not finished its handshake")
	case c.version >= firstModern:
		return fmt.Errorf("reach session: the client speaks MCP %s, which has no channels", c.version)
	case c.writing:
		return &notice.BusyError{Reason: "the client does not read"}
	}
	return nil
}

// channelParams is the notification. Keys of meta are letters, digits and
// underscores; Claude Code drops others.
type channelParams struct {
	Content string            `json:"content"`
	Meta    map[string]string `json:"meta"`
}

// Wake implements notice.Waker.
func (c *ClaudeChannel) Wake(ctx context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
	if err := c.Reach(ctx, d.Agent); err != nil {
		return "", err
	}
	params, err := json.Marshal(channelParams{Content: d.Text, Meta: map[string]string{"delivery": d.ID}})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	conn := c.conn
	c.writing = true
	c.mu.Unlock()
	if conn == nil {
		return "", errors.New("push to session: the client is gone")
	}
	written := make(chan error, 1)
	conn.writes.Go(func() {
		err := conn.Connection.Write(context.WithoutCancel(ctx), &jsonrpc.Request{Method: channelMethod, Params: params})
		c.mu.Lock()
		c.writing = false
		if err == nil {
			c.pushes++
		}
		c.mu.Unlock()
		c.changed()
		written <- err
	})
	select {
	case err := <-written:
		if err != nil {
			return "", fmt.Errorf("push to session: %w", err)
		}
		return notice.Notified, nil
	case <-ctx.Done():
		return "", fmt.Errorf("push to session: %w", ctx.Err())
	}
}

// ChannelState is what a channel knows of its host.
type ChannelState struct {
	Connected bool   `json:"connected"`
	Client    string `json:"client,omitzero"`   // as the host names itself
	Protocol  string `json:"protocol,omitzero"` // MCP revision; empty: no handshake yet
	Pushes    int    `json:"pushes"`            // since the host last called a tool
	Stuck     bool   `json:"stuck,omitzero"`    // the host does not read
}

// State returns what the channel knows now.
func (c *ClaudeChannel) State() ChannelState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ChannelState{
		Connected: c.conn != nil, Client: notice.Plain(c.client.Name+" "+c.client.Version, 100), Protocol: c.version, Pushes: c.pushes, Stuck: c.writing,
	}
}

// Follow has changed called after every change of the state. It must be called
// before the server is connected.
func (c *ClaudeChannel) Follow(changed func()) { c.changed = changed }

// Doctor implements notice.Doctor.
func (c *ClaudeChannel) Doctor(context.Context) []notice.Check { return c.State().Checks() }

// Checks says what keeps a session from hearing.
func (s ChannelState) Checks() []notice.Check {
	const fix = "start Claude Code with this server in its MCP configuration, as a stdio server"
	switch {
	case !s.Connected:
		return []notice.Check{bad("session", "no client is connected", fix)}
	case s.Protocol == "":
		return []notice.Check{bad("session", "the client has not finished its handshake (initialize)", fix)}
	case s.Protocol >= firstModern:
		return []notice.Check{bad("session", fmt.Sprintf("the client speaks MCP %s, which has no channels", s.Protocol), fix)}
	case s.Stuck:
		return []notice.Check{bad("session", "the client does not read", "restart the session")}
	}
	checks := []notice.Check{ok("session")}
	if !strings.Contains(strings.ToLower(s.Client), "claude") {
		checks = append(checks, bad("client", fmt.Sprintf("%q is not known to take channels", s.Client), "use another adapter for this host"))
	}
	if s.Pushes > 2 {
		checks = append(checks, bad("pushes", fmt.Sprintf("the client called no tool after %d pushes: it may drop them", s.Pushes),
			"start Claude Code with --channels, or --dangerously-load-development-channels server:NAME; it needs a claude.ai or Console login, and an organisation must allow channels"))
	}
	return checks
}

type channelTransport struct {
	inner   mcp.Transport
	channel *ClaudeChannel
}

func (t *channelTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &channelConn{Connection: inner, channel: t.channel}
	t.channel.mu.Lock()
	t.channel.conn, t.channel.version, t.channel.client = conn, "", mcp.Implementation{}
	t.channel.mu.Unlock()
	t.channel.changed()
	return conn, nil
}

// channelConn watches the handshake go by.
type channelConn struct {
	mcp.Connection
	channel *ClaudeChannel
	writes  sync.WaitGroup

	mu         sync.Mutex
	initialize jsonrpc.ID // of the request that has no answer yet
	answered   string     // version that we answered with
}

func (c *channelConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if req, ok := msg.(*jsonrpc.Request); ok && err == nil {
		c.heard(req)
	}
	return msg, err
}

// heard notes what a request says about the client.
func (c *channelConn) heard(req *jsonrpc.Request) {
	switch req.Method {
	case "initialize":
		var params struct {
			ClientInfo mcp.Implementation `json:"clientInfo"`
		}
		_ = json.Unmarshal(req.Params, &params) // the server answers what is wrong with it
		c.mu.Lock()
		c.initialize = req.ID
		c.mu.Unlock()
		c.channel.mu.Lock()
		c.channel.client = params.ClientInfo
		c.channel.mu.Unlock()
	case "notifications/initialized":
		c.mu.Lock()
		version := c.answered
		c.mu.Unlock()
		c.channel.mu.Lock()
		c.channel.version = version
		c.channel.mu.Unlock()
		c.channel.changed()
		if version != "" {
			c.channel.ready()
		}
	case "tools/call":
		c.channel.mu.Lock()
		pushed := c.channel.pushes > 0
		c.channel.pushes = 0
		c.channel.mu.Unlock()
		if pushed {
			c.channel.changed()
		}
	}
}

func (c *channelConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if res, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		if c.initialize.IsValid() && res.ID == c.initialize {
			var result struct {
				ProtocolVersion string `json:"protocolVersion"`
			}
			if res.Error == nil && json.Unmarshal(res.Result, &result) == nil {
				c.answered = result.ProtocolVersion
			}
			c.initialize = jsonrpc.ID{}
		}
		c.mu.Unlock()
	}
	return c.Connection.Write(ctx, msg)
}

func (c *channelConn) Close() error {
	c.leave()
	err := c.Connection.Close()
	c.writes.Wait()
	return err
}

func (c *channelConn) leave() {
	c.channel.mu.Lock()
	defer c.channel.mu.Unlock()
	if c.channel.conn == c {
		c.channel.conn, c.channel.version = nil, ""
	}
}
