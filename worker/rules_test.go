package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// DL-12, DL-16, PRO-1, PRO-2, PRO-3, PRO-5: the catalogue's relations, each
// broken alone.
func TestProfileConstraints(t *testing.T) {
	t.Parallel()
	if err := Light().Validate(); err != nil {
		t.Errorf("light: %v", err)
	}
	if got := Light().Outer(); got != 170*time.Second {
		t.Errorf("outer bound %v", got)
	}
	if got, want := Light().TokenLife(), (170+900+60+30)*time.Second; got != want {
		t.Errorf("token life %v, want %v", got, want)
	}
	for rule, breakIt := range map[string]func(*Profile){
		"idleSeconds must be less than maxExecSeconds":   func(p *Profile) { p.Budgets.Idle = p.Budgets.MaxExec },
		"dialSeconds must be positive":                   func(p *Profile) { p.Dial = 0 },
		"activeDeadlineSeconds must be at least":         func(p *Profile) { p.ActiveDeadline = p.Dial + p.Budgets.MaxExec },
		"heartbeatGraceSeconds must be at least":         func(p *Profile) { p.Budgets.HeartbeatGrace = 29 * time.Second },
		"readyAckSeconds must be less than":              func(p *Profile) { p.Budgets.ReadyAck = p.Budgets.Ready },
		"dialSeconds must be more than twice":            func(p *Profile) { p.Dial = 20 * time.Second },
		"reconnectWindowSeconds must be more than":       func(p *Profile) { p.Budgets.ReconnectWindow = p.Budgets.HeartbeatGrace },
		"releaseGraceSeconds must be less than":          func(p *Profile) { p.Budgets.ReleaseGrace = p.Budgets.MaxExec },
		"terminationGracePeriodSeconds must be at least": func(p *Profile) { p.TerminationGrace = p.Budgets.ReleaseGrace },
		"it has no name":                                 func(p *Profile) { p.Name = "" },
		"heartbeatIntervalSeconds must be positive":      func(p *Profile) { p.Budgets.HeartbeatInterval = 0 },
	} {
		p := Light()
		breakIt(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: got %v", rule, err)
		}
	}
}

// INI-11, INI-12, VER-5: unknown keys are ignored, known ones of a wrong shape
// refused, missing ones the other source's.
func TestBudgetsOnTheWire(t *testing.T) {
	t.Parallel()
	var b Budgets
	if err := json.Unmarshal([]byte(`{"idleSeconds":7,"later":{"x":1},"handshakeSeconds":0.25,"IDLESECONDS":1}`), &b); err != nil {
		t.Fatal(err)
	}
	if b.Idle != 7*time.Second || b.Handshake != 250*time.Millisecond || b.MaxExec != 0 {
		t.Errorf("read %+v", b)
	}
	for _, bad := range []string{`{"idleSeconds":"7"}`, `{"idleSeconds":0}`, `{"idleSeconds":-1}`, `{"idleSeconds":null}`, `{"idleSeconds":1,"idleSeconds":2}`, `[]`, `7`} {
		if err := json.Unmarshal([]byte(bad), &b); err == nil {
			t.Errorf("%s passed", bad)
		}
	}
	got, differ := DefaultBudgets().Min(Budgets{Idle: 7 * time.Second, MaxExec: time.Hour})
	if got.Idle != 7*time.Second || got.MaxExec != 900*time.Second || strings.Join(differ, " ") != "idleSeconds maxExecSeconds" {
		t.Errorf("min %+v, differ %v", got, differ)
	}
	for _, bad := range []string{
		`{"protocolVersion":"x","_meta":{"agentfy":{"sessionId":7,"channelVersion":"1.0.0"}}}`,
		`{"protocolVersion":"x","_meta":{"agentfy":{"sessionId":"s"}}}`, `{"protocolVersion":"x"}`, `{}`, `[]`,
	} {
		if _, _, err := readHello([]byte(bad)); err == nil {
			t.Errorf("initialize %s passed", bad)
		}
	}
	for _, bad := range []string{
		`{"protocolVersion":"x","_meta":{"agentfy":{"sessionId":"s","channelVersion":"1.0.0","instanceId":"i","attempt":1.5}}}`,
		`{"protocolVersion":"x","_meta":{"agentfy":{"sessionId":"s","channelVersion":"1.0.0","instanceId":"i","attempt":-1}}}`,
		`{"protocolVersion":"x","_meta":{"agentfy":{"sessionId":"s","channelVersion":"1.0.0","attempt":0}}}`,
	} {
		if _, _, _, err := readWelcome([]byte(bad)); err == nil {
			t.Errorf("answer %s passed", bad)
		}
	}
	if _, _, w, err := readWelcome([]byte(`{"protocolVersion":"x","new":1,"_meta":{"other":2,"agentfy":{"sessionId":"s","channelVersion":"1.0.0","instanceId":"i","attempt":2,"later":[]}}}`)); err != nil || w.Attempt != 2 {
		t.Errorf("unknown keys: %+v, %v", w, err)
	}
}

// ENV-1, ENV-2, ENV-3, ENV-4: one source of the token, named in the refusal and
// never shown; read again for each dial.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("secret-one\n")
	read := func(change map[string]string) (Environment, error) {
		env := map[string]string{EnvSessionID: "s1", EnvControlURL: "wss://gw.example/v1/worker", EnvTokenFile: file, EnvToolAllowlist: "exec, file", EnvBudgets: `{"maxExecSeconds":60}`}
		for k, v := range change {
			if v == "-" {
				delete(env, k)
				continue
			}
			env[k] = v
		}
		return ReadEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	}
	e, err := read(nil)
	if err != nil || e.SessionID != "s1" || len(e.Tools) != 2 || e.Budgets.MaxExec != time.Minute {
		t.Fatalf("%+v, %v", e, err)
	}
	for _, want := range []string{"secret-one", "secret-two"} {
		write(want + "\n")
		if got, err := e.Token(); err != nil || got != want {
			t.Errorf("token %q, %v", got, err)
		}
	}
	for name, change := range map[string]map[string]string{
		"both":         {EnvToken: "secret-three"},
		"neither":      {EnvTokenFile: "-"},
		"no file":      {EnvTokenFile: file + ".missing"},
		"empty token":  {EnvTokenFile: "-", EnvToken: "\n"},
		"two lines":    {EnvTokenFile: "-", EnvToken: "secret-three\nsecret-four"},
		"no session":   {EnvSessionID: ""},
		"no url":       {EnvControlURL: ""},
		"plain":        {EnvControlURL: "ws://gw.example/"},
		"other scheme": {EnvControlURL: "file:///x"},
		"user":         {EnvControlURL: "wss://a:b@gw.example/"},
		"budgets":      {EnvBudgets: `{"idleSeconds":"x"}`},
	} {
		_, err := read(change)
		var config *ConfigError
		if !errors.As(err, &config) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(err.Error(), "secret-") {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
		if name == "both" && (!strings.Contains(err.Error(), EnvToken) || !strings.Contains(err.Error(), EnvTokenFile)) {
			t.Errorf("the refusal does not name both variables: %v", err)
		}
	}
	// CON-4: plain only where nobody is between.
	for _, ok := range []string{"ws://127.0.0.1:8080/x", "http://[::1]:1/", "ws://localhost/", "unix:///run/gw.sock", "https://gw.example"} {
		if _, err := read(map[string]string{EnvControlURL: ok}); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}

// VER-3: semver compared as numbers, build metadata ignored, majors apart.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, worker, want string }{
		{"1.3.0", "1.1.0", "1.1.0"},
		{"1.2.0", "1.10.0", "1.2.0"},
		{"1.1.5", "1.1.5+x", "1.1.5"},
		{"1.0.2", "1.0.10", "1.0.2"},
		{"1.1.0", "2.0.0", ""},
		{"1.1.0", "1.1", ""},
		{"1.1.0", "1.1.0-rc1", ""},
		{"1.1.0", "01.1.0", ""},
		{"1.1.0", "1.-1.0", ""},
		{"1.1.0", "v1.1.0", ""},
	} {
		got, err := effective(1, c.host, c.worker)
		if (err == nil) != (c.want != "") || (err == nil && got.String() != c.want) {
			t.Errorf("%s and %s: %s, %v, want %q", c.host, c.worker, got, err, c.want)
		}
	}
	for in, want := range map[string]int{"agentfy.worker.v1": 1, "agentfy.worker.v12": 12, "agentfy.worker.v0": 0, "agentfy.worker.v": 0, "agentfy.worker.vx": 0, "other": 0, "agentfy.worker.v01": 0} {
		if got := majorOf(in); got != want {
			t.Errorf("major of %s is %d, want %d", in, got, want)
		}
	}
}

// A reason of 124 bytes would not be sent at all, and the worker would come back
// for ever: it is cut, between runes.
func TestCloseReasonFits(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"short", strings.Repeat("x", 124), strings.Repeat("й", 80), strings.Repeat("x", 121) + "й€", strings.Repeat("€", 41) + "x"} {
		got := trimReason(s)
		if len(got) > MaxCloseReason || !utf8.ValidString(got) || !strings.HasPrefix(s, got) || len(got) < min(len(s), MaxCloseReason-3) {
			t.Errorf("%d bytes became %d", len(s), len(got))
		}
	}
}

// EX-5: silence is temporary, disagreement is not.
func TestExitCodesOfCloses(t *testing.T) {
	t.Parallel()
	for _, row := range closePolicies {
		if row.policy.Retry && row.policy.Exit != ExitReleased {
			t.Errorf("%d retries and exits", row.code)
		}
	}
	if p := CloseHeartbeat.Policy(); p.Exit != ExitTempFail {
		t.Error("silence is not temporary")
	}
}
