package interop

import (
	"strings"
	"testing"
)

// A server of the legacy era serves tools and reads; a watch fails with the
// version that is needed; --legacy-watch opts in.
//
// W-014, W-048, W-049, M-12.
func TestServerOfTheLegacyEra(t *testing.T) {
	t.Parallel()
	everything := node(t) + " " + peer(t, "@modelcontextprotocol", "server-everything", "dist", "index.js") + " stdio"
	if got := must(t, "call", "echo", "message=hello", "--mcp-stdio", everything); !strings.Contains(got, "hello") {
		t.Errorf("echo: %q", got)
	}
	resources := must(t, "resources", "--json", "--mcp-stdio", everything)
	uri := firstURI(t, resources)
	if got := must(t, "read", uri, "--mcp-stdio", everything); got == "" {
		t.Errorf("read %s: empty", uri)
	}
	_, errout, code := ossicle(t, "watch", uri, "--mcp-stdio", everything)
	if code != 5 || !containsAll(errout, []string{"2026-07-28", "2025-11-25", "--legacy-watch"}) {
		t.Errorf("watch: code %d, %s", code, errout)
	}

	// The server announces every few seconds once its own tool switches that on.
	w := start(t, nil, program, "watch", uri, "--mcp-stdio", everything, "--legacy-watch", "-v", "--log-format", "json")
	w.awaitLog("watch.started")
}

func firstURI(t *testing.T, resources string) string {
	t.Helper()
	_, rest, ok := strings.Cut(resources, `"uri":"`)
	uri, _, ok2 := strings.Cut(rest, `"`)
	if !ok || !ok2 {
		t.Fatalf("no resources in %s", resources)
	}
	return uri
}
