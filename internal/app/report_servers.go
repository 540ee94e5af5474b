package app

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/shim"
	"github.com/ossicle/ossicle/internal/version"
)

// configured is a server of a session's effective configuration.
type configured struct {
	name      string
	source    evidence.Source
	transport evidence.Transport
	target    string
	omitted   evidence.Reason // why nobody hands it to the agent; empty: it is handed over
	spec      *mcpclient.Spec // nil: ours
	box       *agentBox       // the agent's sandbox; nil: another
}

// handed reports whether the agent connects to a server of others itself.
func (s *configured) handed() bool { return (s.spec != nil || s.box != nil) && s.omitted == "" }

// withBox adds the sandbox of an agent, under a name that is free.
func withBox(all []configured, box *agentBox, endpoint string) []configured {
	name := sandboxServer
	for i := 2; slices.ContainsFunc(all, func(c configured) bool { return c.name == name }); i++ {
		name = fmt.Sprintf("%s-%d", sandboxServer, i)
	}
	return append(all, configured{name: name, source: evidence.SourceBuiltin, transport: evidence.HTTP, target: evidence.NetworkTarget(endpoint), box: box})
}

// ofOssicle are the servers that ossicle connects to itself: also those for the
// agent, where that is a loop of our own, which connects to none.
func ofOssicle(spec *AgentSpec) []mcpclient.Spec {
	return slices.DeleteFunc(slices.Clone(spec.Servers), func(s mcpclient.Spec) bool { return s.Attach == mcpclient.ByAgent && !spec.inProcess() })
}

// inProcess reports whether the agent is a loop of our own, which has its tools in
// this process.
func (spec *AgentSpec) inProcess() bool { return spec.Engine == nil && len(spec.Profile.Command) == 0 }

// configuration is what a session has: our own endpoint, and the servers of its
// profile. A name that is taken, as ours is, gets a number.
func configuration(specs []mcpclient.Spec, endpoint string, inProcess bool) ([]configured, error) {
	own := configured{name: version.Name, source: evidence.SourceBuiltin, transport: evidence.HTTP, target: evidence.NetworkTarget(endpoint)}
	if inProcess {
		own.transport, own.target = evidence.InProcess, ""
	}
	all, taken := []configured{own}, map[string]bool{own.name: true}
	for _, s := range specs {
		s, err := s.Normalize()
		if err != nil {
			return nil, fmt.Errorf("configure servers: %w", err)
		}
		c := configured{name: s.Name, source: evidence.SourceProfile, transport: evidence.Transport(s.Transport), target: s.Target(), spec: &s}
		for i := 2; taken[c.name]; i++ {
			c.name = fmt.Sprintf("%s-%d", s.Name, i)
		}
		taken[c.name] = true
		if !s.Attach.ToAgent() || inProcess {
			c.omitted = evidence.ReasonViaOssicle
		}
		all = append(all, c)
	}
	return all, nil
}

// secretsOf are the values in a configuration that no text may show.
func secretsOf(servers []configured, env []string) (values []string) {
	for _, kv := range env {
		_, value, _ := strings.Cut(kv, "=")
		values = append(values, value)
	}
	for _, s := range servers {
		if s.spec != nil {
			values = append(values, s.secrets()...)
		}
	}
	return values
}

func (s *configured) secrets() []string { return secretsIn(*s.spec) }

// hand returns how the agent reaches a server of others: by a relay of this
// attempt, which sees what passes. Headers and the URL stay here.
func (a *attempt) hand(s *configured, relays map[string]http.Handler) (agent.MCPServer, error) {
	out := agent.MCPServer{Name: s.name}
	token := newToken()
	url := a.r.o.endpoint.relayURL(token)
	if s.box != nil {
		return a.handBox(s, url, token, relays), nil
	}
	if s.transport == evidence.Stdio {
		relays[token] = a.intake(s.name)
		return a.command(s, url), nil
	}
	header := http.Header{}
	for name, value := range s.spec.Headers {
		header.Set(name, value)
	}
	seen := a.observe(s.name, evidence.NewSanitizer(s.secrets()...))
	p, err := shim.NewProxy(s.spec.URL, seen, &shim.ProxyOptions{Prefix: relayPath + "/" + token, Header: header, Logger: a.r.all.log})
	if err != nil {
		return out, err
	}
	a.closes(p.Close)
	relays[token] = p
	if s.transport == evidence.SSE {
		out.SSE = url
	} else {
		out.HTTP = url
	}
	return out, nil
}

// handBox returns how the agent reaches its sandbox, by whatever transport it can.
func (a *attempt) handBox(s *configured, url, token string, relays map[string]http.Handler) agent.MCPServer {
	older := newToken()
	seen := a.observe(s.name, a.r.clean)
	web, sse := s.box.web()
	relays[token], relays[older] = seen.Handler(web), seen.Handler(sse)
	out := agent.MCPServer{Name: s.name, HTTP: url, SSE: a.r.o.endpoint.relayURL(older), Command: a.r.o.endpoint.bridge}
	if out.Command != nil {
		out.Env = []string{EnvBridge + "=" + out.SSE}
	}
	return out
}

// command is how the agent starts a server that is a program: behind a relay,
// which tells us what it sees, where there is one and there is the program.
func (a *attempt) command(s *configured, url string) agent.MCPServer {
	out := agent.MCPServer{Name: s.name, Command: append([]string{s.spec.Command}, s.spec.Args...)}
	for _, name := range slices.Sorted(maps.Keys(s.spec.Env)) {
		out.Env = append(out.Env, name+"="+s.spec.Env[name])
	}
	if a.r.o.shim == nil || !installed(s.spec) {
		return out // the engine says what is missing
	}
	relay := append(slices.Clone(a.r.o.shim), "--name", s.name)
	if s.spec.Dir != "" {
		relay = append(relay, "--dir", s.spec.Dir)
	}
	out.Command = slices.Concat(relay, []string{"--"}, out.Command)
	out.Env = append(out.Env, EnvShim+"="+url)
	return out
}

// installed reports whether the program of a server can be found, as far as that
// is known here.
func installed(s *mcpclient.Spec) bool {
	if strings.ContainsRune(s.Command, filepath.Separator) && !filepath.IsAbs(s.Command) {
		return true // relative to where it runs
	}
	_, err := exec.LookPath(s.Command)
	return err == nil
}
