package atomicfile

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "for it")
	path := filepath.Join(dir, "x.json")
	for _, v := range []string{"first", "second"} {
		if err := WriteJSON(path, map[string]string{"v": v}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != `{"v":"`+v+`"}`+"\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	only(t, dir, "x.json")
}

// What cannot be written leaves the file as it was, and nothing beside it.
func TestWriteJSONFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{"fine", func() {}} {
		if err := WriteJSON(path, v); err == nil {
			t.Errorf("%T: written over a directory", v)
		}
	}
	only(t, dir, "x.json")
}

func only(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%v, %v", entries, err)
	}
}
