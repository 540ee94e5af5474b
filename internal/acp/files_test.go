package acp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

func openDir(t *testing.T) (*files, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := openFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f, dir
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	f, dir := openDir(t)
	path := filepath.Join(dir, "a.txt")
	if err := f.write(path, "one\ntwo\r\nthree"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from, limit *int64
		want        string
	}{
		{nil, nil, "one\ntwo\r\nthree"},
		{new(int64(2)), nil, "two\r\nthree"},
		{new(int64(0)), new(int64(1)), "one\n"},
		{new(int64(2)), new(int64(1)), "two\r\n"},
		{new(int64(3)), new(int64(100)), "three"},
		{new(int64(4)), nil, ""},
		{nil, new(int64(0)), ""},
		{new(int64(-5)), new(int64(-1)), ""},
	} {
		got, err := f.read(path, tc.from, tc.limit)
		if err != nil || got != tc.want {
			t.Errorf("%v %v: %q %v, want %q", tc.from, tc.limit, got, err, tc.want)
		}
	}
	if err := os.WriteFile(path, []byte("bad \xff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.read(path, nil, nil); err != nil || got != "bad \uFFFD\n" {
		t.Errorf("%q %v", got, err)
	}
	// A file over the limit is refused whole and given in parts.
	if err := os.WriteFile(path, []byte(strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(path, nil, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if got, err := f.read(path, new(int64(9)), new(int64(2))); err != nil || len(got) != 2<<20+2 {
		t.Errorf("%d bytes %v", len(got), err)
	}
}

// N-2: nothing outside of the working directory can be reached.
func TestConfinement(t *testing.T) {
	t.Parallel()
	f, dir := openDir(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"dir": outside, "file": secret, "up": "..", "fine": "sub/real", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.write(filepath.Join(dir, "sub", "real"), "fine"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.read(filepath.Join(dir, "fine"), nil, nil); err != nil || got != "fine" {
		t.Errorf("a link that stays inside: %q %v", got, err)
	}
	rel, err := filepath.Rel("/", secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		secret, "secret", "", dir + "/../" + filepath.Base(outside) + "/secret", filepath.Join(dir, "dir", "secret"),
		filepath.Join(dir, "file"), filepath.Join(dir, "up", filepath.Base(outside), "secret"), dir + "/" + strings.Repeat("../", 20) + rel,
		filepath.Join(dir, "loop"), filepath.Join(dir, "pipe"), dir, dir + "x/secret", "/proc/self/environ", dir + "/sub/real\x00",
	} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if got, err := f.read(path, nil, nil); err == nil {
				t.Errorf("read %q: %q", path, got)
			}
			if err := f.write(path, "changed"); err == nil {
				t.Errorf("wrote %q", path)
			}
		}()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("%q holds us", path)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("%q %v", b, err)
	}
	for _, path := range []string{outside, filepath.Join(dir, "dir"), filepath.Join(dir, "up"), filepath.Join(dir, "sub", "real"), filepath.Join(dir, "none")} {
		if got, err := f.directory(path); err == nil {
			t.Errorf("%s is the directory %s", path, got)
		}
	}
	for path, want := range map[string]string{"": dir, dir: dir, filepath.Join(dir, "sub"): filepath.Join(dir, "sub")} {
		if got, err := f.directory(path); err != nil || got != want {
			t.Errorf("%q: %q %v", path, got, err)
		}
	}
	if _, err := f.read(filepath.Join(dir, "missing"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A working directory that is itself a link has two names.
func TestLinkedDirectory(t *testing.T) {
	t.Parallel()
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	f, err := openFiles(link)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.write(filepath.Join(link, "a"), "1"); err != nil {
		t.Fatal(err)
	}
	if got, err := f.read(filepath.Join(real, "a"), nil, nil); err != nil || got != "1" {
		t.Errorf("%q %v", got, err)
	}
}

func run(t *testing.T, ts *terminals, q terminalNewParams) *terminal {
	t.Helper()
	id, err := ts.create(q, os.Environ(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	term, err := ts.get(id)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func TestTerminals(t *testing.T) {
	t.Parallel()
	ts := &terminals{}
	defer ts.close()

	shell := run(t, ts, terminalNewParams{Command: `echo "$GREETING"; echo more >&2; exit 7`, Env: []pair{{"GREETING", "hello"}}})
	if s, err := shell.wait(t.Context()); err != nil || s.ExitCode == nil || *s.ExitCode != 7 || s.Signal != nil {
		t.Errorf("got %+v %v", s, err)
	}
	if out := shell.output(); !strings.Contains(out.Output, "hello\n") || !strings.Contains(out.Output, "more\n") || out.Truncated || out.ExitStatus == nil {
		t.Errorf("got %+v", out)
	}
	plain := run(t, ts, terminalNewParams{Command: "echo", Args: []string{"$HOME", "; exit 1"}})
	if _, err := plain.wait(t.Context()); err != nil || plain.output().Output != "$HOME ; exit 1\n" {
		t.Errorf("got %+v %v", plain.output(), err)
	}
	for limit := int64(1000); limit < 1004; limit++ { // one of them cuts a character
		long := run(t, ts, terminalNewParams{Command: `i=0; while [ $i -lt 300 ]; do echo "äöü $i"; i=$((i+1)); done`, OutputByteLimit: &limit})
		_, _ = long.wait(t.Context())
		if out := long.output(); !out.Truncated || int64(len(out.Output)) > limit || len(out.Output) < 990 || !utf8.ValidString(out.Output) || !strings.HasSuffix(out.Output, "äöü 299\n") {
			t.Errorf("%d bytes, %q", len(out.Output), out.Output[:20])
		}
	}
	reader := run(t, ts, terminalNewParams{Command: "cat"}) // its input is empty
	if s, err := reader.wait(t.Context()); err != nil || *s.ExitCode != 0 {
		t.Errorf("got %+v %v", s, err)
	}
	sleeper := run(t, ts, terminalNewParams{Command: "sleep 600 & wait"})
	if out := sleeper.output(); out.ExitStatus != nil {
		t.Errorf("got %+v", out)
	}
	sleeper.kill()
	if s, err := sleeper.wait(t.Context()); err != nil || s.ExitCode != nil || s.Signal == nil || *s.Signal != "killed" {
		t.Errorf("got %+v %v", s, err)
	}
}

func TestTerminalBounds(t *testing.T) {
	t.Parallel()
	ts := &terminals{}
	var ids []string
	for range maxTerminals {
		id, err := ts.create(terminalNewParams{Command: "sleep 600"}, os.Environ(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := ts.create(terminalNewParams{Command: "true"}, nil, "/"); !errors.Is(err, ErrTooManyTerminals) {
		t.Errorf("got %v", err)
	}
	if err := ts.release(ids[0]); err != nil {
		t.Error(err)
	}
	if err := ts.release(ids[0]); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("got %v", err)
	}
	if _, err := ts.get(ids[0]); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("got %v", err)
	}
	last, err := ts.get(ids[1])
	if err != nil {
		t.Fatal(err)
	}
	ts.close()
	select {
	case <-last.done:
	default:
		t.Error("a command outlives its session")
	}
	if _, err := ts.create(terminalNewParams{Command: "true"}, nil, "/"); err == nil {
		t.Error("a closed session runs commands")
	}
}
