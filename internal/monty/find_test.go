package monty_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/monty"
)

// nowhere are options that find nothing, in a directory of their own.
func nowhere(t *testing.T) (dir string, o monty.FindOptions) {
	t.Helper()
	dir = t.TempDir()
	exe := put(t, filepath.Join(dir, "opt", "bin", "ossicle"))
	return dir, monty.FindOptions{
		Getenv: func(string) string { return "" }, Executable: exe, Dir: filepath.Join(dir, "work", "deep"), AnyBuild: true,
	}
}

func put(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("not the interpreter"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindLooksInOrder(t *testing.T) {
	t.Parallel()
	dir, o := nowhere(t)
	npm := filepath.Join("node_modules", "@pydantic", "monty-linux-x64-gnu", "monty")
	env := map[string]string{"HOME": filepath.Join(dir, "home")}
	o.Getenv = func(k string) string { return env[k] }
	// From the last place to the first: each new file is preferred.
	for _, place := range []string{
		filepath.Join(dir, npm),
		filepath.Join(dir, "work", npm),
		filepath.Join(dir, "home", ".local", "share", "ossicle", "monty"),
		filepath.Join(dir, "opt", "libexec", "ossicle", "monty"),
		filepath.Join(dir, "opt", npm),
		filepath.Join(dir, "opt", "bin", "monty"),
	} {
		put(t, place)
		if got, err := monty.Find(&o); err != nil || got != place {
			t.Errorf("find: %s, %v; want %s", got, err, place)
		}
	}
	env["XDG_DATA_HOME"] = filepath.Join(dir, "data")
	env[monty.EnvPath] = put(t, filepath.Join(dir, "from-env"))
	if got, err := monty.Find(&o); err != nil || got != env[monty.EnvPath] {
		t.Errorf("find by environment: %s, %v", got, err)
	}
	o.Path = put(t, filepath.Join(dir, "explicit"))
	if got, err := monty.Find(&o); err != nil || got != o.Path {
		t.Errorf("find explicitly: %s, %v", got, err)
	}
	o.Path = filepath.Join(dir, "absent")
	if _, err := monty.Find(&o); err == nil {
		t.Error("an explicit path that is absent fell back to others")
	}
}

func TestFindThroughLink(t *testing.T) {
	t.Parallel()
	dir, o := nowhere(t)
	want := put(t, filepath.Join(dir, "opt", "libexec", "ossicle", "monty"))
	link := filepath.Join(t.TempDir(), "ossicle")
	if err := os.Symlink(o.Executable, link); err != nil {
		t.Fatal(err)
	}
	o.Executable = link
	if got, err := monty.Find(&o); err != nil || got != want {
		t.Errorf("find through a link: %s, %v; want %s", got, err, want)
	}
}

func TestFindRefusesOtherBuilds(t *testing.T) {
	t.Parallel()
	dir, o := nowhere(t)
	o.AnyBuild = false
	o.Path = put(t, filepath.Join(dir, "monty"))
	_, err := monty.Find(&o)
	be, ok := errors.AsType[*monty.BuildError](err)
	if !ok || be.Path != o.Path || !strings.Contains(err.Error(), "npm install") || !strings.Contains(err.Error(), monty.Version) {
		t.Errorf("find of another build: %v", err)
	}
}

func TestFindNothing(t *testing.T) {
	t.Parallel()
	_, o := nowhere(t)
	_, err := monty.Find(&o)
	nf, ok := errors.AsType[*monty.NotFoundError](err)
	if !ok || len(nf.Looked) < 4 || !strings.Contains(err.Error(), "npm install") || !strings.Contains(err.Error(), monty.EnvPath) {
		t.Errorf("find: %v", err)
	}
	if text := err.Error(); len(text) > 1000 || strings.Count(text, "node_modules") != 2 || !strings.Contains(text, o.Dir) {
		t.Errorf("not of the two places of npm, of one with all above it: %s", text)
	}
	if _, err := monty.New("", nil); err == nil {
		t.Error("engine without an interpreter")
	}
}

func TestFindPinned(t *testing.T) {
	t.Parallel()
	if path := binary(t); !filepath.IsAbs(path) {
		t.Errorf("path %s is not absolute", path)
	}
}
