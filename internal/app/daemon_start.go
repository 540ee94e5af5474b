package app

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/watch"
)

// StartRequest asks for a session.
type StartRequest struct {
	ID      string         `json:"id"`
	Profile string         `json:"profile,omitzero"` // of the daemon's configuration file
	Agent   []string       `json:"agent,omitzero"`   // command and arguments
	Env     []string       `json:"env,omitzero"`     // "KEY=value"
	Dir     string         `json:"dir,omitzero"`     // absolute; with a profile that names none, the daemon's own
	Model   *StartModel    `json:"model,omitzero"`
	Mode    string         `json:"mode,omitzero"` // session mode of the agent
	Policy  string         `json:"policy,omitzero"`
	System  string         `json:"system,omitzero"`
	OnStart string         `json:"on_start,omitzero"`
	MidTurn bool           `json:"mid_turn,omitzero"`
	Servers []StartServer  `json:"servers,omitzero"`
	Watches []StartedWatch `json:"watches,omitzero"`
	Topics  []string       `json:"topics,omitzero"`  // TOPIC or TOPIC=POLICY
	Signals string         `json:"signals,omitzero"` // collaboration session
	Sandbox string         `json:"sandbox,omitzero"` // kind of sandbox whose tools the agent gets
	// Passthrough: the agent is a CLI that is shown in a terminal; Kind overrides
	// what its name says.
	Passthrough bool   `json:"passthrough,omitzero"`
	Kind        string `json:"kind,omitzero"`
}

// StartModel is where a model loop finds its model.
type StartModel struct {
	URL  string `json:"url"`
	Name string `json:"name,omitzero"`
	Key  string `json:"key,omitzero"`
}

// StartServer is an MCP server: a command, or a URL.
type StartServer struct {
	Name      string            `json:"name"`
	Transport string            `json:"transport,omitzero"` // stdio, http or sse; empty: by what is given
	Command   string            `json:"command,omitzero"`
	Args      []string          `json:"args,omitzero"`
	Env       map[string]string `json:"env,omitzero"`
	Dir       string            `json:"dir,omitzero"`
	URL       string            `json:"url,omitzero"`
	Headers   map[string]string `json:"headers,omitzero"`
	Attach    string            `json:"attach,omitzero"` // who connects: ossicle (the default), agent or both
}

// StartedWatch is a watch that the session begins with.
type StartedWatch struct {
	Name    string `json:"name"`
	URI     string `json:"uri"`
	OnEvent string `json:"on_event,omitzero"`
}

func (s *sessionAPI) start(r *http.Request) (any, error) {
	var req StartRequest
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if s.only != "" {
		return nil, httpserver.Errorf(http.StatusConflict, "this process hosts the session %q and no other; ossicle serve takes more", s.only)
	}
	spec, err := s.spec(&req)
	if err != nil {
		return nil, &httpserver.StatusError{Status: http.StatusBadRequest, Err: err}
	}
	one, err := s.agents.Start(r.Context(), *spec)
	if err != nil {
		return nil, err
	}
	return SessionInfo{Status: one.Session.Status(), Running: true, Engine: engineOf(one), Watches: one.Client.Watches.List()}, nil
}

func (s *sessionAPI) spec(req *StartRequest) (*AgentSpec, error) {
	spec := &AgentSpec{ID: req.ID, Signals: req.Signals, StatePath: s.watchState(req.ID), Asks: true}
	if req.Profile != "" {
		p, ok := s.agents.config.Profiles[req.Profile]
		if !ok {
			return nil, fmt.Errorf("profile %.80q is not in the configuration file of this process", req.Profile)
		}
		key, err := modelKey(p.Model.APIKeyEnv)
		if err != nil {
			return nil, err
		}
		spec.Passthrough, spec.Kind = p.Passthrough, p.Kind
		spec.Profile, spec.Mode, spec.Model = p.Profile, p.Mode, Model{URL: p.Model.URL, Name: p.Model.Name, Key: key}
		spec.Sandbox = p.Sandbox
		if spec.Servers, err = profileServers(p.Servers); err != nil {
			return nil, fmt.Errorf("profile %q: %w", req.Profile, err)
		}
	}
	req.lay(spec)
	if req.Profile != "" && spec.Profile.Dir == "" {
		// Only a profile: a caller elsewhere that names a command knows where it means.
		here, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("find the directory of profile %q, which names none: %w", req.Profile, err)
		}
		spec.Profile.Dir = here
	}
	if _, known := s.agents.config.Sandbox(spec.Sandbox); spec.Sandbox != "" && !known {
		return nil, &fleet.ProfileError{Profile: spec.Sandbox, Known: s.agents.config.SandboxNames()}
	}
	for _, text := range req.Topics {
		topic, err := ParseTopicSpec(text)
		if err != nil {
			return nil, err
		}
		spec.Topics = append(spec.Topics, topic)
	}
	switch {
	case checkSession(req.ID) != nil:
		return nil, checkSession(req.ID)
	case len(req.Agent) > 0 && req.Model != nil:
		return nil, errors.New("agent and model exclude each other: give one of them")
	case spec.Kind != "" && !spec.Passthrough:
		return nil, errors.New("kind goes with passthrough")
	case len(spec.Profile.Command) == 0 && spec.Model.URL == "":
		return nil, errors.New("neither an agent nor a model is given")
	case spec.Passthrough && len(spec.Profile.Command) == 0:
		return nil, errPassthrough
	case !filepath.IsAbs(spec.Profile.Dir):
		return nil, errors.New("dir must be an absolute path")
	}
	return spec, spec.Profile.Policy.Valid()
}

// lay puts what the request says over the profile.
func (req *StartRequest) lay(spec *AgentSpec) {
	p := &spec.Profile
	if len(req.Agent) > 0 {
		p.Command, spec.Model = req.Agent, Model{}
		spec.Passthrough, spec.Kind = false, ""
	}
	if req.Model != nil {
		p.Command, spec.Model = nil, Model(*req.Model)
		spec.Passthrough, spec.Kind = false, ""
	}
	spec.Passthrough = spec.Passthrough || req.Passthrough
	if req.Kind != "" {
		spec.Kind = req.Kind
	}
	p.Env = append(p.Env, req.Env...)
	for _, f := range []struct {
		to   *string
		from string
	}{{&p.Dir, req.Dir}, {&p.System, req.System}, {&p.OnStart, req.OnStart}} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	if req.Mode != "" {
		spec.Mode = req.Mode
	}
	if req.Sandbox != "" {
		spec.Sandbox = req.Sandbox
	}
	if req.Policy != "" {
		p.Policy = agent.Policy(req.Policy)
	}
	p.MidTurn = p.MidTurn || req.MidTurn
	for _, v := range req.Servers {
		spec.Servers = append(spec.Servers, mcpclient.Spec{
			Name: v.Name, Transport: mcpclient.Transport(v.Transport), Command: v.Command, Args: v.Args, Env: v.Env, Dir: v.Dir, URL: v.URL, Headers: v.Headers, Attach: mcpclient.Attach(v.Attach),
		})
	}
	for _, w := range req.Watches {
		spec.Watches = append(spec.Watches, watch.StartRequest(w))
	}
}

// watchState is where a session keeps its watches, so that they are there again
// when it is started again.
func (s *sessionAPI) watchState(id string) string {
	return filepath.Join(s.data, "watches", id+".json")
}

func modelKey(variable string) (string, error) {
	if variable == "" {
		return "", nil
	}
	key := os.Getenv(variable)
	if key == "" {
		return "", fmt.Errorf("the variable %s, which holds the key of the model server, is not set", variable)
	}
	return key, nil
}

func profileServers(text []byte) ([]mcpclient.Spec, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return mcpclient.ParseServers(text, os.LookupEnv)
}
