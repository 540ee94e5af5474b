package acp

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/agent"
)

// quiet are updates that we know and that say nothing about the conversation.
var quiet = map[string]bool{
	"available_commands_update": true,
	"current_mode_update":       true,
	"config_option_update":      true,
}

// update is the union of the updates that we decode. The discriminator alone
// decides which members mean something.
type update struct {
	Kind      string         `json:"sessionUpdate"`
	Content   jsontext.Value `json:"content"`
	MessageID string         `json:"messageId"`
	toolCall
	Entries []planEntry    `json:"entries"`
	Used    jsontext.Value `json:"used"`
	Size    jsontext.Value `json:"size"`
	Meta    struct {
		Codex struct {
			Thread struct {
				Type string `json:"type"`
			} `json:"threadStatus"`
		} `json:"codex"`
	} `json:"_meta"`
}

type toolCall struct {
	ID        string         `json:"toolCallId"`
	Title     string         `json:"title"`
	ToolKind  string         `json:"kind"`
	Status    string         `json:"status"`
	RawInput  jsontext.Value `json:"rawInput"`
	RawOutput jsontext.Value `json:"rawOutput"`
}

type planEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// decodeUpdate turns the params of session/update into an event, or nil when
// there is nothing to tell. What it does not know, and what does not have the
// shape that its kind promises, comes back as agent.Raw, byte for byte.
func decodeUpdate(raw jsontext.Value) agent.Event {
	kind := updateKind(raw)
	if quiet[kind] {
		return nil
	}
	var u update
	if kind == "" || decode(raw, &u) != nil {
		return rawUpdate(kind, raw)
	}
	if e, ok := u.event(); ok {
		return e
	}
	return rawUpdate(kind, raw)
}

// event reports false for an update that it does not understand.
func (u *update) event() (agent.Event, bool) {
	switch u.Kind {
	case "agent_message_chunk":
		text, ok := blockText(u.Content)
		return agent.Text{Text: text, Message: u.MessageID}, ok
	case "agent_thought_chunk":
		text, ok := blockText(u.Content)
		return agent.Thought{Text: text}, ok
	case "user_message_chunk":
		// Nobody but us is the user here: the agent prompts itself.
		return agent.Activity{What: "the agent prompts itself"}, true
	case "tool_call", "tool_call_update":
		return u.call(u.Content), u.ID != ""
	case "plan":
		p := agent.Plan{}
		for _, e := range u.Entries {
			p.Entries = append(p.Entries, agent.PlanEntry(e))
		}
		return p, true
	case "usage_update":
		return agent.Usage{ContextUsed: count(u.Used), ContextSize: count(u.Size)}, true
	case "session_info_update":
		if u.Meta.Codex.Thread.Type == "active" {
			return agent.Activity{What: "the agent's thread is active"}, true
		}
		return nil, true
	default:
		return nil, false
	}
}

func (t *toolCall) call(content jsontext.Value) agent.ToolCall {
	c := agent.ToolCall{
		ID: t.ID, Title: t.Title, Kind: t.ToolKind, Status: agent.ToolStatus(t.Status),
		Input: message(t.RawInput), Output: message(t.RawOutput),
	}
	if c.Output == nil && content.Kind() == '[' && len(content) > len("[]") {
		c.Output = message(content)
	}
	return c
}

// message copies a raw value out of its line, which may be long.
func message(v jsontext.Value) json.RawMessage {
	if len(v) == 0 || v.Kind() == 'n' {
		return nil
	}
	return json.RawMessage(bytes.Clone(v))
}

// updateKind reads the discriminator and nothing else.
func updateKind(raw jsontext.Value) string {
	var d struct {
		Kind string `json:"sessionUpdate"`
	}
	if decode(raw, &d) != nil {
		return ""
	}
	return d.Kind
}

func rawUpdate(kind string, raw jsontext.Value) agent.Raw {
	if kind == "" {
		kind = methodUpdate
	}
	return agent.Raw{Kind: kind, JSON: json.RawMessage(bytes.Clone(raw))}
}

// blockText reads a content block that is text.
func blockText(raw jsontext.Value) (string, bool) {
	var b textBlock
	if raw == nil || decode(raw, &b) != nil || b.Type != "text" {
		return "", false
	}
	return b.Text, true
}

// count reads a number of tokens; what is none is 0, unknown.
func count(v jsontext.Value) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
