package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/mockagent"
)

// sentinelCall is what the scripted model and the mock agent understand.
const sentinelCall = `CALL sentinel_echo {"text":"hi"}`

// probeACP runs the probe to its end and returns its report and exit code.
func probeACP(t *testing.T, env []string, args ...string) (app.ACPReport, int) {
	t.Helper()
	c := start(t, env, append([]string{program, "probe", "acp", "--json"}, args...)...)
	code := 0
	if err := c.finish(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	var r app.ACPReport
	for line := range strings.Lines(c.output()) {
		if strings.HasPrefix(line, `{"command"`) {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r.Command == "" && code != 2 {
		t.Fatalf("no report, code %d; it said:\n%s", code, c.output())
	}
	return r, code
}

// What agents do with a server is told apart, whatever they do: the findings are
// the same words for all, and what was not seen is no failure.
//
//
func TestProbeOfMockAgents(t *testing.T) {
	t.Parallel()
	type want struct {
		code                                       int
		delivered, discover, initialize, list, use bool
		before                                     bool
	}
	full := want{delivered: true, discover: true, initialize: true, list: true, before: true}
	after := full
	after.before = false
	used := full
	used.use = true
	legacy := full
	legacy.discover = false
	unseen := want{code: 3, delivered: true}
	cases := []struct {
		modes, prompt string
		want          want
	}{
		{"async", "", after},
		{"lazy", "", unseen},
		{"lazy", sentinelCall, want{delivered: true, discover: true, initialize: true, list: true, use: true}},
		{"nomcp", "", unseen},
		{"nomcp", sentinelCall, unseen},
		{"legacy", "", legacy},
		{"legacy,async", "", want{delivered: true, initialize: true, list: true}},
		{"nohttp", "", full}, // over the older transport
		{"nohttp,nosse", "", want{code: 3}},
		{"eager", sentinelCall, used},
		{"permission", sentinelCall, used},
		{"drain", sentinelCall, used},
		{"eager", "SAY no", want{code: 3, delivered: true, discover: true, initialize: true, list: true, before: true}},
		{"dies", sentinelCall, want{code: 1, delivered: true, discover: true, initialize: true, list: true, before: true}},
	}
	covered := map[string]bool{}
	for _, tc := range cases {
		for m := range strings.SplitSeq(tc.modes, ",") {
			covered[m] = true
		}
	}
	for _, m := range mockagent.Modes() { // the rest of them change nothing here
		if !covered[m] {
			cases = append(cases, struct {
				modes, prompt string
				want          want
			}{m, "", full})
		}
	}
	for _, tc := range cases {
		t.Run(tc.modes+" "+tc.prompt, func(t *testing.T) {
			t.Parallel()
			args := []string{"--prompt", tc.prompt, "--", program, "mock-agent", "--mode", tc.modes}
			if !tc.want.list || tc.modes == "lazy" { // nothing comes for which to wait
				args = append([]string{"--observe", "300ms"}, args...)
			}
			r, code := probeACP(t, nil, args...)
			got := want{code, r.Delivered.OK, r.Discover.OK, r.Initialize.OK, r.ToolsList.OK, r.ToolCall.OK, r.BeforeSession}
			if strings.Contains(tc.modes, "async") { // beside its answer may be before it too
				got.before = tc.want.before
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v: %s", got, tc.want, r.Error)
			}
			if r.Advertised.HTTP == strings.Contains(tc.modes, "nohttp") || r.Advertised.SSE == strings.Contains(tc.modes, "nosse") {
				t.Errorf("advertised %+v", r.Advertised)
			}
			if n := r.ToolsList.ToolCount; got.list && (n == nil || *n != 1) {
				t.Errorf("tool count %v", n)
			}
			if !r.Initialized.OK || !r.Session.OK || r.AgentName != "mock-agent" {
				t.Errorf("agent %q initialized %+v, session %+v", r.AgentName, r.Initialized, r.Session)
			}
		})
	}
}

// An agent that does not start is an error, with its last words; a mistake on the
// command line is another.
//
//
func TestProbeErrors(t *testing.T) {
	t.Parallel()
	if r, code := probeACP(t, nil, "--", "sh", "-c", "echo no model here >&2; exit 7"); code != 1 || !strings.Contains(r.Stderr, "no model here") || r.Delivered.OK {
		t.Errorf("code %d, %+v", code, r)
	}
	if r, code := probeACP(t, nil, "--", "/nonexistent/agent"); code != 1 || r.Error == "" {
		t.Errorf("code %d, %+v", code, r)
	}
	for _, args := range [][]string{{}, {"agent", "--", "x"}, {"--observe", "-1s", "--", "x"}, {"--out", "/nonexistent/f", "--", "x"}} {
		if _, code := probeACP(t, nil, args...); code != 2 {
			t.Errorf("%q: code %d", args, code)
		}
	}
}

// The file has every line of both sides as it was on the wire, what the sentinel
// saw among them, and is for its owner only. It never takes the place of a file.
//
//
func TestProbeFrames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, sent, received := filepath.Join(dir, "out"), filepath.Join(dir, "sent"), filepath.Join(dir, "received")
	script := fmt.Sprintf("tee %s | %s mock-agent --mode legacy,unknown,noise | tee %s", sent, program, received)
	if _, code := probeACP(t, nil, "--out", out, "--prompt", sentinelCall+" SAY <é \u2028> 12345678901234567890", "--", "sh", "-c", script); code != 0 {
		t.Fatalf("code %d", code)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	wire := map[string][]byte{}
	events := map[string]bool{}
	for _, l := range readLines(t, out) {
		var r struct {
			Dir, Event string
			Bytes      int
			Raw        json.RawMessage
			Text       *string
		}
		if err := json.Unmarshal(l, &r); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		raw := []byte(r.Raw)
		if r.Text != nil {
			raw = []byte(*r.Text)
		}
		if r.Dir == "sentinel" {
			events[r.Event] = true
			continue
		}
		if r.Bytes != len(raw) {
			t.Errorf("%d bytes are said to be %d", len(raw), r.Bytes)
		}
		wire[r.Dir] = append(append(wire[r.Dir], raw...), '\n')
	}
	for dir, file := range map[string]string{"sent": sent, "received": received} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(wire[dir], want) {
			t.Errorf("%s:\n%s\nwant\n%s", dir, wire[dir], want)
		}
	}
	for _, e := range []string{"initialize_observed", "tools_list_observed", "tool_call_observed", "connection_closed", "request"} {
		if !events[e] {
			t.Errorf("no %s", e)
		}
	}
	if _, code := probeACP(t, nil, "--out", out, "--", program, "mock-agent"); code != 2 {
		t.Errorf("an existing file: code %d", code)
	}
}

func readLines(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(bytes.NewReader(b))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return all
		}
		all = append(all, bytes.TrimSuffix(line, []byte("\n")))
	}
}

// Real agents: what each does is what docs/attachments.md says.
//
//
func TestProbeOfAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts agents")
	}
	for _, tc := range []struct {
		name   string
		start  func(t *testing.T, model string) (string, []string)
		mode   string
		sse    bool
		client string
		modern bool
		search bool // whose tool search does not always find what came late
	}{
		{"codex-acp", codex, "", false, "codex-mcp-client", false, false},
		{"claude-agent-acp", claude, "default", true, "claude-code", true, false},
		{"gemini", gemini, "", true, "gemini-cli-mcp-client", false, false},
		{"opencode", opencode, "", true, "opencode", false, false},
		{"qwen", qwen, "", true, "qwen-cli-mcp-client-sentinel", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			command, env := tc.start(t, model(t, nil).URL())
			out := filepath.Join(t.TempDir(), "frames")
			args := append([]string{"--observe", "30s", "--mode", tc.mode, "--out", out, "--prompt", sentinelCall, "--"}, strings.Fields(command)...)
			began := time.Now()
			r, code := probeACP(t, env, args...)
			t.Logf("%s %s in %s: %+v", r.AgentName, r.AgentVersion, time.Since(began).Round(time.Millisecond), r.Requests)
			if !r.Advertised.HTTP || r.Advertised.SSE != tc.sse {
				t.Errorf("advertised %+v", r.Advertised)
			}
			if !r.Delivered.OK || !r.ToolsList.OK || r.ToolsList.ToolCount == nil || *r.ToolsList.ToolCount != 1 {
				t.Errorf("delivered %+v, list %+v", r.Delivered, r.ToolsList)
			}
			if r.Initialize.ClientName != tc.client || r.Discover.OK != tc.modern {
				t.Errorf("client %q, discover %+v", r.Initialize.ClientName, r.Discover)
			}
			if (code != 0 || !r.ToolCall.OK) && (code != 3 || !tc.search) {
				t.Errorf("code %d, call %+v, %s", code, r.ToolCall, r.Error)
			}
		})
	}
}
