package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/notice"
)

// cli is a program for a terminal, as a script for a shell.
func cli(t *testing.T, name, script string) AgentSpec {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return AgentSpec{ID: "a", Passthrough: true, Profile: agent.Profile{Command: []string{path}, Dir: t.TempDir()}}
}

// reads prints a line for each line that it is sent.
const reads = "echo ready\nwhile read -r line; do echo \"heard: $line\"; done\n"

// terminalText reads a terminal until it shows something.
func terminalText(t *testing.T, term agent.Terminal, words string) string {
	t.Helper()
	view, all := term.Attach(0), ""
	for !strings.Contains(all, words) {
		c, err := view.Next(t.Context())
		if err != nil {
			t.Fatalf("no %q: %v; it shows %q", words, err, all)
		}
		all += string(c.Data)
	}
	return all
}

// A notice for an agent in a terminal is typed, once, and that is no proof; the next
// tool of ours that the agent calls shows it, and that is one.
//
// N-1, A-13, D-2, D-10.
func TestNoticeIsTyped(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	a := testAgents(t, t.TempDir())
	seen := filepath.Join(t.TempDir(), "mcp.json")
	spec := cli(t, "claude", `cp "${1#--mcp-config=}" "$OUT.new" && mv "$OUT.new" "$OUT"`+"\n"+reads)
	spec.Profile.Env = []string{"OUT=" + seen}
	spec.Servers, spec.Watches = b.specs, notes()
	one := start(t, a, spec)
	term, ok := one.Terminal()
	if !ok {
		t.Fatal("it has no terminal")
	}
	terminalText(t, term, "ready") // it starts with the session, not with a turn
	at := awaitReport(t, a, "a", "acceptance", func(at evidence.Attempt) bool { return !at.SessionAcceptedAt.IsZero() })
	if s := at.Server(builtin); s.Status != evidence.Delivered || s.Transport != evidence.HTTP || s.Steps[evidence.SessionAccepted].At.IsZero() {
		t.Errorf("row %+v", s)
	}

	var config struct {
		Servers map[string]struct {
			URL string `json:"url"`
		} `json:"mcpServers"`
	}
	text, err := os.ReadFile(seen)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	session := dial(t, &mcp.StreamableClientTransport{Endpoint: config.Servers[builtin].URL}, "2025-11-25")
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	u := follow(t, one.Session)
	b.set(t, "todo", "tea")
	u.await(t, agent.EventNoticeWritten, 1)
	terminalText(t, term, "ADDED todo")
	settled(t, a.Inbox, "a", notice.Notified, 1)
	if n := u.count(agent.EventNoticeWoken) + u.count(agent.EventNoticeSeen); n != 0 {
		t.Errorf("%d claims without a proof", n)
	}
	// It rides on a result once the adapter has let go of it.
	shown := ""
	for deadline := time.Now().Add(patience); !strings.Contains(shown, "ADDED todo"); {
		if shown = call(t, session, "watch_list", "{}"); time.Now().After(deadline) {
			t.Fatalf("no notice on a result: %q", shown)
		}
		time.Sleep(50 * time.Millisecond) // the store has no ears of its own
	}
	settled(t, a.Inbox, "a", notice.Seen, 1)
	if n := u.count(agent.EventNoticeWritten); n != 1 {
		t.Errorf("it was typed %d times", n)
	}
}

// An agent that nobody knows how to give servers says so, for each of them; a
// person's prompt reaches it all the same.
//
//
func TestUnknownAgentInATerminal(t *testing.T) {
	t.Parallel()
	a := testAgents(t, t.TempDir())
	one := start(t, a, cli(t, "some-agent", reads))
	term, _ := one.Terminal()
	terminalText(t, term, "ready")
	at := awaitReport(t, a, "a", "start", func(at evidence.Attempt) bool { return !at.SessionAcceptedAt.IsZero() })
	if s := at.Server(builtin); s.Status != evidence.Unavailable || s.Reason != evidence.ReasonNoStrategy {
		t.Errorf("row %+v", s)
	}
	ticket, err := one.Session.Submit(agent.Input{Text: "good morning"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := term.Write([]byte("typed by hand\r")); err != nil {
		t.Error(err)
	}
	if text := terminalText(t, term, "heard: typed by hand"); !strings.Contains(text, "good morning") {
		t.Errorf("it shows %q", text)
	}
}

// A program that does not start is an error of the session, and of no server.
//
//
func TestTerminalThatDoesNotStart(t *testing.T) {
	t.Parallel()
	a := testAgents(t, t.TempDir())
	spec := cli(t, "claude", "exit 0\n")
	spec.Profile.Command = []string{"/nowhere/claude"}
	start(t, a, spec)
	at := awaitReport(t, a, "a", "error", func(at evidence.Attempt) bool { return at.SessionError != nil })
	if at.SessionError.Reason != evidence.ReasonSpawnFailed || at.StartedAt.After(at.SessionError.At) {
		t.Errorf("got %+v, begun %s", at.SessionError, at.StartedAt)
	}
	if s := at.Server(builtin); s.Status != evidence.Delivered {
		t.Errorf("row %+v", s)
	}

	spec = cli(t, "x", reads)
	spec.ID, spec.Kind = "b", "emacs"
	if _, err := a.Start(t.Context(), spec); err == nil {
		t.Error("a kind that there is not was taken")
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "c", Passthrough: true, Model: Model{URL: "http://127.0.0.1:1"}}); !errors.Is(err, errPassthrough) {
		t.Errorf("got %v", err)
	}
}

// A terminal that is in use has not had the notice: that counts as no offer, and it
// is offered again.
//
// D-6.
func TestNoticeWaitsForTheTerminal(t *testing.T) {
	t.Parallel()
	untaken := func(*agenttest.Turn) (agent.Outcome, error) {
		return agent.Outcome{}, fmt.Errorf("in use: %w", agent.ErrUntaken)
	}
	b, fake := newBoard(t), agenttest.New(untaken, untaken, untaken, untaken, agenttest.Say("noted"))
	a := testAgents(t, t.TempDir())
	start(t, a, AgentSpec{ID: "a", Engine: fake.New, Servers: b.specs, Watches: notes()})
	b.set(t, "todo", "tea")
	settled(t, a.Inbox, "a", notice.Seen, 1)
	page, err := a.Inbox.List(t.Context(), notice.Query{Agent: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if r := page.Records[0]; r.Offers != 0 || len(fake.Prompts()) != 5 {
		t.Errorf("%d offers, %d prompts", r.Offers, len(fake.Prompts()))
	}
}

// Who asks for an agent of their own does not get the terminal of the profile.
func TestStartRequestOfATerminal(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Profiles = map[string]config.Profile{
		"claude": {Profile: agent.Profile{Name: "claude", Command: []string{"npx", "claude"}, Dir: "/work"}, Passthrough: true, Kind: "claude"},
	}
	s := &sessionAPI{agents: &Agents{config: c}}
	for _, tc := range []struct {
		req  StartRequest
		on   bool
		kind string
		fail bool
	}{
		{req: StartRequest{Profile: "claude"}, on: true, kind: "claude"},
		{req: StartRequest{Profile: "claude", Kind: "other"}, on: true, kind: "other"},
		{req: StartRequest{Profile: "claude", Agent: []string{"codex-acp"}}},
		{req: StartRequest{Profile: "claude", Agent: []string{"codex"}, Passthrough: true}, on: true},
		{req: StartRequest{Profile: "claude", Model: &StartModel{URL: "http://127.0.0.1:1"}}},
		{req: StartRequest{Dir: "/work", Model: &StartModel{URL: "http://127.0.0.1:1"}, Passthrough: true}, fail: true},
	} {
		tc.req.ID = "a"
		spec, err := s.spec(&tc.req)
		switch {
		case (err != nil) != tc.fail:
			t.Errorf("%+v: %v", tc.req, err)
		case err == nil && (spec.Passthrough != tc.on || spec.Kind != tc.kind):
			t.Errorf("%+v: passthrough %t, kind %q", tc.req, spec.Passthrough, spec.Kind)
		}
	}
}
