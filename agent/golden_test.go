package agent_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

var update = flag.Bool("update", false, "write the golden files")

// The names in NDJSON updates and in exported transcripts are a contract
// (W-142, N-19): they change only together with this file.
func TestGoldenLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 3, 10, 0, 0, 0, time.UTC)
	store := agent.NewMemoryStore(0, 0)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, u := range []agent.Update{
		{Time: at, Stream: agent.StreamNotice, Event: agent.EventNoticeQueued, Session: "s1", ID: "n1", Source: "watch", Name: "cm", URI: "memo://notes", Text: "ADDED owner"},
		{Time: at, Stream: agent.StreamInput, Event: agent.EventInputQueued, Session: "s1", ID: "in-1", From: "eve", Channel: "#a", Text: "watch it"},
		{Time: at, Stream: agent.StreamRuntime, Event: agent.EventRunStarted, Session: "s1", Run: "run-1", Inputs: []string{"in-1"}, Notices: []string{"n1"}, Channel: "#a"},
		{
			Time: at, Stream: agent.StreamAgent, Event: agent.EventTool, Session: "s1", Run: "run-1", ID: "t1", Text: "run_code", Kind: "execute", Status: "completed",
			Input: json.RawMessage(`{"code":"1"}`), Output: json.RawMessage(`"1"`),
		},
		{Time: at, Stream: agent.StreamAgent, Event: agent.EventPermission, Session: "s1", ID: "ask-1", Text: "rm", Options: options},
		{Time: at, Stream: agent.StreamAgent, Event: agent.EventPlan, Session: "s1", Plan: []agent.PlanEntry{{Content: "look", Priority: "high", Status: "pending"}}, Aside: true},
		{Time: at, Stream: agent.StreamAgent, Event: agent.EventUsage, Session: "s1", Usage: &agent.Usage{InputTokens: 1, OutputTokens: 2, ContextUsed: 3, ContextSize: 4}},
		{Time: at, Stream: agent.StreamRuntime, Event: agent.EventReplySuppressed, Session: "s1", Run: "run-1", Text: "NO_REPLY", Reason: "no_reply"},
		{Time: at, Stream: agent.StreamRuntime, Event: agent.EventRunEnded, Session: "s1", Run: "run-1", Status: "end_turn", Error: "broken"},
	} {
		if err := enc.Encode(u); err != nil {
			t.Fatal(err)
		}
	}
	err := store.Append(t.Context(), "s1",
		agent.Entry{Time: at, Kind: agent.EntryUser, ID: "in-1", Text: "watch it", From: "eve", Channel: "#a"},
		agent.Entry{Time: at, Kind: agent.EntryQueue, ID: "n1", Operation: agent.OpEnqueue, TaskID: "watch-cm", Description: "watch cm memo://notes"},
		agent.Entry{Time: at, Kind: agent.EntryMonitor, Run: "run-1", ID: "n1", Text: "ADDED owner", TaskID: "watch-cm", Description: "watch cm memo://notes", Note: agent.NoticeInstruction},
		agent.Entry{Time: at, Kind: agent.EntryTool, Run: "run-1", ID: "t1", Title: "run_code", Text: "execute", Status: "completed", Input: json.RawMessage(`{}`), Output: json.RawMessage(`1`)},
		agent.Entry{Time: at, Kind: agent.EntryRunEnd, Run: "run-1", Inputs: []string{"in-1"}, Notices: []string{"n1"}, Status: "end_turn", Delivered: true, Suppressed: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Export(t.Context(), store, "s1", &out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "lines.ndjson")
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Error(d)
	}
}
