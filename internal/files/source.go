package files

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ossicle/ossicle/listen"
)

var _ listen.Source = (*Source)(nil)

// listMIME is the media type of directory and glob lists.
const listMIME = "application/json"

// Owns implements [listen.Source]: every file: and files: URI is ours, so that
// one outside the roots is answered with what is shared.
func (s *Source) Owns(uri string) bool {
	return strings.HasPrefix(uri, fileScheme) || strings.HasPrefix(uri, globScheme)
}

// List implements [listen.Source]. It lists roots and families, not files:
// those are read from a directory list.
func (s *Source) List(context.Context) (listen.Listing, error) {
	var l listen.Listing
	for _, r := range s.roots {
		if r.only != "" {
			uri := fileURI(path.Join(filepath.ToSlash(r.path), r.only), false)
			l.Resources = append(l.Resources, listen.Resource{
				URI: uri, Name: r.only, MIMEType: mimeByName(r.only),
				Description: "The contents of this file. " + example(r.only, uri),
			})
			continue
		}
		dirURI := fileURI(filepath.ToSlash(r.path), true)
		l.Resources = append(l.Resources, listen.Resource{
			URI: dirURI, Name: r.name, MIMEType: listMIME,
			Description: "The entries of this directory as a JSON list: name, type, size, mode, mtime. " + example(r.name, dirURI),
		})
		l.Templates = append(l.Templates,
			listen.Template{
				URITemplate: dirURI + "{+path}", Name: r.name + " files",
				Description: "One file below " + r.name + ", or with a slash at the end one directory. " +
					example(r.name, dirURI+s.sample(r)),
			},
			listen.Template{
				URITemplate: "files://" + r.name + "/{+glob}", Name: r.name + " glob", MIMEType: listMIME,
				Description: "The entries below " + r.name + " that match a glob, as a JSON list; ** spans directories. " +
					example(r.name, "files://"+r.name+"/**/*.md"),
			})
	}
	return l, nil
}

// example is the line that W-012 asks for. Double quotes cannot stand in a URI
// that we spell, nor in a root's name.
func example(name, uri string) string {
	return fmt.Sprintf(`Example: await watch_start(name="%s", uri="%s")`, rootName(name), uri)
}

// sample names a file that exists in the root, so that the example runs; a
// root without files gives its own directory.
func (s *Source) sample(r *root) string {
	d, err := os.Open(r.path)
	if err != nil {
		return ""
	}
	defer func() { _ = d.Close() }()
	entries, _ := d.ReadDir(256)
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") })
	if len(entries) == 0 {
		return ""
	}
	first := slices.MinFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return strings.TrimPrefix(fileURI("/"+first.Name(), false), "file:///")
}

// Read implements [listen.Source].
func (s *Source) Read(ctx context.Context, uri string, _ listen.ReadOptions) ([]listen.Contents, error) {
	p, err := s.parse(uri)
	if err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(p.root.path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", uri, err)
	}
	defer func() { _ = dir.Close() }()
	if p.kind == file {
		return s.readFile(dir, p, uri)
	}
	text, err := s.readList(ctx, dir, p, uri)
	if err != nil {
		return nil, err
	}
	return []listen.Contents{{URI: uri, MIMEType: listMIME, Text: text}}, nil
}

// Watch implements [listen.Source]. It accepts what does not exist yet, as a
// file may be absent for a moment whenever it is replaced; reads tell whether
// it is there.
func (s *Source) Watch(_ context.Context, uri string, changed func()) (stop func(), err error) {
	p, err := s.parse(uri)
	if err != nil {
		return nil, err
	}
	w, err := s.start()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", uri, err)
	}
	stop, err = w.add(p, changed)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", uri, err)
	}
	return stop, nil
}

// start returns the running watcher.
func (s *Source) start() (*watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fs.ErrClosed
	}
	if s.watcher == nil {
		w, err := newWatcher(s.opts, s.log)
		if err != nil {
			return nil, err
		}
		s.watcher = w
	}
	return s.watcher, nil
}
