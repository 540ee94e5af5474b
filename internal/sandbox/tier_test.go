//go:build linux

package sandbox_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/worker"
)

// programs makes a PATH with these programs and no others.
func programs(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		must(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	t.Setenv("PATH", dir)
}

// The best tier that works is taken, and why it is not better is said; a tier that
// is asked for is had or is an error, whatever else there is; no sandbox is had
// only by asking for it twice.
func TestTiers(t *testing.T) {
	driver := func(o sandbox.LocalOptions) (sandbox.Probe, error) {
		l, err := sandbox.NewLocal(t.Context(), t.TempDir(), "/x/gw.sock", []string{"/bin/true"}, &o)
		if err != nil {
			return sandbox.Probe{}, err
		}
		return l.Probe(), nil
	}
	// Sandboxes of root are somebody else, who must pass.
	for dir := t.TempDir(); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	if _, err := driver(sandbox.LocalOptions{Tier: sandbox.Landlock}); err != nil {
		t.Skip(err)
	}
	if p, err := driver(sandbox.LocalOptions{}); err == nil && p.Tier == sandbox.Bubblewrap && p.Reason != "" {
		t.Errorf("%+v", p)
	}
	for _, tier := range []sandbox.Tier{sandbox.Plain, "none", "Landlock"} {
		if _, err := driver(sandbox.LocalOptions{Tier: tier}); !errors.Is(err, sandbox.ErrNoSandbox) {
			t.Errorf("%s: %v", tier, err)
		}
	}
	if p, err := driver(sandbox.LocalOptions{Tier: sandbox.Plain, AllowPlain: true}); err != nil || p.Tier != sandbox.Plain || !strings.Contains(strings.Join(p.Gaps, "\n"), "there is no sandbox") {
		t.Errorf("%+v %v", p, err)
	}
	programs(t, "bash", "prlimit")
	p, err := driver(sandbox.LocalOptions{AllowPlain: true})
	if err != nil || p.Tier != sandbox.Landlock || p.Reason != "bwrap is not installed" || len(p.Gaps) == 0 {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := driver(sandbox.LocalOptions{Tier: sandbox.Bubblewrap, AllowPlain: true}); !errors.Is(err, sandbox.ErrNoSandbox) || !strings.Contains(err.Error(), "bwrap is not installed") {
		t.Errorf("%v", err)
	}
	programs(t, "bash")
	if _, err := driver(sandbox.LocalOptions{}); !errors.Is(err, sandbox.ErrNoSandbox) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// A worker that finds itself in a tier that it cannot keep does not run.
func TestWorkerKeepsItsTier(t *testing.T) {
	t.Parallel()
	if _, err := sandbox.ShellOptions("none", t.TempDir(), "", sandbox.Limits{}); !errors.Is(err, sandbox.ErrNoSandbox) {
		t.Errorf("%v", err)
	}
	if _, err := sandbox.ShellOptions(sandbox.Landlock, filepath.Join(t.TempDir(), "gone"), "", sandbox.Limits{}); !errors.Is(err, sandbox.ErrNoSandbox) {
		t.Errorf("%v", err)
	}
}

// trail keeps what is audited.
type trail struct {
	mu  sync.Mutex
	all []worker.AuditEntry
}

func (a *trail) Audit(e worker.AuditEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, e)
}

// Each sandbox has its tier in the audit, with what bounds it.
func TestTierIsAudited(t *testing.T) {
	each(t, func(t *testing.T, tier sandbox.Tier) {
		audit := &trail{}
		open(t, tier, sandbox.LocalOptions{Audit: audit}).start(t)
		audit.mu.Lock()
		defer audit.mu.Unlock()
		if len(audit.all) != 1 || audit.all[0].Session != "s1" || audit.all[0].Event != "sandbox" || !strings.HasPrefix(audit.all[0].Detail, string(tier)+"; memory bounded by ") {
			t.Errorf("%+v", audit.all)
		}
	})
}

// A driver that ends does not wait for one sandbox after the other.
func TestClose(t *testing.T) {
	t.Parallel()
	p := open(t, sandbox.Plain, sandbox.LocalOptions{})
	for id := range strings.SplitSeq("abcdefghij", "") {
		must(t, p.driver.Create(t.Context(), sandbox.Spec{Session: id, Env: map[string]string{"OSSICLE_TEST_DEAF": "1", worker.EnvSessionID: id}, Token: "x"}))
	}
	begun := time.Now()
	must(t, p.driver.Close(within(t)))
	const inTurn = 10 * 500 * time.Millisecond
	if took := time.Since(begun); took > inTurn*9/10 || len(p.driver.Sessions()) != 0 {
		t.Errorf("%v after %v", p.driver.Sessions(), took)
	}
	if err := p.driver.Create(t.Context(), sandbox.Spec{Session: "f"}); err == nil {
		t.Error("made a sandbox after its end")
	}
}
