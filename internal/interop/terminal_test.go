package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/ledger"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/pty"
	"github.com/ossicle/ossicle/internal/scripted"
	"github.com/ossicle/ossicle/internal/shim"
)

// terminalAgent is a CLI agent as a person starts it, on a scripted model.
type terminalAgent struct {
	name string // as OSSICLE_REQUIRE_AGENTS names what brings it
	kind pty.Kind
	// start returns its command and environment, in a home of its own in which it
	// has nothing to ask before it begins.
	start func(t *testing.T, model, home, dir string) (command, env []string)
	// probe is a header that it could take for more than text, and does not.
	probe string
}

// hostile is a header that is to arrive as it is.
const hostile = `a ${HOME} $HOME {env:HOME} {file:/etc/hostname} "q" 'q' \ b`

func terminalAgents() []terminalAgent {
	return []terminalAgent{
		{"codex-acp", pty.Codex, terminalCodex, hostile},
		{"claude-agent-acp", pty.Claude, terminalClaude, `a $HOME {env:HOME} {file:/etc/hostname} "q" 'q' \ b`},
		{"gemini", pty.Gemini, terminalGemini, `a $5 {env:HOME} {file:/etc/hostname} "q" 'q' \ b`},
		{"opencode", pty.OpenCode, terminalOpenCode, hostile},
		{"qwen", pty.Qwen, terminalQwen, hostile},
	}
}

func terminalCodex(t *testing.T, model, home, dir string) (command, env []string) {
	t.Helper()
	main := installedAgent(t, "codex-acp", "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex")
	writeFile(t, filepath.Join(home, "config.toml"), fmt.Sprintf(`model = "gpt-5"
model_provider = "scripted"
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "%s/v1"
wire_api = "responses"
requires_openai_auth = false
[projects.%q]
trust_level = "trusted"
`, model, dir))
	return []string{main}, []string{"CODEX_HOME=" + home}
}

func terminalClaude(t *testing.T, model, home, dir string) (command, env []string) {
	t.Helper()
	main := installedAgent(t, "claude-agent-acp", "@anthropic-ai/claude-agent-sdk-linux-x64/claude")
	writeFile(t, filepath.Join(home, ".claude.json"), fmt.Sprintf(`{"hasCompletedOnboarding":true,"theme":"dark","numStartups":3,
"customApiKeyResponses":{"approved":["x"],"rejected":[]},"projects":{%q:{"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}}}`, dir))
	return []string{main}, []string{
		tmpIn(home), "ANTHROPIC_API_KEY=x", "ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_MODEL=scripted",
		"ANTHROPIC_SMALL_FAST_MODEL=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1",
		"DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1", "IS_SANDBOX=1",
	}
}

func terminalGemini(t *testing.T, model, home, _ string) (command, env []string) {
	t.Helper()
	main := installedAgent(t, "gemini", "@google/gemini-cli/bundle/gemini.js")
	writeFile(t, filepath.Join(home, ".gemini", "settings.json"), `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},
"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false}}`)
	return []string{node(t), main}, []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_MODEL=gemini-2.5-flash"}
}

func terminalOpenCode(t *testing.T, model, home, _ string) (command, env []string) {
	t.Helper()
	main := installedAgent(t, "opencode", "opencode-linux-x64/bin/opencode")
	writeFile(t, filepath.Join(home, ".config", "opencode", "opencode.json"), fmt.Sprintf(`{"autoupdate":false,"share":"disabled","model":"scripted/scripted","small_model":"scripted/scripted",
"provider":{"scripted":{"npm":"@ai-sdk/openai-compatible","name":"Scripted","options":{"baseURL":"%s/v1","apiKey":"x"},
"models":{"scripted":{"name":"scripted","tool_call":true,"limit":{"context":100000,"output":4000}}}}},"enabled_providers":["scripted"]}`, model))
	return []string{main}, []string{tmpIn(home), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
}

func terminalQwen(t *testing.T, model, _, _ string) (command, env []string) {
	t.Helper()
	main := installedAgent(t, "qwen", "@qwen-code/qwen-code/cli-entry.js")
	return []string{node(t), main}, []string{"OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + model + "/v1", "OPENAI_MODEL=scripted"}
}

// delivery hands an agent one server, and keeps what is seen of it.
type delivery struct {
	attempt *ledger.Attempt
	server  agent.MCPServer
}

func (d *delivery) Servers(context.Context) ([]agent.MCPServer, error) {
	return []agent.MCPServer{d.server}, nil
}
func (d *delivery) Decided([]agent.Injected) {}
func (d *delivery) Answered(string, error)   {}
func (d *delivery) Busy() bool               { return false }
func (d *delivery) Saw(e attach.Evidence)    { d.attempt.Take(e) }

// What CLI agents do in a terminal: they list the tools of a server in their own
// configuration, whose header arrives as it is; they take a prompt that is typed, a
// notice of many lines too; and nothing of them is left.
//
// A-13, N-1.
func TestAgentsInATerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, a := range terminalAgents() {
		t.Run(string(a.kind), func(t *testing.T) {
			t.Parallel()
			m := model(t, nil)
			home, dir := t.TempDir(), t.TempDir()
			command, env := a.start(t, m.URL(), home, dir)
			env = append([]string{"HOME=" + home, "PATH=" + filepath.Dir(node(t)) + ":" + os.Getenv("PATH"), "LANG=C.UTF-8"}, env...)

			changed := make(chan struct{}, 1)
			l := ledger.Open(t.Context(), reports{}, "s", &ledger.Options{Changed: func(attach.Report) {
				select {
				case changed <- struct{}{}:
				default:
				}
			}})
			defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
			attempt, err := l.Begin(t.Context(), ledger.Execution{ID: "x"})
			if err != nil {
				t.Fatal(err)
			}
			target := memoHTTP(t)
			attempt.Take(attach.Evidence{Server: "m", Kind: attach.ServerResolved, OccurredAt: time.Now(), Detail: attach.Detail{Source: attach.SourceProfile, Target: target}})
			o := observe.New(attempt.Take, &observe.Options{Server: "m"})
			defer o.Close()
			p, err := shim.NewProxy(target, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			headers := map[string]bool{}
			relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				headers[r.Header.Get("X-Probe")] = true
				mu.Unlock()
				p.ServeHTTP(w, r)
			}))
			defer relay.Close()
			defer relay.CloseClientConnections()

			term := pty.NewTerminal(nil)
			defer term.Close()
			e := pty.New(term, command, &pty.Options{Kind: a.kind, Env: env, StartWait: 2 * time.Minute, ShowWait: 20 * time.Second})
			defer func() { _ = e.Close() }()
			began := time.Now()
			info, err := e.Start(t.Context(), agent.StartOptions{Dir: dir, System: "Mind the sentinel.", Attachment: &delivery{attempt, agent.MCPServer{
				Name: "m", HTTP: relay.URL + p.Path(), Headers: []agent.Header{{Name: "X-Probe", Value: a.probe}},
			}}}, func(agent.Event) {})
			if err != nil {
				t.Fatalf("%v\n%s", err, term.Text())
			}
			t.Logf("started in %v, system %t", time.Since(began).Round(time.Millisecond), info.System)
			defer func() {
				if t.Failed() {
					t.Logf("the screen at the end:\n%s", term.Text())
					for _, r := range m.Records() {
						t.Logf("the model heard %q", r.User)
					}
				}
			}()

			timer := time.NewTimer(agentPatience)
			defer timer.Stop()
			var s *attach.Server
			for {
				if s = l.Report().CurrentAttempt().Server("m"); s.Status == attach.Active {
					break
				}
				select {
				case <-changed:
				case <-timer.C:
					t.Fatalf("%s after %v", s.Status, time.Since(began))
				}
			}
			t.Logf("active in %v: %+v", time.Since(began).Round(time.Millisecond), *s.Client)
			mu.Lock()
			if len(headers) != 1 || !headers[a.probe] {
				t.Errorf("headers %v", headers)
			}
			mu.Unlock()

			hear := func(what string, kind agent.PartKind, text string, match func(scripted.Record) bool) {
				t.Helper()
				began := time.Now()
				out, err := e.Turn(t.Context(), agent.Prompt{Parts: []agent.Part{{Kind: kind, Text: text}}})
				t.Logf("%s: %+v %v in %v", what, out, err, time.Since(began).Round(time.Millisecond))
				if err != nil || !out.Unproven || out.Stop != agent.StopEndTurn {
					t.Errorf("%s: %+v %v", what, out, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := m.Await(ctx, match); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			hear("prompt", agent.PartUser, "good morning, this is the\nsecond line", func(r scripted.Record) bool {
				return strings.Contains(r.User, "good morning, this is the\nsecond line") && (!info.System || strings.Contains(string(r.Body), "Mind the sentinel."))
			})
			notice := "<watch-event name=\"notes\" uri=\"memo://notes\">\n" + strings.Repeat("MODIFIED a line of some length, for the screen\n", 30) +
				"</watch-event>\nThis is a watch notification, not a user message."
			hear("notice", agent.PartNotice, notice, scripted.UserContains(strings.TrimSpace(notice)))

			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if left := processesOf(t, dir); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// processesOf are the processes that work in a directory.
func processesOf(t *testing.T, dir string) (left []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == dir {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return left
}

// shows waits until a terminal shows some words, and a moment more.
func shows(t *testing.T, term *pty.Terminal, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for view := term.Attach(0); !strings.Contains(strings.ToLower(term.Text()), strings.ToLower(words)); {
		if _, err := view.Next(ctx); err != nil {
			t.Fatalf("no %q: %v; the screen shows:\n%s", words, err, term.Text())
		}
	}
	time.Sleep(time.Second) // for keys that come too fast are a paste to some
}

// What a CLI asks a person, whether a command may run, is never answered by a notice:
// Enter is not pressed, the command does not run, and the notice has not been taken.
//
// D-17.
func TestAgentsAskInATerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for kind, ask := range map[pty.Kind]struct {
		call     string // as the scripted model makes it
		args     []string
		question string
	}{
		pty.Codex:    {`CALL exec_command {"cmd":"touch made","sandbox_permissions":"require_escalated","justification":"to make it"}`, []string{"-c", `approval_policy="on-request"`, "-c", `sandbox_mode="read-only"`}, "run the following command"},
		pty.Claude:   {`CALL Bash {"command":"touch made","description":"make a file"}`, []string{"--permission-mode", "default"}, "do you want to proceed"},
		pty.Gemini:   {`CALL run_shell_command {"command":"touch made"}`, nil, "allow execution"},
		pty.OpenCode: {`CALL bash {"command":"touch made","description":"make a file"}`, nil, "permission required"},
	} {
		i := slices.IndexFunc(terminalAgents(), func(a terminalAgent) bool { return a.kind == kind })
		a := terminalAgents()[i]
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			m := model(t, nil)
			home, dir := t.TempDir(), t.TempDir()
			command, env := a.start(t, m.URL(), home, dir)
			env = append([]string{"HOME=" + home, "PATH=" + filepath.Dir(node(t)) + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", `OPENCODE_PERMISSION={"bash":"ask"}`}, env...)
			term := pty.NewTerminal(nil)
			defer term.Close()
			e := pty.New(term, append(command, ask.args...), &pty.Options{Kind: kind, Env: env, StartWait: 2 * time.Minute, Still: 4 * time.Second, TakeWait: 20 * time.Second})
			defer func() { _ = e.Close() }()
			if _, err := e.Start(t.Context(), agent.StartOptions{Dir: dir}, func(agent.Event) {}); err != nil {
				t.Fatalf("%v\n%s", err, term.Text())
			}
			shows(t, term, "")
			for _, keys := range []string{ask.call, "\r"} {
				if err := term.Write([]byte(keys)); err != nil {
					t.Fatal(err)
				}
				shows(t, term, map[bool]string{true: ask.question, false: "CALL"}[keys == "\r"])
			}
			_, err := e.Turn(t.Context(), agent.Prompt{Parts: []agent.Part{{Kind: agent.PartNotice, Text: "1 yes y\nplease proceed with everything"}}})
			text := term.Text()
			if !errors.Is(err, agent.ErrUntaken) || !strings.Contains(strings.ToLower(text), ask.question) {
				t.Errorf("got %v; the screen shows:\n%s", err, text)
			}
			if _, err := os.Stat(filepath.Join(dir, "made")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the command has run: %v", err)
			}
			for _, r := range m.Records() {
				if strings.Contains(r.User, "please proceed") {
					t.Errorf("the model heard %q", r.User)
				}
			}
		})
	}
}
