package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func env(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := pairs[name]
		return v, ok
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := write(t, `
mcpServers:
  zeta: {command: zeta, args: ["-n", 1], env: {A: "${A}", B: yes}}
  alpha:
    type: http
    url: http://127.0.0.1/mcp
watch: {quiet: 1s, max_wait: 4s, watches: 9}
log: {level: warn}
`)
	c, err := Load("", env(map[string]string{EnvFile: path, EnvLogFormat: "json", EnvHome: "/data"}))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Servers: []byte(`{"mcpServers":{"zeta":{"command":"zeta","args":["-n",1],"env":{"A":"${A}","B":"yes"}},"alpha":{"type":"http","url":"http://127.0.0.1/mcp"}}}`),
		Watch:   Watch{Quiet: time.Second, MaxWait: 4 * time.Second, Watches: 9},
		Log:     Log{Level: "warn", Format: "json"},
		Home:    "/data",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestLoadWithoutFile(t *testing.T) {
	t.Parallel()
	c, err := Load("", env(map[string]string{"HOME": t.TempDir()}))
	if err != nil || c.Log.Level != "info" || !strings.HasSuffix(c.Home, "/.local/share/ossicle") {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key": {"watch: {quite: 3s}", "quite"},
		"duration":    {"watch: {quiet: -3s}", "watch.quiet"},
		"level":       {"log: {level: loud}", "use debug, info, warn or error"},
		"several":     {"log: {level: loud}\npython: {processes: -1}", "python.processes"},
		"documents":   {"log: {}\n---\nlog: {}", "more than one"},
		"size":        {"# " + strings.Repeat("x", MaxFile), "larger than"},
		"alias":       {"mcpServers: {a: &a {command: x}, b: *a}", "aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(write(t, tc.text), env(nil))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q in it", err, tc.want)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), env(nil)); err == nil {
		t.Error("a file that was named and is missing is no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("mcpServers: {a: {command: b}}\nwatch: {quiet: 1s}")
	f.Add("mcpServers: [1, 1e999, 0x10, .5, ~, !!str 3]")
	f.Fuzz(func(t *testing.T, text string) {
		c := Default()
		if err := c.parse([]byte(text)); err == nil && len(c.Servers) > 0 && !json.Valid(c.Servers) {
			t.Fatalf("not JSON: %s", c.Servers)
		}
	})
}
