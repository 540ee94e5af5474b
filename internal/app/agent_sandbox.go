package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// sandboxServer is the name of a sandbox among the MCP servers of an agent.
const sandboxServer = "sandbox"

const (
	// boxBudget bounds the end of an agent's sandbox, its flush included.
	boxBudget = 8 * time.Second
	boxFlush  = 5 * time.Second
)

// agentBox is the sandbox of an agent's session. It is there when the session
// begins. One that idled out or failed is made anew at the next turn, or at the
// call that finds it gone, and the agent is told that what was in it is lost.
type agentBox struct {
	fleet   *fleet.Fleet
	agent   string
	profile string
	log     *slog.Logger

	work sync.WaitGroup // the one that makes a sandbox

	mu sync.Mutex
	// changed hears that other tools are there than before.
	changed func()
	cur     *worker.Session // nil: none could be made
	tools   []*mcp.Tool     // those of the last that ran
	making  chan struct{}   // closed when it is there or not; nil: nobody makes one
	err     error           // of the last making
	untold  *agent.Notice   // of an end that no turn has shown yet
	closed  bool
}

var errNoGateway = errors.New("make sandbox of agent: this process has no gateway; start it with --worker-gateway")

// newAgentBox makes the sandbox of a session that begins, and waits until it runs.
func newAgentBox(ctx context.Context, f *fleet.Fleet, session, profile string, log *slog.Logger) (*agentBox, error) {
	if f == nil {
		return nil, errNoGateway
	}
	b := &agentBox{fleet: f, agent: session, profile: profile, log: log, changed: func() {}}
	b.mu.Lock()
	b.begin(ctx)
	making := b.making
	b.mu.Unlock()
	if _, err := b.await(ctx, making); err != nil {
		return nil, errors.Join(err, b.close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// begin has a sandbox made; the caller holds mu, and none is being made.
func (b *agentBox) begin(ctx context.Context) {
	done := make(chan struct{})
	b.making, b.cur, b.err = done, nil, nil
	ctx = context.WithoutCancel(ctx)
	b.work.Go(func() {
		s, err := b.make(ctx)
		b.mu.Lock()
		b.making, b.cur, b.err = nil, s, err
		changed := func() {}
		if err == nil {
			tools := s.Tools()
			if !slices.EqualFunc(b.tools, tools, func(x, y *mcp.Tool) bool { return x.Name == y.Name }) {
				changed = b.changed
			}
			b.tools = tools
		}
		b.mu.Unlock()
		close(done)
		changed()
	})
}

// onChange has f called when other tools are there than before.
func (b *agentBox) onChange(f func()) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = f
}

func (b *agentBox) make(ctx context.Context) (*worker.Session, error) {
	s, err := b.fleet.Start(ctx, "", b.profile, b.agent)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Record().Profile.Outer()) // its own deadlines end it before
	defer cancel()
	return s, s.Running(ctx)
}

// over reports whether there is no sandbox and nobody makes one; the caller holds
// mu.
func (b *agentBox) over() bool {
	if b.making != nil {
		return false
	}
	if b.cur == nil || b.err != nil {
		return true
	}
	select {
	case <-b.cur.Left():
		return true
	default:
		return false
	}
}

// why says how the last one ended; the caller holds mu.
func (b *agentBox) why() string {
	if b.err != nil {
		return fmt.Sprintf("could not be made (%.300s)", b.err)
	}
	rec := b.cur.Record()
	switch {
	case rec.Release == worker.ReasonIdle:
		return fmt.Sprintf("was released, because no tool of it was called for %s", rec.IdleBudget)
	case rec.Release == worker.ReasonDeadline:
		return fmt.Sprintf("was released, because its %s were over", rec.ExecBudget)
	case rec.Failure == worker.FailureKilled:
		return fmt.Sprintf("was killed (%.200q)", rec.Detail)
	case rec.State == worker.StateFailed:
		return fmt.Sprintf("failed (%s: %.200q)", rec.Failure, rec.Detail)
	}
	return "was released"
}

const boxLost = "Its files, variables and jobs are gone. A new, empty one is being made"

// sandboxGoneError is for the call that finds the sandbox gone.
type sandboxGoneError struct{ why string }

func (e *sandboxGoneError) Error() string {
	return "the sandbox " + e.why + ". " + boxLost + ": call again"
}

// use returns the sandbox that runs, and waits for one that is being made.
func (b *agentBox) use(ctx context.Context) (*worker.Session, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, agent.ErrClosed
	}
	if b.over() {
		err := &sandboxGoneError{b.why()}
		b.begin(ctx)
		b.mu.Unlock()
		return nil, err
	}
	making := b.making
	b.mu.Unlock()
	return b.await(ctx, making)
}

// await returns the sandbox that is being made, unless making is nil, or the last.
func (b *agentBox) await(ctx context.Context, making <-chan struct{}) (*worker.Session, error) {
	if making != nil {
		select {
		case <-making:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, fmt.Errorf("make sandbox: %w", b.err)
	}
	if b.cur == nil {
		return nil, agent.ErrClosed
	}
	return b.cur, nil
}

// pull is asked before each turn: a sandbox that is gone is made anew, and the
// turn is told.
func (b *agentBox) pull(ctx context.Context) []agent.Waiting {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.over() {
		id := "none"
		if b.cur != nil {
			id = b.cur.ID()
		}
		b.untold = &agent.Notice{
			ID: fmt.Sprintf("sandbox-%s-%d", id, time.Now().UnixNano()), Source: string(notice.SourceWorker), Name: sandboxServer,
			Text: "The sandbox " + b.why() + ". " + boxLost + ".", Time: time.Now(),
		}
		b.begin(ctx)
	}
	n := b.untold
	if n == nil {
		return nil
	}
	b.untold = nil
	return []agent.Waiting{{Notice: *n, Ack: func(a agent.Ack) {
		if a.State == agent.AckUndelivered {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.untold = n // the next turn
		}
	}}}
}

// Tools implements gateway.Toolbox: what the sandbox offers, or offered last.
func (b *agentBox) Tools() []*mcp.Tool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tools)
}

// CallTool implements gateway.Toolbox. A call that finds the sandbox gone, or loses
// it, is answered with a result that says so: the model can go on.
func (b *agentBox) CallTool(ctx context.Context, name string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error) {
	s, err := b.use(ctx)
	var res *mcp.CallToolResult
	if err == nil {
		res, err = s.CallTool(ctx, name, arguments, o)
	}
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, agent.ErrClosed):
		return res, err
	case errors.As(err, new(*worker.RemoteError)), errors.Is(err, worker.ErrUnknownTool):
		return nil, err
	}
	text := err.Error()
	if errors.Is(err, worker.ErrOver) || errors.Is(err, worker.ErrReleasing) {
		text += "; whether the call was done is not known. Call again for a new, empty sandbox"
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
}

// close releases the sandbox, so that what is below out/ of its workspace is kept.
func (b *agentBox) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.work.Wait() // bounded by the deadlines of the sandbox that is being made
	b.mu.Lock()
	s := b.cur
	b.mu.Unlock()
	if s == nil {
		return nil
	}
	flush, cancel := context.WithTimeout(ctx, boxFlush)
	defer cancel()
	rec, err := s.Release(flush, worker.ReasonExplicit)
	if err != nil {
		return b.fleet.Kill(ctx, s, "its session ended")
	}
	b.log.LogAttrs(ctx, slog.LevelDebug, "sandbox of agent released", logattr.Session(b.agent), logattr.Count(len(rec.Outputs)))
	return nil
}

// box makes the sandbox of an agent that asks for one.
func (o *Agent) openBox(ctx context.Context, spec *AgentSpec) (err error) {
	if spec.Sandbox == "" {
		return nil
	}
	if o.box, err = newAgentBox(ctx, o.agents.boxes, spec.ID, spec.Sandbox, o.agents.log); err != nil {
		return err
	}
	o.down.Push("sandbox", boxBudget, o.box.close)
	return nil
}

// servers are the MCP servers that programs of run_code reach.
func (o *Agent) servers() []agent.Server {
	all := codeServers(o.Client.Servers)
	if o.box != nil {
		all = append(all, boxServer{o.box})
	}
	return all
}

// boxServer is the sandbox as one more server of code mode.
type boxServer struct{ box *agentBox }

// Name implements agent.Server.
func (boxServer) Name() string { return sandboxServer }

// Tools implements agent.Server.
func (s boxServer) Tools(context.Context) ([]agent.RemoteTool, error) {
	var out []agent.RemoteTool
	for _, t := range s.box.Tools() {
		out = append(out, agent.RemoteTool{Name: t.Name, Description: t.Description, Schema: schemaOf(t)})
	}
	return out, nil
}

// schemaOf is the schema of a tool as its worker wrote it.
func schemaOf(t *mcp.Tool) json.RawMessage {
	if raw, ok := t.InputSchema.(json.RawMessage); ok {
		return raw
	}
	return json.RawMessage(`{"type":"object"}`)
}

// CallTool implements agent.Server.
func (s boxServer) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	res, err := s.box.CallTool(ctx, name, jsontext.Value(args), nil)
	if err != nil {
		return nil, err
	}
	if res.IsError {
		return nil, errors.New(textsOf(res))
	}
	if raw, ok := res.StructuredContent.(json.RawMessage); ok {
		return raw, nil
	}
	return json.Marshal(textsOf(res))
}

// textsOf joins the texts of a result.
func textsOf(res *mcp.CallToolResult) string {
	var parts []string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// plain are the tools of the sandbox for a model loop of our own, which calls in
// process.
func (b *agentBox) plain() []agent.Tool {
	if b == nil {
		return nil
	}
	var out []agent.Tool
	for _, t := range b.Tools() {
		out = append(out, agent.Tool{
			Name: t.Name, Description: t.Description, InputSchema: schemaOf(t),
			Call: func(ctx context.Context, args json.RawMessage) (agent.ToolResult, error) {
				res, err := b.CallTool(ctx, t.Name, jsontext.Value(args), nil)
				switch {
				case err != nil && (ctx.Err() != nil || errors.Is(err, agent.ErrClosed)):
					return agent.ToolResult{}, err
				case err != nil:
					return agent.ToolResult{Text: err.Error(), IsError: true}, nil //nolint:nilerr // the model can go on
				}
				text := textsOf(res)
				if text == "" {
					text = "(empty)"
				}
				return agent.ToolResult{Text: text, IsError: res.IsError}, nil
			},
		})
	}
	return out
}

// web serves the sandbox to an agent as an MCP server of its own: over Streamable
// HTTP, and by the transport of 2024.
func (b *agentBox) web() (streamable, sse http.Handler) {
	server := gateway.ToolServer(b)
	get := func(*http.Request) *mcp.Server { return server }
	return mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: mcpserver.DefaultMaxBody}),
		mcp.NewSSEHandler(get, &mcp.SSEOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: mcpserver.DefaultMaxBody})
}

// probe lets ourselves in, by an address of its own: what is done there is not what
// the agent does.
func (b *agentBox) probe() (url string, done func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("reach sandbox: %w", err)
	}
	web, _ := b.web()
	path := "/" + newToken()
	mux := http.NewServeMux()
	mux.Handle(path, web)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 15 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	return "http://" + l.Addr().String() + path, func() {
		_ = server.Close()
		<-served
	}, nil
}
