package monty

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The one build of Monty that this package speaks to. A dump is only readable
// by the build that wrote it, and the wire changes between releases, so the
// file is pinned by its content and not by what it says of itself.
const (
	Version = "0.0.23"
	SHA256  = "b634e4fe49bdd2f933e2f5ecf32633db4273107a3a693946a4e3c9b0d01ba45a"
	// Package is the npm package that carries the file, as package/monty.
	Package = "@pydantic/monty-linux-x64-gnu"
	// EnvPath names the environment variable that points to the file.
	EnvPath = "OSSICLE_MONTY"
)

// modulePath is where npm puts the file.
var modulePath = filepath.Join("node_modules", filepath.FromSlash(Package), "monty")

const install = "install it with: npm install --no-save " + Package + "@" + Version

// FindOptions say where to look for the interpreter. The zero value looks in
// the usual places of this process.
type FindOptions struct {
	// Path is the file itself; nothing else is looked at.
	Path string
	// AnyBuild accepts a file that is not the pinned build. It may speak another
	// protocol, and then every run fails.
	AnyBuild bool
	// Getenv, Executable and Dir replace the process's own environment, path
	// and working directory.
	Getenv     func(string) string
	Executable string
	Dir        string
}

// NotFoundError says that no interpreter is installed.
type NotFoundError struct {
	Looked []string // the places, in order
}

func (e *NotFoundError) Error() string {
	where := e.Looked
	up := len(where) // of the way up, the first step says enough
	for up > 0 && strings.HasSuffix(where[up-1], modulePath) {
		up--
	}
	if up < len(where) {
		where = append(slices.Clone(where[:up]), where[up]+" or above")
	}
	return fmt.Sprintf("find monty: not at %s; %s, or set %s", strings.Join(where, ", "), install, EnvPath)
}

// BuildError says that a file is not the pinned build of the interpreter.
type BuildError struct {
	Path, SHA256 string
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("find monty: %s is not Monty %s (sha256 %.12s…, want %.12s…); %s", e.Path, Version, e.SHA256, SHA256, install)
}

// Find returns the absolute path of the interpreter and verifies its content.
// It looks at FindOptions.Path alone if set, else at the environment variable
// EnvPath alone if set, else at the first that exists of: monty beside the
// executable, where npm puts it in the directory above, as in a checkout
// (../node_modules/@pydantic/monty-linux-x64-gnu/monty), ../libexec/ossicle/monty,
// ossicle/monty in the user's data directory ($XDG_DATA_HOME or ~/.local/share), and
// where npm puts it in the working directory or above it.
//
// Errors: *NotFoundError, *BuildError, or why the file could not be read.
func Find(o *FindOptions) (string, error) {
	if o == nil {
		o = &FindOptions{}
	}
	places, err := places(o)
	if err != nil {
		return "", fmt.Errorf("find monty: %w", err)
	}
	for _, path := range places {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return "", fmt.Errorf("find monty: %w", err)
		}
		if o.AnyBuild {
			return path, nil
		}
		if err := verify(path); err != nil {
			return "", err
		}
		return path, nil
	}
	return "", &NotFoundError{Looked: places}
}

func places(o *FindOptions) ([]string, error) {
	if o.Path != "" {
		return []string{o.Path}, nil
	}
	getenv := o.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	if p := getenv(EnvPath); p != "" {
		return []string{p}, nil
	}
	var ps []string
	if exe, err := executable(o); err == nil {
		bin := filepath.Dir(exe)
		ps = append(ps, filepath.Join(bin, "monty"), filepath.Join(bin, "..", modulePath), filepath.Join(bin, "..", "libexec", "ossicle", "monty"))
	}
	if data := getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		ps = append(ps, filepath.Join(data, "ossicle", "monty"))
	} else if home := getenv("HOME"); filepath.IsAbs(home) {
		ps = append(ps, filepath.Join(home, ".local", "share", "ossicle", "monty"))
	}
	dir := o.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	for {
		ps = append(ps, filepath.Join(dir, modulePath))
		up := filepath.Dir(dir)
		if up == dir {
			return ps, nil
		}
		dir = up
	}
}

// executable follows links, so that a link in a bin directory finds what lies
// beside its target.
func executable(o *FindOptions) (string, error) {
	exe := o.Executable
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return "", err
		}
	}
	return filepath.EvalSymlinks(exe)
}

func verify(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("find monty: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("find monty: read %s: %w", path, err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != SHA256 {
		return &BuildError{Path: path, SHA256: sum}
	}
	return nil
}
