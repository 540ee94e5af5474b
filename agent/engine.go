package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrClosed is returned by an engine or a session that was closed.
var ErrClosed = errors.New("agent: closed")

// Engine is one life of one agent: a process that speaks a protocol, or a loop
// around a model. The session calls Start once and before anything else, and
// makes a new engine after a death. Conversation state that outlives the engine
// is named by Info.Conversation and handed to the next one as
// StartOptions.Resume.
//
// The session never calls Turn while a Turn is in flight (specification N-22):
// some agents abort the first one. Cancel and Close may be called at any time
// and from any goroutine.
type Engine interface {
	// Start brings the agent up and opens or resumes one conversation. It
	// returns when the agent can take a prompt; meanwhile it reports with
	// [Progress]. The engine bounds its own steps (N-21: 60 s each); ctx bounds
	// the whole. After an error the engine is closed.
	//
	// Events go to sink until Close has returned. What a resumed conversation
	// replays is not emitted: the session has it already.
	Start(ctx context.Context, opts StartOptions, sink Sink) (Info, error)
	// Turn sends a prompt and returns when the agent has ended its turn; all
	// events of the turn have been emitted by then. A stop that the agent
	// reports is an Outcome, also StopCancelled; an error means that the turn
	// broke: *ExitError if the agent died, ErrClosed, the agent's own error, or
	// ctx's error, after which the agent has been asked to cancel.
	Turn(ctx context.Context, p Prompt) (Outcome, error)
	// Cancel asks the agent to end the running turn; that Turn then returns.
	// It waits for the request to be sent, not for the effect. Without a turn
	// it asks the agent to end what it does on its own account, where the
	// protocol has a way for that; else it does nothing.
	Cancel(ctx context.Context) error
	// Close ends the agent and everything it started, and waits for it. A Turn
	// in flight returns ErrClosed. It is idempotent.
	Close() error
}

// Steerer is an optional power of an engine: to add text to the running turn
// (specification N-24). It counts only if Info.Steering is set.
type Steerer interface {
	// Steer offers p to the running turn. It never starts a turn.
	Steer(ctx context.Context, p Prompt) (SteerOutcome, error)
}

// SteerOutcome is the agent's own word on what became of an offer.
type SteerOutcome string

// Outcomes of Steer. Only SteerInjected is proof that the turn has the text;
// anything else leaves it waiting for the next turn.
const (
	SteerInjected  SteerOutcome = "injected"
	SteerNeedsTurn SteerOutcome = "prompt_required"
	SteerFailed    SteerOutcome = "failed"
)

// StartOptions tell an engine what to start. Which fields matter depends on
// the engine; the command or the model is part of the engine itself.
type StartOptions struct {
	Dir string   // working directory, absolute; file access is confined to it
	Env []string // "KEY=value", added to the agent's environment
	// MCPServers are the servers that the agent shall connect to itself. An
	// engine injects exactly one entry per server (N-23).
	MCPServers []MCPServer
	// Attachment is told about every delivery of servers. Nil: nobody is.
	Attachment Attachment
	// Tools are callable in this process, for engines that run the model loop
	// themselves. Engines that inject MCP servers ignore them.
	Tools []Tool
	// System is the standing instruction. Engines that cannot place it say so
	// by leaving Info.System false; it then precedes the first prompt.
	System string
	// Resume is Info.Conversation of an earlier life; empty starts afresh. An
	// engine that cannot resume it starts afresh and leaves Info.Resumed false.
	Resume string
	// History returns the turns that completed before, for engines that keep the
	// conversation themselves: the newest that fit into MaxPast, oldest first.
	// Nil is none. Engines whose agent has its own memory ignore it.
	History func(ctx context.Context) ([]Past, error)
}

// MCPServer says how one MCP server can be reached. The engine takes the first
// way that its agent can use, in the order HTTP, SSE, Command. URLs are
// secrets: they carry the token.
type MCPServer struct {
	Name    string
	HTTP    string   // URL of the Streamable HTTP endpoint; empty: not offered
	SSE     string   // URL of the older HTTP+SSE endpoint; empty: not offered
	Headers []Header // for HTTP and SSE
	Command []string // program and arguments of a stdio server or bridge
	Env     []string // "KEY=value", for Command
}

// Header is one HTTP header.
type Header struct{ Name, Value string }

// Info describes an agent that has started.
type Info struct {
	Name         string `json:"name,omitempty"` // what the agent calls itself
	Version      string `json:"version,omitempty"`
	Protocol     string `json:"protocol,omitempty"`     // for instance "acp 1"
	Conversation string `json:"conversation,omitempty"` // id for StartOptions.Resume; empty: cannot be resumed
	Resumed      bool   `json:"resumed,omitempty"`      // the conversation of StartOptions.Resume goes on
	System       bool   `json:"system,omitempty"`       // StartOptions.System has its place
	Steering     bool   `json:"steering,omitempty"`     // the engine is a Steerer and its agent advertises it
	// Injected says, per MCP server, by which transport the agent got it.
	Injected []Injected `json:"injected,omitempty"`
}

// Injected is the decision about one MCP server.
type Injected struct {
	Server    string `json:"server"`
	Transport string `json:"transport"`        // "http", "sse", "stdio", or "" when no way fits
	Reason    string `json:"reason,omitempty"` // why not, if Transport is empty
	// Assumed: the agent itself says nothing about the transport.
	Assumed bool `json:"assumed,omitempty"`
}

// Prompt is what one turn is about: messages of the user role, in order.
type Prompt struct{ Parts []Part }

// Part is one message of a prompt.
type Part struct {
	Kind PartKind
	Text string
}

// PartKind says where a part comes from. Agents see all of them as user-role
// text; a record of the conversation must tell them apart.
type PartKind string

// Kinds of parts.
const (
	PartUser    PartKind = "user"    // somebody said it
	PartNotice  PartKind = "notice"  // a background source reports it
	PartContext PartKind = "context" // ossicle says it: instructions, scope notes
)

// Text joins the parts, a blank line between them.
func (p Prompt) Text() string {
	var b []byte
	for i, part := range p.Parts {
		if i > 0 {
			b = append(b, "\n\n"...)
		}
		b = append(b, part.Text...)
	}
	return string(b)
}

// Outcome is how an agent ended a turn.
type Outcome struct {
	Stop StopReason
	// Unproven says that the prompt was handed over, and that nothing tells whether
	// the model has read it: its notices count as notified and no more (D-2).
	Unproven bool
}

// Delivered reports whether the prompt counts as taken in by the model: it
// does unless the turn was cut off (specification N-22).
func (o Outcome) Delivered() bool { return o.Stop != StopCancelled && o.Stop != "" }

// StopReason is the agent's own word on why the turn ended. Unknown reasons
// are passed on as they are.
type StopReason string

// Stop reasons of ACP, used by all engines.
const (
	StopEndTurn     StopReason = "end_turn"
	StopMaxTokens   StopReason = "max_tokens"
	StopMaxRequests StopReason = "max_turn_requests"
	StopRefusal     StopReason = "refusal"
	StopCancelled   StopReason = "cancelled"
)

// ExitError says that the agent died. Its text is without Stderr: errors are
// logged and kept in transcripts, and standard error may hold secrets. Whoever
// shows it to a person shows it apart.
type ExitError struct {
	Err    error  // how the process or the connection ended
	Stderr string // bounded tail of what it said, may be empty
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return "run agent: it exited"
	}
	return fmt.Sprintf("run agent: it exited: %v", e.Err)
}

func (e *ExitError) Unwrap() error { return e.Err }

// Sink takes the events of an engine in their order. It may be called from
// several goroutines and returns quickly. It calls nothing of the engine but the
// Reply of the event that it was given, so an engine must bear that.
type Sink func(Event)

// Event is something that an agent does: [Text], [Thought], [ToolCall],
// [Plan], [Permission], [Usage], [Activity], [Progress], [Drain], [Raw],
// [Screen] or [Exited].
//
// While no turn is in flight, Text, Thought, ToolCall, Plan, Permission,
// Activity and Screen mean that the agent is busy on its own account; it counts
// as busy until it has been quiet for a while (N-22). The others mean nothing.
type Event interface{ event() }

// Text is a piece of the reply.
type Text struct {
	Text string
	// Message identifies the message that the piece belongs to, where the
	// agent says so.
	Message string
}

// Thought is a piece of the agent's reasoning; it is never published.
type Thought struct{ Text string }

// ToolCall is a new or changed tool call of the agent. Empty fields have not
// changed since the last event with this ID.
type ToolCall struct {
	ID     string          `json:"id"`
	Title  string          `json:"title,omitempty"`
	Kind   string          `json:"kind,omitempty"` // read, edit, delete, move, search, execute, think, fetch, other
	Status ToolStatus      `json:"status,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`  // raw arguments, as the agent shows them
	Output json.RawMessage `json:"output,omitempty"` // raw result or content, as the agent shows them
}

// ToolStatus is how far a tool call is. Unknown values are passed on.
type ToolStatus string

// Tool statuses of ACP, used by all engines.
const (
	ToolPending   ToolStatus = "pending"
	ToolRunning   ToolStatus = "in_progress"
	ToolCompleted ToolStatus = "completed"
	ToolFailed    ToolStatus = "failed"
)

// Done reports whether the call has ended.
func (s ToolStatus) Done() bool { return s == ToolCompleted || s == ToolFailed }

// Plan replaces the agent's plan.
type Plan struct{ Entries []PlanEntry }

// PlanEntry is one step of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority,omitempty"`
	Status   string `json:"status,omitempty"`
}

// Permission asks whether a tool call may go on. It may come before the tool
// call's own event (N-25).
type Permission struct {
	Call    ToolCall
	Options []PermissionOption
	// Reply answers with the ID of an option, or with "" when nobody decides;
	// the turn is then cancelled by the agent. The first answer counts. It does
	// not block, and it may be called before the sink has returned.
	Reply func(option string)
}

// PermissionOption is one possible answer. It is chosen by its Kind, never by
// its position or name (N-25).
type PermissionOption struct {
	ID   string         `json:"id"`
	Name string         `json:"name,omitempty"`
	Kind PermissionKind `json:"kind"`
}

// PermissionKind is what an option means. An option of an unknown kind is
// shown and never chosen by a policy.
type PermissionKind string

// Kinds of ACP.
const (
	AllowOnce    PermissionKind = "allow_once"
	AllowAlways  PermissionKind = "allow_always"
	RejectOnce   PermissionKind = "reject_once"
	RejectAlways PermissionKind = "reject_always"
)

// Usage tells what a turn has cost so far. Zero fields are unknown.
type Usage struct {
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	ContextUsed  int64 `json:"context_used,omitempty"` // tokens
	ContextSize  int64 `json:"context_size,omitempty"` // tokens
}

// Activity says that the agent works on its own account in a way that no other
// event shows.
type Activity struct{ What string }

// Progress tells a waiting person what Start is doing.
type Progress struct{ What string }

// Drain is the agent's own request, in the middle of a turn, for what is
// waiting (Qwen). It is always answered, and at once: with no parts when there
// is nothing or mid-turn delivery is off.
type Drain struct {
	// Reply hands over the parts. A nil error means that they are written to
	// the agent as the answer to its request. It does not block for long, and
	// it is called before the sink returns.
	Reply func(Prompt) error
}

// Raw is an update that the engine does not know, kept as it came and shown as
// unknown (N-21). It is never decoded as something else.
type Raw struct {
	Kind string          // its discriminator: method, or sessionUpdate value
	JSON json.RawMessage // the frame or the update
}

// Exited is the last event of an engine whose agent died on its own. A Turn in
// flight returns the same error.
type Exited struct{ Err *ExitError }

func (Text) event()       {}
func (Thought) event()    {}
func (ToolCall) event()   {}
func (Plan) event()       {}
func (Permission) event() {}
func (Usage) event()      {}
func (Activity) event()   {}
func (Progress) event()   {}
func (Drain) event()      {}
func (Raw) event()        {}
func (Exited) event()     {}
