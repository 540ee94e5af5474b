package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// On a machine without bubblewrap a command runs in the next tier, with all that
// it has otherwise: its streams, its exit code, its artifacts. On one with neither
// nothing is run.
func TestSandboxWithoutBubblewrap(t *testing.T) {
	t.Parallel()
	run := func(programs ...string) (out, errout string, code int) {
		path := t.TempDir()
		if err := os.Chmod(filepath.Dir(path), 0o755); err != nil { // sandboxes of root are somebody else
			t.Fatal(err)
		}
		for _, name := range programs {
			at, err := exec.LookPath(name)
			if err != nil {
				lacks(t, err.Error())
			}
			if err := os.Symlink(at, filepath.Join(path, name)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "sandbox", "run", "--json", "--", "sh", "-c", "mkdir out; echo kept > out/f; echo said; echo gone >&2; exit 7")
		cmd.Env = append(os.Environ(), "PATH="+path)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	out, errout, code := run("bash", "prlimit")
	if code == 125 {
		lacks(t, errout)
	}
	var got struct {
		Exit    *int   `json:"exit_code"`
		Stdout  string `json:"stdout"`
		Stderr  string `json:"stderr"`
		Session struct {
			Tier string `json:"tier"`
		} `json:"session"`
		Artifacts []struct {
			Name string `json:"name"`
		} `json:"artifacts"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s %s", err, out, errout)
	}
	if code != 7 || got.Exit == nil || *got.Exit != 7 || got.Stdout != "said\n" || got.Stderr != "gone\n" ||
		got.Session.Tier != "landlock" || len(got.Artifacts) != 1 || got.Artifacts[0].Name != "f" {
		t.Errorf("code %d: %s %s", code, out, errout)
	}
	if out, errout, code := run("bash"); code != 125 || strings.Contains(out, "said") || !strings.Contains(errout, "prlimit is not installed") {
		t.Errorf("code %d: %s %s", code, out, errout)
	}
}
