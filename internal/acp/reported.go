package acp

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/attach"
)

// codexStartup begins the id of a tool call with which Codex tells how the start
// of an MCP server went; the server's name and a random part follow.
const codexStartup = "mcp_startup."

// claudeNotice is the title of Claude's notice, with the server's name.
var claudeNotice = regexp.MustCompile(`^MCP server "([^"]+)" failed to start$`)

// reports are parts of every update that Reported understands.
var reports = [][]byte{[]byte(codexStartup), []byte("mcpServerStatus"), []byte(`"notice"`)}

// mayReport spares most updates, of which there are many, a second decoding.
func mayReport(raw []byte) bool {
	return slices.ContainsFunc(reports, func(part []byte) bool { return bytes.Contains(raw, part) })
}

// Reported reads what an agent says about its own MCP servers in an update of a
// session, given as it came; ok is false for any other update. It is the agent's
// word and no more: the caller adds the time and decides whether it knows the
// server (specification A-34).
func Reported(raw []byte) (e attach.Evidence, ok bool) {
	var u struct {
		Kind    string         `json:"sessionUpdate"`
		Content jsontext.Value `json:"content"`
		CallID  string         `json:"toolCallId"`
		Status  string         `json:"status"`
		Title   string         `json:"title"`
		Meta    struct {
			Claude struct {
				Kind   string `json:"kind"`
				Server string `json:"server"`
				Status string `json:"status"`
			} `json:"claudeCode"`
		} `json:"_meta"`
	}
	if decode(raw, &u) != nil {
		return e, false
	}
	status, text := "", ""
	switch u.Kind {
	case "agent_message_chunk":
		if u.Meta.Claude.Kind == "mcpServerStatus" {
			e.Server, status = u.Meta.Claude.Server, u.Meta.Claude.Status
		}
	case "notice":
		if m := claudeNotice.FindStringSubmatch(u.Title); m != nil {
			e.Server, status = m[1], "failed"
		}
	case "tool_call", "tool_call_update":
		name, is := strings.CutPrefix(u.CallID, codexStartup)
		if end := strings.LastIndexByte(name, '.'); is && end > 0 {
			e.Server, status, text = name[:end], u.Status, callText(u.Content)
		}
	}
	e.Reason, e.Summary = attach.ReasonAgentReported, attach.NewSanitizer().Summary(text)
	switch status {
	case "failed":
		e.Kind = attach.AgentFailed
	case "needs-auth":
		e.Kind, e.Reason = attach.AgentFailed, attach.ReasonAuthRequired
	case "connected", "completed":
		e.Kind = attach.AgentConnected
	}
	return e, e.Kind != "" && e.Server != ""
}

// callText is the first text in the content of a tool call.
func callText(content jsontext.Value) string {
	var blocks []struct {
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if decode(content, &blocks) != nil || len(blocks) == 0 {
		return ""
	}
	return blocks[0].Content.Text
}
