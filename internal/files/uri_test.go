package files

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

// tree makes files below a new directory; a name with a slash at its end is a
// directory. It returns the directory, without links.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		p := filepath.Join(top, n)
		if strings.HasSuffix(n, "/") {
			mkdir(t, p)
			continue
		}
		mkdir(t, filepath.Dir(p))
		write(t, p, "text of "+n)
	}
	return top
}

func mkdir(t *testing.T, p string) {
	t.Helper()
	if err := os.MkdirAll(p, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, p, text string) {
	t.Helper()
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newSource(t *testing.T, opts *Options, roots ...Root) *Source {
	t.Helper()
	s, err := New(roots, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestURIsNamePlaces(t *testing.T) {
	t.Parallel()
	top := tree(t, "notes/a.md", "notes/deep/b.md", "one.txt")
	s := newSource(t, nil,
		Root{Path: filepath.Join(top, "notes")},
		Root{Name: "deep", Path: filepath.Join(top, "notes", "deep")},
		Root{Path: filepath.Join(top, "one.txt")})
	type got struct {
		Root, Rel, Pattern string
		Kind               kind
	}
	for uri, want := range map[string]got{
		"file://" + top + "/notes/a.md":              {"notes", "a.md", "", file},
		"file://localhost" + top + "/notes/a%20b%3F": {"notes", "a b?", "", file},
		"file://" + top + "/notes/":                  {"notes", ".", "", dir},
		"file://" + top + "/notes/new/dir/":          {"notes", "new/dir", "", dir},
		"file://" + top + "/notes/deep/b.md":         {"deep", "b.md", "", file}, // the innermost root
		"file://" + top + "/one.txt":                 {"one.txt", "one.txt", "", file},
		"files://notes/**/*.{md,txt}":                {"notes", ".", "**/*.{md,txt}", glob},
		"files://notes/%2A%2A/%5Ba%5D%3F":            {"notes", ".", "**/[a]?", glob},
		"files://deep/*":                             {"deep", ".", "*", glob},
	} {
		p, err := s.parse(uri)
		if err != nil {
			t.Errorf("parse(%s): %v", uri, err)
			continue
		}
		if diff := cmp.Diff(want, got{p.root.name, p.rel, p.pattern, p.kind}); diff != "" {
			t.Errorf("parse(%s) (-want +got):\n%s", uri, diff)
		}
	}
}

func TestOtherURIsAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	top := tree(t, "notes/a.md", "one.txt")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "notes")}, Root{Path: filepath.Join(top, "one.txt")})
	for uri, want := range map[string]string{
		"file:///etc/passwd":                    "outside",
		"file://" + top + "/one":                "outside",
		"file://" + top + "/":                   "outside",
		"file://" + top + "/notes/../one.txt":   "without empty, . and ..",
		"file://" + top + "/notes/%2e%2e/other": "without empty, . and ..",
		"file://" + top + "/notes//a.md":        "without empty, . and ..",
		"file://host" + top + "/notes/a.md":     "three slashes",
		"file:notes/a.md":                       "file:///absolute/path",
		"file://" + top + "/notes/a.md?x=1":     "file:///absolute/path",
		"file://" + top + "/notes/a.md#x":       "file:///absolute/path",
		"file://" + top + "/notes/%zz":          "percent-encode",
		"file://" + top + "/notes/a%00b":        "NUL",
		"files://nowhere/*":                     `no root "nowhere"`,
		"files://one.txt/*":                     `no root "one.txt"`,
		"files://notes":                         "files://ROOT/pattern",
		"files:notes/*":                         "files://ROOT/pattern",
		"files://notes/":                        "pattern is missing",
		"files://notes/../*":                    "without empty",
		"files://notes//*":                      "without empty",
		"files://notes/%2Fetc/*":                "without empty",
		"files://notes/[a":                      "not a glob",
		"files://notes/%zz":                     "percent-encoded",
	} {
		if !s.Owns(uri) {
			t.Errorf("Owns(%s) = false: nobody else would tell what is wrong", uri)
		}
		_, err := s.Read(t.Context(), uri, listen.ReadOptions{})
		var missing *listen.NotFoundError
		if !errors.As(err, &missing) || !strings.Contains(missing.Hint, want) {
			t.Errorf("Read(%s) = %v, want a *NotFoundError with %q", uri, err, want)
		}
		if _, err := s.Watch(t.Context(), uri, func() {}); !errors.As(err, &missing) {
			t.Errorf("Watch(%s) = %v, want a *NotFoundError", uri, err)
		}
	}
	if s.Owns("memo://notes") || s.Owns("filesystem:x") {
		t.Error("Owns claims other schemes")
	}
}

// W-011, W-012: everything is listed, and every example is a place that can be
// read and watched.
func TestListingsCarryRunnableExamples(t *testing.T) {
	t.Parallel()
	top := tree(t, "my notes/b.md", "my notes/a %.md", "one.txt", "empty/")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "my notes")}, Root{Path: filepath.Join(top, "one.txt")}, Root{Path: filepath.Join(top, "empty")})
	l, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var descriptions []string
	for _, r := range l.Resources {
		descriptions = append(descriptions, r.Description)
		if _, err := s.Read(t.Context(), r.URI, listen.ReadOptions{}); err != nil {
			t.Errorf("Read(%s): %v", r.URI, err)
		}
	}
	for _, tm := range l.Templates {
		descriptions = append(descriptions, tm.Description)
		// W-045: a client finds the server of a URI by its template.
		parsed, err := listen.ParseTemplate(tm.URITemplate)
		if err != nil {
			t.Errorf("template %q: %v", tm.URITemplate, err)
			continue
		}
		uri := tm.Description[strings.LastIndex(tm.Description, `uri="`)+5 : strings.LastIndex(tm.Description, `"`)]
		if _, ok := parsed.Match(uri); !ok && !strings.HasSuffix(uri, "/") {
			t.Errorf("template %q does not match its example %q", tm.URITemplate, uri)
		}
	}
	if len(l.Resources) != 3 || len(l.Templates) != 4 {
		t.Errorf("%d resources and %d templates, want 3 and 4", len(l.Resources), len(l.Templates))
	}
	example := regexp.MustCompile(`Example: await watch_start\(name="[\w.-]+", uri="([^"]+)"\)$`)
	for _, d := range descriptions {
		m := example.FindStringSubmatch(d)
		if m == nil {
			t.Errorf("%q does not end in an example", d)
			continue
		}
		if _, err := s.Read(t.Context(), m[1], listen.ReadOptions{}); err != nil {
			t.Errorf("the example of %q: %v", d, err)
		}
		stop, err := s.Watch(t.Context(), m[1], func() {})
		if err != nil {
			t.Errorf("the example of %q: %v", d, err)
			continue
		}
		stop()
	}
}

func TestRootsAreCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	top := tree(t, "a/x/", "b/x/")
	for _, roots := range [][]Root{
		nil,
		{{Path: filepath.Join(top, "missing")}},
		{{Path: os.DevNull}},
		{{Name: "n", Path: top}, {Name: "n", Path: top}},
		{{Name: "no/slash", Path: top}},
	} {
		if s, err := New(roots, nil); err == nil {
			t.Errorf("New(%v) = %v, want an error", roots, s)
		}
	}
	s := newSource(t, nil, Root{Path: filepath.Join(top, "a", "x")}, Root{Path: filepath.Join(top, "b", "x")})
	if s.roots[0].name != "x" || s.roots[1].name != "x-2" {
		t.Errorf("names %q and %q, want x and x-2", s.roots[0].name, s.roots[1].name)
	}
}

func FuzzParse(f *testing.F) {
	top := f.TempDir()
	s, err := New([]Root{{Name: "r", Path: top}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"file://" + top + "/a", "file://" + top + "/%2e%2e/", "files://r/**", "files://r/%2e%2e/x", "file:", "files://r/{a,b/../../c}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		p, err := s.parse(uri)
		if err != nil {
			return
		}
		if p.rel != "." && !filepath.IsLocal(p.rel) {
			t.Errorf("%q leaves the root: %q", uri, p.rel)
		}
		if p.kind == glob && !filepath.IsLocal(p.pattern) {
			t.Errorf("%q leaves the root: %q", uri, p.pattern)
		}
	})
}
