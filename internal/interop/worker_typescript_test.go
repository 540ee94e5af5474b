package interop

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

// workerGateway is our gateway, with a profile whose heartbeats a test sees.
func workerGateway(t *testing.T) (*gateway.Gateway, *gateway.Tokens, *worker.Host, string) {
	t.Helper()
	key, err := gateway.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := gateway.NewTokens("https://gw.example", key)
	if err != nil {
		t.Fatal(err)
	}
	host := worker.NewHost(tokens, nil, nil)
	gw := gateway.New(host, tokens, nil, nil)
	mux := http.NewServeMux()
	gw.Mount(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		host.Close()
		server.Close()
	})
	return gw, tokens, host, strings.Replace(server.URL, "http", "ws", 1) + gateway.WorkerPath
}

// A worker that somebody else wrote, on the official SDK of another language:
// handshake, calls, heartbeats, a lost connection, release, exit code.
//
// CON-6, INI-9, ONE-4, REL-3, RC-4, EX-1.
func TestTypeScriptWorker(t *testing.T) {
	t.Parallel()
	peer(t, "ws", "package.json")
	gw, tokens, _, url := workerGateway(t)
	profile := worker.Light()
	profile.Budgets.HeartbeatInterval, profile.Budgets.HeartbeatGrace = 500*time.Millisecond, 20*time.Second
	sb, err := gw.Open(t.Context(), tokens, "ts-1", url, profile)
	if err != nil {
		t.Fatal(err)
	}
	c := typeScriptWorker(t, sb, "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := sb.Session.Running(ctx); err != nil {
		t.Fatal(err)
	}
	// The worker drops its connection under this call. It knows no call ids, so
	// nobody invents what became of it.
	if _, err := sb.Session.CallTool(ctx, "exec", jsontext.Value(`{"text":"lost","sleep":500}`), nil); !errors.Is(err, worker.ErrUnknownOutcome) {
		t.Errorf("the call that was cut: %v", err)
	}
	res, err := sb.Session.CallTool(ctx, "exec", jsontext.Value(`{"text":"hello"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := res.Content[0].(*mcp.TextContent); !ok || !strings.HasPrefix(text.Text, "hello (call 1 ") {
		t.Errorf("%+v", res.Content[0])
	}
	if res, err := sb.Session.CallTool(ctx, "file", nil, nil); err != nil || !res.IsError {
		t.Errorf("a failing tool: %+v, %v", res, err)
	}
	rec := sb.Session.Record()
	if rec.Attempt != 1 || rec.Versions.Effective != "1.0.0" || rec.Versions.WorkerImage != "ts-worker:1" || rec.LastBeat.IsZero() {
		t.Errorf("%+v", rec)
	}
	rec, err = sb.Session.Release(ctx, worker.ReasonExplicit)
	if err != nil || !rec.Reported || len(rec.Outputs) != 1 || rec.Outputs[0].URI != "store://art_ts" {
		t.Errorf("%+v, %v", rec, err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the worker exited with %v", err)
	}
}

// EX-3: the same worker with a token of another session is refused before it is
// anything, and exits 77.
func TestTypeScriptWorkerRefused(t *testing.T) {
	t.Parallel()
	peer(t, "ws", "package.json")
	gw, tokens, host, url := workerGateway(t)
	sb, err := gw.Open(t.Context(), tokens, "ts-1", url, worker.Light())
	if err != nil {
		t.Fatal(err)
	}
	sb.Token = "not.a.token"
	c := typeScriptWorker(t, sb)
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != int(worker.ExitNoPerm) {
		t.Errorf("the worker exited with %v", err)
	}
	if s, err := host.Session("ts-1"); err != nil || s.Record().State != worker.StateAwaitingDial {
		t.Errorf("the session noticed: %v", err)
	}
}

// typeScriptWorker starts the worker of a sandbox.
func typeScriptWorker(t *testing.T, sb gateway.Sandbox, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(sb.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, node(t), append([]string{script(t, "worker.mjs")}, args...)...)
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), worker.EnvTokenFile+"="+file)
	for name, v := range sb.Env {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}
