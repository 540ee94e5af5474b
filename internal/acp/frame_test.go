package acp

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

// canonical is a JSON text with sorted members, for comparisons.
func canonical(s string) string {
	v := jsontext.Value(s)
	if v.Canonicalize(jsontext.PreserveRawStrings(true), jsontext.CanonicalizeRawInts(false)) != nil {
		return s
	}
	return string(v)
}

func TestParseFrame(t *testing.T) {
	t.Parallel()
	type parts struct {
		ID, Method, Params, Result, Error string
		OK                                bool
	}
	for line, want := range map[string]parts{
		`{"jsonrpc":"2.0","id":12345678901234567890,"method":"a/b","params":{"n":1.0}}`: {"12345678901234567890", "a/b", `{"n":1.0}`, "", "", true},
		`{"id":"x\u0041","method":"m"}`:                {`"x\u0041"`, "m", "", "", "", true},
		`{"method":"m","params":[1]}`:                  {"", "m", "[1]", "", "", true},
		`{"id":1,"result":null}`:                       {"1", "", "", "null", "", true},
		`{"id":1,"result":{},"error":null}`:            {"1", "", "", "{}", "", true},
		`{"id":1,"error":{"code":1}}`:                  {"1", "", "", "", `{"code":1}`, true},
		`{"id":1,"method":"m","params":{"a":1,"a":2}}`: {"1", "m", `{"a":1,"a":2}`, "", "", true}, // fails later, alone
		`{"id":1,"error":null}`:                        {},
		`{"id":{},"method":"m"}`:                       {},
		`{"id":1,"id":2,"method":"m"}`:                 {},
		`{"id":1,"method":""}`:                         {},
		`{"Method":"m"}`:                               {},
		`{}`:                                           {},
		`[]`:                                           {},
		`starting up…`:                                 {},
		`{"method":"m"} x`:                             {},
		`{"method":"m"`:                                {},
		`{"method":"m","params":}`:                     {},
	} {
		f, err := parseFrame([]byte(line))
		if want.OK != (err == nil) || (err != nil && !errors.Is(err, errNotFrame)) {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !want.OK {
			continue
		}
		got := parts{string(f.id), f.method, string(f.params), string(f.result), string(f.err), true}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", line, d)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"options":[]}}`,
		`{"id":"1","result":{"stopReason":"end_turn"}}`, `{"method":"x","params":{"a":1,"a":2}}`, "[debug] hi", "{\"method\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		f, err := parseFrame(line)
		if err != nil {
			if !errors.Is(err, errNotFrame) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !json.Valid(line) {
			t.Fatalf("accepted what is not JSON: %q", line)
		}
		for _, v := range []jsontext.Value{f.id, f.params, f.result, f.err} {
			if v != nil && (!strings.Contains(string(line), string(v)) || !json.Valid(v)) {
				t.Fatalf("part %q is not a part of %q", v, line)
			}
		}
		if f.isRequest() && f.isResponse() {
			t.Fatal("both request and response")
		}
		f.call()
	})
}

func TestDecodeUpdate(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]agent.Event{
		`{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"a"}}`: agent.Text{Text: "a", Message: "m"},
		`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"b"}}`:                 agent.Thought{Text: "b"},
		`{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"b"}}`:                  agent.Activity{What: "the agent prompts itself"},
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"t","kind":"read","status":"pending","rawInput":{"id":9007199254740993},"content":[]}`: agent.ToolCall{
			ID: "1", Title: "t", Kind: "read", Status: agent.ToolPending, Input: json.RawMessage(`{"id":9007199254740993}`),
		},
		`{"sessionUpdate":"tool_call_update","toolCallId":"1","title":null,"status":"completed","content":[{"type":"content"}]}`: agent.ToolCall{
			ID: "1", Status: agent.ToolCompleted, Output: json.RawMessage(`[{"type":"content"}]`),
		},
		`{"sessionUpdate":"plan","entries":[{"content":"c","priority":"high","status":"pending"}]}`:    agent.Plan{Entries: []agent.PlanEntry{{Content: "c", Priority: "high", Status: "pending"}}},
		`{"sessionUpdate":"usage_update","used":15,"size":258400,"_meta":{"_claude/origin":{}}}`:       agent.Usage{ContextUsed: 15, ContextSize: 258400},
		`{"sessionUpdate":"available_commands_update","availableCommands":7}`:                          nil,
		`{"sessionUpdate":"session_info_update","title":"x"}`:                                          nil,
		`{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":{"type":"active"}}}}`: agent.Activity{What: "the agent's thread is active"},
		// Everything below must stay raw.
		`{"sessionUpdate":"notice","title":"x"}`:                                 raw("notice"),
		`{"sessionUpdate":"agent_message","content":{"type":"text","text":"x"}}`: raw("agent_message"),
		`{"sessionUpdate":"Agent_Message_Chunk","content":{"type":"text"}}`:      raw("Agent_Message_Chunk"),
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}`:     raw("agent_message_chunk"),
		`{"sessionUpdate":"agent_message_chunk"}`:                                raw("agent_message_chunk"),
		`{"sessionUpdate":"tool_call","title":7,"toolCallId":"1"}`:               raw("tool_call"),
		`{"sessionUpdate":"tool_call"}`:                                          raw("tool_call"),
		`{"sessionUpdate":"plan","entries":[],"entries":[]}`:                     raw("session/update"),
		`{"content":{"type":"text","text":"x"}}`:                                 raw("session/update"),
		`[]`:                                                                     raw("session/update"),
	} {
		if r, ok := want.(agent.Raw); ok {
			r.JSON = json.RawMessage(in)
			want = r
		}
		if d := cmp.Diff(want, decodeUpdate(jsontext.Value(in))); d != "" {
			t.Errorf("%s: %s", in, d)
		}
	}
}

func raw(kind string) agent.Raw { return agent.Raw{Kind: kind} }

// N-21: no update is ever decoded as something else.
func FuzzDecodeUpdate(f *testing.F) {
	for _, kind := range []string{"agent_message_chunk", "agent_thought_chunk", "user_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "notice", "state_update"} {
		f.Add(`{"sessionUpdate":"` + kind + `","toolCallId":"1","title":"t","content":{"type":"text","text":"x"},"entries":[{}],"used":1}`)
	}
	kinds := map[string]func(agent.Event) bool{
		"agent_message_chunk": is[agent.Text], "agent_thought_chunk": is[agent.Thought], "user_message_chunk": is[agent.Activity],
		"tool_call": is[agent.ToolCall], "tool_call_update": is[agent.ToolCall], "plan": is[agent.Plan], "usage_update": is[agent.Usage],
		"session_info_update": is[agent.Activity], "available_commands_update": none, "current_mode_update": none, "config_option_update": none,
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := decodeUpdate(jsontext.Value(s))
		if r, ok := e.(agent.Raw); ok {
			if string(r.JSON) != s {
				t.Fatalf("raw %q of %q", r.JSON, s)
			}
			return
		}
		var d struct {
			Kind string `json:"sessionUpdate"`
		}
		if err := json.Unmarshal([]byte(s), &d); err != nil {
			t.Fatalf("decoded %+v of %q", e, s)
		}
		if e != nil && (kinds[d.Kind] == nil || !kinds[d.Kind](e)) {
			t.Fatalf("%q became %T", s, e)
		}
	})
}

func is[E agent.Event](e agent.Event) bool { _, ok := e.(E); return ok }

func none(e agent.Event) bool { return e == nil }

func TestLines(t *testing.T) {
	t.Parallel()
	in := "one\r\n\n" + strings.Repeat("x", 100) + "\n" + strings.Repeat("y", 101) + "\nlast"
	l := newLines(strings.NewReader(in), 100)
	var got []string
	for {
		b, size, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			got = append(got, "skipped "+string(appendInt(nil, size)))
			continue
		}
		got = append(got, string(b))
	}
	if d := cmp.Diff([]string{"one", "", strings.Repeat("x", 100), "skipped 102", "last"}, got); d != "" {
		t.Error(d)
	}
	// Memory stays bounded while a line over the limit is skipped.
	long := newLines(io.LimitReader(zeros{}, 100<<20), 1<<20)
	if b, size, err := long.next(); b != nil || size != 100<<20 || err != nil {
		t.Errorf("%d bytes kept of %d: %v", len(b), size, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}
