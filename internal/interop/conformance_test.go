package interop

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The official conformance suite is green in every scored scenario, for the
// newest revision and for the last of the legacy era, on one URL.
//
// M-1, M-10.
func TestConformanceSuite(t *testing.T) {
	t.Parallel()
	conforms(t, conformanceFixture(t))
}

// conformanceFixture serves what the suite asks for, and returns its URL.
func conformanceFixture(t *testing.T) string {
	t.Helper()
	fixture := filepath.Join(t.TempDir(), "fixture")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", fixture, "github.com/ossicle/ossicle/internal/mcpserver/conformance")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build fixture: %v\n%s", err, out)
	}
	return startServer(t, nil, fixture, "-http", "127.0.0.1:0").await("http://")
}

// conforms runs the suite against a server.
func conforms(t *testing.T, url string) {
	t.Helper()
	suite := peer(t, "@modelcontextprotocol", "conformance", "dist", "index.js")
	// The least that counts as a run: an empty one would be green too.
	for revision, least := range map[string]int{"2026-07-28": 150, "2025-11-25": 75} {
		t.Run(revision, func(t *testing.T) {
			run := start(t, nil, node(t), suite, "server", "--url", url, "--requirements", revision, "-o", t.TempDir())
			err := run.finish()
			out := run.output()
			if err != nil {
				t.Errorf("suite: %v", err)
			}
			if passed := number(t, out, `Total: (\d+) passed`); passed < least {
				t.Errorf("%d checks passed, want at least %d", passed, least)
			}
			scored, rest, _ := strings.Cut(out, "Not scored")
			for _, m := range regexp.MustCompile(`(?m)^✗ ([^:]+):`).FindAllStringSubmatch(scored, -1) {
				if !strings.Contains(rest, "✗ "+m[1]+" (") {
					t.Errorf("scored scenario %s failed", m[1])
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func number(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in the output:\n%s", pattern, text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
