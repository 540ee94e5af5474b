package tools_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker/tools"
)

// The two tools as a client of MCP sees them.
func TestTools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell, err := tools.NewShell(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := tools.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	tools.AddExec(server, shell)
	tools.AddFile(server, files)
	a, b := mcp.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	progress := make(chan string, 64)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	})
	cs, err := client.Connect(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = shell.Stop(ctx)
		_ = cs.Close()
	}()
	for _, c := range []struct {
		tool  string
		args  map[string]any
		want  string
		fails bool
	}{
		{"file", map[string]any{"action": "write", "path": "run.sh", "content": "echo from $1\n"}, "Wrote 13 bytes", false},
		{"exec", map[string]any{"command": "bash run.sh here"}, "from here\n[exit code 0 after", false},
		{"exec", map[string]any{"command": "exit 9"}, "exit code 9", true},
		{"exec", map[string]any{"command": "sleep 60", "timeout_ms": 200}, "killed with its whole tree when its time was over", true},
		{"exec", map[string]any{"command": "true", "timeout_ms": 600001}, "timeout_ms", true},
		{"exec", map[string]any{}, "give a command", true},
		{"exec", map[string]any{"command": "echo bg; sleep 60", "background": true}, "Started as job-", false},
		{"exec", map[string]any{"action": "list"}, "1 jobs", false},
		{"exec", map[string]any{"job": "job-9", "action": "dance"}, "not one of", true},
		{"exec", map[string]any{"restart": true}, "Restarted", false},
		{"exec", map[string]any{"action": "list"}, "0 jobs", false},
		{"file", map[string]any{"action": "read", "path": "run.sh", "offset": 1}, "     1\techo from $1\n[of 1 lines]", false},
		{"file", map[string]any{"action": "read", "path": "../x"}, "leads out of the workspace", true},
		{"file", map[string]any{"action": "search", "text": "from"}, "run.sh:1: echo from $1", false},
		{"file", map[string]any{"action": "edit", "path": "run.sh", "old": "from", "new": "to"}, "Replaced 1", false},
		{"file", map[string]any{"action": "list"}, "1 found", false},
		{"file", map[string]any{"action": "fly"}, "not one of", true},
	} {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil {
			t.Fatalf("%v: %v", c.args, err)
		}
		text := res.Content[0].(*mcp.TextContent).Text
		if res.IsError != c.fails || !strings.Contains(text, c.want) {
			t.Errorf("%v: %q error %t", c.args, text, res.IsError)
		}
	}
	p := &mcp.CallToolParams{Name: "exec", Arguments: map[string]any{"command": "echo first; sleep 2; echo second"}}
	p.SetProgressToken("t")
	if _, err := cs.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-progress:
		if !strings.HasPrefix(m, "first\n") {
			t.Errorf("progress %q", m)
		}
	case <-time.After(30 * time.Second):
		t.Error("no progress")
	}
}
