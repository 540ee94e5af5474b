package app

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
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

var updatePage = flag.Bool("update-page", false, "write the golden file of the page")

// What the page is sent is a contract: it changes only together with this file.
func TestGoldenPage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 3, 10, 0, 0, 0, time.UTC)
	count, line := 4, "ADDED todo"
	status := notice.Status{Agent: "a", Counts: notice.Counts{notice.Seen: 1}, Spent: notice.Spent{WakesHour: 1}}
	info := SessionInfo{
		Status: agent.Status{Meta: agent.Meta{ID: "a", Profile: "p", Dir: "/d", CreatedAt: at, UpdatedAt: at}, State: "running", Run: "run-1"}, Running: true, Watching: 1,
		Watches: []watch.Status{{Name: "n", URI: "memo://notes", Shape: watch.ShapeState, Events: 1}},
		Asked:   []agent.Question{{ID: "ask-1", Call: agent.ToolCall{ID: "t"}, Options: []agent.PermissionOption{{ID: "y", Name: "Yes", Kind: agent.AllowOnce}}, Until: at}},
		Inbox:   &status,
	}
	entry := agent.Entry{Seq: 7, Time: at, Kind: agent.EntryAssistant, Run: "run-1", Text: "hi"}
	record := notice.Record{Notice: notice.Notice{ID: "n_1", Agent: "a", Source: notice.SourceWatch, Text: "x", CreatedAt: at}, State: notice.Seen, StateAt: at}
	signal := mailbox.Signal{ID: "s", Sequence: 1, Time: at, Sender: "one", Recipient: "two", Type: mailbox.Inform, Content: "x"}
	member := mailbox.Agent{ID: "one", Status: mailbox.Active, RegisteredAt: at, LastSeen: at}
	value := mailbox.Entry{Key: "k", Value: "v", UpdatedBy: "one", UpdatedAt: at}
	report := evidence.Report{SchemaVersion: evidence.SchemaVersion, Current: "x", Attempts: []evidence.Attempt{}}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, v := range []any{
		sessionState{Session: info, Entries: []agent.Entry{}, First: true, Live: (&agent.Present{}).Live()},
		sessionState{
			Session: SessionInfo{}, History: report, Entries: []agent.Entry{entry},
			Live: agent.Live{
				Run: "run-1", Text: "and", Thought: "hm", Tools: []agent.LiveTool{{ID: "t", Title: "look", Kind: "read", Status: "pending", Input: json.RawMessage(`{}`)}},
				Plan: []agent.PlanEntry{{Content: "do"}},
			},
		},
		entriesPush{Entries: []agent.Entry{entry}, Live: &liveText{"run-1", ""}},
		entriesPush{Entries: []agent.Entry{entry}},
		reportPush{"", "a", report, at},
		inboxState{Notices: []notice.Record{record}, Next: "7", Agents: []notice.Status{status}},
		collaborationState{Agents: []mailbox.Agent{member}, Signals: []mailbox.Signal{signal}, Whiteboard: []mailbox.Entry{value}},
		terminalState{Offset: 3, Lost: 2, Cols: 80, Rows: 24, Running: true},
		terminalOutput{Offset: 3, Lost: 2, Modes: []byte("\x1b[?25l"), Data: []byte("é\xff")},
		terminalOutput{Offset: 3, Data: []byte("x")},
		pageInfo{
			Version: "1", Principal: pageOwner{"local", true}, Features: pageFeatures{Feed: true},
			Profiles:  []pageProfile{{Name: "p", Engine: "acp", Agent: "claude", Servers: []string{}}},
			Sandboxes: []pageSandbox{{Name: "light", Driver: "local"}, {Name: "tight", Driver: "local", Tier: "bubblewrap"}},
		},
		describeServer("s", []watch.Entry{{URI: "memo://notes", Name: "notes"}, {URI: "memo://{x}", Name: "any", Template: true}}, nil),
		watch.Tryout{OK: true, Lines: []watch.TryoutLine{{Event: json.RawMessage(`{"type":"ADDED"}`), Line: &line, Now: true}, {Event: json.RawMessage(`{}`), Error: "KeyError"}}},
		evidence.EndpointTest{TestedAt: at, Succeeded: true, ToolCount: &count},
		AgentOutput{Lines: []string{}},
	} {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join("testdata", "page.ndjson")
	if *updatePage {
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
