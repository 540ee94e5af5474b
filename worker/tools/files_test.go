package tools

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newFiles(t *testing.T) *Files {
	t.Helper()
	f, err := OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing outside of the workspace can be read, written, listed, moved to or
// deleted: by "..", by an absolute path, by a link to a file, a directory or
// nothing, or by a name that only begins like the workspace.
func TestFilesStayInside(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	inside, outside := filepath.Join(base, "ws"), filepath.Join(base, "ws2")
	must(t, os.MkdirAll(inside, 0o755))
	must(t, os.MkdirAll(outside, 0o755))
	secret := filepath.Join(outside, "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for name, target := range map[string]string{"file": secret, "dir": outside, "up": "../ws2/secret", "new": filepath.Join(outside, "new"), "loop": "loop"} {
		must(t, os.Symlink(target, filepath.Join(inside, name)))
	}
	f, err := OpenFiles(inside)
	must(t, err)
	defer f.Close()
	for _, p := range []string{"../ws2/secret", secret, "file", "dir/secret", "up", "a/../../ws2/secret", "new", "loop", "dir", "/etc/passwd", "x\x00y"} {
		if _, _, _, err := f.Read(p, 1, 0); err == nil {
			t.Errorf("read %q", p)
		}
		if err := f.Write(p, []byte("evil")); err == nil && p != "loop" {
			t.Errorf("wrote %q", p)
		}
		if _, err := f.Edit(p, "secret", "evil", true); err == nil {
			t.Errorf("edited %q", p)
		}
		if entries, _, err := f.List(p); err == nil {
			t.Errorf("listed %q: %v", p, entries)
		}
	}
	if found, _, err := f.Search("", "secret", ""); err != nil || len(found) != 0 {
		t.Errorf("searched %v, %v", found, err)
	}
	must(t, f.Write("mine", []byte("x")))
	for _, to := range []string{"../ws2/moved", filepath.Join(outside, "moved"), "dir/moved"} {
		if err := f.Move("mine", to); err == nil {
			t.Errorf("moved to %q", to)
		}
	}
	for _, p := range []string{"../ws2", outside, "dir/secret", "."} {
		if err := f.Delete(p, true); err == nil {
			t.Errorf("deleted %q", p)
		}
	}
	must(t, f.Delete("dir", true)) // the link, not what it points to
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("outside: %q, %v", b, err)
	}
	entries, err := os.ReadDir(outside)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("outside: %v", entries)
	}
}

// Writing is whole and keeps the mode; a link inside is written through.
func TestWrite(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	must(t, f.Write("a/b/c.sh", []byte("one")))
	must(t, os.Chmod(filepath.Join(f.dir, "a/b/c.sh"), 0o751))
	must(t, f.Write(filepath.Join(f.dir, "a/b/c.sh"), []byte("two")))
	info, err := os.Stat(filepath.Join(f.dir, "a/b/c.sh"))
	must(t, err)
	if info.Mode().Perm() != 0o751 {
		t.Errorf("mode %v", info.Mode())
	}
	must(t, os.Symlink("c.sh", filepath.Join(f.dir, "a/b/link")))
	must(t, f.Write("a/b/link", []byte("three")))
	if content, text, _, err := f.Read("a/b/c.sh", 1, 0); err != nil || content != "three" || !text {
		t.Errorf("%q %v", content, err)
	}
	if err := f.Write("a/b", []byte("x")); err == nil {
		t.Error("wrote over a directory")
	}
	if err := f.Write("big", make([]byte, MaxWrite+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Join(f.dir, "a/b"))
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	must(t, f.Write("t", []byte("one\ntwo\r\nthree")))
	for _, c := range []struct {
		offset, limit int
		want          string
	}{{1, 0, "one\ntwo\r\nthree"}, {2, 1, "two\r\n"}, {3, 9, "three"}, {9, 1, ""}, {0, 0, "one\ntwo\r\nthree"}, {-5, 1, "one\n"}} {
		if got, text, total, err := f.Read("t", c.offset, c.limit); err != nil || got != c.want || !text || total != 3 {
			t.Errorf("%+v: %q %t %d %v", c, got, text, total, err)
		}
	}
	for _, binary := range [][]byte{{0xff, 0xfe}, {'a', 0, 'b'}} {
		must(t, f.Write("b", binary))
		got, text, _, err := f.Read("b", 1, 0)
		back, _ := base64.StdEncoding.DecodeString(got)
		if err != nil || text || !bytes.Equal(back, binary) {
			t.Errorf("%q %t %v", got, text, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(f.dir, "big"), bytes.Repeat([]byte("x\n"), MaxRead), 0o600))
	if _, _, _, err := f.Read("big", 1, 0); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if got, _, _, err := f.Read("big", 5, 2); err != nil || got != "x\nx\n" {
		t.Errorf("a part of a large file: %q %v", got, err)
	}
	if _, _, _, err := f.Read("missing", 1, 0); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "missing") {
		t.Error(err)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	must(t, f.Write("e", []byte("a b a\r\n")))
	if _, err := f.Edit("e", "a", "c", false); !errors.Is(err, ErrManyFits) {
		t.Error(err)
	}
	if _, err := f.Edit("e", "x", "c", false); !errors.Is(err, ErrNoMatch) {
		t.Error(err)
	}
	if n, err := f.Edit("e", "b", "$1\\n", false); err != nil || n != 1 {
		t.Error(n, err)
	}
	if n, err := f.Edit("e", "a", "c", true); err != nil || n != 2 {
		t.Error(n, err)
	}
	if got, _, _, _ := f.Read("e", 1, 0); got != "c $1\\n c\r\n" {
		t.Errorf("%q", got)
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	must(t, f.Write("x/one.go", []byte("package x\n// find me\n")))
	must(t, f.Write("x/two.txt", []byte("find me\n")))
	must(t, f.Mkdir("y/z"))
	if err := f.Move("x/one.go", "x/two.txt"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("moved over a file: %v", err)
	}
	must(t, f.Move("x", "y/z/x"))
	found, more, err := f.Search("", "find", "*.go")
	if err != nil || more || len(found) != 1 || found[0] != (Match{"y/z/x/one.go", 2, "// find me"}) {
		t.Errorf("%v %t %v", found, more, err)
	}
	entries, _, err := f.List("y/z/x")
	if err != nil || len(entries) != 2 || entries[0].Path != "y/z/x/one.go" || entries[0].Kind != "file" {
		t.Errorf("%v %v", entries, err)
	}
	if err := f.Delete("y", false); err == nil {
		t.Error("deleted a directory with files")
	}
	must(t, f.Delete("y", true))
	if _, err := f.Stat("y"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Whatever a path is, the file that it names is inside.
func FuzzName(f *testing.F) {
	for _, p := range []string{"", ".", "..", "a/../..", "/", "/etc/passwd", "a//b", "a\x00", `\\host\x`, "…"} {
		f.Add(p)
	}
	files, err := OpenFiles(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = files.Close() })
	f.Fuzz(func(t *testing.T, p string) {
		name, err := files.name(p)
		if err != nil {
			return
		}
		at := filepath.Join(files.dir, name)
		if at != files.dir && !strings.HasPrefix(at, files.dir+"/") {
			t.Errorf("%q is %q", p, at)
		}
	})
}
