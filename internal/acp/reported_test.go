package acp

import (
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/attach"
)

// What Claude and Codex say about their servers is read, and nothing else is taken
// for it.
//
//
func TestReported(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		update string
		kind   attach.Kind // empty: nothing
		server string
		reason attach.Reason
	}{
		"claude": {
			`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"**MCP server \"m\" failed to start:** …"},"_meta":{"claudeCode":{"kind":"mcpServerStatus","server":"m","status":"failed"}}}`,
			attach.AgentFailed, "m", attach.ReasonAgentReported,
		},
		"claude, connected": {
			`{"sessionUpdate":"agent_message_chunk","content":{},"_meta":{"claudeCode":{"kind":"mcpServerStatus","server":"m","status":"connected"}}}`,
			attach.AgentConnected, "m", attach.ReasonAgentReported,
		},
		"claude, login": {
			`{"sessionUpdate":"agent_message_chunk","_meta":{"claudeCode":{"kind":"mcpServerStatus","server":"m","status":"needs-auth"}}}`,
			attach.AgentFailed, "m", attach.ReasonAuthRequired,
		},
		"claude, notice": {
			`{"sessionUpdate":"notice","severity":"warning","title":"MCP server \"m x\" failed to start","description":"Its tools are unavailable in this session."}`,
			attach.AgentFailed, "m x", attach.ReasonAgentReported,
		},
		"codex": {
			`{"sessionUpdate":"tool_call","toolCallId":"mcp_startup.a.b.609ca9f5-ddab-4358-a203-a94c76e25e48","title":"mcp__m__startup","status":"failed",
"content":[{"type":"content","content":{"type":"text","text":"[codex-acp forwarded startup error] request failed for url (http://u:kanarie@h:1/mcp?k=kanarie)"}}]}`,
			attach.AgentFailed, "a.b", attach.ReasonAgentReported,
		},
		"codex, done":       {`{"sessionUpdate":"tool_call_update","toolCallId":"mcp_startup.m.1","status":"completed"}`, attach.AgentConnected, "m", attach.ReasonAgentReported},
		"codex, on its way": {`{"sessionUpdate":"tool_call","toolCallId":"mcp_startup.m.1","status":"in_progress"}`, "", "", ""},
		"codex, no name":    {`{"sessionUpdate":"tool_call","toolCallId":"mcp_startup..1","status":"failed"}`, "", "", ""},
		"a tool call":       {`{"sessionUpdate":"tool_call","toolCallId":"x","title":"mcp_startup.m.1","status":"failed"}`, "", "", ""},
		"words":             {`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"MCP server \"m\" failed to start"}}`, "", "", ""},
		"another notice":    {`{"sessionUpdate":"notice","title":"Say: MCP server \"m\" failed to start"}`, "", "", ""},
		"another status":    {`{"sessionUpdate":"agent_message_chunk","_meta":{"claudeCode":{"kind":"mcpServerStatus","server":"m","status":"pending"}}}`, "", "", ""},
		"twice":             {`{"sessionUpdate":"tool_call","toolCallId":"mcp_startup.m.1","toolCallId":"x","status":"failed"}`, "", "", ""},
		"no object":         {`[]`, "", "", ""},
	} {
		e, ok := Reported([]byte(tc.update))
		if ok != (tc.kind != "") || ok && (e.Kind != tc.kind || e.Server != tc.server || e.Reason != tc.reason) {
			t.Errorf("%s: %t %+v", name, ok, e)
		}
		if strings.Contains(e.Summary, "kanarie") {
			t.Errorf("%s leaks: %s", name, e.Summary)
		}
	}
}

func FuzzReported(f *testing.F) {
	f.Add([]byte(`{"sessionUpdate":"tool_call","toolCallId":"mcp_startup.m.1","status":"failed","content":[{"content":{"text":"x"}}]}`))
	f.Add([]byte(`{"sessionUpdate":"notice","title":"MCP server \"m\" failed to start"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, ok := Reported(raw)
		if !ok {
			return
		}
		e.OccurredAt = time.Unix(1, 0)
		if safe, ok := e.Safe(); ok && safe.Kind != attach.AgentFailed && safe.Kind != attach.AgentConnected {
			t.Errorf("%+v", safe)
		}
	})
}
