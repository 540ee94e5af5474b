package mcpclient

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

func env(kv ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == name {
				return kv[i+1], true
			}
		}
		return "", false
	}
}

// M-11: the configurations of other tools are read as they are.
func TestParseServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     []Spec
	}{
		{
			"Claude", `{"mcpServers":{
			"local":{"type":"stdio","command":"${BIN}/x","args":["-d","${DIR:-/tmp}/a","$HOME"],"env":{"T":"${TOKEN}"}},
			"far":{"type":"http","url":"https://h/mcp?k=${TOKEN}","headers":{"Authorization":"Bearer ${TOKEN:-}"}}}}`,
			[]Spec{
				{Name: "local", Transport: Stdio, Command: "/opt/x", Args: []string{"-d", "/tmp/a", "$HOME"}, Env: map[string]string{"T": "s3"}},
				{Name: "far", Transport: HTTP, URL: "https://h/mcp?k=s3", Headers: map[string]string{"Authorization": "Bearer s3"}},
			},
		},
		{
			"Cursor", `{"mcpServers":{"a":{"command":"x","env":{"T":"${env:TOKEN}"}},"b":{"url":"http://h/sse","type":"sse"}}}`,
			[]Spec{{Name: "a", Transport: Stdio, Command: "x", Env: map[string]string{"T": "s3"}}, {Name: "b", Transport: SSE, URL: "http://h/sse"}},
		},
		{
			"VS Code, with comments", "{ // what we use\n \"inputs\": [{\"id\":\"t\"}],\n \"servers\": { /* one */ \"a\": {\"type\":\"streamable-http\",\"url\":\"http://h//x\",}, },}",
			[]Spec{{Name: "a", Transport: HTTP, URL: "http://h//x"}},
		},
		{"Gemini CLI", `{"mcpServers":{"a":{"httpUrl":"http://h/mcp"}}}`, []Spec{{Name: "a", Transport: HTTP, URL: "http://h/mcp"}}},
		{
			"the order of the file", `{"mcpServers":{"z":{"command":"z"},"a":{"command":"a"},"m":{"command":"m"}}}`,
			[]Spec{{Name: "z", Transport: Stdio, Command: "z"}, {Name: "a", Transport: Stdio, Command: "a"}, {Name: "m", Transport: Stdio, Command: "m"}},
		},
		{"disabled ones need no variables", `{"mcpServers":{"a":{"command":"${NOPE}","disabled":true},"b":{"url":"${NOPE}","enabled":false}}}`, nil},
		{"bare", `{"a":{"command":"x","cwd":"${DIR:-/w}"}}`, []Spec{{Name: "a", Transport: Stdio, Command: "x", Dir: "/w"}}},
		{"nothing", `{"mcpServers":{}}`, nil},
		{
			"text that only looks like a comment", `{"mcpServers":{"a":{"command":"x","args":["//,}","/*\"*/",",]"]}}}`,
			[]Spec{{Name: "a", Transport: Stdio, Command: "x", Args: []string{"//,}", `/*"*/`, ",]"}}},
		},
	} {
		got, err := ParseServers([]byte(tt.in), env("BIN", "/opt", "TOKEN", "s3", "DIR", ""))
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

func TestParseServersErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{``, "parse servers"},
		{`[]`, "parse servers"},
		{`{"mcpServers":[]}`, "must be an object"},
		{`{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}`, "duplicate"},
		{`{"mcpServers":{"a":{"command":1}}}`, `server "a"`},
		{`{"mcpServers":{"a":{}}}`, "needs a command"},
		{`{"mcpServers":{"a":{"Command":"x"}}}`, "needs a command"},
		{`{"mcpServers":{"a":{"type":"http"}}}`, "needs a url"},
		{`{"mcpServers":{"a":{"type":"carrier-pigeon","url":"http://h"}}}`, "unknown type"},
		{`{"mcpServers":{"a":{"url":"ftp://h"}}}`, "http://"},
		{`{"mcpServers":{"a":{"url":"http://"}}}`, "host"},
		{`{"mcpServers":{"a":{"url":"http://h","command":"x"}}}`, "exclude"},
		{`{"mcpServers":{"":{"command":"x"}}}`, "name"},
		{`{"mcpServers":{"a":{"command":"x"}`, "parse servers"},
	} {
		if got, err := ParseServers([]byte(tt.in), env()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, want %q", tt.in, got, err, tt.want)
		}
	}
}

// M-11: a missing variable is named, with its server and place.
func TestParseServersMissingVariable(t *testing.T) {
	t.Parallel()
	for field, in := range map[string]string{
		"command":         `{"mcpServers":{"srv":{"command":"${NOPE}"}}}`,
		"args[1]":         `{"mcpServers":{"srv":{"command":"x","args":["a","b${NOPE}"]}}}`,
		"env.K":           `{"mcpServers":{"srv":{"command":"x","env":{"K":"${env:NOPE}"}}}}`,
		"cwd":             `{"mcpServers":{"srv":{"command":"x","cwd":"${NOPE}"}}}`,
		"url":             `{"mcpServers":{"srv":{"url":"http://${NOPE}"}}}`,
		"headers.X-Token": `{"mcpServers":{"srv":{"url":"http://h","headers":{"X-Token":"${NOPE}"}}}}`,
	} {
		_, err := ParseServers([]byte(in), env("OTHER", "x"))
		var missing *MissingVariableError
		if !errors.As(err, &missing) {
			t.Errorf("%s: error %v", field, err)
			continue
		}
		if diff := cmp.Diff(&MissingVariableError{Server: "srv", Field: field, Variable: "NOPE"}, missing); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	getenv := env("A", "1", "E", "", "N", "${A}")
	for _, tt := range []struct{ in, want, missing string }{
		{"", "", ""},
		{"plain $A $ {A} }", "plain $A $ {A} }", ""},
		{"<${A}${A}>", "<11>", ""},
		{"${E}", "", ""},
		{"${E:-d}", "d", ""},
		{"${X:-}", "", ""},
		{"${X:-a:-b}", "a:-b", ""},
		{"${env:A}${env:X:-d}", "1d", ""},
		{"${N}", "${A}", ""}, // values are not expanded again
		{"${X}", "", "X"},
		{"${a}", "", "a"}, // names match by case
		{"${A", "${A", ""},
		{"$${A}", "$1", ""},
	} {
		got, missing := expand(tt.in, getenv)
		if got != tt.want || missing != tt.missing {
			t.Errorf("expand(%q) = %q, missing %q; want %q, %q", tt.in, got, missing, tt.want, tt.missing)
		}
	}
}

// Secrets are in no log.
func TestSpecLogValue(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(Spec{Name: "n", Command: "/s3cret/bin/srv", Args: []string{"s3cret"}, Env: map[string]string{"K": "s3cret"}}.LogValue().String())
	b.WriteString(Spec{Name: "n", URL: "https://u:s3cret@h/s3cret?s3cret", Headers: map[string]string{"A": "s3cret"}}.LogValue().String())
	if s := b.String(); strings.Contains(s, "s3cret") || !strings.Contains(s, "target=srv") || !strings.Contains(s, "https://h") {
		t.Error(s)
	}
}

// FuzzParseServers holds that whatever is accepted is valid, and that plain JSON
// is left as it is.
func FuzzParseServers(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":"${A:-x}","args":["//"]},"b":{"url":"http://h",},},}`))
	f.Add([]byte("{//\n\"servers\":{/**/}}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var v any
		if json.Unmarshal(in, &v) == nil && string(plainJSON(in)) != string(in) {
			t.Fatalf("plain JSON was changed to %s", plainJSON(in))
		}
		specs, err := ParseServers(in, env("A", "1"))
		if err != nil && len(specs) > 0 {
			t.Fatalf("servers beside an error: %v", err)
		}
		names := map[string]bool{}
		for _, s := range specs {
			if again, err := s.Normalize(); err != nil || again.Transport != s.Transport || names[s.Name] {
				t.Fatalf("accepted %+v: %v", s, err)
			}
			names[s.Name] = true
		}
	})
}
