package tools

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Bounds of the tool file.
const (
	MaxRead    = 1 << 20  // bytes of one read
	MaxWrite   = 4 << 20  // bytes of one write
	MaxEntries = 1000     // of a listing, and matches of a search
	maxScan    = 20_000   // files that a search looks into
	maxLine    = 500      // bytes of a line that a search shows
	maxFile    = 64 << 20 // bytes of a file of which a part is read
)

// Errors of files that callers branch on.
var (
	ErrOutside  = errors.New("the path leads out of the workspace")
	ErrTooLarge = errors.New("too large")
	ErrNoMatch  = errors.New("the text to replace is not there")
	ErrManyFits = errors.New("the text to replace is there more than once; give more of what is around it")
)

// Files works on the files of one directory and cannot leave it, by ".." and
// symbolic links neither. It is safe for concurrent use.
type Files struct {
	root *os.Root
	dir  string
}

// OpenFiles opens a workspace.
func OpenFiles(workspace string) (*Files, error) {
	dir, err := filepath.Abs(workspace)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return &Files{root, dir}, nil
}

// Close ends the use of the workspace.
func (f *Files) Close() error { return f.root.Close() }

// name turns a path into one below the root. Absolute paths are those of the
// workspace.
func (f *Files) name(p string) (string, error) {
	if p == "" {
		return ".", nil
	}
	if strings.Contains(p, "\x00") {
		return "", fmt.Errorf("%q: %w", p, fs.ErrInvalid)
	}
	if filepath.IsAbs(p) {
		rel, err := filepath.Rel(f.dir, p)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, ErrOutside)
		}
		p = rel
	}
	if p = filepath.Clean(p); !filepath.IsLocal(p) {
		return "", fmt.Errorf("%s: %w", p, ErrOutside)
	}
	return p, nil
}

// Read returns lines of a text file from line offset on, counted from 1, at most
// limit if that is positive; or, of a file that is not text, its content in
// base64. total is the number of lines, or 0 for what is not text.
func (f *Files) Read(p string, offset, limit int) (content string, text bool, total int, err error) {
	name, err := f.name(p)
	if err != nil {
		return "", false, 0, err
	}
	file, err := f.root.Open(name)
	if err != nil {
		return "", false, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", false, 0, err
	}
	if !info.Mode().IsRegular() {
		return "", false, 0, fmt.Errorf("read %s: not a regular file", p)
	}
	if info.Size() > maxFile {
		return "", false, 0, fmt.Errorf("read %s: %w: %d bytes, at most %d", p, ErrTooLarge, info.Size(), maxFile)
	}
	if info.Size() > MaxRead && limit <= 0 {
		return "", false, 0, fmt.Errorf("read %s: %w: %d bytes, at most %d; read a part with offset and limit", p, ErrTooLarge, info.Size(), MaxRead)
	}
	return readLines(file, max(1, offset), limit)
}

func readLines(r io.Reader, offset, limit int) (string, bool, int, error) {
	var out bytes.Buffer
	br := bufio.NewReaderSize(r, 64<<10)
	line, text := 0, true
	for {
		b, err := br.ReadBytes('\n')
		if len(b) > 0 {
			line++
			text = text && utf8.Valid(b) && !bytes.ContainsRune(b, 0)
			if line >= offset && (limit <= 0 || line < offset+limit) {
				if out.Len()+len(b) > MaxRead {
					return "", false, 0, fmt.Errorf("read: %w: the part has more than %d bytes", ErrTooLarge, MaxRead)
				}
				out.Write(b)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", false, 0, err
		}
	}
	if !text {
		return base64.StdEncoding.EncodeToString(out.Bytes()), false, 0, nil
	}
	return out.String(), true, line, nil
}

// Write makes a file whole: the content is there at once or not at all. The mode
// of a file that is replaced is kept, and directories above it are made.
func (f *Files) Write(p string, content []byte) error {
	name, err := f.name(p)
	if err != nil {
		return err
	}
	if len(content) > MaxWrite {
		return fmt.Errorf("write %s: %w: %d bytes, at most %d", p, ErrTooLarge, len(content), MaxWrite)
	}
	mode := fs.FileMode(0o644)
	switch info, err := f.root.Stat(name); {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("write %s: not a regular file", p)
	case err == nil:
		mode = info.Mode().Perm()
	}
	// A link to a file inside is written through; the rename below would replace it.
	if info, err := f.root.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return f.overwrite(name, content)
	}
	if dir := path.Dir(filepath.ToSlash(name)); dir != "." {
		if err := f.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	tmp := filepath.Join(filepath.Dir(name), ".write-"+rand.Text())
	if err := f.create(tmp, content, mode); err != nil {
		_ = f.root.Remove(tmp)
		return err
	}
	if err := f.root.Rename(tmp, name); err != nil {
		_ = f.root.Remove(tmp)
		return err
	}
	return nil
}

func (f *Files) create(name string, content []byte, mode fs.FileMode) error {
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(mode) // whatever the umask is
	}
	return errors.Join(err, file.Close())
}

func (f *Files) overwrite(name string, content []byte) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// Edit replaces a text that is there exactly once, or every one if all is true.
// It returns how many were replaced. Errors: ErrNoMatch, ErrManyFits.
func (f *Files) Edit(p, before, after string, all bool) (int, error) {
	if before == "" {
		return 0, errors.New("edit: the text to replace is empty")
	}
	content, text, _, err := f.Read(p, 1, 0)
	if err != nil {
		return 0, err
	}
	if !text {
		return 0, fmt.Errorf("edit %s: the file is not text", p)
	}
	n := strings.Count(content, before)
	switch {
	case n == 0:
		return 0, fmt.Errorf("edit %s: %w", p, ErrNoMatch)
	case n > 1 && !all:
		return 0, fmt.Errorf("edit %s: %w (%d times)", p, ErrManyFits, n)
	}
	return n, f.Write(p, []byte(strings.ReplaceAll(content, before, after)))
}

// Entry is one file or directory.
type Entry struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // file, directory, link, other
	Size int64  `json:"size"` // bytes, of a file
	Mode string `json:"mode"`
}

func entryOf(p string, info fs.FileInfo) Entry {
	kind := "other"
	switch {
	case info.Mode().IsRegular():
		kind = "file"
	case info.IsDir():
		kind = "directory"
	case info.Mode()&fs.ModeSymlink != 0:
		kind = "link"
	}
	return Entry{p, kind, info.Size(), info.Mode().Perm().String()}
}

// Stat describes one path; a link as itself.
func (f *Files) Stat(p string) (Entry, error) {
	name, err := f.name(p)
	if err != nil {
		return Entry{}, err
	}
	info, err := f.root.Lstat(name)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(name, info), nil
}

// List describes what is in a directory, by name. more is true if there is more
// than MaxEntries.
func (f *Files) List(p string) (entries []Entry, more bool, err error) {
	name, err := f.name(p)
	if err != nil {
		return nil, false, err
	}
	all, err := fs.ReadDir(f.root.FS(), filepath.ToSlash(name))
	if err != nil {
		return nil, false, err
	}
	for _, d := range all {
		if len(entries) == MaxEntries {
			return entries, true, nil
		}
		if info, err := d.Info(); err == nil {
			entries = append(entries, entryOf(filepath.Join(name, d.Name()), info))
		}
	}
	return entries, false, nil
}

// Match is a line that a search found.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// Search finds lines that contain a text, in text files below a directory whose
// names fit a pattern of path.Match if there is one. Links are not followed.
// more is true if it stopped at a bound.
func (f *Files) Search(p, text, pattern string) (found []Match, more bool, err error) {
	name, err := f.name(p)
	if err != nil {
		return nil, false, err
	}
	if text == "" {
		return nil, false, errors.New("search: the text is empty")
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, false, fmt.Errorf("search: the pattern %q: %w", pattern, err)
	}
	scanned := 0
	err = fs.WalkDir(f.root.FS(), filepath.ToSlash(name), func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is not searched
		}
		if ok, _ := path.Match(pattern, d.Name()); pattern != "" && !ok {
			return nil
		}
		if scanned++; scanned > maxScan {
			more = true
			return fs.SkipAll
		}
		content, isText, _, err := f.Read(at, 1, 0)
		if err != nil || !isText {
			return nil //nolint:nilerr // likewise
		}
		n := 0
		for line := range strings.Lines(content) {
			if n++; !strings.Contains(line, text) {
				continue
			}
			if len(found) == MaxEntries {
				more = true
				return fs.SkipAll
			}
			found = append(found, Match{at, n, cutText([]byte(strings.TrimRight(line, "\r\n")), maxLine)})
		}
		return nil
	})
	return found, more, err
}

// Mkdir makes a directory and those above it.
func (f *Files) Mkdir(p string) error {
	name, err := f.name(p)
	if err != nil {
		return err
	}
	return f.root.MkdirAll(name, 0o755)
}

// Move renames a path; what is at the new one must not be there.
func (f *Files) Move(from, to string) error {
	a, err := f.name(from)
	if err != nil {
		return err
	}
	b, err := f.name(to)
	if err != nil {
		return err
	}
	if a == "." || b == "." {
		return errors.New("move: the workspace itself stays")
	}
	if _, err := f.root.Lstat(b); err == nil {
		return fmt.Errorf("move to %s: %w", to, fs.ErrExist)
	}
	return f.root.Rename(a, b)
}

// Delete removes a file, a link, or a directory: one that is not empty only if
// all is true.
func (f *Files) Delete(p string, all bool) error {
	name, err := f.name(p)
	switch {
	case err != nil:
		return err
	case name == ".":
		return errors.New("delete: the workspace itself stays")
	case all:
		if _, err := f.root.Lstat(name); err != nil {
			return err
		}
		return f.root.RemoveAll(name)
	}
	return f.root.Remove(name)
}
