package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/kubernetes"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/worker"
)

// errPrivateGateway is for a gateway that only this machine reaches.
var errPrivateGateway = errors.New("make sandbox in a cluster: its worker reaches the gateway of 'ossicle serve' alone; use a sandbox there, see 'ossicle sandbox start'")

// newCluster makes the driver of a profile in a cluster. Profiles of one namespace
// share one: each watches all of it.
func (g *WorkerGateway) newCluster(_ context.Context, p *config.Sandbox) (*boxDriver, error) {
	c := &g.config.Gateway
	if g.o.Data == "" || c.PublicURL == "" {
		return nil, errPrivateGateway
	}
	driver, err := g.cluster(p)
	if err != nil {
		return nil, err
	}
	if err := driver.Watch(); err != nil { // of before, too: an earlier process may have made some
		return nil, fmt.Errorf("make sandbox driver: %w", err)
	}
	pod := podOf(p)
	d := &boxDriver{
		tier: config.DriverKubernetes, about: "kubernetes, image " + p.Image, gaps: driver.Gaps(), control: c.PublicURL,
		create: func(ctx context.Context, b boxSpec) error {
			env := maps.Clone(b.env)
			if p.Tier != "" {
				env[sandbox.EnvTier] = p.Tier
			}
			return driver.Create(ctx, kubernetes.Spec{Session: b.session, Env: env, Token: b.token, Profile: p.Profile, Pod: pod})
		},
		remove: driver.Delete, kill: driver.Kill,
		close: func(context.Context) error { return nil }, // shared, see closeDrivers
	}
	d.check = driver.Check
	return d, nil
}

// podOf is what the sandboxes of a profile run in.
func podOf(p *config.Sandbox) kubernetes.Pod {
	bytes := func(s config.Size) string {
		if s == 0 {
			return ""
		}
		return strconv.FormatInt(int64(s), 10)
	}
	return kubernetes.Pod{
		Image: p.Image, Args: []string{"worker", "--output", strconv.Itoa(sandboxOutput)},
		CPU: p.Limits.CPU, Memory: bytes(p.Limits.Memory), Workspace: bytes(p.Limits.Disk), RuntimeClass: p.RuntimeClass,
	}
}

// cluster returns the driver of a namespace; the caller holds making.
func (g *WorkerGateway) cluster(p *config.Sandbox) (*kubernetes.Driver, error) {
	key := p.Context + "/" + p.Namespace
	if d := g.clusters[key]; d != nil {
		return d, nil
	}
	d, err := kubernetes.New(g.config.Gateway.Cluster.Reach(), &kubernetes.Options{
		Logger: g.log, Kubeconfig: g.config.Gateway.Cluster.Kubeconfig, Context: p.Context, Namespace: p.Namespace,
		Exited: func(session string, e kubernetes.Exit) { g.exited(session, e.String()) },
		Noted: func(session string, n kubernetes.Note) {
			g.log.LogAttrs(context.Background(), slog.LevelWarn, "a sandbox does not begin as it should", logattr.Session(session), logattr.Reason(n.String()))
			g.trail.Audit(worker.AuditEntry{Time: time.Now(), Session: session, Host: g.owner, Event: "noted", Detail: n.String()})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make sandbox driver: %w", err)
	}
	g.clusters[key] = d
	return d, nil
}
