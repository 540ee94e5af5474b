package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/worker"
)

// SCO-8, PRO-4: every budget can be overridden, and what is left out is that of
// light.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	c, err := Load(write(t, `
sandboxes:
  warm:
    tools: [exec]
    dial: 60s
    budgets: {handshake: 11s, ready: 31s, ready_ack: 16s, heartbeat_interval: 9s, heartbeat_grace: 29s, idle: 10m, max_exec: 30m, release_grace: 20s, reconnect_window: 61s}
    limits: {memory: 256MiB, disk: 64MiB, pids: 64}
  cluster:
    driver: kubernetes
    image: registry.example/worker:7
    namespace: sandboxes
    dial: 5m
    limits: {cpu: "2"}
gateway: {enabled: true, listen: "0.0.0.0:7719", public_url: "wss://gw.example/v1/worker", sandboxes: 8, artifacts: {session: 1GiB, keep: 48h, total: 2GiB}, cluster: {namespace: agents, labels: {app: gw}, port: 8443, dns: true}}
profiles:
  coder: {agent: [x], sandbox: light}
`), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	cluster := worker.Light()
	cluster.Name, cluster.Dial, cluster.ActiveDeadline = "cluster", 5*time.Minute, 5*time.Minute+15*time.Minute+30*time.Second
	want := map[string]Sandbox{
		"warm": {Profile: worker.Profile{
			Name: "warm", Dial: time.Minute, ActiveDeadline: 31*time.Minute + 20*time.Second, TerminationGrace: 25 * time.Second, Tools: []string{"exec"},
			Budgets: worker.Budgets{
				Handshake: 11 * time.Second, Ready: 31 * time.Second, ReadyAck: 16 * time.Second, HeartbeatInterval: 9 * time.Second,
				HeartbeatGrace: 29 * time.Second, Idle: 10 * time.Minute, MaxExec: 30 * time.Minute, ReleaseGrace: 20 * time.Second, ReconnectWindow: 61 * time.Second,
			},
		}, Driver: DriverLocal, Limits: SandboxLimits{Memory: 256 << 20, Disk: 64 << 20, Processes: 64}, Line: 3},
		"cluster": {
			Profile: cluster, Driver: DriverKubernetes, Image: "registry.example/worker:7", Namespace: "sandboxes",
			Limits: SandboxLimits{CPU: "2"}, Line: 8,
		},
	}
	if diff := cmp.Diff(want, c.Sandboxes); diff != "" {
		t.Error(diff)
	}
	if s, ok := c.Sandbox("light"); !ok || s.Driver != DriverLocal || s.Validate() != nil {
		t.Errorf("light is not there by default: %+v", s)
	}
	if got := c.SandboxNames(); !cmp.Equal(got, []string{"cluster", "light", "warm"}) {
		t.Errorf("names %v", got)
	}
	if !c.Gateway.Enabled || c.Gateway.Artifacts.Session != 1<<30 || c.Gateway.Artifacts.Keep != 48*time.Hour || c.Gateway.Artifacts.Total != 2<<30 || c.Profiles["coder"].Sandbox != "light" {
		t.Errorf("%+v", c.Gateway)
	}
}

// Whatever rule is broken is told by the keys of the file.
func TestRulesAreToldInKeys(t *testing.T) {
	t.Parallel()
	var told []string
	for _, p := range []worker.Profile{
		{Name: "none", ActiveDeadline: -1, TerminationGrace: 1},
		{Name: "all", Budgets: worker.Budgets{HeartbeatInterval: 1, MaxExec: -1, ReadyAck: 1, Ready: 1, Handshake: 1, ReconnectWindow: -1}, ActiveDeadline: -5, TerminationGrace: 1},
	} {
		told = append(told, rules(&p).Error())
	}
	text := strings.Join(told, "\n")
	if strings.Contains(text, "Seconds") {
		t.Errorf("a name of the contract is left: %s", text)
	}
	for _, key := range []string{
		"handshake", "ready", "ready_ack", "heartbeat_interval", "heartbeat_grace", "idle", "max_exec", "release_grace", "reconnect_window",
	} {
		if !strings.Contains(text, "budgets."+key) {
			t.Errorf("%s is not told: %s", key, text)
		}
	}
}

// A catalogue with a mistake refuses to load, and says in which file and line, in
// which profile, which rule it breaks.
//
// PRO-1, PRO-2, PRO-3, PRO-4.
func TestSandboxMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"idle beyond the ceiling", "sandboxes:\n  bad:\n    budgets: {idle: 15m}", "line 2: sandboxes.bad: budgets.idle must be less than budgets.max_exec"},
		{"idle at the ceiling", "sandboxes: {bad: {budgets: {idle: 900s}}}", "budgets.idle must be less than budgets.max_exec"},
		{"no dial", "sandboxes: {bad: {dial: 0s}}", "sandboxes.bad: dial must be positive"},
		{"dial of another image", "sandboxes: {bad: {driver: kubernetes, image: x}}", "dial: say how long the image takes"},
		{"deadline without the cold start", "sandboxes: {bad: {active_deadline: 900s}}", "active_deadline must be at least dial + budgets.max_exec + budgets.release_grace"},
		{"deadline without the flush", "sandboxes: {bad: {active_deadline: 1049s}}", "active_deadline must be at least"},
		{"grace of two beats", "sandboxes: {bad: {budgets: {heartbeat_grace: 20s}}}", "budgets.heartbeat_grace must be at least three times budgets.heartbeat_interval"},
		{"ack as long as ready", "sandboxes: {bad: {budgets: {ready_ack: 30s}}}", "budgets.ready_ack must be less than budgets.ready"},
		{"dial of two handshakes", "sandboxes: {bad: {dial: 20s}}", "dial must be more than twice budgets.handshake"},
		{"window of a grace", "sandboxes: {bad: {budgets: {reconnect_window: 30s}}}", "budgets.reconnect_window must be more"},
		{"killed in its flush", "sandboxes: {bad: {termination_grace: 34s}}", "termination_grace must be at least budgets.release_grace + 5 seconds"},
		{"negative", "sandboxes: {bad: {budgets: {max_exec: -1s}}}", "budgets.max_exec must be positive"},
		{"driver", "sandboxes: {bad: {driver: docker}}", `driver "docker"`},
		{"tier", "sandboxes: {bad: {tier: chroot}}", `tier "chroot"`},
		{"tier of a plain one", "sandboxes: {bad: {driver: plain, tier: landlock}}", `tier "landlock"`},
		{"no way to the gateway", "sandboxes: {far: {driver: kubernetes, image: x, dial: 3m}}", "sandboxes.far needs more of gateway: public_url"},
		{"no gateway", "gateway: {public_url: 'wss://x/v1/worker'}\nsandboxes: {far: {driver: kubernetes, image: x, dial: 3m}}", "check gateway: port 0"},
		{"no address", "gateway: {public_url: 'wss://x/v1/worker', cluster: {cidrs: [192.0.2.7/32], port: 1}}\nsandboxes: {far: {driver: kubernetes, image: x, dial: 3m}}", "cluster.address"},
		{"image of a local one", "sandboxes: {bad: {image: x}}", "image: "},
		{"namespace of a local one", "sandboxes: {bad: {namespace: x}}", "go with the driver kubernetes"},
		{"name", "sandboxes: {Bad_Name: {}}", `the name "Bad_Name"`},
		{"no tools", "sandboxes: {bad: {tools: []}}", "tools: name 1 to"},
		{"tool twice", "sandboxes: {bad: {tools: [exec, exec]}}", "is there twice"},
		{"list in a name", "sandboxes: {bad: {tools: ['a,b']}}", "is no name"},
		{"memory", "sandboxes: {bad: {limits: {memory: 1KiB}}}", "limits.memory"},
		{"size", "sandboxes: {bad: {limits: {memory: lots}}}", "use bytes, or a number with"},
		{"processes", "sandboxes: {bad: {limits: {pids: 1}}}", "limits.pids"},
		{"processes of a pod", "sandboxes: {bad: {driver: kubernetes, image: x, dial: 1m, limits: {pids: 64}}}", "podPidsLimit"},
		{"unknown budget", "sandboxes: {bad: {budgets: {dial: 1s}}}", "dial"},
		{"agent without", "profiles: {p: {agent: [x], sandbox: heavy}}", `there is no kind "heavy"; there are light`},
		{"clear text", "gateway: {public_url: 'ws://gw.example/v1/worker'}", "public_url"},
		{"listen", "gateway: {listen: 'unix:relative'}", "absolute"},
		{"address", "gateway: {address: 'gw:1', key_file: /k}", "address"},
		{"address without keys", "gateway: {address: 'http://gw:1'}", "share a key_file"},
		{"key", "gateway: {key_file: here}", "key_file"},
		{"artifacts of a minute", "gateway: {artifacts: {keep: 1m}}", "an hour or more"},
	} {
		path := write(t, tc.text+"\n")
		_, err := Load(path, env(nil))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		} else if !strings.Contains(err.Error(), path) && strings.HasPrefix(tc.text, "sandboxes") {
			t.Errorf("%s: the file is not named: %v", tc.name, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"1", "512MiB", "1 GiB", "-1", "9223372036854775807GiB", "0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := parseSize(s); err == nil && v <= 0 {
			t.Errorf("%q is %d", s, v)
		}
	})
}

// The page shows a file that can be read.
func TestDocumentedFile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("the page has no file")
	}
	c, err := Load(write(t, text), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	warm, light := c.Sandboxes["warm"], worker.Light()
	if diff := cmp.Diff(light.Budgets, warm.Budgets); diff != "" || warm.Dial != light.Dial {
		t.Errorf("the page shows other defaults than light has: %s", diff)
	}
}
