package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/kubernetes"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// Doctor tries what the profiles of the configuration need: a command in a
// sandbox of this machine for each of its own, the rights in the cluster for the
// others. program is that of Options.
func Doctor(ctx context.Context, c *config.Config, program []string) []notice.Check {
	f, err := Open(ctx, c, &Options{Program: program, Quiet: true})
	if err != nil {
		return []notice.Check{{Name: "gateway", Cause: err.Error()}}
	}
	var checks []notice.Check
	for _, name := range c.SandboxNames() {
		p, _ := c.Sandbox(name)
		check := f.tryLocal
		if p.Driver == config.DriverKubernetes {
			check = f.tryCluster
		}
		found := check(ctx, &p)
		found.Name = "sandbox " + name
		checks = append(checks, found)
	}
	if err := f.Close(context.WithoutCancel(ctx)); err != nil {
		checks = append(checks, notice.Check{Name: "gateway", Cause: err.Error()})
	}
	return checks
}

// tryLocal runs a command in a sandbox.
func (f *Fleet) tryLocal(ctx context.Context, p *config.Sandbox) notice.Check {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errors.New("it took too long"))
	defer cancel()
	s, err := f.Start(ctx, "", p.Name, "")
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
	t := f.made(p.Name).Traits()
	return notice.Check{OK: true, Cause: summary(&t, fmt.Sprintf("%s; a command ran in it, from nothing to nothing in %s", t.About, time.Since(begun).Round(time.Millisecond)))}
}

// summary adds what a sandbox does not keep to what is said of it.
func summary(t *Traits, text string) string {
	if t.Reason != "" {
		text += "; no better because " + t.Reason
	}
	if len(t.Gaps) > 0 {
		text += "; it does not keep: " + strings.Join(t.Gaps, "; ")
	}
	return text
}

// tryCluster asks for the rights, and makes nothing.
func (f *Fleet) tryCluster(ctx context.Context, p *config.Sandbox) notice.Check {
	c := &f.config.Gateway.Cluster
	d, err := kubernetes.New(c.Reach(), &kubernetes.Options{Logger: f.log, Kubeconfig: c.Kubeconfig, Context: p.Context, Namespace: p.Namespace})
	if err == nil {
		err = errors.Join(d.Check(ctx), d.Close(ctx))
	}
	if err != nil {
		return notice.Check{Cause: err.Error(), Fix: "see docs/channel.md, In Kubernetes"}
	}
	return notice.Check{OK: true, Cause: "the cluster lets us; it was not tried whether " + p.Image + " starts"}
}
