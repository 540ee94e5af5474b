package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/httpserver"
)

// pageCanary is planted where secrets of a session's servers stand.
const pageCanary = "CANARY-4f1d9b72c0"

// pageDaemon is a daemon with what the tests of the page look at: two sessions with
// the same servers, of which one refuses connections.
func pageDaemon(t *testing.T) *daemon {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	write(t, config, "profiles:\n  mock:\n    agent: ["+program+", mock-agent]\n    dir: "+t.TempDir()+"\n")
	d := newDaemon(t, []string{"OSSICLE_MONTY=" + peer(t, "@pydantic", "monty-linux-x64-gnu", "monty")}, "--config", config, "--worker-gateway")
	for id, mode := range map[string]string{"one": "permission", "two": "eager"} {
		servers := []map[string]any{
			{"name": "memo", "command": program, "args": []string{"memo"}, "env": map[string]string{"MEMO_SECRET": pageCanary}, "attach": "both"},
			{
				"name": "a-server-with-a-name-that-is-far-too-long-for-one-line-of-a-narrow-drawer", "url": "http://127.0.0.1:9/mcp?key=" + pageCanary,
				"headers": map[string]string{"Authorization": "Bearer " + pageCanary}, "attach": "agent",
			},
		}
		body, err := json.Marshal(map[string]any{"id": id, "dir": d.data, "agent": []string{program, "mock-agent", "--mode", mode}, "servers": servers, "signals": "20260101_000000_abcdef01"})
		if err != nil {
			t.Fatal(err)
		}
		d.post("/v1/sessions", string(body))
		d.post("/v1/sessions/"+id+"/prompt", `{"text":"SAY hello","wait":true}`)
	}
	d.post("/v1/sessions", `{"id":"term","dir":"`+d.data+`","agent":["sh"],"passthrough":true,"servers":[{"name":"memo","command":"`+program+`","args":["memo"],"attach":"both"}]}`)
	return d
}

// browse runs a script of the page's browser tests against the daemon.
func (d *daemon) browse(script string, env ...string) *child {
	t := d.t
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err == nil {
		_, err = os.Stat(filepath.Join(root(t), "web", "node_modules", "playwright-core"))
	}
	if err != nil {
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatalf("%v; run make setup", err)
		}
		t.Skipf("%v; run make setup", err)
	}
	token, err := httpserver.ReadTokenFile(filepath.Join(d.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "OSSICLE_PAGE_URL=http://"+d.addr, "OSSICLE_PAGE_TOKEN="+token, "OSSICLE_CHROMIUM="+chromium, "OSSICLE_CANARY="+pageCanary)
	return start(t, env, node(t), filepath.Join(root(t), "web", "e2e", script))
}

// The page in a browser, against a daemon with agents: the token, the chat, the plug
// as popover and as drawer, its actions, two sessions side by side, watches, the inbox,
// the feed, signals, a terminal, sandboxes, and a daemon that dies. axe looks at every view, light and dark. The cases
// are in web/e2e, each beside the requirements that it holds.
//
//
func TestPage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs a browser")
	}
	d := pageDaemon(t)
	run := d.browse("run.mjs")
	passed := 0
	for line := range run.lines {
		switch word, rest, _ := strings.Cut(line, " "); {
		case line == "please kill":
			d.p.Kill()
			run.say("done")
		case line == "please start":
			d.start()
			run.say("done")
		case line == "please signal":
			must(t, "signal", "one", "<img src=x onerror=alert(1)> the schema does not fit", "--type", "warn", "--data", d.data,
				"--session", "20260101_000000_abcdef01", "--agent", "visitor")
			run.say("done")
		case line == "please token":
			run.say(must(t, "token", "create", "visitor", "--read", "public", "--session", "one", "--data", d.data))
		case word == "ok":
			t.Log(rest)
			passed++
		default:
			t.Error(line)
		}
	}
	if err := run.p.Wait(); err != nil || passed < 18 {
		t.Errorf("%d cases passed, %v: %s", passed, err, run.output())
	}
}

// TestPageUnderLoad measures the page with 10,000 events a minute and a transcript of
// 5,000 entries; it is for make bench-page.
func TestPageUnderLoad(t *testing.T) {
	if os.Getenv("OSSICLE_BENCH_PAGE") == "" {
		t.Skip("a benchmark; run make bench-page")
	}
	run := pageDaemon(t).browse("bench.mjs")
	figures := 0
	for line := range run.lines {
		var f struct {
			What  string  `json:"what"`
			Share float64 `json:"script_share"`
			Wall  float64 `json:"wall_s"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Error(line)
			continue
		}
		t.Log(line)
		figures++
		// Half of the time spent in scripts, for longer than a moment, is a page that
		// does not answer.
		if f.Wall > 2 && f.Share > 0.5 {
			t.Errorf("%s: scripts take %.0f %% of the time", f.What, 100*f.Share)
		}
	}
	if err := run.p.Wait(); err != nil || figures < 6 {
		t.Errorf("%d figures, %v: %s", figures, err, run.output())
	}
}
