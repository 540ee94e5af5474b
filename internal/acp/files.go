package acp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxFileText is the longest text that one read answers, in bytes.
const maxFileText = 8 << 20

// Errors of the agent's file requests.
var (
	ErrOutside    = errors.New("path is outside the session's working directory")
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = fmt.Errorf("text is larger than %d bytes", maxFileText)
)

// files gives an agent the text files below one directory. Links that lead out
// of it are refused by os.Root, also those that appear while we look.
type files struct {
	root *os.Root
	dirs []string // spellings of the directory's path
}

func openFiles(dir string) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	f := &files{root: root, dirs: []string{filepath.Clean(dir)}}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != f.dirs[0] {
		f.dirs = append(f.dirs, real)
	}
	return f, nil
}

func (f *files) close() { _ = f.root.Close() }

// relative translates the agent's absolute path.
func (f *files) relative(path string) (string, error) {
	if filepath.IsAbs(path) {
		for _, dir := range f.dirs {
			if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
				return rel, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s", ErrOutside, clip(path))
}

// read returns lines from `from` (1 is the first), at most limit of them if
// limit is not nil.
func (f *files) read(path string, from, limit *int64) (string, error) {
	rel, err := f.relative(path)
	if err != nil {
		return "", err
	}
	// Without O_NONBLOCK a pipe would hold us until somebody writes.
	file, err := f.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("read file: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := regular(file); err != nil {
		return "", err
	}
	text, err := readLines(bufio.NewReader(file), from, limit)
	if err != nil {
		return "", fmt.Errorf("read file: %w", err)
	}
	return strings.ToValidUTF8(text, "\uFFFD"), nil
}

func readLines(r *bufio.Reader, from, limit *int64) (string, error) {
	var b strings.Builder
	first, last := int64(1), int64(-1)
	if from != nil {
		first = max(*from, 1)
	}
	if limit != nil {
		last = first + max(*limit, 0) - 1
	}
	for n := int64(1); last < 0 || n <= last; {
		piece, err := r.ReadSlice('\n')
		if n >= first {
			if b.Len()+len(piece) > maxFileText {
				return "", ErrTooLarge
			}
			b.Write(piece)
		}
		switch {
		case err == nil:
			n++
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return b.String(), nil
		default:
			return "", err
		}
	}
	return b.String(), nil
}

// write replaces the text of a file and creates it and its directories where
// they are missing.
func (f *files) write(path, text string) error {
	rel, err := f.relative(path)
	if err != nil {
		return err
	}
	if dir := filepath.Dir(rel); dir != "." {
		if err := f.root.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write file: %w", err)
		}
	}
	if info, err := f.root.Stat(rel); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write file: %w", ErrNotRegular)
	}
	file, err := f.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = io.WriteString(file, text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

func regular(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("read file: %w", ErrNotRegular)
	}
	return nil
}

// directory checks a working directory for a command and returns its real path.
func (f *files) directory(path string) (string, error) {
	if path == "" {
		return f.dirs[0], nil
	}
	rel, err := f.relative(path)
	if err != nil {
		return "", err
	}
	dir, err := f.root.Open(rel) // refuses links that lead out
	if err != nil {
		return "", fmt.Errorf("open directory: %w", err)
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Stat()
	if err != nil {
		return "", fmt.Errorf("open directory: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("open directory: %w", fs.ErrInvalid)
	}
	return filepath.Join(f.dirs[0], rel), nil
}
