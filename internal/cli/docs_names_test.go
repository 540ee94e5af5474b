package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sources parses the Go files of a directory, without its tests.
func sources(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// words returns the text of a string literal, or "".
func words(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return ""
}

// Whoever reads run --json or a transcript finds each event and each kind on the page.
func TestDocumentedUpdates(t *testing.T) {
	t.Parallel()
	text := page(t, "reference/json.md")
	found := 0
	for _, file := range sources(t, "agent") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				kind, event := strings.HasPrefix(name.Name, "Entry"), strings.HasPrefix(name.Name, "Event")
				if !kind && !event || i >= len(spec.Values) || words(spec.Values[i]) == "" {
					continue
				}
				found++
				if value := words(spec.Values[i]); !strings.Contains(text, "`"+value+"`") {
					t.Errorf("docs/reference/json.md does not have %s, %q", name.Name, value)
				}
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("only %d constants were found: this looks at the wrong files", found)
	}
}

// A message of the log that is a name, with a dot in it, is an event of the page.
func TestDocumentedLogEvents(t *testing.T) {
	t.Parallel()
	text := page(t, "reference/log.md")
	event := regexp.MustCompile(`^[a-z]+\.[a-z_]+$`)
	loggers := map[string]bool{ // the methods of slog.Logger that write
		"Debug": true, "Info": true, "Warn": true, "Error": true, "LogAttrs": true,
		"DebugContext": true, "InfoContext": true, "WarnContext": true, "ErrorContext": true,
	}
	found := 0
	for _, dir := range []string{"agent", "mailbox", "notice", "watch", "internal/app", "internal/irc"} {
		for _, file := range sources(t, dir) {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !loggers[method.Sel.Name] {
					return true
				}
				for _, arg := range call.Args {
					if name := words(arg); event.MatchString(name) {
						found++
						if !strings.Contains(text, "`"+name+"`") {
							t.Errorf("docs/reference/log.md does not have %s, of %s", name, dir)
						}
					}
				}
				return true
			})
		}
	}
	if found < 50 {
		t.Errorf("only %d events were found: this looks at the wrong calls", found)
	}
}
