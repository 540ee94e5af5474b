package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// pluginTime bounds a run of a credential plugin.
	pluginTime = 30 * time.Second
	// pluginEarly is how long before its end a credential is renewed.
	pluginEarly = 30 * time.Second
	// pluginVersion is the one version of the protocol that is not beta.
	pluginVersion = "client.authentication.k8s.io/v1"
	pluginBeta    = "client.authentication.k8s.io/v1beta1"
)

// execPlugin is a program of the cluster's vendor that prints a token.
type execPlugin struct {
	APIVersion string   `yaml:"apiVersion"`
	Command    string   `yaml:"command"`
	Args       []string `yaml:"args"`
	Env        []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	ProvideClusterInfo bool `yaml:"provideClusterInfo"`
}

// plugin runs it when a token is needed, and keeps the token as long as it says.
type plugin struct {
	o   execPlugin
	dir string

	mu    sync.Mutex
	token string
	until time.Time // zero: until the cluster refuses it
}

func newPlugin(o execPlugin, dir string) (*plugin, error) {
	switch {
	case o.APIVersion != pluginVersion && o.APIVersion != pluginBeta:
		return nil, fmt.Errorf("exec: version %q is not supported; use %s", o.APIVersion, pluginVersion)
	case o.Command == "":
		return nil, errors.New("exec: it has no command")
	case o.ProvideClusterInfo:
		return nil, errors.New("exec: provideClusterInfo is not supported")
	}
	return &plugin{o: o, dir: dir}, nil
}

// bearer returns a token that is still good. Whoever needs one waits while another
// has the program run.
func (p *plugin) bearer(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token != "" && (p.until.IsZero() || time.Until(p.until) > pluginEarly) {
		return p.token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	out, err := p.run(ctx)
	if err != nil {
		return "", err
	}
	p.token, p.until, err = parseCredential(out)
	return p.token, err
}

func (p *plugin) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = ""
}

func (p *plugin) run(ctx context.Context) ([]byte, error) {
	name := p.o.Command
	if strings.ContainsRune(name, '/') {
		name = below(p.dir, name)
	}
	cmd := exec.CommandContext(ctx, name, p.o.Args...)
	cmd.Env = append(os.Environ(), `KUBERNETES_EXEC_INFO={"apiVersion":"`+p.o.APIVersion+`","kind":"ExecCredential","spec":{"interactive":false}}`)
	for _, v := range p.o.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out := &limited{left: maxFile}
	cmd.Stdout, cmd.WaitDelay = out, time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run credential plugin %s: %w", p.o.Command, err)
	}
	return out.b.Bytes(), nil
}

// limited keeps so many bytes and then refuses more.
type limited struct {
	b    bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("too much output")
	}
	return l.b.Write(p)
}

// parseCredential reads what a plugin printed. Errors do not repeat it.
func parseCredential(out []byte) (token string, until time.Time, err error) {
	var c struct {
		Kind   string `json:"kind"`
		Status struct {
			Token   string `json:"token"`
			Expires string `json:"expirationTimestamp"`
			Cert    string `json:"clientCertificateData"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &c); err != nil || c.Kind != "ExecCredential" {
		return "", time.Time{}, errors.New("read credential: the plugin printed no ExecCredential")
	}
	if c.Status.Expires != "" {
		if until, err = time.Parse(time.RFC3339, c.Status.Expires); err != nil {
			return "", time.Time{}, errors.New("read credential: its end is no time")
		}
	}
	switch {
	case c.Status.Token == "" && c.Status.Cert != "":
		return "", time.Time{}, errors.New("read credential: certificates of plugins are not supported")
	case !validBearer(c.Status.Token):
		return "", time.Time{}, errors.New("read credential: there is no token in it")
	}
	return c.Status.Token, until, nil
}
