package pty

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile is what a configuration may hold that some CLI would take for more than
// text.
const hostile = `a "b" \ ${HOME} $HOME {env:HOME} {file:/etc/passwd} 'x' # ü` + "\n\x7f"

func servers() []agent.MCPServer {
	return []agent.MCPServer{
		{Name: "ossicle", HTTP: "http://127.0.0.1:1/mcp/token", SSE: "http://127.0.0.1:1/sse/token", Command: []string{"ossicle", "bridge"}},
		{Name: "old one", SSE: "https://example.org/sse?a=b&c=${X}", Headers: []agent.Header{{Name: "X-Key", Value: hostile}, {Name: "A", Value: "b"}}},
		{Name: "local", Command: []string{"/bin/board", "--title", hostile}, Env: []string{"B=2", "KEY=" + hostile}},
		{Name: "local", HTTP: "http://127.0.0.1:2/"},
		{Name: "none"},
		{Name: "bytes", HTTP: "http://127.0.0.1:3/\xff"},
		{Name: "price", Command: []string{"/bin/board", "--title", `costs $5 "or" {less}`}},
		{Name: "mcp", HTTP: "http://127.0.0.1:4/mcp", Headers: []agent.Header{{Name: "Authorization", Value: "Bearer secret"}}},
	}
}

// person is what somebody has in the home of the test.
var person = map[string]string{
	"/home/ada/.gemini/settings.json": `{
  // as people write it
  "ui": {"theme": "dark"},
  "mcpServers": {"board": {"httpUrl": "http://127.0.0.1/$PORT"}, "ossicle": {"command": "old"},},
}`,
}

func request(env ...string) Request {
	return Request{
		Servers: servers(), System: "Mind the board.\n", Dir: "/private/run", Env: append([]string{"HOME=/home/ada"}, env...),
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := person[path]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		},
		ReadDir: func(path string) ([]string, error) {
			switch path {
			case "/home/ada/.gemini":
				return []string{"oauth_creds.json", "settings.json", "tmp"}, nil
			case "/home/ada":
				return []string{".bashrc", ".env", ".gemini"}, nil
			}
			return nil, fs.ErrNotExist
		},
	}
}

// what each CLI gets, to the byte.
func TestStrategies(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			var env []string
			if k == OpenCode {
				env = []string{openCodeContent + `={"theme":"{env:THEME}","instructions":["{env:RULES}"],"mcp":{"board":{"type":"remote","url":"{env:BOARD}"}}}`}
			}
			p, err := StrategyOf(k).Plan(request(env...))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, d := range p.Decided {
				fmt.Fprintf(&got, "server %q: %q %q assumed %t\n", d.Server, d.Transport, d.Reason, d.Assumed)
			}
			for _, a := range p.Args {
				fmt.Fprintf(&got, "argument %q\n", a)
			}
			for _, l := range p.Links {
				fmt.Fprintf(&got, "link %s to %s\n", l.Name, l.Target)
			}
			for _, e := range p.Env {
				name, value, _ := strings.Cut(e, "=")
				if name == openCodeContent {
					fmt.Fprintf(&got, "variable %s=\n%s", name, value)
					continue
				}
				fmt.Fprintf(&got, "variable %q\n", e)
			}
			for _, f := range p.Files {
				fmt.Fprintf(&got, "file %s\n%s", f.Name, f.Data)
			}
			golden(t, string(k)+".txt", got.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "strategies", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}
}

// Arguments can be seen by everybody on the machine: no value of a header or
// of a variable is among them.
func TestArgumentsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		p, err := StrategyOf(k).Plan(Request{
			Dir: "/d", Env: []string{"HOME=/h"}, ReadDir: func(string) ([]string, error) { return nil, fs.ErrNotExist },
			Servers: []agent.MCPServer{
				{Name: "a", HTTP: "http://127.0.0.1:1/", Headers: []agent.Header{{Name: "K", Value: "canary-1"}}},
				{Name: "b", Command: []string{"x"}, Env: []string{"K=canary-2"}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(p.Args, " "); strings.Contains(all, "canary") {
			t.Errorf("%s: %s", k, all)
		}
		for _, d := range p.Decided {
			if d.Transport == "" {
				t.Errorf("%s: %+v", k, d)
			}
		}
	}
}

// Without servers a program is started as it is.
func TestNothingToPlan(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		p, err := StrategyOf(k).Plan(Request{})
		if err != nil || len(p.Args)+len(p.Env)+len(p.Files)+len(p.Links) != 0 {
			t.Errorf("%s: %+v %v", k, p, err)
		}
	}
}

// What a person has and cannot be read stays untouched: nothing is handed over.
func TestUnreadableSettings(t *testing.T) {
	t.Parallel()
	r := request()
	r.ReadFile = func(string) ([]byte, error) { return []byte("not JSON"), nil }
	if _, err := StrategyOf(Gemini).Plan(r); err == nil {
		t.Error("gemini: settings that are no JSON were replaced")
	}
	r.ReadFile = func(string) ([]byte, error) { return nil, fs.ErrPermission }
	if _, err := StrategyOf(Gemini).Plan(r); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("gemini: %v", err)
	}
	r.Env = nil
	if _, err := StrategyOf(Gemini).Plan(r); err == nil {
		t.Error("gemini: it has no home")
	}
	if _, err := StrategyOf(OpenCode).Plan(request(openCodeContent + "=[]")); err == nil {
		t.Error("opencode: a configuration that is no object was replaced")
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]Kind{
		"claude": Claude, "/usr/bin/codex": Codex, "gemini": Gemini, "./opencode": OpenCode, "qwen.js": Qwen, "claude-code": Other, "node": Other, "": Other, "other": Other,
	} {
		if got := KindOf([]string{command}); got != want {
			t.Errorf("%q is %q", command, got)
		}
	}
	if KindOf(nil) != Other {
		t.Error("no command has a kind")
	}
	for _, name := range []string{"", "claude", "other"} {
		if k, err := ParseKind(name); err != nil || string(k) != name {
			t.Errorf("%q: %q %v", name, k, err)
		}
	}
	if _, err := ParseKind("Claude"); !errors.Is(err, ErrKind) {
		t.Errorf("got %v", err)
	}
}

func TestInsert(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ command, want []string }{
		{[]string{"claude"}, []string{"claude", "-x"}},
		{[]string{"claude", "hello"}, []string{"claude", "hello", "-x"}},
		{[]string{"claude", "--", "-hello"}, []string{"claude", "-x", "--", "-hello"}},
	} {
		if got := insert(tc.command, []string{"-x"}); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q", tc.command, got)
		}
	}
}

// Files go into the private directory, and nowhere else.
func TestMaterializeStaysInside(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/etc/x", "", "a/../../x"} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := (Plan{Files: []File{{Name: name}}}).materialize(dir); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	dir := t.TempDir()
	if err := (Plan{Files: []File{{Name: "x"}}}).materialize(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory of somebody else's was used: %v", err)
	}
}

// Whatever names, URLs and values are: what is written is well formed and says the
// same, no CLI finds anything to expand in it, and no argument is one too many.
func FuzzStrategies(f *testing.F) {
	f.Add("m", "http://127.0.0.1/", "X", "v", "cmd")
	f.Add(`a.b]"=`, "http://x/${HOME}", `"`, hostile, "-c")
	f.Add("\x00", "\xff", "\n", "{env:X}", "")
	f.Fuzz(func(t *testing.T, name, url, header, value, command string) {
		r := request()
		r.System = ""
		r.Servers = []agent.MCPServer{
			{Name: name, HTTP: url, Headers: []agent.Header{{Name: header, Value: value}}},
			{Name: name + "2", Command: []string{command, value}, Env: []string{"K=" + value}},
		}
		for _, k := range Kinds() {
			p, err := StrategyOf(k).Plan(r)
			if err != nil {
				t.Fatalf("%s: %v", k, err)
			}
			if len(p.Decided) != 2 {
				t.Fatalf("%s: %+v", k, p.Decided)
			}
			for _, a := range p.Args {
				if strings.ContainsAny(a, "\x00\n\r\x1b") {
					t.Errorf("%s: argument %q", k, a)
				}
			}
			var text []byte
			for _, f := range p.Files {
				text = f.Data
			}
			for _, e := range p.Env {
				if n, v, _ := strings.Cut(e, "="); n == openCodeContent {
					text = []byte(v)
				}
			}
			if text == nil {
				continue
			}
			if k == OpenCode && (bytes.Contains(text, []byte("{env:")) || bytes.Contains(text, []byte("{file:"))) {
				t.Errorf("it would expand %s", text)
			}
			var doc map[string]any
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatalf("%s: %v in %s", k, err, text)
			}
			if all := fmt.Sprint(doc); p.Decided[0].Transport != "" && k == OpenCode && !strings.Contains(all, value) {
				t.Errorf("%s: %q is not in %s", k, value, all)
			}
		}
	})
}

// Settings as people write them: what JSON is stays as it is, and nothing stops the
// reader.
func FuzzPlainJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2,], /* x */ "b": "//", // y` + "\n}", `{"a":",}"}`, `/*`, `"\\`, `[,]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out := plainJSON(text)
		if len(out) > len(text) {
			t.Errorf("%q became %q", text, out)
		}
		if jsontext.Value(text).IsValid() && string(out) != string(text) {
			t.Errorf("%q became %q", text, out)
		}
		_, _ = merge(text, "m", map[string]any{"a": 1})
	})
}
