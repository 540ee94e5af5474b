package fleet

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
// share one connection: it watches all of it.
func (f *Fleet) newCluster(p *config.Sandbox) (Driver, error) {
	c := &f.config.Gateway
	if f.o.Data == "" || c.PublicURL == "" {
		return nil, errPrivateGateway
	}
	cluster, err := f.cluster(p)
	if err != nil {
		return nil, err
	}
	if err := cluster.Watch(); err != nil { // of before, too: an earlier process may have made some
		return nil, fmt.Errorf("make sandbox driver: %w", err)
	}
	return &clusterDriver{Driver: cluster, profile: p, pod: podOf(p), control: c.PublicURL}, nil
}

// clusterDriver is the driver of a namespace as one profile has it.
type clusterDriver struct {
	*kubernetes.Driver

	profile *config.Sandbox
	pod     kubernetes.Pod
	control string
}

// Traits implements Driver.
func (d *clusterDriver) Traits() Traits {
	return Traits{Tier: config.DriverKubernetes, About: "kubernetes, image " + d.profile.Image, Gaps: d.Gaps(), Control: d.control}
}

// Create implements Driver.
func (d *clusterDriver) Create(ctx context.Context, s Spec) error {
	env := maps.Clone(s.Env)
	if d.profile.Tier != "" {
		env[sandbox.EnvTier] = d.profile.Tier
	}
	return d.Driver.Create(ctx, kubernetes.Spec{Session: s.Session, Env: env, Token: s.Token, Profile: d.profile.Profile, Pod: d.pod})
}

// Close implements Driver: other profiles use the namespace, see closeDrivers.
func (*clusterDriver) Close(context.Context) error { return nil }

// podOf is what the sandboxes of a profile run in.
func podOf(p *config.Sandbox) kubernetes.Pod {
	bytes := func(s config.Size) string {
		if s == 0 {
			return ""
		}
		return strconv.FormatInt(int64(s), 10)
	}
	return kubernetes.Pod{
		Image: p.Image, Args: []string{"worker", "--output", strconv.Itoa(outputKept)},
		CPU: p.Limits.CPU, Memory: bytes(p.Limits.Memory), Workspace: bytes(p.Limits.Disk), RuntimeClass: p.RuntimeClass,
	}
}

// cluster returns the driver of a namespace; the caller holds making.
func (f *Fleet) cluster(p *config.Sandbox) (*kubernetes.Driver, error) {
	key := p.Context + "/" + p.Namespace
	if d := f.clusters[key]; d != nil {
		return d, nil
	}
	d, err := kubernetes.New(f.config.Gateway.Cluster.Reach(), &kubernetes.Options{
		Logger: f.log, Kubeconfig: f.config.Gateway.Cluster.Kubeconfig, Context: p.Context, Namespace: p.Namespace,
		Exited: func(session string, e kubernetes.Exit) { f.exited(session, e.String()) },
		Noted: func(session string, n kubernetes.Note) {
			f.log.LogAttrs(context.Background(), slog.LevelWarn, "a sandbox does not begin as it should", logattr.Session(session), logattr.Reason(n.String()))
			f.trail.Audit(worker.AuditEntry{Time: time.Now(), Session: session, Host: f.owner, Event: "noted", Detail: n.String()})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make sandbox driver: %w", err)
	}
	f.clusters[key] = d
	return d, nil
}
