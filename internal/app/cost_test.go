package app

import (
	"strings"
	"testing"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// What notices cost: created, changed three times and deleted, behind a filter
// for creation and deletion, is two notices, and each is one turn. A notice enters
// by the one door that every source uses.
//
// W-141, W-269.
func TestOneNoticeIsOneTurn(t *testing.T) {
	t.Parallel()
	engine(t) // the filter needs the real interpreter
	b := newBoard(t)
	a := testAgents(t, t.TempDir())
	script := agenttest.New(agenttest.Say("seen"), agenttest.Say("seen"), agenttest.Say("seen"))
	one, err := a.Start(t.Context(), AgentSpec{
		ID: "a", Engine: script.New, Servers: b.specs,
		Watches: []watch.StartRequest{{Name: "notes", URI: "memo://notes", OnEvent: `
f"{event['type'].lower()} {event['key']}" if event["type"] in ("ADDED", "DELETED") else None
`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	said := follow(t, one.Session)
	b.set(t, "probe", "0")
	said.await(t, agent.EventRunEnded, 1)
	for _, v := range []string{"1", "2", "3"} {
		b.set(t, "probe", v)
	}
	if _, err := b.store.Delete("probe"); err != nil {
		t.Fatal(err)
	}
	said.await(t, agent.EventRunEnded, 2)
	settled(t, a.Inbox, "a", notice.Seen, 2)
	prompts := script.Prompts()
	if len(prompts) != 2 || !strings.Contains(prompts[0].Text(), "added probe") || !strings.Contains(prompts[1].Text(), "deleted probe") {
		t.Errorf("%d turns: %q", len(prompts), prompts)
	}
	for i, p := range prompts {
		if strings.Contains(p.Text(), "modified") || strings.Count(p.Text(), "<watch-event ") != 1 {
			t.Errorf("turn %d: %q", i, p.Text())
		}
	}
}
