package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/kubernetes"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// MachineDoctor tries what the profiles of the configuration need: a command in a
// sandbox of this machine for each of its own, the rights in the cluster for the
// others. program is that of GatewayOptions.
func MachineDoctor(ctx context.Context, c *config.Config, data string, program []string) []notice.Check {
	g, err := OpenGateway(ctx, c, &GatewayOptions{Program: program, Quiet: true})
	if err != nil {
		return []notice.Check{{Name: "gateway", Cause: err.Error()}}
	}
	var checks []notice.Check
	for _, name := range c.SandboxNames() {
		p, _ := c.Sandbox(name)
		check := g.tryLocal
		if p.Driver == config.DriverKubernetes {
			check = g.tryCluster
		}
		found := check(ctx, &p)
		found.Name = "sandbox " + name
		checks = append(checks, found)
	}
	if err := g.Close(context.WithoutCancel(ctx)); err != nil {
		checks = append(checks, notice.Check{Name: "gateway", Cause: err.Error()})
	}
	return append(checks, daemonGateway(ctx, c, data))
}

// tryLocal runs a command in a sandbox.
func (g *WorkerGateway) tryLocal(ctx context.Context, p *config.Sandbox) notice.Check {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, sandboxStart, errors.New("it took too long"))
	defer cancel()
	s, err := g.Start(ctx, "", p.Name, "")
	if err == nil {
		err = s.Running(ctx)
	}
	if err == nil && slices.Contains(s.Record().Tools, "exec") {
		_, err = callExec(ctx, s, map[string]any{"command": "true"}, 0)
	}
	if err == nil {
		_, err = s.Release(ctx, worker.ReasonExplicit)
	}
	if err != nil {
		return notice.Check{Cause: err.Error(), Fix: "install bubblewrap, util-linux and bash, and allow user namespaces; or name another driver in the profile"}
	}
	d := g.made(p.Name)
	return notice.Check{OK: true, Cause: boxSummary(d, fmt.Sprintf("%s; a command ran in it, from nothing to nothing in %s", d.about, time.Since(begun).Round(time.Millisecond)))}
}

// boxSummary adds what a sandbox does not keep to what is said of it.
func boxSummary(d *boxDriver, text string) string {
	if d.reason != "" {
		text += "; no better because " + d.reason
	}
	if len(d.gaps) > 0 {
		text += "; it does not keep: " + strings.Join(d.gaps, "; ")
	}
	return text
}

// tryCluster asks for the rights, and makes nothing.
func (g *WorkerGateway) tryCluster(ctx context.Context, p *config.Sandbox) notice.Check {
	c := &g.config.Gateway.Cluster
	d, err := kubernetes.New(c.Reach(), &kubernetes.Options{Logger: g.log, Kubeconfig: c.Kubeconfig, Context: p.Context, Namespace: p.Namespace})
	if err == nil {
		err = errors.Join(d.Check(ctx), d.Close(ctx))
	}
	if err != nil {
		return notice.Check{Cause: err.Error(), Fix: "see docs/channel.md, In Kubernetes"}
	}
	return notice.Check{OK: true, Cause: "the cluster lets us; it was not tried whether " + p.Image + " starts"}
}

// daemonGateway looks for the gateway of a daemon of the directory.
func daemonGateway(ctx context.Context, c *config.Config, data string) notice.Check {
	if data == "" {
		data = c.Home
	}
	check := notice.Check{Name: "daemon", OK: true}
	url := FindServer(ctx, data, "")
	if url == "" {
		check.Cause = "no process serves from " + data + "; ossicle sandbox run needs none"
		return check
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+worker.DialPath, http.NoBody)
	if err != nil {
		return notice.Check{Name: check.Name, Cause: err.Error()}
	}
	resp, err := apiClient.Do(req)
	if err != nil {
		return notice.Check{Name: check.Name, Cause: err.Error()}
	}
	_ = resp.Body.Close()
	// The API answers 401 too, as a problem.
	if resp.StatusCode == http.StatusUnauthorized && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		check.Cause = "workers come in at " + "ws" + strings.TrimPrefix(url, "http") + worker.DialPath // as workers dial, and doctor takes it
		return check
	}
	check.Cause = url + " takes no workers; ossicle serve --worker-gateway does"
	return check
}
