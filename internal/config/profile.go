package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/pty"
)

// Profile is a named way to run an agent (specification N-4): what the agent
// room knows of it, and where its model is if it is a model loop of our own.
type Profile struct {
	agent.Profile

	Model Model
	Mode  string // session mode of the agent
	// Sandbox is the kind of sandbox whose tools the agent gets; empty is none.
	Sandbox string
	// Passthrough: the agent is a CLI that is shown in a terminal, of a kind that its
	// name tells, or Kind.
	Passthrough bool
	Kind        string
}

// Model says where a model is.
type Model struct {
	URL       string `yaml:"url"`         // of an OpenAI-compatible server
	Name      string `yaml:"name"`        // empty: the first that the server lists
	APIKeyEnv string `yaml:"api_key_env"` // variable that holds the key; empty sends none
}

// enginePassthrough shows the agent in a terminal.
const enginePassthrough = "passthrough"

// profile is the shape of a profile in the file.
type profile struct {
	Agent   []string          `yaml:"agent"`  // command and arguments
	Engine  string            `yaml:"engine"` // "passthrough"; empty: by what is given
	Kind    string            `yaml:"kind"`   // with passthrough
	Model   Model             `yaml:"model"`
	Env     map[string]string `yaml:"env"`
	Dir     string            `yaml:"dir"`
	Servers yaml.Node         `yaml:"mcpServers"`
	Mode    string            `yaml:"mode"`
	Policy  string            `yaml:"policy"`
	System  string            `yaml:"system"`
	OnStart string            `yaml:"on_start"`
	MidTurn bool              `yaml:"mid_turn"`
	Sandbox string            `yaml:"sandbox"`
}

func (p *profile) build(name string) (Profile, error) {
	out := Profile{Model: p.Model, Mode: p.Mode, Sandbox: p.Sandbox, Passthrough: p.Engine == enginePassthrough, Kind: p.Kind, Profile: agent.Profile{
		Name: name, Command: p.Agent, Dir: p.Dir, Policy: agent.Policy(p.Policy), System: p.System, OnStart: p.OnStart, MidTurn: p.MidTurn,
	}}
	for _, key := range slices.Sorted(maps.Keys(p.Env)) {
		out.Env = append(out.Env, key+"="+p.Env[key])
	}
	var err error
	if !p.Servers.IsZero() {
		if out.Servers, err = servers(&p.Servers); err != nil {
			return out, fmt.Errorf("profiles.%s: %w", name, err)
		}
	}
	_, kind := pty.ParseKind(p.Kind)
	switch {
	case p.Engine != "" && p.Engine != enginePassthrough:
		err = fmt.Errorf("engine %q: use %s, or leave it out", p.Engine, enginePassthrough)
	case out.Passthrough && len(p.Agent) == 0:
		err = errors.New("engine passthrough needs an agent")
	case p.Kind != "" && !out.Passthrough:
		err = errors.New("kind goes with engine: passthrough")
	case kind != nil:
		err = fmt.Errorf("kind: %w", kind)
	case len(p.Agent) > 0 && p.Model.URL != "":
		err = errors.New("agent and model exclude each other")
	case p.Dir != "" && !filepath.IsAbs(p.Dir):
		err = fmt.Errorf("dir %q: use an absolute path", p.Dir)
	default:
		err = out.Validate()
	}
	if err != nil {
		return out, fmt.Errorf("profiles.%s: %w", name, err)
	}
	return out, nil
}

// servers makes an mcpServers object of the file the text that the pool parses.
func servers(n *yaml.Node) ([]byte, error) {
	text, err := toJSON(n)
	if err != nil {
		return nil, fmt.Errorf("mcpServers: %w", err)
	}
	return append(append([]byte(`{"mcpServers":`), text...), '}'), nil
}

func profiles(all map[string]profile) (map[string]Profile, error) {
	if len(all) == 0 {
		return nil, nil
	}
	out := map[string]Profile{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		built, err := p.build(name)
		if err != nil {
			errs = append(errs, err)
		}
		out[name] = built
	}
	return out, errors.Join(errs...)
}
