//go:build linux

package sandbox_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/worker"
)

// targets is what a command must not reach.
type targets struct {
	Worker   int    `json:"worker"` // process id
	Token    string `json:"token"`  // file
	Secret   string `json:"secret"` // in it
	File     string `json:"file"`   // of another session
	Outside  string `json:"outside"`
	TCP      int    `json:"tcp"`
	UDP      int    `json:"udp"`
	Abstract string `json:"abstract"`
	Gateway  string `json:"gateway"`
	Datagram string `json:"datagram"`
}

// targetsOf makes what can be reached without a sandbox, for everybody.
func targetsOf(t *testing.T, p *place) targets {
	t.Helper()
	out := targets{Secret: p.token, Gateway: filepath.Join(filepath.Dir(p.dir), "gw.sock"), Abstract: "ossicle-" + p.token}
	boxes, err := filepath.Glob(filepath.Join(p.dir, "*"))
	must(t, err)
	if len(boxes) != 1 {
		t.Fatalf("%v", boxes)
	}
	out.Token = filepath.Join(boxes[0], "token")
	out.Worker = workerOf(t, p)
	other := filepath.Join(p.dir, "another", "workspace")
	must(t, os.MkdirAll(other, 0o777))
	out.File, out.Outside = filepath.Join(other, "f"), filepath.Join(filepath.Dir(p.dir), "outside")
	for path, text := range map[string]string{out.File: "other", out.Outside: "outside"} {
		must(t, os.WriteFile(path, []byte(text), 0o666))
		must(t, os.Chmod(path, 0o666))
	}
	for path := other; path != p.dir; path = filepath.Dir(path) {
		must(t, os.Chmod(path, 0o777))
	}
	lc := &net.ListenConfig{}
	tcp, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	abstract, err := lc.Listen(t.Context(), "unix", "@"+out.Abstract)
	must(t, err)
	udp, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	must(t, err)
	out.Datagram = filepath.Join(filepath.Dir(p.dir), "log.sock")
	datagram, err := lc.ListenPacket(t.Context(), "unixgram", out.Datagram)
	must(t, err)
	must(t, os.Chmod(out.Datagram, 0o777))
	out.TCP, out.UDP = tcp.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port
	done := make(chan struct{})
	go func() { // echoes what comes
		defer close(done)
		b := make([]byte, 16)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() {
		_, _, _, _ = tcp.Close(), abstract.Close(), udp.Close(), datagram.Close()
		<-done
	})
	return out
}

// workerOf finds the worker's process by its program.
func workerOf(t *testing.T, p *place) int {
	t.Helper()
	program := filepath.Join(filepath.Dir(p.dir), "worker")
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		// In bubblewrap it is another path to the same file.
		if exe == program || strings.HasPrefix(string(text), "/run/worker\x00") && sameFile(filepath.Join("/proc", e.Name(), "exe"), program) {
			return pid
		}
	}
	t.Fatal("no worker runs")
	return 0
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// escape runs the attempts in a sandbox and returns what they reached.
func escape(t *testing.T, s *worker.Session, to targets) (reached []string, out string) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "escape.py"))
	must(t, err)
	text, err := json.Marshal(to)
	must(t, err)
	args, err := json.Marshal(map[string]any{
		"command": fmt.Sprintf("/usr/bin/python3 - '%s'", text), "stdin": string(script), "timeout_ms": 30000,
	})
	must(t, err)
	res, err := s.CallTool(within(t), "exec", jsontext.Value(args), nil)
	must(t, err)
	out = res.Content[0].(*mcp.TextContent).Text
	if !strings.Contains(out, "\ntried\n") && !strings.HasPrefix(out, "tried\n") {
		t.Fatalf("the attempts did not end: %s", out)
	}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "REACHED "); ok {
			reached = append(reached, name)
		}
	}
	return reached, out
}

// A command cannot reach the token, the worker's environment or memory, files of
// other sessions or of the machine, the network by any kind of socket, nor signal
// or limit or trace the worker. Without a sandbox the same attempts reach all of
// it, so none is kept because it could not be anyway.
func TestEscapes(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	all := []string{
		"token", "link to the token", "mode of the token", "environment", "memory", "memory by call", "ptrace", "signal", "limits of the worker", "file of another session",
		"file outside", "write outside", "tcp", "udp", "abstract socket", "gateway's socket", "datagram socket", "datagram socket by a pair",
	}
	var landlock []string
	if os.Geteuid() == 0 { // the token is root's, and may be read only
		all = slices.DeleteFunc(all, func(s string) bool { return s == "link to the token" || s == "mode of the token" })
	} else { // Landlock does not see changes of modes: a gap that the driver tells
		landlock = []string{"mode of the token"}
	}
	for tier, want := range map[sandbox.Tier][]string{sandbox.Bubblewrap: nil, sandbox.Landlock: landlock, sandbox.Plain: all} {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			p := open(t, tier, sandbox.LocalOptions{})
			s := p.start(t)
			to := targetsOf(t, p)
			if got, out := escape(t, s, to); !slices.Equal(got, want) {
				t.Errorf("reached %q, want %q:\n%s", got, want, out)
			}
			if tier == sandbox.Plain {
				return
			}
			// The worker survives whatever a command aims at everybody.
			run(t, s, "kill -9 -1 2>/dev/null; kill -9 0", 5000)
			if got := run(t, s, "echo alive", 10000); !strings.HasPrefix(got, "alive\n") {
				t.Errorf("%s", got)
			}
		})
	}
}
