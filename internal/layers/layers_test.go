// Package layers keeps the law of the house: who may import whom. There is
// nothing but tests here.
package layers

import (
	"fmt"
	"go/build"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ossicle/ossicle"

// The layers, lowest first. A package imports packages of lower layers, and of
// its own only where siblings says so. A package that stands nowhere fails the
// test: placing it is part of making it.
var layers = []struct {
	name     string
	siblings bool
	packages []string
}{
	{"roots", false, []string{"internal/logattr", "internal/version", "internal/jsonx", "internal/atomicfile", "internal/bell", "internal/filelock", "internal/teardown", "sse", "attach"}},
	{"ground", false, []string{"listen", "internal/access", "internal/ledger", "internal/observe", "internal/python", "internal/process", "internal/supervise"}},
	{"rooms", false, []string{"agent", "feed", "mailbox", "notice", "watch", "worker", "worker/tools"}},
	{"technologies", false, []string{
		"internal/acp", "internal/files", "internal/irc", "internal/kubernetes", "internal/mcpclient", "internal/memo", "internal/mockagent", "internal/monty",
		"internal/nats", "internal/openai", "internal/postgres", "internal/pty", "internal/redis", "internal/sandbox", "internal/scripted", "internal/shim", "internal/sqlite",
		"internal/telemetry", "internal/wake",
	}},
	{"surfaces", true, []string{"internal/feedserver", "internal/gateway", "internal/mcpserver", "internal/httpserver", "internal/pageserver", "internal/ui"}},
	{"config", false, []string{"internal/config"}},
	{"fleet", false, []string{"internal/fleet"}},
	{"app", false, []string{"internal/app"}},
	{"cli", false, []string{"internal/cli"}},
	{"programs", false, []string{"cmd/ossicle", "internal/interop", "internal/mcpserver/conformance"}},
}

// Test helpers stand with the package that they help to test.
var helpers = map[string]string{
	"internal/python/pythontest": "internal/monty",
	"watch/watchtest":            "internal/monty",
	"agent/agenttest":            "internal/monty",
	"feed/feedtest":              "internal/monty",
	"notice/noticetest":          "internal/monty",
	"mailbox/mailboxtest":        "internal/monty",
	"worker/workertest":          "internal/monty",
	"internal/testserver":        "internal/sqlite",
	"internal/access/accesstest": "internal/sqlite",
	"internal/fleet/fleettest":   "internal/fleet",
}

// One technology, one room: these modules are imported below the given
// directories and nowhere else.
var rooms = map[string][]string{
	"github.com/spf13/":           {"internal/cli"},
	"github.com/fsnotify/":        {"internal/files"},
	"github.com/bmatcuk/":         {"internal/files"},
	"google.golang.org/protobuf/": {"internal/monty"},
	"github.com/creack/":          {"internal/pty"},
	"github.com/jackc/pgx/":       {"internal/postgres"},
	"k8s.io/":                     {"internal/kubernetes"},
	"github.com/nats-io/":         {"internal/nats"},
	"github.com/openai/":          {"internal/openai"},
	"github.com/pressly/":         {"internal/postgres", "internal/sqlite"},
	"github.com/prometheus/":      {"internal/telemetry"},
	"github.com/redis/":           {"internal/redis"},
	"go.opentelemetry.io/":        {"internal/telemetry"},
	"modernc.org/":                {"internal/sqlite"},
	"mvdan.cc/sh/":                {"internal/cli"},
	"os/signal":                   {"cmd"},
}

// attach, listen, sse and watch are libraries: what they pull in, their users pull in too.
var lean = map[string][]string{
	"attach": {},
	"listen": {"github.com/modelcontextprotocol/go-sdk", "github.com/go-json-experiment/json", "github.com/yosida95/uritemplate", "golang.org/x/"},
	"sse":    {},
	"watch":  {"github.com/modelcontextprotocol/go-sdk", "github.com/go-json-experiment/json", "github.com/yosida95/uritemplate", "golang.org/x/"},
	"worker": {"github.com/modelcontextprotocol/go-sdk", "github.com/go-json-experiment/json", "github.com/coder/websocket", "golang.org/x/"},

	"worker/tools": {"github.com/modelcontextprotocol/go-sdk"},
}

func level(pkg string) int {
	if home, ok := helpers[pkg]; ok {
		pkg = home
	}
	return slices.IndexFunc(layers, func(l struct {
		name     string
		siblings bool
		packages []string
	},
	) bool {
		return slices.Contains(l.packages, pkg)
	})
}

func packages(t *testing.T) map[string]*build.Package {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*build.Package{}
	err = filepath.WalkDir(root, func(dir string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, dir)
		name := d.Name()
		if name == "node_modules" || name == "web" || name == "testdata" || name == "bench" || (strings.HasPrefix(name, ".") && rel != ".") {
			return filepath.SkipDir
		}
		pkg, err := build.ImportDir(dir, 0)
		if err == nil && len(pkg.GoFiles) > 0 {
			found[filepath.ToSlash(rel)] = pkg
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPackagesImportDownwards(t *testing.T) {
	t.Parallel()
	for name, pkg := range packages(t) {
		if name == "internal/layers" {
			continue
		}
		from := level(name)
		if from < 0 {
			t.Errorf("%s stands in no layer: place it in internal/layers", name)
			continue
		}
		for _, imp := range pkg.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			switch at := level(to); {
			case at < 0:
				t.Errorf("%s imports %s, which stands in no layer", name, to)
			case at > from, at == from && !layers[from].siblings && helpers[name] == "":
				t.Errorf("%s (%s) imports %s (%s): imports point down", name, layers[from].name, to, layers[at].name)
			}
		}
	}
}

func TestOneTechnologyOneRoom(t *testing.T) {
	t.Parallel()
	for name, pkg := range packages(t) {
		for _, imp := range pkg.Imports {
			for prefix, homes := range rooms {
				if !strings.HasPrefix(imp, prefix) {
					continue
				}
				if !slices.ContainsFunc(homes, func(home string) bool { return name == home || strings.HasPrefix(name, home+"/") }) {
					t.Errorf("%s imports %s, which lives in %v", name, imp, homes)
				}
			}
		}
	}
}

func TestLibrariesStayLean(t *testing.T) {
	t.Parallel()
	all := packages(t)
	for name, allowed := range lean {
		for _, err := range forbidden(all, name, allowed, map[string]bool{}) {
			t.Error(err)
		}
	}
}

// forbidden follows our own imports and reports foreign ones outside allowed.
func forbidden(all map[string]*build.Package, name string, allowed []string, seen map[string]bool) []error {
	if seen[name] || all[name] == nil {
		return nil
	}
	seen[name] = true
	var errs []error
	for _, imp := range all[name].Imports {
		if to, ours := strings.CutPrefix(imp, module+"/"); ours {
			errs = append(errs, forbidden(all, to, allowed, seen)...)
			continue
		}
		first, _, _ := strings.Cut(imp, "/")
		foreign := strings.Contains(first, ".")
		if foreign && !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(imp, a) }) {
			errs = append(errs, fmt.Errorf("%s imports %s: the library must stay lean", name, path.Clean(imp)))
		}
	}
	return errs
}
