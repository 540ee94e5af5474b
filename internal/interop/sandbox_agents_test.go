package interop

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/scripted"
)

// keepsSandboxes skips where this machine cannot keep a sandbox.
func keepsSandboxes(t *testing.T) {
	t.Helper()
	err := exec.CommandContext(t.Context(), "bwrap", "--unshare-all", "--ro-bind", "/", "/", "true").Run()
	switch {
	case err == nil:
	case os.Getenv("OSSICLE_REQUIRE_PEERS") != "":
		t.Fatalf("this machine cannot keep a sandbox: %v", err)
	default:
		t.Skipf("this machine cannot keep a sandbox: %v", err)
	}
}

// Commands for a sandbox, and the words that have a model run them.
var inSandbox = map[string]string{
	"FIRST":  `{"command":"id -u > who; echo user $(cat who) has $(tail -n +3 /proc/net/dev | grep -vc lo:) nets"}`,
	"SECOND": `{"command":"echo still $(cat who) $HOME"}`,
}

// boxUser is a model that runs them with the tool exec of the server sandbox, and
// with no other tool of such a name: agents have their own.
func boxUser(t *testing.T) *scripted.Server {
	t.Helper()
	return model(t, &scripted.Options{Reply: func(turn scripted.Turn) scripted.Reply {
		for word, args := range inSandbox {
			if !strings.HasSuffix(strings.TrimSpace(turn.User), word) {
				continue
			}
			exec := func(tool string) bool { return strings.Contains(tool, "sandbox") && strings.HasSuffix(tool, "exec") }
			search := func(tool string) bool { return tool == "ToolSearch" }
			if slices.ContainsFunc(turn.Calls, func(c scripted.Made) bool { return exec(c.Tool) }) && len(turn.Results) > 0 {
				return scripted.Reply{Text: "tool said " + turn.Results[len(turn.Results)-1]}
			}
			if i := slices.IndexFunc(turn.Tools, exec); i >= 0 {
				return scripted.Reply{Calls: []scripted.Call{{Tool: turn.Tools[i], Args: args}}}
			}
			if slices.ContainsFunc(turn.Tools, search) && !slices.ContainsFunc(turn.Calls, func(c scripted.Made) bool { return search(c.Tool) }) {
				return scripted.Reply{Calls: []scripted.Call{{Tool: "ToolSearch", Args: `{"query":"select:mcp__sandbox__exec"}`}}}
			}
			return scripted.Reply{Text: fmt.Sprintf("no exec of a sandbox among %q", turn.Tools)}
		}
		return scripted.Words(turn)
	}})
}

// Real agents use the sandbox of their session as one more MCP server, by whatever
// transport they have: the command runs in the sandbox, as nobody and without a
// network, and what it leaves is there at the next call.
func TestAgentsUseSandbox(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	keepsSandboxes(t)
	for _, a := range hostedAgents() {
		if a.name == "qwen" {
			continue // it has its model search for tools; its way to them is that of the others
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			command, env := a.start(t, boxUser(t).URL())
			c := &conversation{child: start(t, env, program, "run", "--agent", command, "--sandbox", "light",
				"--policy", "allow", "--mode", a.mode, "--data", t.TempDir(), "--dir", t.TempDir(), "--session", "s", "--json")}
			turn := func(word string) string {
				if strings.HasPrefix(a.name, "mock-agent") { // it follows words without a model
					word = "CALL exec " + inSandbox[word]
				}
				c.say(word)
				run := c.until("turn", event(agent.EventRunStarted))
				return c.reply(run.Run)
			}
			user := "65534"
			if os.Geteuid() != 0 {
				user = strconv.Itoa(os.Getuid())
			}
			if r := turn("FIRST"); !strings.Contains(r, "user "+user+" has 0 nets") {
				t.Errorf("the first turn said %q; it said:\n%s", r, c.output())
			}
			if r := turn("SECOND"); !strings.Contains(r, "still "+user+" /workspace") {
				t.Errorf("the second turn said %q; it said:\n%s", r, c.output())
			}
		})
	}
}
