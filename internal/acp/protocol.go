package acp

import (
	"github.com/go-json-experiment/json/jsontext"
)

// protocolVersion is what we speak. Agents that also know version 2 answer a
// body in the shape of version 1 only to this number.
const protocolVersion = 1

// Methods that we call.
const (
	methodInitialize   = "initialize"
	methodAuthenticate = "authenticate"
	methodNew          = "session/new"
	methodLoad         = "session/load"
	methodResume       = "session/resume"
	methodPrompt       = "session/prompt"
	methodCancel       = "session/cancel"
	methodSetMode      = "session/set_mode"
	methodSteer        = "_session/steering"
)

// Methods that agents call.
const (
	methodUpdate         = "session/update"
	methodPermission     = "session/request_permission"
	methodReadFile       = "fs/read_text_file"
	methodWriteFile      = "fs/write_text_file"
	methodTerminalNew    = "terminal/create"
	methodTerminalOutput = "terminal/output"
	methodTerminalWait   = "terminal/wait_for_exit"
	methodTerminalKill   = "terminal/kill"
	methodTerminalFree   = "terminal/release"
	methodCancelRequest  = "$/cancel_request"
	methodDrain          = "craft/drainMidTurnQueue" // Qwen's own
)

// Error codes.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeAuthRequired   = -32000
	codeNotFound       = -32002
	codeCancelled      = -32800
)

type initializeParams struct {
	ProtocolVersion    int                `json:"protocolVersion"`
	ClientInfo         implementation     `json:"clientInfo"`
	ClientCapabilities clientCapabilities `json:"clientCapabilities"`
}

type implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitzero"`
	Version string `json:"version"`
}

type clientCapabilities struct {
	FS       fsCapabilities      `json:"fs"`
	Terminal bool                `json:"terminal"`
	Session  sessionCapabilities `json:"session"`
}

type fsCapabilities struct {
	ReadTextFile  bool `json:"readTextFile"`
	WriteTextFile bool `json:"writeTextFile"`
}

// sessionCapabilities asks for notices as updates of their own; agents
// otherwise put them into the text of the reply.
type sessionCapabilities struct {
	Notices struct{} `json:"notices"`
}

type initializeResult struct {
	ProtocolVersion jsontext.Value `json:"protocolVersion"`
	AgentInfo       implementation `json:"agentInfo"`
	Capabilities    struct {
		LoadSession jsontext.Value  `json:"loadSession"`
		MCP         mcpCapabilities `json:"mcpCapabilities"`
		Session     struct {
			Resume       jsontext.Value `json:"resume"`
			SystemPrompt jsontext.Value `json:"systemPrompt"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
	AuthMethods []struct {
		ID string `json:"id"`
	} `json:"authMethods"`
	Meta struct {
		Steering struct {
			Supported jsontext.Value `json:"supported"`
		} `json:"steering"`
	} `json:"_meta"`
}

// mcpCapabilities are the transports that an agent says it takes; nil says
// nothing.
type mcpCapabilities struct {
	HTTP jsontext.Value `json:"http"`
	SSE  jsontext.Value `json:"sse"`
}

// offered reads a capability: true or an object. Anything else, also of a
// shape that we do not know, is no.
func offered(v jsontext.Value) bool { return v.Kind() == 't' || v.Kind() == '{' }

type authenticateParams struct {
	MethodID string `json:"methodId"`
}

type sessionParams struct {
	SessionID    string        `json:"sessionId,omitzero"` // load and resume
	CWD          string        `json:"cwd"`
	MCPServers   []any         `json:"mcpServers"` // never nil
	SystemPrompt *systemPrompt `json:"systemPrompt,omitzero"`
}

type systemPrompt struct {
	Mode    string      `json:"mode"`
	Content []textBlock `json:"content"`
}

type sessionResult struct {
	SessionID string `json:"sessionId"`
}

// networkServer is an entry for an MCP server over HTTP. Headers is never nil:
// agents refuse null.
type networkServer struct {
	Type    string `json:"type"` // http or sse
	Name    string `json:"name"`
	URL     string `json:"url"`
	Headers []pair `json:"headers"`
}

// stdioServer has no type on the wire. Args and Env are never nil.
type stdioServer struct {
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []pair   `json:"env"`
}

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type promptParams struct {
	SessionID string      `json:"sessionId"`
	Prompt    []textBlock `json:"prompt"`
}

type promptResult struct {
	StopReason string `json:"stopReason"`
	Usage      *struct {
		InputTokens  jsontext.Value `json:"inputTokens"`
		OutputTokens jsontext.Value `json:"outputTokens"`
	} `json:"usage"`
}

type cancelParams struct {
	SessionID string `json:"sessionId"`
}

type setModeParams struct {
	SessionID string `json:"sessionId"`
	ModeID    string `json:"modeId"`
}

type steerParams struct {
	SessionID string      `json:"sessionId"`
	Prompt    []textBlock `json:"prompt"`
	Meta      struct {
		Steering struct {
			IdleBehavior string `json:"idleBehavior"`
		} `json:"steering"`
	} `json:"_meta"`
}

type steerResult struct {
	Outcome string `json:"outcome"`
}

type permissionParams struct {
	ToolCall jsontext.Value `json:"toolCall"`
	Options  []struct {
		ID   string `json:"optionId"`
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"options"`
}

type permissionResult struct {
	Outcome permissionOutcome `json:"outcome"`
}

type permissionOutcome struct {
	Outcome  string `json:"outcome"` // selected or cancelled
	OptionID string `json:"optionId,omitzero"`
}

type readFileParams struct {
	Path  string `json:"path"`
	Line  *int64 `json:"line"` // from 1
	Limit *int64 `json:"limit"`
}

type readFileResult struct {
	Content string `json:"content"`
}

type writeFileParams struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

type terminalNewParams struct {
	Command         string   `json:"command"`
	Args            []string `json:"args"`
	Env             []pair   `json:"env"`
	CWD             string   `json:"cwd"`
	OutputByteLimit *int64   `json:"outputByteLimit"`
}

type terminalParams struct {
	TerminalID string `json:"terminalId"`
}

type terminalOutputResult struct {
	Output     string      `json:"output"`
	Truncated  bool        `json:"truncated"`
	ExitStatus *exitStatus `json:"exitStatus,omitzero"`
}

type exitStatus struct {
	ExitCode *int    `json:"exitCode"`
	Signal   *string `json:"signal"`
}

type cancelRequestParams struct {
	ID jsontext.Value `json:"requestId"`
}

type drainResult struct {
	Messages        []string `json:"messages"` // never nil
	HasQueuedPrompt bool     `json:"hasQueuedPrompt"`
}

type empty struct{}
