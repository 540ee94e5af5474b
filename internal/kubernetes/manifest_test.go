package kubernetes

import (
	stdjson "encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	gw "github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

var update = flag.Bool("update", false, "write the golden manifests")

// inCluster is a gateway in the cluster, found without DNS.
func inCluster() Gateway {
	return Gateway{Namespace: "agents", Labels: map[string]string{"app": "worker-gateway"}, Port: 8443, Address: "10.0.0.17"}
}

// outside is a gateway that is not in the cluster and is found by its name.
func outside() Gateway {
	return Gateway{CIDRs: []string{"192.0.2.7/32", "2001:db8::7/128"}, Port: 443, DNS: true}
}

func spec(session string) Spec {
	return Spec{
		Session: session, Token: "eyJ0.eyJz.c2ln", Profile: worker.Light(), Pod: Pod{Image: "registry.example/ossicle:7"},
		Env: map[string]string{
			worker.EnvSessionID: session, worker.EnvControlURL: "wss://gw.example:8443/v1/worker",
			worker.EnvToolAllowlist: "exec,file", worker.EnvBudgets: `{"idleSeconds":90}`,
		},
	}
}

// full sets everything that can be set.
func full() Spec {
	s := spec("Sitzung №1")
	s.Env["GREETING"] = "$(SESSION_ID) costs $5"
	s.Env["HOME"] = "/tmp"
	s.Profile.Name, s.Profile.ActiveDeadline, s.Profile.TerminationGrace = "Große", 3000*time.Second, 90*time.Second+time.Millisecond
	s.Pod = Pod{
		Image: "registry.example/ossicle@sha256:" + strings.Repeat("ab", 32), Command: []string{"ossicle"}, Args: []string{"worker", "$(HOME)"},
		PullPolicy: "Always", PullSecrets: []string{"registry"}, CPU: "2", Memory: "4Gi", Storage: "8Gi", CPURequest: "250m", MemoryRequest: "512Mi",
		Workspace: "4Gi", Tmp: "1Gi", User: 1000, RuntimeClass: "gvisor", UserNamespace: true, PriorityClass: "batch",
		NodeSelector: map[string]string{"pool": "sandboxes", "kubernetes.io/arch": "amd64"},
		Tolerations:  []Toleration{{Key: "sandboxes", Value: "only", Effect: "NoSchedule"}, {Key: "spot"}},
	}
	return s
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// What we ask of a cluster, in files; and each of them by the schema of the API.
func TestManifestsGolden(t *testing.T) {
	t.Parallel()
	api, err := loadAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		g    Gateway
		s    Spec
	}{{"light", inCluster(), spec("ses-1")}, {"full", outside(), full()}} {
		m, err := build("sandboxes", c.g, c.s, "nonce0")
		if err != nil {
			t.Fatal(err)
		}
		for kind, object := range map[string]any{
			"networking.v1.NetworkPolicy": buildPolicy("sandboxes", c.g), "core.v1.Secret": m.Secret, "batch.v1.Job": m.Job,
		} {
			got := encode(t, object)
			var v any
			if err := stdjson.Unmarshal(got, &v); err != nil {
				t.Fatal(err)
			}
			if bad := api.validate("io.k8s.api."+kind, v); len(bad) > 0 {
				t.Errorf("%s: %s is not of the API: %q", c.name, kind, bad)
			}
			_, short, _ := strings.Cut(kind, ".v1.")
			file := filepath.Join("testdata", c.name+"-"+strings.ToLower(short)+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		}
	}
}

// Nothing that is set is left out of what is sent: the golden file of the full pod
// has each value of it.
func TestFullSpecIsAllInTheManifest(t *testing.T) {
	t.Parallel()
	m, err := build("sandboxes", outside(), full(), "nonce0")
	if err != nil {
		t.Fatal(err)
	}
	text := string(encode(t, m.Job))
	p := full().Pod
	for _, want := range []string{
		p.Image, p.PullPolicy, p.PullSecrets[0], p.CPU, p.Memory, p.Storage, p.CPURequest, p.MemoryRequest, p.Workspace, p.Tmp, p.RuntimeClass, p.PriorityClass,
		`"hostUsers": false`, `"runAsUser": 1000`, `"pool": "sandboxes"`, `"operator": "Exists"`, `"value": "only"`, `"effect": "NoSchedule"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in it", want)
		}
	}
	// Kubernetes replaces $(NAME) in values, commands and arguments.
	for _, want := range []string{`"$$(SESSION_ID) costs $$5"`, `"$$(HOME)"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in it: it would be expanded", want)
		}
	}
}

// PRO-6.
func TestJobIsNeverRetried(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{spec("a"), full()} {
		m, err := build("n", outside(), s, "x")
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Spec map[string]any `json:"spec"`
		}
		if err := stdjson.Unmarshal(encode(t, m.Job), &v); err != nil {
			t.Fatal(err)
		}
		// Kubernetes' default is six: the zero must be there.
		if n, ok := v.Spec["backoffLimit"]; !ok || n != 0.0 {
			t.Errorf("backoffLimit: %v", n)
		}
		if v.Spec["completions"] != 1.0 || v.Spec["parallelism"] != 1.0 || v.Spec["podReplacementPolicy"] != "Failed" || m.Job.Spec.Template.Spec.RestartPolicy != "Never" {
			t.Errorf("%v", v.Spec)
		}
	}
}

// PRO-3.
func TestActiveDeadlineHoldsASession(t *testing.T) {
	t.Parallel()
	p := worker.Light()
	p.Dial = 1200 * time.Millisecond * 100
	least := p.Dial + p.Budgets.MaxExec + p.Budgets.ReleaseGrace
	for _, deadline := range []time.Duration{0, least, least + time.Millisecond} {
		s := spec("a")
		s.Profile = p
		s.Profile.ActiveDeadline = deadline
		m, err := build("n", inCluster(), s, "x")
		if err != nil {
			t.Fatal(err)
		}
		got := time.Duration(m.Job.Spec.ActiveDeadlineSeconds) * time.Second
		if got < least || got < deadline || got > max(least, deadline)+time.Second {
			t.Errorf("%s: %s", deadline, got)
		}
		if grace := time.Duration(m.Job.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; grace < p.Budgets.ReleaseGrace+5*time.Second {
			t.Errorf("termination grace %s", grace)
		}
	}
	s := spec("a")
	s.Profile.ActiveDeadline = least - time.Second
	if _, err := build("n", inCluster(), s, "x"); err == nil {
		t.Error("a deadline was taken that would end a session within its budgets")
	}
}

// IDN-2: the session is the sub of the token in the Secret, the SESSION_ID of the
// worker, and a label of the Job for whoever looks for it.
func TestSessionStandsInItsThreePlaces(t *testing.T) {
	t.Parallel()
	key, err := gw.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := gw.NewTokens("https://gw.example", key)
	if err != nil {
		t.Fatal(err)
	}
	s := spec("ses_7.A")
	if s.Token, err = issuer.Issue("ses_7.A", time.Hour); err != nil {
		t.Fatal(err)
	}
	m, err := build("n", inCluster(), s, "x")
	if err != nil {
		t.Fatal(err)
	}
	if sub, err := issuer.Authenticate(t.Context(), string(m.Secret.Data[secretKey])); err != nil || sub != "ses_7.A" {
		t.Errorf("%q, %v", sub, err)
	}
	for what, labels := range map[string]map[string]string{"job": m.Job.Metadata.Labels, "pod": m.Job.Spec.Template.Metadata.Labels, "secret": m.Secret.Metadata.Labels} {
		if labels["session"] != "ses_7.A" || labels["app"] != "agentfy-worker" || labels["profile"] != "light" {
			t.Errorf("%s: %v", what, labels)
		}
	}
	env := map[string]string{}
	for _, v := range m.Job.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	if env[worker.EnvSessionID] != "ses_7.A" {
		t.Errorf("%v", env)
	}
	s = spec("a")
	s.Env[worker.EnvSessionID] = "b"
	if _, err := build("n", inCluster(), s, "x"); err == nil {
		t.Error("an environment of another session was taken")
	}
}

// ENV-2: the token is a file of a projected Secret, and nowhere else.
func TestTokenIsAFileAndNothingElse(t *testing.T) {
	t.Parallel()
	s := spec("a")
	m, err := build("n", inCluster(), s, "x")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(encode(t, m.Job)); strings.Contains(text, s.Token) {
		t.Errorf("the token is in the Job: %s", text)
	}
	pod := m.Job.Spec.Template.Spec
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		env[v.Name] = v.Value
	}
	i := slices.IndexFunc(pod.Volumes, func(v volume) bool { return v.Projected != nil })
	p := pod.Volumes[i].Projected
	mounted := pod.Containers[0].VolumeMounts[slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m mount) bool { return m.Name == pod.Volumes[i].Name })]
	item := p.Sources[0].Secret.Items[0]
	if _, ok := env[worker.EnvToken]; ok || env[worker.EnvTokenFile] != mounted.MountPath+"/"+item.Path || !mounted.ReadOnly {
		t.Errorf("%v %+v", env, mounted)
	}
	// 0400 would be root's alone, and the worker is not root.
	if p.DefaultMode != 0o440 || pod.SecurityContext.FSGroup != pod.SecurityContext.RunAsGroup {
		t.Errorf("%o, group %d", p.DefaultMode, pod.SecurityContext.FSGroup)
	}
	if p.Sources[0].Secret.Name != m.Secret.Metadata.Name || string(m.Secret.Data[item.Key]) != s.Token || !m.Secret.Immutable {
		t.Errorf("%+v of %+v", p, m.Secret.Metadata)
	}
	for _, name := range []string{worker.EnvToken, worker.EnvTokenFile} {
		s := spec("a")
		s.Env[name] = "x"
		if _, err := build("n", inCluster(), s, "x"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// CON-2: nothing that gives a pod an address is made, and a policy denies what comes
// in and all but the gateway of what goes out.
func TestNobodyReachesAPod(t *testing.T) {
	t.Parallel()
	for _, g := range []Gateway{inCluster(), outside()} {
		p := buildPolicy("n", g)
		if !slices.Equal(p.Spec.PolicyTypes, []string{"Ingress", "Egress"}) || strings.Contains(string(encode(t, p)), `"ingress"`) {
			t.Errorf("%+v", p.Spec)
		}
		m, err := build("n", g, spec("a"), "x")
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range p.Spec.PodSelector.MatchLabels { // or it would be a policy of nobody
			if m.Job.Spec.Template.Metadata.Labels[k] != v {
				t.Errorf("the policy selects %s=%s, and pods have %v", k, v, m.Job.Spec.Template.Metadata.Labels)
			}
		}
		if len(p.Spec.Egress) == 0 {
			t.Error("no way to the gateway")
		}
		for _, rule := range p.Spec.Egress {
			if len(rule.To) == 0 || len(rule.Ports) == 0 { // empty is everything
				t.Errorf("open: %+v", rule)
			}
			for _, peer := range rule.To {
				if peer.IPBlock == nil && (peer.NamespaceSelector == nil || len(peer.NamespaceSelector.MatchLabels) == 0 || len(peer.PodSelector.MatchLabels) == 0) {
					t.Errorf("open: %+v", peer)
				}
			}
		}
		if strings.Contains(string(encode(t, m.Job)), `"ports"`) || strings.Contains(string(encode(t, m.Job)), "hostNetwork") {
			t.Error("a pod has a port")
		}
	}
	for resource := range apis {
		if resource == "services" || resource == "ingresses" {
			t.Errorf("there is a way to make %s", resource)
		}
	}
	if dns := buildPolicy("n", inCluster()).Spec.Egress; len(dns) != 1 {
		t.Errorf("DNS is a way out, and is not needed: %+v", dns)
	}
}

// The pod is one that the strictest of Kubernetes' pod security standards takes.
func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{spec("a"), full()} {
		m, err := build("n", outside(), s, "x")
		if err != nil {
			t.Fatal(err)
		}
		pod := m.Job.Spec.Template.Spec
		c := pod.Containers[0].SecurityContext
		if !pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.RunAsUser == 0 || pod.SecurityContext.SeccompProfile.Type != "RuntimeDefault" ||
			c.AllowPrivilegeEscalation || c.Privileged || !c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%+v %+v", pod.SecurityContext, c)
		}
		text := string(encode(t, m.Job))
		for _, want := range []string{`"automountServiceAccountToken": false`, `"enableServiceLinks": false`, `"allowPrivilegeEscalation": false`} {
			if !strings.Contains(text, want) { // false must be said: the default is true
				t.Errorf("%s is not in it", want)
			}
		}
		for _, v := range pod.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.SizeLimit == "" {
				t.Errorf("%s has no bound", v.Name)
			}
		}
		limits := slices.Sorted(maps.Keys(pod.Containers[0].Resources.Limits))
		if !slices.Equal(limits, []string{"cpu", "ephemeral-storage", "memory"}) {
			t.Errorf("limits of %v", limits)
		}
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Spec){
		"no session":                  func(s *Spec) { s.Session = "" },
		"a long session":              func(s *Spec) { s.Session = strings.Repeat("a", 257); s.Env[worker.EnvSessionID] = s.Session },
		"no token":                    func(s *Spec) { s.Token = "" },
		"a token that is two lines":   func(s *Spec) { s.Token = "a\nb" },
		"no control URL":              func(s *Spec) { delete(s.Env, worker.EnvControlURL) },
		"a plain control URL":         func(s *Spec) { s.Env[worker.EnvControlURL] = "ws://127.0.0.1/" },
		"a socket":                    func(s *Spec) { s.Env[worker.EnvControlURL] = "unix:///run/gw.sock" },
		"a name with an underscore":   func(s *Spec) { s.Env[worker.EnvControlURL] = "wss://g_w/" },
		"a variable without a name":   func(s *Spec) { s.Env[""] = "x" },
		"a variable with =":           func(s *Spec) { s.Env["A=B"] = "x" },
		"a value with NUL":            func(s *Spec) { s.Env["A"] = "x\x00" },
		"a value that is no UTF-8":    func(s *Spec) { s.Env["A"] = "\xff" },
		"too large an environment":    func(s *Spec) { s.Env["A"] = strings.Repeat("x", maxEnv) },
		"a profile that cannot work":  func(s *Spec) { s.Profile.Dial = 0 },
		"no image":                    func(s *Spec) { s.Pod.Image = "" },
		"an image that is an option":  func(s *Spec) { s.Pod.Image = "--privileged" },
		"an amount that is none":      func(s *Spec) { s.Pod.Memory = "lots" },
		"a negative amount":           func(s *Spec) { s.Pod.Workspace = "-1Gi" },
		"no amount at all":            func(s *Spec) { s.Pod.CPU = "0" },
		"a runtime that is no name":   func(s *Spec) { s.Pod.RuntimeClass = "../gvisor" },
		"a label that is none":        func(s *Spec) { s.Pod.NodeSelector = map[string]string{"a b": "c"} },
		"an effect that is none":      func(s *Spec) { s.Pod.Tolerations = []Toleration{{Key: "a", Effect: "Never"}} },
		"a pull policy that is none":  func(s *Spec) { s.Pod.PullPolicy = "Sometimes" },
		"a user below zero":           func(s *Spec) { s.Pod.User = -1 },
		"a pull secret that is a way": func(s *Spec) { s.Pod.PullSecrets = []string{"a/b"} },
	} {
		s := spec("a")
		change(&s)
		if _, err := build("n", inCluster(), s, "x"); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	unfindable := inCluster()
	unfindable.Address = ""
	if _, err := build("n", unfindable, spec("a"), "x"); err == nil || !strings.Contains(err.Error(), "DNS") {
		t.Errorf("a gateway that no pod can find: %v", err)
	}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"1": 1000, "500m": 500, "0.5": 500, "1.25k": 1_250_000, "2Gi": 2000 << 30, "100k": 100_000_000, "010": 10_000, "1099511627776": 1000 << 40, "1M": 1e9, "1.5Ti": 1500 << 40,
	} {
		if got, ok := amount(s); !ok || got != want {
			t.Errorf("%q: %d, %t", s, got, ok)
		}
	}
	for _, s := range []string{
		"", "0", "0.0", "000Mi", "-1", "+1", "1.", ".5", "1.2345", "1e3", "1 Gi", "Gi", "1gi", "1Gib", "1.5.2", "99999999999999999999", "9999999Ti", "١", "1Gi\n", "0.5m", "m",
	} {
		if got, ok := amount(s); ok {
			t.Errorf("%q: %d", s, got)
		}
	}
}

// A full workspace must not be the end of a sandbox.
func TestStorageHoldsTheWorkspace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ workspace, tmp, storage, want string }{
		{"", "", "", "1610612736"}, {"4Gi", "", "", "4831838208"}, {"4Gi", "1Gi", "", "5637144576"}, {"1Gi", "1Gi", "2Gi", "2Gi"}, {"1Gi", "1Gi", "2047Mi", ""},
	} {
		s := spec("a")
		s.Pod.Workspace, s.Pod.Tmp, s.Pod.Storage = c.workspace, c.tmp, c.storage
		m, err := build("n", inCluster(), s, "x")
		switch {
		case (err != nil) != (c.want == ""):
			t.Errorf("%+v: %v", c, err)
		case err == nil && m.Job.Spec.Template.Spec.Containers[0].Resources.Limits["ephemeral-storage"] != c.want:
			t.Errorf("%+v: %v", c, m.Job.Spec.Template.Spec.Containers[0].Resources)
		}
	}
}

func TestGatewaysThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Gateway){
		"no port":                  func(g *Gateway) { g.Port = 0 },
		"nobody":                   func(g *Gateway) { g.Namespace, g.Labels = "", nil },
		"every pod of a namespace": func(g *Gateway) { g.Labels = nil },
		"pods of every namespace":  func(g *Gateway) { g.Namespace = "" },
		"everything":               func(g *Gateway) { g.CIDRs = []string{"0.0.0.0/0"} },
		"an address in a network":  func(g *Gateway) { g.CIDRs = []string{"192.0.2.7/24"} },
		"a name for an address":    func(g *Gateway) { g.Address = "gw.example" },
		"the pod itself":           func(g *Gateway) { g.Address = "127.0.0.1" },
		"a label that is none":     func(g *Gateway) { g.Labels = map[string]string{"app": "a b"} },
	} {
		g := inCluster()
		change(&g)
		if _, err := New(g, nil); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
