package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ossicle/ossicle/listen"
)

func (s *Source) readFile(dir *os.Root, p place, uri string) ([]listen.Contents, error) {
	// O_NONBLOCK: opening a named pipe must not wait for its writer.
	f, err := dir.OpenFile(filepath.FromSlash(p.rel), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, s.readError(dir, p, uri, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", uri, err)
	case info.IsDir():
		return nil, &listen.NotFoundError{URI: uri, Hint: "it is a directory; its entries are at " + uri + "/"}
	case !info.Mode().IsRegular():
		return nil, &listen.NotFoundError{URI: uri, Hint: "it is not a regular file"}
	}
	data, err := io.ReadAll(io.LimitReader(f, s.opts.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", uri, err)
	}
	if int64(len(data)) > s.opts.MaxFile {
		return nil, fmt.Errorf("read %s: %w: %d bytes, the limit is %d; watch the list of its directory instead",
			uri, ErrTooLarge, max(info.Size(), int64(len(data))), s.opts.MaxFile)
	}
	c := listen.Contents{URI: uri, MIMEType: mimeByName(p.rel)}
	if utf8.Valid(data) && !bytes.ContainsRune(data, 0) {
		c.Text = string(data)
		if c.MIMEType == "" {
			c.MIMEType = "text/plain"
		}
		return []listen.Contents{c}, nil
	}
	c.Blob = data
	if c.MIMEType == "" || strings.HasPrefix(c.MIMEType, "text/") || c.MIMEType == "application/json" {
		c.MIMEType = "application/octet-stream"
	}
	return []listen.Contents{c}, nil
}

// readError turns the errors of opening into words for the reader.
func (s *Source) readError(dir *os.Root, p place, uri string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &listen.NotFoundError{URI: uri, Hint: similar(dir, p)}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("read %s: permission denied", uri)
	case escapes(dir, p.rel):
		return &listen.NotFoundError{URI: uri, Hint: "a link leads out of " + p.root.name}
	}
	return fmt.Errorf("read %s: %w", uri, err)
}

// escapes reports whether a link on the way to rel leads out of the root:
// os.Root has no sentinel for it, but refuses to stat what exists as a link.
func escapes(dir *os.Root, rel string) bool {
	_, err := dir.Stat(filepath.FromSlash(rel))
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

// similar proposes names in the directory of a path that does not exist.
func similar(dir *os.Root, p place) string {
	if p.root.only != "" {
		return ""
	}
	d, err := dir.Open(filepath.FromSlash(path.Dir(p.rel)))
	if err != nil {
		return "its directory does not exist either"
	}
	defer func() { _ = d.Close() }()
	want := stem(path.Base(p.rel))
	var near []string
	entries, _ := d.ReadDir(1000)
	for _, e := range entries {
		if have := stem(e.Name()); strings.HasPrefix(have, want) || strings.HasPrefix(want, have) {
			near = append(near, fileURI(path.Join(filepath.ToSlash(p.root.path), path.Dir(p.rel), e.Name()), e.IsDir()))
		}
	}
	if len(near) == 0 {
		return ""
	}
	slices.Sort(near)
	return "did you mean: " + strings.Join(near[:min(3, len(near))], ", ")
}

// stem is what typing mistakes leave intact most often: the first letters.
func stem(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	if len(name) > 4 {
		name = name[:4]
	}
	return name
}

// entry is one line of a list.
type entry struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Size  *int64 `json:"size,omitempty"`
	Mode  string `json:"mode"`
	MTime string `json:"mtime,omitempty"`
}

func newEntry(name string, info fs.FileInfo) entry {
	e := entry{Name: name, Mode: fmt.Sprintf("%04o", info.Mode().Perm())}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		size := info.Size()
		e.Type, e.Size, e.MTime = "file", &size, info.ModTime().UTC().Format(time.RFC3339Nano)
	case mode.IsDir():
		e.Type = "dir"
	case mode&fs.ModeSymlink != 0:
		e.Type = "symlink"
	default:
		e.Type = "other"
	}
	return e
}

func (s *Source) readList(ctx context.Context, dir *os.Root, p place, uri string) (string, error) {
	var entries []entry
	add := func(name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		// By way of the root: a plain lstat could be led out by a swapped link.
		info, err := dir.Lstat(filepath.FromSlash(path.Join(p.base(), name)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went away in between; its removal is announced
		}
		if err != nil {
			return err
		}
		if len(entries) == s.opts.MaxEntries {
			return fmt.Errorf("%w: more than %d entries; use a narrower glob", ErrTooLarge, s.opts.MaxEntries)
		}
		entries = append(entries, newEntry(name, info))
		return nil
	}
	var err error
	if p.kind == glob {
		err = s.walkGlob(dir, p, add)
	} else {
		err = s.walkDir(dir, p, uri, add)
	}
	var missing *listen.NotFoundError
	if errors.As(err, &missing) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", uri, err)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return encode(entries)
}

func (s *Source) walkDir(dir *os.Root, p place, uri string, add func(name string) error) error {
	if p.root.only != "" {
		return &listen.NotFoundError{URI: uri, Hint: "it is a file; leave out the slash at the end"}
	}
	d, err := dir.OpenFile(filepath.FromSlash(p.rel), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		if info, serr := dir.Stat(filepath.FromSlash(p.rel)); serr == nil && !info.IsDir() {
			return &listen.NotFoundError{URI: uri, Hint: "it is a file; leave out the slash at the end"}
		}
		return s.readError(dir, p, uri, err)
	}
	defer func() { _ = d.Close() }()
	for {
		batch, err := d.ReadDir(512)
		for _, e := range batch {
			if err := add(e.Name()); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *Source) walkGlob(dir *os.Root, p place, add func(name string) error) error {
	return doublestar.GlobWalk(dir.FS(), p.pattern, func(name string, _ fs.DirEntry) error {
		if name == "." {
			return nil
		}
		return add(name)
	}, doublestar.WithNoFollow())
}

func encode(entries []entry) (string, error) {
	if len(entries) == 0 {
		return "[]", nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(entries); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
