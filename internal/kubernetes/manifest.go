package kubernetes

import (
	"cmp"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/worker"
)

const (
	// policyName is the one policy of a namespace. The name of a session's objects
	// begins with namePrefix, so none of them is called so.
	policyName = "agentfy-worker"
	appName    = "agentfy-worker"
	workerName = "worker" // the container

	labelApp     = "app"
	labelSession = "session"
	labelProfile = "profile"
	labelManager = "app.kubernetes.io/managed-by"

	// annotationSession is the id itself, which a label may not be able to hold.
	annotationSession = "ossicle/session"
	// annotationNonce tells an object of this call from one that was there.
	annotationNonce = "ossicle/created-by"
	annotationStay  = "cluster-autoscaler.kubernetes.io/safe-to-evict"

	secretKey  = "token"
	secretsDir = "/run/secrets/agentfy"
	// tokenMode lets the group read, which is the worker's: the files are root's.
	tokenMode = 0o440

	// terminationMargin is what a pod needs after its last upload.
	terminationMargin = 5 * time.Second
	// finishedTTL is how long a Job stays that nobody deletes.
	finishedTTL = 300 // seconds
)

// manifests are the objects of a sandbox.
type manifests struct {
	Secret secret
	Job    job
}

// workerLabels select every sandbox of a namespace.
func workerLabels() map[string]string {
	return map[string]string{labelApp: appName, labelManager: "ossicle"}
}

// buildPolicy is what keeps sandboxes in: nobody connects to them, and they
// connect to the gateway alone.
func buildPolicy(namespace string, g Gateway) networkPolicy {
	var to []policyPeer
	if len(g.Labels) > 0 {
		to = append(to, policyPeer{
			NamespaceSelector: &selector{map[string]string{"kubernetes.io/metadata.name": g.Namespace}},
			PodSelector:       &selector{maps.Clone(g.Labels)},
		})
	}
	for _, c := range g.CIDRs {
		to = append(to, policyPeer{IPBlock: &ipBlock{c}})
	}
	egress := []egressRule{{Ports: []policyPort{{"TCP", g.Port}}, To: to}}
	if g.DNS {
		egress = append(egress, egressRule{
			Ports: []policyPort{{"UDP", 53}, {"TCP", 53}},
			To: []policyPeer{{
				NamespaceSelector: &selector{map[string]string{"kubernetes.io/metadata.name": "kube-system"}},
				PodSelector:       &selector{map[string]string{"k8s-app": "kube-dns"}},
			}},
		})
	}
	return networkPolicy{
		APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy",
		Metadata: meta{Name: policyName, Namespace: namespace, Labels: workerLabels()},
		Spec: networkPolicySpec{
			PodSelector: selector{map[string]string{labelApp: appName}},
			PolicyTypes: []string{"Ingress", "Egress"}, // without a rule for ingress there is none
			Egress:      egress,
		},
	}
}

// build makes the objects of a sandbox. It is a pure function of its arguments;
// nonce, lower-case letters and digits, tells one call from another.
func build(namespace string, g Gateway, s Spec, nonce string) (manifests, error) {
	if err := s.validate(g); err != nil {
		return manifests{}, err
	}
	name, labels := objectName(s.Session), workerLabels()
	labels[labelSession], labels[labelProfile] = labelValue(s.Session), labelValue(s.Profile.Name)
	m := meta{Name: name, Namespace: namespace, Labels: labels, Annotations: map[string]string{annotationSession: s.Session, annotationNonce: nonce}}
	secretMeta := m
	secretMeta.Name = name + "-" + nonce // what has this name was made by this call
	return manifests{
		Secret: secret{
			APIVersion: "v1", Kind: "Secret", Metadata: secretMeta,
			Type: "Opaque", Immutable: true, Data: map[string][]byte{secretKey: []byte(s.Token)},
		},
		Job: job{APIVersion: "batch/v1", Kind: "Job", Metadata: m, Spec: jobSpec{
			BackoffLimit: 0, Completions: 1, Parallelism: 1,
			PodReplacementPolicy:    "Failed", // a pod that is about to end gets no twin
			ActiveDeadlineSeconds:   seconds(activeDeadline(s.Profile)),
			TTLSecondsAfterFinished: finishedTTL,
			Template: podTemplate{
				Metadata: meta{Labels: labels, Annotations: map[string]string{annotationSession: s.Session, annotationStay: "false"}},
				Spec:     buildPod(secretMeta.Name, g, s),
			},
		}},
	}, nil
}

// activeDeadline is the cluster's own insurance.
func activeDeadline(p worker.Profile) time.Duration {
	return cmp.Or(p.ActiveDeadline, p.Dial+p.Budgets.MaxExec+p.Budgets.ReleaseGrace)
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func buildPod(secret string, g Gateway, s Spec) podSpec {
	p := s.Pod
	user := cmp.Or(p.User, DefaultUser)
	spec := podSpec{
		RestartPolicy:                 "Never",
		TerminationGracePeriodSeconds: seconds(cmp.Or(s.Profile.TerminationGrace, s.Profile.Budgets.ReleaseGrace+terminationMargin)),
		RuntimeClassName:              p.RuntimeClass, PriorityClassName: p.PriorityClass, NodeSelector: maps.Clone(p.NodeSelector),
		SecurityContext: podSecurity{
			RunAsNonRoot: true, RunAsUser: user, RunAsGroup: user, FSGroup: user, FSGroupChangePolicy: "OnRootMismatch",
			SeccompProfile: seccomp{"RuntimeDefault"},
		},
		Containers: []container{buildContainer(s)},
		Volumes: []volume{
			{Name: "workspace", EmptyDir: &emptyDir{cmp.Or(p.Workspace, DefaultWorkspace)}},
			{Name: "tmp", EmptyDir: &emptyDir{cmp.Or(p.Tmp, DefaultTmp)}},
			{Name: "token", Projected: &projected{tokenMode, []projection{{secretProjection{secret, []keyToPath{{secretKey, secretKey}}}}}}},
		},
	}
	if p.UserNamespace {
		spec.HostUsers = new(bool)
	}
	for _, n := range p.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, nameRef{n})
	}
	for _, t := range p.Tolerations {
		op := "Equal"
		if t.Value == "" {
			op = "Exists"
		}
		spec.Tolerations = append(spec.Tolerations, toleration{t.Key, op, t.Value, t.Effect})
	}
	resolve(&spec, g, s.Env[worker.EnvControlURL])
	return spec
}

// resolve says how the pod finds the gateway: by an entry in its hosts file and
// without DNS, or by the cluster's DNS.
func resolve(spec *podSpec, g Gateway, controlURL string) {
	if g.DNS {
		spec.DNSPolicy = "ClusterFirst"
	} else { // one that fails at once: the policy would let every question time out
		spec.DNSPolicy, spec.DNSConfig = "None", &dnsConfig{[]string{"127.0.0.1"}}
	}
	u, err := url.Parse(controlURL)
	if err != nil || g.Address == "" {
		return
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		spec.HostAliases = []hostAlias{{g.Address, []string{u.Hostname()}}}
	}
}

func buildContainer(s Spec) container {
	p := s.Pod
	c := container{
		Name: workerName, Image: p.Image, ImagePullPolicy: p.PullPolicy, Command: escapeAll(p.Command), Args: escapeAll(p.Args),
		WorkingDir: worker.DefaultWorkspace,
		Env:        buildEnv(s.Env),
		Resources: resources{Limits: map[string]string{
			"cpu": cmp.Or(p.CPU, DefaultCPU), "memory": cmp.Or(p.Memory, DefaultMemory), "ephemeral-storage": p.storage(),
		}},
		SecurityContext: containerSecurity{ReadOnlyRootFilesystem: true, Capabilities: capabilities{[]string{"ALL"}}},
		// The end of its log says why a worker gave up.
		TerminationMessagePolicy: "FallbackToLogsOnError",
		VolumeMounts: []mount{
			{Name: "workspace", MountPath: worker.DefaultWorkspace},
			{Name: "tmp", MountPath: "/tmp"},
			{Name: "token", MountPath: secretsDir, ReadOnly: true},
		},
	}
	for name, v := range map[string]string{"cpu": p.CPURequest, "memory": p.MemoryRequest} {
		if v != "" {
			if c.Resources.Requests == nil {
				c.Resources.Requests = map[string]string{}
			}
			c.Resources.Requests[name] = v
		}
	}
	return c
}

// buildEnv is the environment in the order of the names.
func buildEnv(env map[string]string) []variable {
	all := maps.Clone(env)
	all[worker.EnvTokenFile] = secretsDir + "/" + secretKey
	for name, v := range map[string]string{"HOME": worker.DefaultWorkspace, "TMPDIR": "/tmp"} {
		if all[name] == "" { // the image's own may not be writable
			all[name] = v
		}
	}
	var out []variable
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, variable{name, escape(all[name])})
	}
	return out
}

// escape keeps a text from being expanded: in values, commands and arguments
// Kubernetes replaces $(NAME), and reads $$ as one $.
func escape(s string) string { return strings.ReplaceAll(s, "$", "$$") }

func escapeAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, escape(s))
	}
	return out
}
