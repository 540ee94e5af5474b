package watch

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

// files parses the package's own files.
func files(t *testing.T, tests bool) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") != tests {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed[path] = f
	}
	return parsed
}

var anyScheme = regexp.MustCompile(`([a-z][a-z0-9+.-]*)://`)

// W-002: the engine knows no server. A scheme in its code would be the first
// sign of the contrary.
func TestNoServerIsSpecial(t *testing.T) {
	t.Parallel()
	for path, f := range files(t, false) {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			if m := anyScheme.FindStringSubmatch(s); m != nil && m[1] != "scheme" {
				t.Errorf("%s knows of %s", path, s)
			}
			return true
		})
	}
}

// W-245: tests do not sleep on a wall clock. A file that sleeps does so under
// the virtual clock of synctest.
func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	for path, f := range files(t, true) {
		virtual := false
		for _, imp := range f.Imports {
			virtual = virtual || imp.Path.Value == `"testing/synctest"`
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && !virtual {
				t.Errorf("%s sleeps on the wall clock", path)
			}
			return true
		})
	}
}
