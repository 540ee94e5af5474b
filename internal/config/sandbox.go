package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ossicle/ossicle/internal/kubernetes"
	"github.com/ossicle/ossicle/worker"
)

// Drivers of sandboxes.
const (
	DriverLocal      = "local"      // on this machine, in the best sandbox that it can keep
	DriverKubernetes = "kubernetes" // a Job in a cluster
	DriverPlain      = "plain"      // on this machine, without a sandbox
)

// Tiers of sandboxes of this machine, best first. Without any there is DriverPlain.
const (
	TierBubblewrap = "bubblewrap"
	TierLandlock   = "landlock"
)

// Bounds of limits: less does not start a worker.
const (
	minSandboxMemory    = 64 << 20 // bytes
	minSandboxDisk      = 1 << 20  // bytes
	minSandboxProcesses = 16
)

// Sandbox is a kind of sandbox (specification PRO-1 to PRO-6): what the channel
// knows of it, and how it is made.
type Sandbox struct {
	worker.Profile

	Driver string
	Tier   string // the only one that will do, with DriverLocal; empty is the best that there is
	Limits SandboxLimits
	Image  string // of the worker, for DriverKubernetes
	// Namespace, Context and RuntimeClass are those of the cluster; empty is its
	// default.
	Namespace    string
	Context      string // of the kubeconfig
	RuntimeClass string
	Line         int // of the file; 0 is built in
}

// SandboxLimits bound a sandbox. Zero is the driver's default.
type SandboxLimits struct {
	Memory    Size   `yaml:"memory"`
	Disk      Size   `yaml:"disk"` // of the workspace
	Processes int    `yaml:"pids"`
	CPU       string `yaml:"cpu"` // of a cluster, in its own notation
}

// sandbox is the shape of a profile in the file.
type sandbox struct {
	Driver           string         `yaml:"driver"`
	Tier             string         `yaml:"tier"`
	Tools            []string       `yaml:"tools"`
	Budgets          sandboxBudgets `yaml:"budgets"`
	Dial             *time.Duration `yaml:"dial"`
	ActiveDeadline   *time.Duration `yaml:"active_deadline"`
	TerminationGrace *time.Duration `yaml:"termination_grace"`
	Limits           SandboxLimits  `yaml:"limits"`
	Image            string         `yaml:"image"`
	Namespace        string         `yaml:"namespace"`
	Context          string         `yaml:"context"`
	RuntimeClass     string         `yaml:"runtime_class"`
}

// sandboxBudgets are the nine budgets; what is left out is that of light.
type sandboxBudgets struct {
	Handshake         *time.Duration `yaml:"handshake"`
	Ready             *time.Duration `yaml:"ready"`
	ReadyAck          *time.Duration `yaml:"ready_ack"`
	HeartbeatInterval *time.Duration `yaml:"heartbeat_interval"`
	HeartbeatGrace    *time.Duration `yaml:"heartbeat_grace"`
	Idle              *time.Duration `yaml:"idle"`
	MaxExec           *time.Duration `yaml:"max_exec"`
	ReleaseGrace      *time.Duration `yaml:"release_grace"`
	ReconnectWindow   *time.Duration `yaml:"reconnect_window"`
}

func (b *sandboxBudgets) lay(to *worker.Budgets) {
	for _, f := range []struct {
		to   *time.Duration
		from *time.Duration
	}{
		{&to.Handshake, b.Handshake},
		{&to.Ready, b.Ready},
		{&to.ReadyAck, b.ReadyAck},
		{&to.HeartbeatInterval, b.HeartbeatInterval},
		{&to.HeartbeatGrace, b.HeartbeatGrace},
		{&to.Idle, b.Idle},
		{&to.MaxExec, b.MaxExec},
		{&to.ReleaseGrace, b.ReleaseGrace},
		{&to.ReconnectWindow, b.ReconnectWindow},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
}

// sandboxName is what a profile may be called: it is a label of a cluster and a
// word on the command line.
var sandboxName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// maxTools bounds the tools of a profile.
const maxTools = 32

// build makes a profile of what the file says, with the defaults of light. The
// error names every rule that it breaks.
func (s *sandbox) build(name string, line int) (Sandbox, error) {
	p := worker.Light()
	p.Name = name
	if s.Tools != nil {
		p.Tools = s.Tools
	}
	s.Budgets.lay(&p.Budgets)
	if s.Dial != nil {
		p.Dial = *s.Dial
	}
	// What follows from other budgets follows them, unless it is said.
	p.ActiveDeadline = p.Dial + p.Budgets.MaxExec + p.Budgets.ReleaseGrace
	p.TerminationGrace += p.Budgets.ReleaseGrace - worker.DefaultBudgets().ReleaseGrace
	if s.ActiveDeadline != nil {
		p.ActiveDeadline = *s.ActiveDeadline
	}
	if s.TerminationGrace != nil {
		p.TerminationGrace = *s.TerminationGrace
	}
	out := Sandbox{
		Profile: p, Driver: cmp.Or(s.Driver, DriverLocal), Tier: s.Tier, Limits: s.Limits, Image: s.Image, Namespace: s.Namespace, Context: s.Context,
		RuntimeClass: s.RuntimeClass, Line: line,
	}
	return out, s.check(&out)
}

// inKeys are the names of the contract as the file has them.
var inKeys = strings.NewReplacer(
	"handshakeSeconds", "budgets.handshake", "readyAckSeconds", "budgets.ready_ack", "readySeconds", "budgets.ready",
	"heartbeatIntervalSeconds", "budgets.heartbeat_interval", "heartbeatGraceSeconds", "budgets.heartbeat_grace",
	"idleSeconds", "budgets.idle", "maxExecSeconds", "budgets.max_exec", "releaseGraceSeconds", "budgets.release_grace",
	"reconnectWindowSeconds", "budgets.reconnect_window", "dialSeconds", "dial", "activeDeadlineSeconds", "active_deadline",
	"terminationGracePeriodSeconds", "termination_grace",
)

// rules are the rules of the contract that a profile breaks, in the words of the file.
func rules(p *worker.Profile) error {
	err := p.Validate()
	if err == nil {
		return nil
	}
	return errors.New(inKeys.Replace(strings.ReplaceAll(err.Error(), fmt.Sprintf("check profile %q: ", p.Name), "")))
}

func (s *sandbox) check(out *Sandbox) error {
	errs := []error{rules(&out.Profile)}
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(sandboxName.MatchString(out.Name), "the name %q: use up to 32 lower-case letters, digits and dashes", out.Name)
	need(slices.Contains([]string{DriverLocal, DriverKubernetes, DriverPlain}, out.Driver), "driver %q: use %s, %s or %s", out.Driver, DriverLocal, DriverKubernetes, DriverPlain)
	cluster := out.Driver == DriverKubernetes
	need(out.Tier == "" || cluster && out.Tier == TierLandlock || out.Driver == DriverLocal && slices.Contains([]string{TierBubblewrap, TierLandlock}, out.Tier),
		"tier %q: use %s or %s with the driver %s, and %s with %s", out.Tier, TierBubblewrap, TierLandlock, DriverLocal, TierLandlock, DriverKubernetes)
	need(cluster == (out.Image != ""), "image: a profile of the driver %s needs one, and others have none", DriverKubernetes)
	// The time to pull and start is that image's own (PRO-2).
	need(!cluster || s.Dial != nil, "dial: say how long the image takes to be pulled and to start; the default is that of another")
	need(cluster || s.Namespace+s.Context+s.RuntimeClass+s.Limits.CPU == "", "namespace, context, runtime_class and limits.cpu go with the driver %s", DriverKubernetes)
	need(!cluster || s.Limits.Processes == 0, "limits.pids: a pod has no such limit; its node's kubelet does (podPidsLimit)")
	need(s.Limits.Memory == 0 || s.Limits.Memory >= minSandboxMemory, "limits.memory: a worker needs at least %d bytes", minSandboxMemory)
	need(s.Limits.Disk == 0 || s.Limits.Disk >= minSandboxDisk, "limits.disk: a worker needs at least %d bytes", minSandboxDisk)
	need(s.Limits.Processes == 0 || s.Limits.Processes >= minSandboxProcesses, "limits.pids: a worker needs at least %d", minSandboxProcesses)
	need(len(out.Tools) > 0 && len(out.Tools) <= maxTools, "tools: name 1 to %d", maxTools)
	for i, t := range out.Tools {
		need(t != "" && !strings.ContainsAny(t, ", \t\n"), "tools: %q is no name", t)
		need(!slices.Contains(out.Tools[:i], t), "tools: %q is there twice", t)
	}
	return errors.Join(errs...)
}

// sandboxes builds the catalogue. root is the whole file, for the lines.
func sandboxes(all map[string]sandbox, root *yaml.Node) (map[string]Sandbox, error) {
	if len(all) == 0 {
		return nil, nil
	}
	out := map[string]Sandbox{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		line := lineOf(root, "sandboxes", name)
		built, err := s.build(name, line)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: sandboxes.%s: %w", line, name, err))
		}
		out[name] = built
	}
	return out, errors.Join(errs...)
}

// lineOf finds the line of a key below others, or that of the last one found.
func lineOf(n *yaml.Node, path ...string) int {
	line := 0
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, key := range path {
		found := false
		for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode && !found; i += 2 {
			if n.Content[i].Value == key {
				line, n, found = n.Content[i].Line, n.Content[i+1], true
			}
		}
		if !found {
			return line
		}
	}
	return line
}

// Sandbox returns a kind of sandbox. The one called light is there without a
// file.
func (c *Config) Sandbox(name string) (Sandbox, bool) {
	if s, ok := c.Sandboxes[name]; ok {
		return s, true
	}
	if light := worker.Light(); name == light.Name {
		return Sandbox{Profile: light, Driver: DriverLocal}, true
	}
	return Sandbox{}, false
}

// SandboxNames are the kinds of sandboxes, sorted.
func (c *Config) SandboxNames() []string {
	names := map[string]bool{worker.Light().Name: true}
	for name := range c.Sandboxes {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Gateway configures where sandboxed workers come in.
type Gateway struct {
	// Enabled is ossicle serve --worker-gateway.
	Enabled bool `yaml:"enabled"`
	// Listen is a further address for workers alone: HOST:PORT, or unix:PATH. The
	// address of the API takes them too.
	Listen string `yaml:"listen"`
	// PublicURL is what workers of other machines dial: wss://HOST/v1/worker.
	PublicURL string `yaml:"public_url"`
	// Address is where the other daemons of a shared store reach this one for the
	// sandboxes that it holds: http://HOST:PORT of Listen or of the API. Empty is
	// nowhere.
	Address string `yaml:"address"`
	// KeyFile holds the keys that sign tokens. Empty is one in the data directory,
	// which is rotated; a given one is shared, and others rotate it.
	KeyFile string        `yaml:"key_file"`
	Rotate  time.Duration `yaml:"rotate"` // age of a key that is replaced; zero is the default
	// Sandboxes bounds those that are there at a time; zero is the default.
	Sandboxes int     `yaml:"sandboxes"`
	Cluster   Cluster `yaml:"cluster"`
	Artifacts struct {
		Max     Size `yaml:"max"`     // of one
		Session Size `yaml:"session"` // of all of a sandbox
		Files   int  `yaml:"files"`   // of a sandbox
		// Keep is how long one is kept after its last upload, Total bounds the bytes of
		// all; zero is the default.
		Keep  time.Duration `yaml:"keep"`
		Total Size          `yaml:"total"`
	} `yaml:"artifacts"`
}

// Cluster says where the cluster of sandboxes is, and where they find the gateway:
// everything else is closed to them.
type Cluster struct {
	Kubeconfig string `yaml:"kubeconfig"` // empty: the service account of the pod that we run in
	// Namespace and Labels are those of the gateway's pods if it runs in the cluster,
	// CIDRs its addresses if it does not; Port is where it listens there.
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
	CIDRs     []string          `yaml:"cidrs"`
	Port      int               `yaml:"port"`
	// Address is the IP address behind the name in public_url. With it a sandbox needs
	// no DNS, which DNS lets it have.
	Address string `yaml:"address"`
	DNS     bool   `yaml:"dns"`
}

// Reach is where sandboxes may connect to.
func (c *Cluster) Reach() kubernetes.Gateway {
	return kubernetes.Gateway{Namespace: c.Namespace, Labels: c.Labels, CIDRs: c.CIDRs, Port: c.Port, Address: c.Address, DNS: c.DNS}
}

func (g *Gateway) check() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("gateway."+format, args...))
		}
	}
	if path, unix := strings.CutPrefix(g.Listen, "unix:"); unix {
		need(filepath.IsAbs(path), "listen %q: use an absolute path", g.Listen)
	} else if g.Listen != "" {
		_, _, err := net.SplitHostPort(g.Listen)
		need(err == nil, "listen %q: use HOST:PORT or unix:PATH", g.Listen)
	}
	if g.PublicURL != "" {
		u, err := url.Parse(g.PublicURL)
		ok := err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
		loopback := ok && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
		// Workers refuse to send a token in the clear (CON-4).
		need(ok && (u.Scheme == "wss" || u.Scheme == "ws" && loopback), "public_url %q: use wss://HOST/v1/worker; ws:// is for loopback alone", g.PublicURL)
	}
	if g.Address != "" {
		u, err := url.Parse(g.Address)
		need(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Path == "", "address %q: use http://HOST:PORT", g.Address)
		need(g.KeyFile != "", "address: daemons that use each other's sandboxes share a key_file")
	}
	need(g.KeyFile == "" || filepath.IsAbs(g.KeyFile), "key_file %q: use an absolute path", g.KeyFile)
	need(g.Rotate == 0 || g.Rotate >= time.Hour, "rotate %s: use an hour or more", g.Rotate)
	need(g.Sandboxes >= 0 && g.Artifacts.Max >= 0 && g.Artifacts.Session >= 0 && g.Artifacts.Files >= 0, "sandboxes and artifacts: use positive numbers, or leave them out")
	need(g.Artifacts.Keep == 0 || g.Artifacts.Keep >= time.Hour, "artifacts.keep %s: use an hour or more", g.Artifacts.Keep)
	return errors.Join(errs...)
}

// Size is a number of bytes. In the file it may have a unit: 512MiB.
type Size int64

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := parseSize(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: size %q: use bytes, or a number with KiB, MiB or GiB", n.Line, n.Value)
	}
	*s = v
	return nil
}

func parseSize(text string) (Size, error) {
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if digits, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = strings.TrimSpace(digits), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return 0, errors.New("not a size")
	}
	return Size(n * unit), nil
}

// checkSandboxes checks that agents ask for sandboxes that there are.
func (c *Config) checkSandboxes() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		if want := c.Profiles[name].Sandbox; want != "" {
			if _, ok := c.Sandbox(want); !ok {
				errs = append(errs, fmt.Errorf("profiles.%s.sandbox: there is no kind %q; there are %s", name, want, strings.Join(c.SandboxNames(), ", ")))
			}
		}
	}
	return errors.Join(errs...)
}

// checkClusters checks that sandboxes of clusters can find the gateway.
func (c *Config) checkClusters() error {
	for _, name := range slices.Sorted(maps.Keys(c.Sandboxes)) {
		if c.Sandboxes[name].Driver != DriverKubernetes {
			continue
		}
		reach := c.Gateway.Cluster.Reach()
		err := reach.Validate()
		if c.Gateway.PublicURL == "" {
			err = errors.Join(errors.New("public_url: give the address under which workers reach the gateway"), err)
		}
		if u, _ := url.Parse(c.Gateway.PublicURL); err == nil && reach.Address == "" && !reach.DNS && net.ParseIP(u.Hostname()) == nil {
			err = fmt.Errorf("cluster.address: give the IP address behind %q, or allow dns", u.Hostname())
		}
		if err != nil {
			return fmt.Errorf("line %d: sandboxes.%s needs more of gateway: %w", c.Sandboxes[name].Line, name, err)
		}
		return nil // the others need the same
	}
	return nil
}
