package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A host that knows nothing of notices starts us as an MCP server: its agent
// hears at the end of the next tool result, or, where the host has channels, at
// once; and the inbox says how far a notice has come, by proof.
//
// D-2, D-11, D-12, N-18.
func TestEarsOfAnotherHost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags []string
		state string // after the change, before the next tool call
	}{
		"piggyback": {nil, "persisted"},
		"channel":   {[]string{"--claude-channel"}, "notified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, data := t.TempDir(), t.TempDir()
			config := filepath.Join(data, "config.yaml")
			writeFile(t, config, "watch: {quiet: 100ms}\n")
			glob := "files://" + filepath.Base(dir) + "/*.md"
			ears := start(t, nil, append([]string{
				program, "mcp", "--agent", "me", "--data", data, "--config", config, "--mcp-stdio", program + " files " + dir,
			}, tc.flags...)...)
			ears.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"1"}}}`)
			hello := ears.await(`"id":1`, `"result"`)
			if got := strings.Contains(hello, `"claude/channel"`); got != (tc.flags != nil) {
				t.Errorf("the capability is there: %t\n%s", got, hello)
			}
			ears.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			ears.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"watch_start","arguments":{"name":"md","uri":"` + glob + `"}}}`)
			ears.await(`"id":2`, `state`)
			// It appears with all that it has, else a busy machine sees two changes.
			whole := filepath.Join(dir, "a.tmp")
			writeFile(t, whole, "hi")
			if err := os.Rename(whole, filepath.Join(dir, "a.md")); err != nil {
				t.Fatal(err)
			}
			if tc.flags != nil {
				ears.await(`"method":"notifications/claude/channel"`, `ADDED a.md`, `watch-event`)
				ears.awaitLog("notice.moved", "state="+tc.state)
			} else {
				ears.awaitLog("msg=watch.notice")
			}
			if got := must(t, "inbox", "list", "--agent", "me", "--data", data); !strings.Contains(got, tc.state) || !strings.Contains(got, "1 pending") {
				t.Errorf("inbox: %s", got)
			}
			if tc.flags != nil {
				return // the push has the notice in hand until it is plain that nobody saw it
			}
			ears.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"watch_list","arguments":{}}}`)
			ears.await(`"id":3`, `ADDED a.md`)
			ears.awaitLog("notice.moved", "state=seen", "adapter=piggyback")
			if got := must(t, "inbox", "list", "--agent", "me", "--data", data); !strings.Contains(got, "0 pending") {
				t.Errorf("inbox: %s", got)
			}
		})
	}
}
