package worker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = f
	}
	return out
}

// CON-2: only the worker's side has code that dials, and a record has no place
// for an address of a worker.
func TestOnlyWorkersDial(t *testing.T) {
	t.Parallel()
	for name, f := range sources(t) {
		if name == "dial.go" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "Dial") {
				if x, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"net", "websocket", "tls"}, x.Name) {
					t.Errorf("%s dials: %s.%s", name, x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Record]()) {
		if regexp.MustCompile(`(?i)addr|host|pod|ip$|url`).MatchString(field.Name) {
			t.Errorf("a record has %s", field.Name)
		}
	}
}

// IDN-4: the label of the sandbox's job does not reach the channel, and nothing
// here claims to check it.
func TestNothingReadsLabels(t *testing.T) {
	t.Parallel()
	for name := range sources(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?i)\blabels?\b`).Match(text) {
			t.Errorf("%s mentions labels", name)
		}
	}
}

// ERR-1, SCO-1: a code or an exit status of the contract is written once, in
// the file that declares it.
func TestCodesAreDeclaredOnce(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile(`^-?(400[1-9]|75|77|78|3200[0-5])$`)
	for name, f := range sources(t) {
		if name == "protocol.go" || name == "codes.go" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.INT && code.MatchString(lit.Value) {
				t.Errorf("%s writes %s", name, lit.Value)
			}
			return true
		})
	}
}
