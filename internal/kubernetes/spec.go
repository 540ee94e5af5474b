package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ossicle/ossicle/worker"
)

// Defaults of Pod, as Kubernetes writes quantities.
const (
	DefaultCPU       = "1"
	DefaultMemory    = "1Gi"
	DefaultWorkspace = "1Gi"
	DefaultTmp       = "256Mi"
	roomForLogs      = "256Mi"
	// DefaultUser is the user and group that a worker runs as: that of many images
	// without a shell.
	DefaultUser = 65532
)

// Spec is a sandbox to make.
type Spec struct {
	Session string
	// Env is the worker's environment without the token.
	Env map[string]string
	// Token becomes a file that only the worker's container has.
	Token string
	// Profile has the deadlines. A zero ActiveDeadline or TerminationGrace is the
	// least that the profile's budgets need.
	Profile worker.Profile
	Pod     Pod
}

// Pod is what a sandbox runs in. All but Image may be zero. Amounts are quantities
// of Kubernetes: "500m", "2Gi".
type Pod struct {
	// Image has the worker. By a digest it is always the same.
	Image string
	// Command and Args replace the image's own.
	Command, Args []string
	// PullPolicy is Always, IfNotPresent or Never; empty is the cluster's choice.
	PullPolicy string
	// PullSecrets name Secrets of the namespace.
	PullSecrets []string
	// CPU, Memory and Storage are limits; Storage is of all that is written, logs
	// too, and follows Workspace and Tmp if it is empty.
	CPU, Memory, Storage string
	// CPURequest and MemoryRequest are what a node must have free; empty is the limit.
	CPURequest, MemoryRequest string
	// Workspace and Tmp bound /workspace and /tmp.
	Workspace, Tmp string
	// User is the user and group that the worker runs as, never 0.
	User int64
	// RuntimeClass, for instance "gvisor", is how the cluster runs it; empty is the
	// usual way.
	RuntimeClass string
	// UserNamespace has the pod's users be nobody outside of it, where nodes can.
	UserNamespace bool
	// PriorityClass and NodeSelector say where, Tolerations where nevertheless.
	PriorityClass string
	NodeSelector  map[string]string
	Tolerations   []Toleration
}

// Toleration lets sandboxes onto nodes with a taint.
type Toleration struct {
	Key    string // of the taint
	Value  string // empty: any
	Effect string // NoSchedule, PreferNoSchedule, NoExecute; empty: any
}

// Gateway is where sandboxes may connect to: everything else is closed to them.
type Gateway struct {
	// Namespace and Labels are those of the gateway's pods, if it runs in the
	// cluster.
	Namespace string
	Labels    map[string]string
	// CIDRs are its addresses if it does not.
	CIDRs []string
	// Port is the TCP port where it listens: that of its pods, not of their Service.
	Port int
	// Address is the IP address behind the name in the control URL, for instance
	// the ClusterIP of the Service. With it, or with an address in the URL, a sandbox
	// needs no DNS, which is a way out for data.
	Address string
	// DNS lets sandboxes ask the cluster's DNS.
	DNS bool
}

// amount reads an amount in thousandths, as we take it, which is less than the API
// does: a positive decimal with a suffix, of at most about 9 PB.
func amount(s string) (thousandths int64, ok bool) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	whole, rest := s[:digits], s[digits:]
	fraction := ""
	if after, dotted := strings.CutPrefix(rest, "."); dotted {
		n := len(after) - len(strings.TrimLeft(after, "0123456789"))
		if fraction, rest = after[:n], after[n:]; n == 0 || n > 3 {
			return 0, false
		}
	}
	unit, known := units[rest]
	n, err := strconv.ParseInt(whole+(fraction + "000")[:3], 10, 64)
	if whole == "" || err != nil || !known || n == 0 || n > math.MaxInt64/max(unit, 1) {
		return 0, false
	}
	if unit == 0 { // thousandths themselves
		return n / 1000, n >= 1000
	}
	return n * unit, true
}

// units are the suffixes of amounts; that of thousandths is zero.
var units = map[string]int64{
	"": 1, "m": 0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// storage is the limit of all that a pod writes: what is given, or what the
// workspace and /tmp may hold and some room for logs.
func (p Pod) storage() string {
	if p.Storage != "" {
		return p.Storage
	}
	room, _ := amount(roomForLogs)
	return strconv.FormatInt((p.written()+room)/1000, 10)
}

// written is what the workspace and /tmp may hold, in thousandths of bytes.
func (p Pod) written() int64 {
	workspace, _ := amount(cmp.Or(p.Workspace, DefaultWorkspace))
	tmp, _ := amount(cmp.Or(p.Tmp, DefaultTmp))
	return workspace + tmp
}

// isVariable reports whether every shell takes s for the name of a variable.
func isVariable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && !isAlphanumeric(c) || i == 0 && c >= '0' && c <= '9' {
			return false
		}
	}
	return s != ""
}

// isImage keeps what can be no reference to an image out of manifests. That it can
// be pulled is the cluster's to say.
func isImage(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("._:/@-", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= 512 && isLower(s[0]) && isAlphanumeric(s[len(s)-1])
}

// problems collects what is wrong.
type problems []error

func (p *problems) need(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Validate returns everything that is wrong, joined.
func (p Pod) Validate() error {
	var bad problems
	bad.need(isImage(p.Image), "check pod: image %q is no name of an image", p.Image)
	switch p.PullPolicy {
	case "", "Always", "IfNotPresent", "Never":
	default:
		bad.need(false, "check pod: pull policy %q is none of Always, IfNotPresent, Never", p.PullPolicy)
	}
	for _, q := range []struct{ name, value string }{
		{"cpu", p.CPU},
		{"memory", p.Memory},
		{"storage", p.Storage},
		{"cpu request", p.CPURequest},
		{"memory request", p.MemoryRequest},
		{"workspace", p.Workspace},
		{"tmp", p.Tmp},
	} {
		_, ok := amount(q.value)
		bad.need(q.value == "" || ok, "check pod: %s %q is no quantity; write for instance 500m or 2Gi", q.name, q.value)
	}
	if limit, ok := amount(p.Storage); ok {
		bad.need(limit >= p.written(), "check pod: storage %s is less than the workspace and /tmp may hold; the node would end the pod before they are full", p.Storage)
	}
	for _, n := range append([]string{p.RuntimeClass, p.PriorityClass}, p.PullSecrets...) {
		bad.need(n == "" || isSubdomain(n), "check pod: %q is no name of an object", n)
	}
	for k, v := range p.NodeSelector {
		bad.need(isLabelKey(k) && (v == "" || isLabelValue(v)), "check pod: node selector %q: %q is no label", k, v)
	}
	for _, t := range p.Tolerations {
		bad.need(isLabelKey(t.Key) && (t.Value == "" || isLabelValue(t.Value)), "check pod: toleration %q: %q is no taint", t.Key, t.Value)
		switch t.Effect {
		case "", "NoSchedule", "PreferNoSchedule", "NoExecute":
		default:
			bad.need(false, "check pod: toleration of %q: effect %q is none of NoSchedule, PreferNoSchedule, NoExecute", t.Key, t.Effect)
		}
	}
	bad.need(p.User >= 0 && p.User < 1<<31, "check pod: user %d is none", p.User)
	return errors.Join(bad...)
}

// Validate returns everything that is wrong, joined.
func (g Gateway) Validate() error {
	var bad problems
	bad.need(g.Port > 0 && g.Port < 1<<16, "check gateway: port %d is none; give the port on which its pods listen", g.Port)
	bad.need((g.Namespace != "" && len(g.Labels) > 0) || len(g.CIDRs) > 0, "check gateway: give the namespace and labels of its pods, or the addresses (CIDR) where it is")
	bad.need(g.Namespace == "" || isName(g.Namespace), "check gateway: namespace %q is no name", g.Namespace)
	bad.need((g.Namespace == "") == (len(g.Labels) == 0), "check gateway: namespace and labels belong together")
	for k, v := range g.Labels {
		bad.need(isLabelKey(k) && (v == "" || isLabelValue(v)), "check gateway: %q: %q is no label", k, v)
	}
	for _, c := range g.CIDRs {
		prefix, err := netip.ParsePrefix(c)
		bad.need(err == nil && prefix == prefix.Masked() && prefix.Bits() > 0, "check gateway: %q is no network, or is all of them; write for instance 192.0.2.7/32", c)
	}
	if g.Address != "" {
		a, err := netip.ParseAddr(g.Address)
		bad.need(err == nil && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback(), "check gateway: address %q is no IP address that a pod can reach", g.Address)
	}
	return errors.Join(bad...)
}

// maxEnv bounds the environment of a sandbox, in bytes: an object has about 1 MiB.
const maxEnv = 128 << 10

// validate returns everything that is wrong with a sandbox that is to reach g.
func (s Spec) validate(g Gateway) error {
	var bad problems
	bad.need(s.Session != "" && utf8.ValidString(s.Session) && len(s.Session) <= 256, "check sandbox: the session needs an id of at most 256 bytes")
	bad.need(s.Env[worker.EnvSessionID] == s.Session, "check sandbox: %s is not the session", worker.EnvSessionID)
	bad.need(validToken(s.Token), "check sandbox: the token is missing or cannot stand in a header")
	size := 0
	for name, v := range s.Env {
		size += len(name) + len(v)
		bad.need(isVariable(name) && utf8.ValidString(v) && !strings.Contains(v, "\x00"), "check sandbox: the variable %q cannot be set", name)
	}
	bad.need(size <= maxEnv, "check sandbox: the environment has %d bytes; %d may be", size, maxEnv)
	for _, name := range []string{worker.EnvToken, worker.EnvTokenFile} {
		_, set := s.Env[name]
		bad.need(!set, "check sandbox: %s is not for the environment; the token comes as a file", name)
	}
	bad = append(bad, checkControlURL(s.Env[worker.EnvControlURL], g))
	return errors.Join(append(bad, s.Profile.Validate(), s.Pod.Validate())...)
}

// checkControlURL says what would keep a pod from the gateway.
func checkControlURL(raw string, g Gateway) error {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "wss" && u.Scheme != "https") || u.Hostname() == "" {
		return fmt.Errorf("check sandbox: %s %q is no address that a pod can dial; use wss", worker.EnvControlURL, raw)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return nil
	}
	if !isSubdomain(u.Hostname()) {
		return fmt.Errorf("check sandbox: %q is no name that a pod can look up; write it in lower case", u.Hostname())
	}
	if g.Address != "" || g.DNS {
		return nil
	}
	return fmt.Errorf("check sandbox: nothing tells a sandbox where %q is; give the gateway's address, or allow DNS", u.Hostname())
}

func validToken(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != "" && len(s) <= 16<<10
}
