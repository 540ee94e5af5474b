package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
)

const collaboration = "20261130_010203_00c0ffee"

// hands calls the signal tools of a hosted agent, as its engine would.
type hands struct {
	t   *testing.T
	one *Agent
}

func (h *hands) call(name, args string) (text string, isError bool) {
	h.t.Helper()
	for _, tool := range h.one.tools(context.WithoutCancel(h.t.Context())) {
		if tool.Name == name {
			r, err := tool.Call(context.WithoutCancel(h.t.Context()), json.RawMessage(args))
			if err != nil {
				h.t.Error(err)
			}
			return r.Text, r.IsError
		}
	}
	h.t.Errorf("no tool %s", name)
	return "", true
}

func (h *hands) must(name, args string) string {
	h.t.Helper()
	text, failed := h.call(name, args)
	if failed {
		h.t.Errorf("%s %s: %s", name, args, text)
	}
	return text
}

var (
	signalID   = regexp.MustCompile(`\(id (sig_[a-z0-9]+); acknowledge`)
	signalFrom = regexp.MustCompile(`"delegate from ([^"]+)"`)
)

// Two hosted agents: the first delegates, and the turn of the idle second begins by
// itself; it cannot delegate back, reads, acknowledges, answers; the answer begins a
// turn of the first, and there it ends.
//
// S-6, S-14, S-16, S-18, S-20.
func TestSignalsBetweenHostedAgents(t *testing.T) {
	t.Parallel()
	a := testAgents(t, t.TempDir())
	var lead, helper hands
	lead.t, helper.t = t, t
	var refused, again string
	second := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
		text := turn.Prompt.Text()
		id, from := signalID.FindStringSubmatch(text), signalFrom.FindStringSubmatch(text)
		if id == nil || from == nil || !strings.Contains(text, "look at it") {
			t.Errorf("prompt %q", text)
			return agenttest.End()
		}
		refused, _ = helper.call("signal", `{"to":"`+from[1]+`","content":"no, you","type":"delegate"}`)
		if got := helper.must("read_signals", `{}`); !strings.Contains(got, id[1]) {
			t.Errorf("%s", got)
		}
		for range 3 { // what was said of an earlier rest is heard late: the first has been dealt with
			helper.one.seat.idle <- struct{}{}
		}
		again, _ = helper.call("signal", `{"to":"`+from[1]+`","content":"still you","type":"delegate"}`)
		helper.must("signal", `{"to":"`+from[1]+`","content":"looked at it","type":"ack","reply_to":"`+id[1]+`"}`)
		helper.must("ack_signals", `{"ids":["`+id[1]+`"]}`)
		return agenttest.End()
	})
	first := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
		if text := turn.Prompt.Text(); !strings.Contains(text, "looked at it") || !strings.Contains(text, `"ack from helper"`) {
			t.Errorf("prompt %q", text)
		}
		return agenttest.End()
	})
	start := func(id string, fake *agenttest.Agent) (*Agent, *updates) {
		one, err := a.Start(t.Context(), AgentSpec{ID: id, Engine: fake.New, Signals: collaboration})
		if err != nil {
			t.Fatal(err)
		}
		return one, follow(t, one.Session)
	}
	var leadSays, helperSays *updates
	lead.one, leadSays = start("lead", first)
	helper.one, helperSays = start("helper", second)
	lead.must("signal", `{"to":"helper","content":"for your information"}`)
	lead.must("signal", `{"to":"helper","content":"look at it","type":"delegate"}`)
	helperSays.await(t, agent.EventRunEnded, 1)
	leadSays.await(t, agent.EventRunEnded, 1)
	for _, got := range []string{refused, again} {
		if !strings.Contains(got, "is in a turn that an urgent signal began") {
			t.Errorf("%s", got)
		}
	}
	if got := lead.must("read_signals", `{"sent":true}`); strings.Count(got, `"read_by":["helper"]`) != 1 {
		t.Errorf("%s", got)
	}
	// What was acknowledged is in no inbox any more; what only informs has come with
	// the turn, and began none.
	settled(t, a.Inbox, "helper", notice.Acked, 1)
	if n := helperSays.count(agent.EventRunEnded); n != 1 {
		t.Errorf("%d turns of the helper", n)
	}
	if !strings.Contains(second.Prompts()[0].Text(), "for your information") {
		t.Errorf("%q", second.Prompts()[0].Text())
	}
	// After its turn it may delegate again.
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // its end is noted by and by
		text, failed := helper.call("signal", `{"to":"lead","content":"over to you","type":"delegate"}`)
		if !failed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(text)
		}
	}
	leadSays.await(t, agent.EventRunEnded, 2)
}

// S-12: two hosted agents at rest write nothing and wake nobody.
func TestSignalsAtRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	for _, id := range []string{"x", "y"} {
		if _, err := a.Start(t.Context(), AgentSpec{ID: id, Engine: agenttest.New().New, Signals: collaboration}); err != nil {
			t.Fatal(err)
		}
	}
	x, err := a.signals.Open(t.Context(), collaboration)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Close(context.WithoutCancel(t.Context())) }()
	var agents []mailbox.Agent
	for deadline := time.Now().Add(patience); len(agents) != 2 || agents[0].Status != mailbox.Idle || agents[1].Status != mailbox.Idle; time.Sleep(time.Millisecond) {
		if agents, err = x.Agents(t.Context()); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", agents, err)
		}
	}
	written := func() string {
		var all []string
		for _, name := range []string{"ossicle.db", "ossicle.db-wal", "collaboration/" + collaboration + "/session.db", "collaboration/" + collaboration + "/session.db-wal", "collaboration/" + collaboration + "/session.db-bell"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(name, info.Size(), info.ModTime()))
		}
		return strings.Join(all, "\n")
	}
	// What the start has begun ends; then a span comes in which nothing is written.
	for deadline := time.Now().Add(patience); ; {
		before := written()
		if agents, err = x.Agents(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if written() == before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("never at rest:\n%s\n%s", before, written())
		}
	}
	if later, err := x.Agents(t.Context()); err != nil || !slices.Equal(agents, later) {
		t.Errorf("%+v, %v", later, err)
	}
}

// S-2: a process holds its id against others as long as it lives, and its
// successor has it at once; a command of the same person is the same agent.
func TestIdentity(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Home = t.TempDir()
	open := func() *Collaboration {
		x, err := NewCollaborations(c, "", mailbox.Limits{}, nil).Open(t.Context(), collaboration)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close(context.WithoutCancel(t.Context())) })
		return x
	}
	one, two := open(), open()
	r := mailbox.Registration{Agent: "a"}
	m, leave, err := one.Join(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := two.Join(t.Context(), r); !errors.As(err, new(*mailbox.ConflictError)) {
		t.Errorf("taken twice: %v", err)
	}
	if _, err := two.Enter(t.Context(), "a"); err != nil {
		t.Errorf("a command: %v", err)
	}
	if _, err := m.Read(t.Context(), mailbox.Selection{}); err != nil {
		t.Errorf("after a command: %v", err)
	}
	leave(t.Context())
	if _, leave, err = two.Join(t.Context(), r); err != nil {
		t.Fatalf("the successor: %v", err)
	}
	leave(t.Context())
	known, err := NewCollaborations(c, "", mailbox.Limits{}, nil).Known("")
	if err != nil || !slices.Equal(known, []Seated{{collaboration, "a"}}) {
		t.Errorf("%v, %v", known, err)
	}
	for _, bad := range []string{"../a", "..", "a/b", ""} {
		if _, err := two.Enter(t.Context(), bad); !errors.As(err, new(*mailbox.InvalidError)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := NewCollaborations(c, "", mailbox.Limits{}, nil).Open(t.Context(), "../../etc"); !errors.As(err, new(*mailbox.InvalidError)) {
		t.Errorf("%v", err)
	}
}
