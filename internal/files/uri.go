package files

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ossicle/ossicle/listen"
)

const (
	fileScheme = "file:"
	globScheme = "files:"
)

type kind int

const (
	file kind = iota // contents of a file
	dir              // entries of a directory
	glob             // entries below a root that match
)

// place is what a URI names.
type place struct {
	kind    kind
	root    *root
	rel     string // relative to the root, with slashes; "." is the root itself
	pattern string // of a glob, relative to the root
}

// base is the directory from which the names of a list are relative.
func (p place) base() string {
	if p.kind == glob {
		return "."
	}
	return p.rel
}

// parse finds the place that a URI names, by its form alone. All errors are
// *listen.NotFoundError.
func (s *Source) parse(uri string) (place, error) {
	var p place
	var err error
	if strings.HasPrefix(uri, globScheme) {
		p, err = s.parseGlob(uri)
	} else {
		p, err = s.parseFile(uri)
	}
	if err != nil {
		return place{}, &listen.NotFoundError{URI: uri, Hint: err.Error()}
	}
	return p, nil
}

func (s *Source) parseFile(uri string) (place, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return place{}, errors.New("this is not a URI; percent-encode special characters")
	case u.Scheme != "file" || u.Opaque != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return place{}, errors.New("the form is file:///absolute/path, with a slash at the end for a directory")
	case u.Host != "" && u.Host != "localhost":
		return place{}, errors.New("the form is file:///absolute/path with three slashes; files of other hosts are out of reach")
	case strings.ContainsRune(u.Path, 0):
		return place{}, errors.New("a path has no NUL byte")
	case !path.IsAbs(u.Path):
		return place{}, errors.New("the path must be absolute")
	}
	clean := path.Clean(u.Path)
	k := file
	if strings.HasSuffix(u.Path, "/") {
		k = dir
	}
	if want := strings.TrimSuffix(u.Path, "/"); clean != want && clean != "/" {
		return place{}, fmt.Errorf("write the path without empty, . and .. elements: %s", fileURI(clean, k == dir))
	}
	p, ok := s.locate(clean)
	if !ok {
		return place{}, errors.New("it is outside the directories that are shared: " + s.rootList())
	}
	p.kind = k
	return p, nil
}

// locate finds the innermost root that holds a clean absolute slash path.
func (s *Source) locate(clean string) (p place, ok bool) {
	for _, r := range s.roots {
		rel, err := filepath.Rel(r.path, filepath.FromSlash(clean))
		if err != nil || !filepath.IsLocal(rel) && rel != "." {
			continue
		}
		if r.only != "" && rel != r.only {
			continue
		}
		if !ok || len(r.path) > len(p.root.path) {
			p, ok = place{root: r, rel: filepath.ToSlash(rel)}, true
		}
	}
	return p, ok
}

func (s *Source) parseGlob(uri string) (place, error) {
	const form = "the form is files://ROOT/pattern"
	rest, ok := strings.CutPrefix(uri, globScheme+"//")
	if !ok {
		return place{}, errors.New(form)
	}
	name, raw, ok := strings.Cut(rest, "/")
	if !ok {
		return place{}, errors.New(form)
	}
	var r *root
	for _, o := range s.roots {
		if o.name == name && o.only == "" {
			r = o
		}
	}
	if r == nil {
		return place{}, fmt.Errorf("there is no root %q: %s", name, s.rootList())
	}
	pattern, err := url.PathUnescape(raw)
	switch {
	case err != nil || strings.ContainsRune(pattern, 0):
		return place{}, errors.New("the pattern is not percent-encoded well")
	case pattern == "":
		return place{}, fmt.Errorf("the pattern is missing, for instance files://%s/**", name)
	case !doublestar.ValidatePattern(pattern):
		return place{}, errors.New("the pattern is not a glob; see the syntax of doublestar")
	case path.Clean(pattern) != pattern || !filepath.IsLocal(filepath.FromSlash(pattern)):
		return place{}, errors.New("the pattern must be relative, without empty, . and .. elements")
	}
	return place{kind: glob, root: r, rel: ".", pattern: pattern}, nil
}

func (s *Source) rootList() string {
	var b strings.Builder
	for i, r := range s.roots {
		if i > 0 {
			b.WriteString(", ")
		}
		if r.only != "" {
			b.WriteString(fileURI(path.Join(filepath.ToSlash(r.path), r.only), false))
			continue
		}
		fmt.Fprintf(&b, "%s (%s)", fileURI(filepath.ToSlash(r.path), true), r.name)
	}
	return b.String()
}

// fileURI spells a slash path as a URI.
func fileURI(p string, dir bool) string {
	if dir && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}
