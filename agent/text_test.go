package agent_test

import (
	"strings"
	"testing"

	"github.com/ossicle/ossicle/agent"
)

// W-150, WA-24: which replies say nothing.
func TestSuppressed(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]bool{
		"":                              true,
		" \n\t ":                        true,
		"NO_REPLY":                      true,
		"  NO_REPLY  ":                  true,
		"NO_REPLY.":                     true,
		"`NO_REPLY`":                    true,
		"`NO_REPLY`.":                   true,
		"\"NO_REPLY.\"":                 true,
		"“NO_REPLY”":                    true,
		"nothing to say\nNO_REPLY\nbye": true,
		"NO_REPLY\r\n":                  true,
		"no_reply":                      false, // case-sensitive
		"NO_REPLY, because":             false,
		"NO_REPLY..":                    false,
		"say NO_REPLY":                  false,
		"NO_REPLYS":                     false,
		"all is well":                   false,
	} {
		if got := agent.Suppressed(reply); got != want {
			t.Errorf("%q: %v", reply, got)
		}
	}
}

func FuzzSuppressed(f *testing.F) {
	f.Add("a\nNO_REPLY.\nb")
	f.Fuzz(func(t *testing.T, reply string) {
		if got := agent.Suppressed(reply); !got && !strings.Contains(reply, agent.NoReply) && strings.TrimSpace(reply) == "" {
			t.Errorf("an empty reply %q is published", reply)
		}
		if agent.Suppressed(reply) && strings.TrimSpace(reply) != "" && !strings.Contains(reply, agent.NoReply) {
			t.Errorf("%q is suppressed without the token", reply)
		}
		if !agent.Suppressed(reply + "\nNO_REPLY") {
			t.Errorf("%q with the token is published", reply)
		}
	})
}

// W-145: the instruction's exact words.
func TestNoticeInstruction(t *testing.T) {
	t.Parallel()
	const want = "This is a watch notification, not a user message. Tell the channel only if the change matters to what was asked; otherwise reply exactly NO_REPLY."
	if agent.NoticeInstruction != want {
		t.Errorf("%q", agent.NoticeInstruction)
	}
}

// W-267, W-268: the prompt says answer first, and gives recipes, bounded and on
// one line each whatever a server put into them.
func TestSystemPrompt(t *testing.T) {
	t.Parallel()
	recipes := []agent.Recipe{{What: "config maps\nof a workspace", Code: "await watch_start(name=\"cm\",\n uri=\"kcp-events://watch/root:app/configmaps?labelSelector=app%3Dbidder\")"}}
	for range 30 {
		recipes = append(recipes, agent.Recipe{What: "more", Code: "x"})
	}
	prompt := agent.SystemPrompt(agent.Briefing{Nick: "alice", CodeMode: true, Watches: true, Chatter: true, Recipes: recipes, Extra: "Speak plainly."})
	contains(t, prompt, "You are alice", "answer first", "caveat comes after", "data from outside", "reply exactly NO_REPLY",
		"run_code", "watch_start at once", "labelSelector", "\n- config maps of a workspace: await watch_start(name=\"cm\", uri=",
		"(11 more", "Speak plainly.")
	if len(prompt) > 3000 {
		t.Errorf("the prompt has %d bytes", len(prompt))
	}
	if plain := agent.SystemPrompt(agent.Briefing{}); strings.Contains(plain, "watch_start") || strings.Contains(plain, "run_code") {
		t.Errorf("it speaks of what is not there: %s", plain)
	}
}
