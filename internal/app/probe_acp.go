package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/acp"
)

// probeTurn bounds the turn of a probe with a prompt.
const probeTurn = 3 * time.Minute

// errAgentEnded is why a probe ends before its time.
var errAgentEnded = errors.New("the agent ended while it was observed")

// ProbeACPOptions say what to probe. Command is required.
type ProbeACPOptions struct {
	Command []string
	Env     []string // "KEY=value", added to the agent's environment
	Mode    string   // session mode, empty: the agent's own
	// Prompt is sent once the tools were listed, or not in Observe.
	Prompt  string
	Observe time.Duration
	// Frames gets the conversation as it was on the wire, and what was seen of the
	// sentinel, one JSON object a line. Nil: nobody.
	Frames io.Writer
	Logger *slog.Logger // nil: silent
}

// ACPReport is what a probe found out about an agent, each finding for itself. All
// times are in milliseconds; those of the sentinel count from the request that
// carried it, session/new.
type ACPReport struct {
	Command      string         `json:"command"`
	AgentName    string         `json:"agent_name,omitempty"`
	AgentVersion string         `json:"agent_version,omitempty"`
	Initialized  ACPStep        `json:"initialized"` // the agent's own initialize
	Advertised   ACPAdvertised  `json:"advertised"`
	Delivered    ACPDelivered   `json:"delivered"`
	Session      ACPStep        `json:"session"`
	Initialize   ACPObservation `json:"initialize_observed"`
	Discover     ACPObservation `json:"discover_observed"`
	ToolsList    ACPObservation `json:"tools_list_observed"`
	ToolCall     ACPObservation `json:"tool_call_observed"`
	// BeforeSession: the agent reached the sentinel before it answered session/new.
	// Some agents wait for their servers there, and one that hangs holds them up.
	BeforeSession bool `json:"before_session"`
	// BlockedOnMCP: it reached the sentinel, and never answered session/new.
	BlockedOnMCP bool `json:"blocked_on_mcp"`
	// Requests counts what the sentinel was asked, by method.
	Requests map[string]int `json:"requests"`
	// Server is the row of an attachment report that follows from all this.
	Server *evidence.Server `json:"server,omitempty"`
	Stop   string           `json:"stop_reason,omitempty"` // of the prompt's turn
	// Observed: everything that was looked for was seen.
	Observed bool   `json:"observed"`
	Error    string `json:"error,omitempty"`
	Stderr   string `json:"stderr,omitempty"` // its end, after an error
}

// ACPStep is a request to the agent.
type ACPStep struct {
	OK bool    `json:"ok"`
	MS float64 `json:"ms,omitempty"`
}

// ACPAdvertised are the transports that the agent says it takes, besides stdio.
type ACPAdvertised struct {
	HTTP bool `json:"http"`
	SSE  bool `json:"sse"`
}

// ACPDelivered says whether the sentinel was in session/new.
type ACPDelivered struct {
	OK        bool               `json:"ok"`
	Transport evidence.Transport `json:"transport,omitempty"`
	Reason    string             `json:"reason_code,omitempty"`
}

// ACPObservation is something that the sentinel saw, or did not see.
type ACPObservation struct {
	OK              bool         `json:"ok"`
	Asked           *bool        `json:"asked,omitempty"` // of a tool call: whether there was a prompt
	MS              float64      `json:"ms,omitempty"`    // the first time
	Times           int          `json:"times,omitempty"`
	ToolCount       *int         `json:"tool_count,omitempty"`
	Tool            string       `json:"tool,omitempty"`
	Era             evidence.Era `json:"era,omitempty"`
	ProtocolVersion string       `json:"mcp_protocol_version,omitempty"`
	ClientName      string       `json:"client_name,omitempty"`
	ClientVersion   string       `json:"client_version,omitempty"`
}

// ProbeACP starts the agent as a session would, hands it a sentinel, and reports
// what the agent did with it. An error says that the probe itself did not work;
// the report then holds what was found before. Not seen is no error.
func ProbeACP(ctx context.Context, o ProbeACPOptions) (report ACPReport, err error) {
	if len(o.Command) == 0 {
		return ACPReport{}, acp.ErrStarted // unreachable from the command line
	}
	p := newACPProbe(o)
	dir, err := probeDir()
	if err != nil {
		return p.report(err, ""), err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := newSentinel(ctx, p.see, p.trace, o.Logger)
	if err != nil {
		return p.report(err, ""), err
	}
	engine := acp.New(o.Command, &acp.Options{Logger: o.Logger, Frames: frameWriter{p}, Mode: o.Mode})
	stderr := ""
	err = p.run(ctx, engine, agent.StartOptions{Dir: dir, Env: o.Env, MCPServers: []agent.MCPServer{s.entry()}})
	if exit := (*agent.ExitError)(nil); errors.As(err, &exit) {
		stderr = exit.Stderr
	}
	if cerr := engine.Close(); cerr != nil && !errors.Is(cerr, agent.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	err = errors.Join(err, s.close())
	if werr := p.wroteAll(); werr != nil {
		err = errors.Join(err, fmt.Errorf("write frames: %w", werr))
	}
	return p.report(err, stderr), err
}

// probeDir is a directory for the agent, by its real path: agents compare paths.
func probeDir() (string, error) {
	dir, err := os.MkdirTemp("", "ossicle-probe")
	if err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", errors.Join(fmt.Errorf("make directory: %w", err), os.RemoveAll(dir))
	}
	return real, nil
}

// run starts the agent, waits, and prompts.
func (p *acpProbe) run(ctx context.Context, engine agent.Engine, so agent.StartOptions) error {
	info, err := engine.Start(ctx, so, p.event)
	if err != nil {
		return err
	}
	p.started(info)
	if err := p.await(ctx, p.listed); err != nil || p.o.Prompt == "" {
		return err
	}
	turn, cancel := context.WithTimeoutCause(ctx, probeTurn, fmt.Errorf("the turn took longer than %s", probeTurn))
	defer cancel()
	outcome, err := engine.Turn(turn, agent.Prompt{Parts: []agent.Part{{Kind: agent.PartUser, Text: p.o.Prompt}}})
	if err != nil {
		return fmt.Errorf("prompt agent: %w", err)
	}
	p.mu.Lock()
	p.stop = string(outcome.Stop)
	p.mu.Unlock()
	return nil
}

// await waits until enough was seen, at most as long as is asked for.
func (p *acpProbe) await(ctx context.Context, enough func() bool) error {
	t := time.NewTimer(p.o.Observe)
	defer t.Stop()
	for !enough() {
		select {
		case <-p.changed:
		case <-p.exited:
			return errAgentEnded
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// event takes what the agent does. It may call the sentinel and nothing else: a
// probe changes nothing.
func (p *acpProbe) event(e agent.Event) {
	switch e := e.(type) {
	case agent.Permission:
		e.Reply(sentinelOption(e))
	case agent.Drain:
		_ = e.Reply(agent.Prompt{})
	case agent.Exited:
		p.once.Do(func() { close(p.exited) })
	}
}

// sentinelOption allows the call of the sentinel's tool once, and rejects what is
// anything else.
func sentinelOption(e agent.Permission) string {
	want := agent.RejectOnce
	about := e.Call.Title + string(e.Call.Input)
	if strings.Contains(about, SentinelTool) && e.Call.Kind != "execute" && e.Call.Kind != "edit" && e.Call.Kind != "delete" {
		want = agent.AllowOnce
	}
	for _, o := range e.Options {
		if o.Kind == want {
			return o.ID
		}
	}
	return ""
}

// newACPProbe begins the attempt of which the report tells.
func newACPProbe(o ProbeACPOptions) *acpProbe {
	p := &acpProbe{
		o: o, attempt: strings.ToLower(rand.Text()), changed: make(chan struct{}, 1), exited: make(chan struct{}),
		requests: map[string]int{}, calls: map[string]string{}, sent: map[string]time.Time{},
	}
	// It cannot fail: the ids are ours.
	p.attached, _ = p.attached.Begin(evidence.Start{SessionID: "probe", ExecutionID: "probe", AttemptID: p.attempt, StartedAt: time.Now()})
	return p
}
