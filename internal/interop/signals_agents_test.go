package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/scripted"
)

var delegated = regexp.MustCompile(`\(id (sig_[a-z0-9]+); acknowledge`)

// colleague is a model that does what signals ask of it: it reads and acknowledges
// a delegate, then answers it; an answer it takes note of.
func colleague(t *testing.T) *scripted.Server {
	t.Helper()
	model, err := scripted.Start(t.Context(), &scripted.Options{Reply: func(turn scripted.Turn) scripted.Reply {
		id := delegated.FindStringSubmatch(turn.User)
		switch {
		case strings.HasSuffix(turn.User, "DELEGATE"):
			return follow(turn, "I have asked the helper", scripted.Call{Tool: "signal", Args: `{"to":"helper","content":"please do it","type":"delegate"}`})
		case id != nil && strings.Contains(turn.User, `"delegate from lead"`):
			return follow(turn, "I have done it",
				scripted.Call{Tool: "read_signals", Args: `{}`},
				scripted.Call{Tool: "ack_signals", Args: `{"ids":["` + id[1] + `"]}`},
				scripted.Call{Tool: "signal", Args: `{"to":"lead","content":"it is done","type":"ack","reply_to":"` + id[1] + `"}`},
			)
		case strings.Contains(turn.User, `"ack from helper"`):
			return scripted.Reply{Text: "the helper has done it"}
		}
		return scripted.Words(turn)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	return model
}

// follow makes the calls one after the other, by the names under which the agent
// offers the tools, and then says a text. Tools that are hidden are searched for.
func follow(turn scripted.Turn, text string, steps ...scripted.Call) scripted.Reply {
	is := func(tool, name string) bool {
		return tool == name || strings.HasSuffix(tool, "."+name) || strings.HasSuffix(tool, "__"+name)
	}
	searches := 0
	for _, made := range turn.Calls {
		switch {
		case made.Tool == "ToolSearch":
			searches++
		case len(steps) > 0 && is(made.Tool, steps[0].Tool):
			steps = steps[1:]
		}
	}
	if len(steps) == 0 {
		return scripted.Reply{Text: text}
	}
	for _, offered := range turn.Tools {
		if is(offered, steps[0].Tool) {
			return scripted.Reply{Calls: []scripted.Call{{Tool: offered, Args: steps[0].Args}}}
		}
	}
	if slices.Contains(turn.Tools, "ToolSearch") && searches < 10 {
		return scripted.Reply{Calls: []scripted.Call{{Tool: "ToolSearch", Args: `{"query":"select:mcp__ossicle__` + steps[0].Tool + `"}`}}}
	}
	return scripted.Reply{Text: fmt.Sprintf("no tool %s among %q", steps[0].Tool, turn.Tools)}
}

// Two real agents in one session, each in a process of its own: the first
// delegates to the second while that is idle; the second's turn begins by itself,
// reads, acknowledges, answers; the first hears the answer. Before and after,
// nothing is written and no process of ours wakes.
//
// S-6, S-7, S-12, S-18.
func TestAgentsSignalEachOther(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, a := range hostedAgents() {
		if a.name != "codex-acp" && a.name != "claude-agent-acp" {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			host := func(name string) *conversation {
				command, env := a.start(t, colleague(t).URL())
				return &conversation{child: start(t, env, program, "run", "--agent", command, "--policy", "allow", "--mode", a.mode,
					"--data", data, "--dir", t.TempDir(), "--session", name, "--signals", signalSession, "--json")}
			}
			lead, helper := host("lead"), host("helper")
			for _, c := range []*conversation{lead, helper} { // the first turns, in which tools may still be loading
				c.say("SAY ready")
				c.until("first turn", event(agent.EventRunEnded))
			}
			atRest(t, data, lead, helper)
			lead.say("DELEGATE")
			if r := lead.until("reply", event(agent.EventReply)); r.Text != "I have asked the helper" {
				t.Fatalf("the lead said %q", r.Text)
			}
			began := helper.until("turn", event(agent.EventRunStarted))
			if len(began.Inputs) != 0 || len(began.Notices) != 1 {
				t.Errorf("the turn has another cause: %+v", began)
			}
			if r := helper.reply(began.Run); r != "I have done it" {
				t.Errorf("the helper said %q", r)
			}
			heard := lead.until("answer", func(u agent.Update) bool { return u.Event == agent.EventReply && u.Text == "the helper has done it" })
			if heard.Run == "" {
				t.Errorf("%+v", heard)
			}
			unread(t, data, "helper", 0)
			if got := must(t, append([]string{"read-signals", "--sent"}, signalArgs(data, "lead")...)...); !strings.Contains(got, "read by helper") {
				t.Errorf("%s", got)
			}
			lead.until("end", event(agent.EventRunEnded))
			atRest(t, data, lead, helper)
		})
	}
}

// atRest waits until the processes have come to rest, and counts for a while what
// they write and how often their threads wake: not at all.
func atRest(t *testing.T, data string, all ...*conversation) {
	t.Helper()
	look := func() string {
		var b strings.Builder
		for _, name := range []string{"ossicle.db", "ossicle.db-wal", "collaboration/" + signalSession + "/session.db", "collaboration/" + signalSession + "/session.db-wal"} {
			info, err := os.Stat(filepath.Join(data, name))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, name, info.Size(), info.ModTime())
		}
		for _, c := range all {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.p.Pid()))
			woken := 0
			for _, path := range threads {
				text, _ := os.ReadFile(path)
				_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
				n := 0
				_, _ = fmt.Sscan(rest, &n)
				woken += n
			}
			fmt.Fprintln(&b, c.p.Pid(), "woken", woken)
		}
		return b.String()
	}
	// Agents and the runtime have things to end after a turn; then a second in
	// which nothing happens comes, and would not if anything polled.
	var before, after string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before = look()
		time.Sleep(time.Second)
		if after = look(); after == before {
			return
		}
	}
	t.Errorf("no second of rest:\n%s\n%s", before, after)
}
