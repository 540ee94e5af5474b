package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/scripted"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/notice"
)

// claudeCode is the program that claude-agent-acp wraps, as a person starts it.
func claudeCode(t *testing.T) string {
	t.Helper()
	return installedAgent(t, "claude-agent-acp", "@anthropic-ai/claude-agent-sdk-linux-x64/claude")
}

// codexProgram is the program that codex-acp wraps.
func codexProgram(t *testing.T) string {
	t.Helper()
	return installedAgent(t, "codex-acp", "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex")
}

// waked is a host that somebody else started, and how it is woken.
type waked struct {
	name string
	// start brings the host to where it can be woken, and returns the adapter and
	// the environment of the process that wakes.
	start func(t *testing.T, model string) (wake string, env []string)
	state string // that must be reached
}

func wakedHosts() []waked {
	return []waked{
		{"opencode", wakeOpenCode, "seen"},
		{"codex", func(t *testing.T, model string) (string, []string) { t.Helper(); return wakeCodex(t, model, "codex:") }, "seen"},
		{"codex-queue", func(t *testing.T, model string) (string, []string) {
			t.Helper()
			return wakeCodex(t, model, "codex-queue:")
		}, "notified"},
		{"exec claude", func(t *testing.T, model string) (string, []string) {
			t.Helper()
			_, env := claude(t, model)
			return "exec:" + claudeCode(t) + " -p", env
		}, "seen"},
		{"exec gemini", func(t *testing.T, model string) (string, []string) {
			t.Helper()
			command, env := gemini(t, model)
			return "exec:" + strings.TrimSuffix(command, " --acp"), env
		}, "seen"},
		{"exec qwen", func(t *testing.T, model string) (string, []string) {
			t.Helper()
			command, env := qwen(t, model)
			return "exec:" + strings.TrimSuffix(command, " --acp") + " --auth-type openai", env
		}, "seen"},
		{"exec codex", func(t *testing.T, model string) (string, []string) {
			t.Helper()
			_, env := codex(t, model)
			return "exec:" + codexProgram(t) + " exec --skip-git-repo-check -", env
		}, "seen"},
	}
}

// wakeOpenCode is a session of an OpenCode server.
func wakeOpenCode(t *testing.T, model string) (string, []string) {
	t.Helper()
	command, env := opencode(t, model)
	_, port, err := net.SplitHostPort(testserver.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, env, strings.TrimSuffix(command, " acp"), "serve", "--hostname", "127.0.0.1", "--port", port)
	server.await("listening on")
	url := "http://127.0.0.1:" + port
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/session", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var session struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&session); err != nil || session.ID == "" {
		t.Fatalf("no session: %+v, %v", session, err)
	}
	http.DefaultClient.CloseIdleConnections()
	return "opencode:" + url + "/" + session.ID, nil
}

var threadID = regexp.MustCompile(`session id: ([0-9a-f-]{36})`)

// wakeCodex is a thread of Codex that had a turn.
func wakeCodex(t *testing.T, model, kind string) (string, []string) {
	t.Helper()
	_, env := codex(t, model)
	program := codexProgram(t)
	first := start(t, env, program, "exec", "--skip-git-repo-check", "SAY hello")
	_ = first.p.Stdin.Close()
	if err := first.finish(); err != nil {
		t.Fatalf("codex exec: %v\n%s", err, first.output())
	}
	m := threadID.FindStringSubmatch(first.output())
	if m == nil {
		t.Fatalf("codex exec names no thread:\n%s", first.output())
	}
	return kind + m[1], append(env, "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// Hosts that somebody else started are woken by their own means, the real ones:
// their model sees the notice, and the inbox says how far that is proved.
//
// D-2, D-9, D-14, D-15.
func TestAgentsOfOthersAreWoken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, h := range wakedHosts() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			server := model(t, nil)
			wake, env := h.start(t, server.URL())
			url, data := memoHTTP(t), t.TempDir()
			doctor := start(t, env, program, "doctor", "--data", data, "--wake", wake)
			if err := doctor.finish(); err != nil {
				t.Errorf("doctor: %v\n%s", err, doctor.output())
			}
			w := start(t, env, program, "watch", "memo://notes", "-v", "--mcp-http", url, "--quiet", "100ms", "--inbox", "me", "--data", data, "--wake", wake)
			w.awaitLog("watch.started")
			must(t, "call", "memo_set", "key=todo", "value=tea", "--mcp-http", url)
			w.awaitLog("notice.moved", "state="+h.state)
			if h.state == "seen" { // else nobody says whether and when a turn follows
				heard(t, server, "ADDED todo")
			}
			if got := must(t, "inbox", "list", "--agent", "me", "--data", data); !strings.Contains(got, h.state) {
				t.Errorf("inbox: %s", got)
			}
		})
	}
}

// heard waits until a model was asked with a text.
func heard(t *testing.T, server *scripted.Server, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), agentPatience)
	defer cancel()
	if _, err := server.Await(ctx, func(r scripted.Record) bool { return bytes.Contains(r.Body, []byte(text)) }); err != nil {
		t.Errorf("the model has not heard %q: %v", text, err)
	}
}

// postNotice puts a notice into the inbox of "me".
func postNotice(t *testing.T, data, text string) {
	t.Helper()
	d, err := app.NewDelivery(t.Context(), config.Default(), data, "me", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Inbox.Post(t.Context(), notice.Notice{Agent: "me", Source: notice.SourceWatch, Title: "notes", Text: text})
	if err != nil {
		t.Error(err)
	}
	if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// home is the home directory of an environment.
func home(t *testing.T, env []string, name string) string {
	t.Helper()
	for _, e := range env {
		if dir, ok := strings.CutPrefix(e, name+"="); ok {
			return dir
		}
	}
	t.Fatalf("no %s in %q", name, env)
	return ""
}

// A hook of each host that has hooks shows what is pending with the person's next
// prompt, the real ones.
//
// D-13, D-2.
func TestAgentsHearByHooks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	settings := func(event, format, data string) string {
		return fmt.Sprintf(`{"hooks":{%q:[{"hooks":[{"type":"command","command":"%s digest --agent me --data %s --format %s"}]}]}}`, event, program, data, format)
	}
	for name, run := range map[string]func(t *testing.T, model, data string) (env, command []string){
		"claude": func(t *testing.T, model, data string) ([]string, []string) {
			t.Helper()
			_, env := claude(t, model)
			writeFile(t, filepath.Join(home(t, env, "HOME"), ".claude", "settings.json"), settings("UserPromptSubmit", "claude", data))
			return env, []string{claudeCode(t), "-p", "SAY fine"}
		},
		"gemini": func(t *testing.T, model, data string) ([]string, []string) {
			t.Helper()
			command, env := gemini(t, model)
			path := filepath.Join(home(t, env, "HOME"), ".gemini", "settings.json")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			hooks := strings.TrimPrefix(settings("BeforeAgent", "gemini", data), "{")
			writeFile(t, path, strings.TrimSuffix(strings.TrimSpace(string(text)), "}")+","+hooks)
			return env, append(strings.Fields(strings.TrimSuffix(command, " --acp")), "-p", "SAY fine")
		},
		"codex": func(t *testing.T, model, data string) ([]string, []string) {
			t.Helper()
			_, env := codex(t, model)
			writeFile(t, filepath.Join(home(t, env, "CODEX_HOME"), "hooks.json"), settings("UserPromptSubmit", "codex", data))
			return env, []string{codexProgram(t), "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "SAY fine"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, data := model(t, nil), t.TempDir()
			postNotice(t, data, "ADDED todo")
			env, command := run(t, server.URL(), data)
			host := start(t, env, command...)
			_ = host.p.Stdin.Close()
			if err := host.finish(); err != nil {
				t.Fatalf("%v\n%s", err, host.output())
			}
			heard(t, server, "ADDED todo")
			if got := must(t, "inbox", "list", "--agent", "me", "--data", data); !strings.Contains(got, "0 pending") || !strings.Contains(got, "seen") {
				t.Errorf("inbox: %s\nhost: %s", got, host.output())
			}
		})
	}
}

// earsConfig is a configuration by which Claude Code starts us.
func earsConfig(t *testing.T, data string, flags ...string) string {
	t.Helper()
	args := append([]string{"mcp", "--agent", "me", "--data", data, "--mcp-stdio", program + " memo"}, flags...)
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"ears": map[string]any{"type": "stdio", "command": program, "args": args}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, path, string(text))
	return path
}

// A real Claude Code that started us as an MCP server hears at the end of the
// next tool result.
//
// D-11.
func TestClaudeAgentHearsByToolResult(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	t.Parallel()
	server, data := model(t, nil), t.TempDir()
	postNotice(t, data, "ADDED todo")
	_, env := claude(t, server.URL())
	host := start(t, env, claudeCode(t), "-p", "CALL watch_list {}", "--mcp-config", earsConfig(t, data), "--strict-mcp-config", "--allowedTools", "mcp__ears__watch_list")
	_ = host.p.Stdin.Close()
	if err := host.finish(); err != nil {
		t.Fatalf("%v\n%s", err, host.output())
	}
	heard(t, server, "ADDED todo")
	if got := must(t, "inbox", "list", "--agent", "me", "--data", data); !strings.Contains(got, "0 pending") || !strings.Contains(got, "seen") {
		t.Errorf("inbox: %s\nhost: %s", got, host.output())
	}
}

// A real Claude Code takes our server for a channel, as far as that shows without
// a login of Anthropic: it looks at the capability, the protocol and the provider
// first, and only then at what Anthropic has switched on.
//
// D-12.
func TestClaudeAgentKnowsTheChannel(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	t.Parallel()
	terminal, err := findTerminal()
	if err != nil {
		t.Skip(err)
	}
	server, data, project := model(t, nil), t.TempDir(), t.TempDir()
	code := claudeCode(t)
	_, env := claude(t, server.URL())
	writeFile(t, filepath.Join(home(t, env, "HOME"), ".claude.json"), fmt.Sprintf(`{"hasCompletedOnboarding":true,"theme":"dark",
"customApiKeyResponses":{"approved":["x"],"rejected":[]},"projects":{%q:{"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}}}`, project))
	log := filepath.Join(project, "debug.txt")
	host := start(t, append(env, "TERM=xterm-256color"), terminal, "-qefc", fmt.Sprintf(
		"cd %s && exec %s --mcp-config %s --strict-mcp-config --dangerously-load-development-channels server:ears --debug-file %s",
		project, code, earsConfig(t, data, "--claude-channel"), log), "/dev/null")
	verdict := awaitText(t, host, log, "Channel notifications")
	if !strings.Contains(verdict, "not currently available") && !strings.Contains(verdict, "registered") {
		t.Errorf("Claude Code says of the channel: %s", verdict)
	}
	doctor := start(t, env, program, "doctor", "--data", data, "--claude-channel", "--claude", code)
	_ = doctor.finish()
	for _, want := range []string{"ok      claude-channel: version: ", "ok      claude-channel: running channel of me: session\n", "FAILED  claude-channel: server\n"} {
		if !strings.Contains(doctor.output(), want) {
			t.Errorf("doctor has no %q:\n%s", want, doctor.output())
		}
	}
}

// findTerminal finds the program that gives another one a terminal.
func findTerminal() (string, error) {
	const path = "/usr/bin/script"
	_, err := os.Stat(path)
	return path, err
}

// awaitText waits for a line of a file that a host writes.
func awaitText(t *testing.T, host *child, path, text string) string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		b, _ := os.ReadFile(path) // it is not there at first
		for line := range strings.SplitSeq(string(b), "\n") {
			if strings.Contains(line, text) {
				return line
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %s; the host said:\n%s", text, path, host.output())
		}
		select {
		case <-time.After(50 * time.Millisecond): // the file of another program has no ears
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
