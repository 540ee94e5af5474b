package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

// N-4.
func TestProfiles(t *testing.T) {
	t.Parallel()
	c, err := Load(write(t, `
profiles:
  coder:
    agent: [codex-acp, --flag]
    env: {B: "2", A: "1"}
    dir: /srv/work
    mcpServers: {board: {command: board-server}}
    policy: allow-read
    mode: default
    system: Be brief.
    on_start: Say hello.
    mid_turn: true
  claude:
    agent: [npx, claude]
    engine: passthrough
    kind: claude
  local:
    model: {url: "http://127.0.0.1:11434", name: small, api_key_env: KEY}
`), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Profile{
		"coder": {Profile: agent.Profile{
			Name: "coder", Command: []string{"codex-acp", "--flag"}, Env: []string{"A=1", "B=2"}, Dir: "/srv/work",
			Servers: []byte(`{"mcpServers":{"board":{"command":"board-server"}}}`), Policy: agent.PolicyAllowRead,
			System: "Be brief.", OnStart: "Say hello.", MidTurn: true,
		}, Mode: "default"},
		"claude": {Profile: agent.Profile{Name: "claude", Command: []string{"npx", "claude"}}, Passthrough: true, Kind: "claude"},
		"local":  {Profile: agent.Profile{Name: "local"}, Model: Model{URL: "http://127.0.0.1:11434", Name: "small", APIKeyEnv: "KEY"}},
	}
	if diff := cmp.Diff(want, c.Profiles); diff != "" {
		t.Error(diff)
	}
}

func TestBadProfiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`profiles: {a: {policy: yes-please}}`:                                `profiles.a: check profile "a": check policy`,
		`profiles: {a: {agent: [x], model: {url: "http://127.0.0.1:1/v1"}}}`: "profiles.a: agent and model exclude each other",
		`profiles: {a: {dir: work}}`:                                         `profiles.a: dir "work": use an absolute path`,
		`profiles: {a: {agents: [x]}}`:                                       "field agents not found",
		`profiles: {a: {agent: [x], engine: emacs}}`:                         `profiles.a: engine "emacs": use passthrough, or leave it out`,
		`profiles: {a: {engine: passthrough}}`:                               "profiles.a: engine passthrough needs an agent",
		`profiles: {a: {agent: [x], kind: claude}}`:                          "profiles.a: kind goes with engine: passthrough",
		`profiles: {a: {agent: [x], engine: passthrough, kind: emacs}}`:      `profiles.a: kind: no such kind of agent: "emacs"`,
		`profiles: {a: {agent: [""]}}`:                                       "the command is empty",
	} {
		if _, err := Load(write(t, text), env(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
