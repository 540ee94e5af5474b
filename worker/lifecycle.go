package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The payloads of the life cycle. Unknown keys are ignored by either reader; a
// known field of the wrong shape is an error, which the caller refuses.

// implementation names a program, as MCP does.
type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// hello is _meta.agentfy of the host's initialize. It holds the base fields of
// the major and nothing that a later minor added.
type hello struct {
	SessionID      string  `json:"sessionId"`
	ChannelVersion string  `json:"channelVersion"`
	Profile        string  `json:"profile"`
	Budgets        Budgets `json:"budgets"`
}

type helloMeta struct {
	Agentfy hello `json:"agentfy"`
}

// initializeParams is MCP's initialize as the host writes it. Capabilities are
// always the empty object: no sampling, no elicitation, no roots.
type initializeParams struct {
	ProtocolVersion string         `json:"protocolVersion"`
	ClientInfo      implementation `json:"clientInfo"`
	Capabilities    struct{}       `json:"capabilities"`
	Meta            helloMeta      `json:"_meta"`
}

// welcome is _meta.agentfy of the worker's result.
type welcome struct {
	SessionID      string `json:"sessionId"`
	ChannelVersion string `json:"channelVersion"`
	InstanceID     string `json:"instanceId"`
	Attempt        int64  `json:"attempt"`
}

type welcomeMeta struct {
	Agentfy welcome `json:"agentfy"`
}

// workerCapabilities is what a worker can do.
type workerCapabilities struct {
	Tools struct {
		ListChanged bool `json:"listChanged"`
	} `json:"tools"`
	Logging struct{} `json:"logging"`
}

// initializeResult is the worker's answer.
type initializeResult struct {
	ProtocolVersion string             `json:"protocolVersion"`
	ServerInfo      implementation     `json:"serverInfo"`
	Capabilities    workerCapabilities `json:"capabilities"`
	Meta            welcomeMeta        `json:"_meta"`
}

// readyParams says that the worker's executors stand.
type readyParams struct {
	SessionID  string   `json:"sessionId"`
	Tools      []string `json:"tools"`
	Workspace  string   `json:"workspace"`
	BootMillis int64    `json:"bootMillis"`
}

// Heartbeat is what a worker says of itself every heartbeatIntervalSeconds. It
// is a sign of life and never of activity.
type Heartbeat struct {
	SessionID string
	// Idle is the time since the last tool call completed, zero while one runs. The
	// worker measures it; nobody else does.
	Idle time.Duration
	// Exec is the time since the process started.
	Exec            time.Duration
	ActiveToolCalls int
	WorkspaceBytes  int64
	// ChannelVersion is the effective version as the worker computed it.
	ChannelVersion string
}

type heartbeatWire struct {
	SessionID       string  `json:"sessionId"`
	IdleSeconds     seconds `json:"idleSeconds"`
	ExecSeconds     seconds `json:"execSeconds"`
	ActiveToolCalls int     `json:"activeToolCalls"`
	WorkspaceBytes  int64   `json:"workspaceBytes"`
	ChannelVersion  string  `json:"channelVersion"`
}

// MarshalJSON writes the params of a heartbeat, in whole seconds as the contract
// shows them.
func (h Heartbeat) MarshalJSON() ([]byte, error) {
	return json.Marshal(heartbeatWire{h.SessionID, seconds(h.Idle.Truncate(time.Second)), seconds(h.Exec.Truncate(time.Second)), h.ActiveToolCalls, h.WorkspaceBytes, h.ChannelVersion})
}

// UnmarshalJSON reads the params of a heartbeat.
func (h *Heartbeat) UnmarshalJSON(data []byte) error {
	var w heartbeatWire
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("read heartbeat: %w", err)
	}
	if w.ActiveToolCalls < 0 || w.WorkspaceBytes < 0 {
		return errors.New("read heartbeat: a count is below zero")
	}
	*h = Heartbeat{w.SessionID, time.Duration(w.IdleSeconds), time.Duration(w.ExecSeconds), w.ActiveToolCalls, w.WorkspaceBytes, w.ChannelVersion}
	return nil
}

// heartbeatResult is the host's answer. It may lower a budget, never raise a
// ceiling; continue false means wind down now.
type heartbeatResult struct {
	Continue   bool    `json:"continue"`
	IdleBudget seconds `json:"idleBudgetSeconds"`
	ExecBudget seconds `json:"execBudgetSeconds"`
}

// releaseParams asks the worker to end.
type releaseParams struct {
	SessionID string  `json:"sessionId"`
	Reason    Reason  `json:"reason"`
	Grace     seconds `json:"graceSeconds"`
}

// Output is a file that a worker uploaded, as MCP's resource_link. MCP requires
// a name; the contract's own example has none, so a reader does not.
type Output struct {
	URI      string `json:"uri"`
	Name     string `json:"name,omitzero"`
	MIMEType string `json:"mimeType,omitzero"`
	Size     int64  `json:"size,omitzero"` // bytes
}

type outputWire struct {
	Type     string `json:"type"`
	URI      string `json:"uri"`
	Name     string `json:"name,omitzero"`
	MIMEType string `json:"mimeType,omitzero"`
	Size     int64  `json:"size,omitzero"`
}

// Report is the answer to a release: sent after the executors have stopped and
// the outputs were uploaded, it says whether anything was lost.
type Report struct {
	OutputsFlushed bool
	Outputs        []Output
}

type reportWire struct {
	Accepted       bool         `json:"accepted"`
	OutputsFlushed bool         `json:"outputsFlushed"`
	Outputs        []outputWire `json:"outputs"`
}

// MarshalJSON writes the result of a release.
func (r Report) MarshalJSON() ([]byte, error) {
	w := reportWire{Accepted: true, OutputsFlushed: r.OutputsFlushed, Outputs: []outputWire{}}
	for _, o := range r.Outputs {
		w.Outputs = append(w.Outputs, outputWire{"resource_link", o.URI, o.Name, o.MIMEType, o.Size})
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the result of a release. Outputs that are not links are
// left out.
func (r *Report) UnmarshalJSON(data []byte) error {
	var w reportWire
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("read report of release: %w", err)
	}
	*r = Report{OutputsFlushed: w.Accepted && w.OutputsFlushed}
	for _, o := range w.Outputs {
		if o.Type == "resource_link" && o.URI != "" {
			r.Outputs = append(r.Outputs, Output{o.URI, o.Name, o.MIMEType, o.Size})
		}
	}
	return nil
}

// errMissing is for a frame without a field that it must have.
var errMissing = errors.New("a required field is missing")

// readHello reads what the worker needs of initialize: the version of MCP, and
// our part of _meta.
func readHello(params jsontext.Value) (mcpVersion string, h hello, err error) {
	var p struct {
		ProtocolVersion string    `json:"protocolVersion"`
		Meta            helloMeta `json:"_meta"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return "", hello{}, fmt.Errorf("read initialize: %w", err)
	}
	h = p.Meta.Agentfy
	if p.ProtocolVersion == "" || h.SessionID == "" || h.ChannelVersion == "" {
		return p.ProtocolVersion, h, fmt.Errorf("read initialize: %w", errMissing)
	}
	return p.ProtocolVersion, h, nil
}

// readWelcome reads what the host needs of the answer to initialize.
func readWelcome(result jsontext.Value) (mcpVersion string, server implementation, w welcome, err error) {
	var r struct {
		ProtocolVersion string         `json:"protocolVersion"`
		ServerInfo      implementation `json:"serverInfo"`
		Meta            welcomeMeta    `json:"_meta"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return "", implementation{}, welcome{}, fmt.Errorf("read answer to initialize: %w", err)
	}
	w = r.Meta.Agentfy
	if r.ProtocolVersion == "" || w.SessionID == "" || w.ChannelVersion == "" || w.InstanceID == "" || w.Attempt < 0 {
		return r.ProtocolVersion, r.ServerInfo, w, fmt.Errorf("read answer to initialize: %w", errMissing)
	}
	return r.ProtocolVersion, r.ServerInfo, w, nil
}
