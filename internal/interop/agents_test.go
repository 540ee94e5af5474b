package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/scripted"
	"github.com/ossicle/ossicle/notice"
)

// Agents that are not installed are skipped, unless OSSICLE_REQUIRE_AGENTS names
// them (a comma-separated list, or "all"). They are looked for in node_modules
// here and upwards, and below OSSICLE_AGENTS_DIR.
const (
	envRequireAgents = "OSSICLE_REQUIRE_AGENTS"
	envAgentsDir     = "OSSICLE_AGENTS_DIR"
)

// slowTurn is how long a turn with a notice lasts, so that a change can come
// during it.
const slowTurn = 5 * time.Second

// agentPatience bounds the waits for agents: the slowest takes a minute to start
// when the machine is busy.
const agentPatience = 3 * time.Minute

// hosted is an agent that ossicle run hosts.
type hosted struct {
	name string
	// start returns its command and environment, on a model server.
	start func(t *testing.T, model string) (command string, env []string)
	mode  string // session mode without a model that judges permissions
}

func hostedAgents() []hosted {
	mock := func(modes string) func(t *testing.T, model string) (string, []string) {
		return func(*testing.T, string) (string, []string) {
			return program + " mock-agent --mode " + modes + "slow=" + slowTurn.String(), nil
		}
	}
	return []hosted{
		{name: "mock-agent", start: mock("")},
		{name: "mock-agent async legacy", start: mock("async,legacy,")},
		{name: "mock-agent stdio", start: mock("nohttp,nosse,")}, // reaches us by the bridge
		{name: "codex-acp", start: codex},
		{name: "claude-agent-acp", start: claude, mode: "default"}, // "auto" lets a model judge the tool calls
		{name: "gemini", start: gemini},
		{name: "opencode", start: opencode},
		{name: "qwen", start: qwen},
	}
}

func codex(t *testing.T, model string) (string, []string) {
	t.Helper()
	main := installedAgent(t, "codex-acp", "@agentclientprotocol/codex-acp/dist/index.js")
	home := t.TempDir()
	writeFile(t, filepath.Join(home, "config.toml"), fmt.Sprintf(`model = "gpt-5"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "%s/v1"
wire_api = "responses"
requires_openai_auth = false
`, model))
	// Any other mode lets a model judge the tool calls.
	return node(t) + " " + main, []string{
		"CODEX_HOME=" + home, "MODEL_PROVIDER=scripted", "NO_BROWSER=1", "INITIAL_AGENT_MODE=agent-full-access",
	}
}

func claude(t *testing.T, model string) (string, []string) {
	t.Helper()
	main := installedAgent(t, "claude-agent-acp", "@agentclientprotocol/claude-agent-acp/dist/index.js")
	home := t.TempDir()
	return node(t) + " " + main, []string{
		"HOME=" + home, tmpIn(home), "ANTHROPIC_API_KEY=x", "ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_MODEL=scripted",
		"ANTHROPIC_SMALL_FAST_MODEL=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1",
		"DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1", "IS_SANDBOX=1",
	}
}

func gemini(t *testing.T, model string) (string, []string) {
	t.Helper()
	main := installedAgent(t, "gemini", "@google/gemini-cli/bundle/gemini.js")
	home := t.TempDir()
	writeFile(t, filepath.Join(home, ".gemini", "settings.json"), `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},
"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false}}`)
	return node(t) + " " + main + " --acp", []string{"HOME=" + home, "GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_MODEL=gemini-2.5-flash"}
}

func opencode(t *testing.T, model string) (string, []string) {
	t.Helper()
	main := installedAgent(t, "opencode", "opencode-linux-x64/bin/opencode")
	home := t.TempDir()
	writeFile(t, filepath.Join(home, ".config", "opencode", "opencode.json"), fmt.Sprintf(`{"autoupdate":false,"share":"disabled","model":"scripted/scripted","small_model":"scripted/scripted",
"provider":{"scripted":{"npm":"@ai-sdk/openai-compatible","name":"Scripted","options":{"baseURL":"%s/v1","apiKey":"x"},
"models":{"scripted":{"name":"scripted","tool_call":true,"limit":{"context":100000,"output":4000}}}}},"enabled_providers":["scripted"]}`, model))
	return main + " acp", []string{"HOME=" + home, tmpIn(home), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
}

// tmpIn is where an agent keeps its temporary files: those that are built on Bun
// leave several megabytes behind each time.
func tmpIn(dir string) string { return "TMPDIR=" + dir }

func qwen(t *testing.T, model string) (string, []string) {
	t.Helper()
	main := installedAgent(t, "qwen", "@qwen-code/qwen-code/cli-entry.js")
	return node(t) + " " + main + " --acp", []string{"HOME=" + t.TempDir(), "OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + model + "/v1", "OPENAI_MODEL=scripted"}
}

// slowModel is a scripted model that takes its time over notices.
func slowModel(t *testing.T) *scripted.Server {
	t.Helper()
	return model(t, &scripted.Options{Reply: func(turn scripted.Turn) scripted.Reply {
		r := scripted.Words(turn)
		if strings.Contains(turn.User, "</watch-event>") {
			r.Delay = slowTurn
		}
		return r
	}})
}

func model(t *testing.T, o *scripted.Options) *scripted.Server {
	t.Helper()
	s, err := scripted.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func installedAgent(t *testing.T, name, path string) string {
	t.Helper()
	var roots []string
	if dir := os.Getenv(envAgentsDir); dir != "" {
		below, _ := filepath.Glob(filepath.Join(dir, "*"))
		roots = append(append(roots, dir), below...)
	}
	for here := root(t); ; here = filepath.Dir(here) {
		roots = append(roots, here)
		if here == filepath.Dir(here) {
			break
		}
	}
	for _, dir := range roots {
		p := filepath.Join(dir, "node_modules", filepath.FromSlash(path))
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	required := os.Getenv(envRequireAgents)
	if required == "all" || required == "1" || slices.Contains(strings.Split(required, ","), name) {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// conversation is a session in a process of its own, that prints JSON.
type conversation struct {
	*child

	updates []agent.Update
}

// until reads updates until one matches.
func (c *conversation) until(what string, match func(agent.Update) bool) agent.Update {
	c.t.Helper()
	timer := time.NewTimer(agentPatience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-c.lines:
			var u agent.Update
			if !ok || json.Unmarshal([]byte(line), &u) != nil {
				c.t.Fatalf("no %s; it said:\n%s", what, c.output())
			}
			c.updates = append(c.updates, u)
			if match(u) {
				return u
			}
		case <-timer.C:
			c.t.Fatalf("no %s in %s; it said:\n%s", what, agentPatience, c.output())
		}
	}
}

// reply waits for the end of a run and returns what it said.
func (c *conversation) reply(run string) string {
	c.t.Helper()
	ended := func(u agent.Update) bool { return u.Event == agent.EventRunEnded && u.Run == run }
	if !slices.ContainsFunc(c.updates, ended) {
		c.until("end of "+run, ended)
	}
	for _, u := range c.updates {
		if u.Event == agent.EventReply && u.Run == run {
			return u.Text
		}
	}
	return ""
}

// start makes the agent start its watch, in its first turn: that waits until the
// agent knows our tools.
func (c *conversation) start(words string) {
	c.t.Helper()
	c.say(words)
	r := c.until("reply", event(agent.EventReply))
	c.until("end", event(agent.EventRunEnded))
	if !strings.Contains(r.Text, "shape") || r.Error != "" {
		c.t.Fatalf("run_code answered %q %s; it said:\n%s", r.Text, r.Error, c.output())
	}
}

func event(name string) func(agent.Update) bool {
	return func(u agent.Update) bool { return u.Event == name }
}

// todoAt sets the note "todo" at a memo server. A process of its own would take seconds to
// start on a busy machine, and a turn would be over.
func todoAt(t *testing.T, url string) (set func(value string)) {
	t.Helper()
	client, err := app.NewClient(config.Default(), []mcpclient.Spec{{Name: "memo", URL: url}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClient(t, client) })
	return func(value string) {
		t.Helper()
		if _, err := client.Servers.Server("memo").CallTool(t.Context(), "memo_set", json.RawMessage(fmt.Sprintf(`{"key":"todo","value":%q}`, value))); err != nil {
			t.Fatal(err)
		}
	}
}

// From a program that the model writes to a turn, with real processes: the
// agent watches with a filter of its own; another process changes a note; one
// turn follows, with the filter's line; a change during that turn makes exactly
// one more.
//
// W-003, W-069, W-143, W-144.
func TestAgentsHearOfChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, a := range hostedAgents() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			command, env := a.start(t, slowModel(t).URL())
			url, data := memoHTTP(t), t.TempDir()
			c := &conversation{child: start(t, env, program, "run", "--agent", command, "--mcp-http", url, "--quiet", "200ms",
				"--policy", "allow", "--mode", a.mode, "--data", data, "--dir", t.TempDir(), "--session", "s", "--json")}
			code, err := json.Marshal(map[string]string{
				"code": `await watch_start(name="notes", uri="memo://notes", on_event='''f"{event['key']} is now {event['new']}"''')`,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.start("CALL run_code " + string(code))

			set := todoAt(t, url)
			set("tea")
			first := c.until("turn", event(agent.EventRunStarted))
			set("milk")
			ended := c.until("end of the turn", event(agent.EventRunEnded))
			if r := c.reply(first.Run); !strings.Contains(r, "todo is now tea") || strings.Contains(r, "milk") {
				t.Errorf("the first turn said %q", r)
			}
			second := c.until("follow-up", event(agent.EventRunStarted))
			if r := c.reply(second.Run); !strings.Contains(r, "todo is now milk") || strings.Contains(r, "tea") {
				t.Errorf("the second turn said %q", r)
			}
			c.say("SAY that is all")
			last := c.until("last turn", event(agent.EventRunStarted))
			if len(last.Inputs) != 1 || len(last.Notices) != 0 {
				t.Errorf("a turn more: %+v", last)
			}
			var inbox struct {
				Pending int             `json:"pending"`
				Notices []notice.Record `json:"notices"`
			}
			if err := json.Unmarshal([]byte(must(t, "inbox", "list", "--data", data, "--json")), &inbox); err != nil {
				t.Fatal(err)
			}
			switch n := inbox.Notices; {
			case inbox.Pending != 0 || len(n) != 2 || n[0].State != notice.Seen || n[1].State != notice.Seen:
				t.Errorf("inbox %+v", inbox)
			case !n[0].CreatedAt.Before(ended.Time):
				t.Errorf("the second change came after the turn: it proves nothing")
			}
		})
	}
}

// A process that is killed in the middle of a turn has shown nothing, and the
// next one goes on: with the watches, with the notice, once.
//
// D-4, W-131, N-16.
func TestKilledInTheMiddleOfATurn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	t.Parallel()
	url, data := memoHTTP(t), t.TempDir()
	run := func(mode string, more ...string) *conversation {
		return &conversation{child: start(t, nil, append([]string{
			program, "run", "--agent", program + " mock-agent --mode " + mode,
			"--mcp-http", url, "--quiet", "100ms", "--data", data, "--session", "s", "--watch-state", filepath.Join(data, "watches.json"), "--json",
		}, more...)...)}
	}
	c := run("slow=4s", "--watch", "memo://notes", "-v")
	c.awaitLog("watch.started")
	must(t, "call", "memo_set", "key=todo", "value=tea", "--mcp-http", url)
	c.until("turn", event(agent.EventRunStarted))
	c.p.Kill()

	c = run("eager", "--on-start", "SAY I am back")
	first := c.until("turn", event(agent.EventRunStarted))
	if r := c.reply(first.Run); r != "I am back" {
		t.Errorf("the first turn said %q", r)
	}
	var seen []string
	for _, u := range c.updates {
		if u.Event == agent.EventNoticeSeen {
			seen = append(seen, u.Name)
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, []string{"notes", "restored"}) {
		t.Errorf("the first turn showed %q", seen)
	}
	must(t, "call", "memo_set", "key=todo", "value=milk", "--mcp-http", url)
	next := c.until("turn", event(agent.EventRunStarted))
	if r := c.reply(next.Run); !strings.HasPrefix(r, "heard: MODIFIED todo") {
		t.Errorf("the next turn said %q", r)
	}
	if got := must(t, "inbox", "list", "--data", data); !strings.HasPrefix(got, "s: 0 pending") || strings.Count(got, " seen ") != 3 {
		t.Errorf("inbox: %s", got)
	}
}
