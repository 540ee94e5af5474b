package files

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

func read(t *testing.T, s *Source, uri string) listen.Contents {
	t.Helper()
	c, err := s.Read(t.Context(), uri, listen.ReadOptions{})
	if err != nil {
		t.Fatalf("Read(%s): %v", uri, err)
	}
	if len(c) != 1 || c[0].URI != uri {
		t.Fatalf("Read(%s) = %+v", uri, c)
	}
	return c[0]
}

// names are the names of a list, and check that each entry is well formed.
func names(t *testing.T, s *Source, uri string) []string {
	t.Helper()
	c := read(t, s, uri)
	var list []entry
	if err := json.Unmarshal([]byte(c.Text), &list); err != nil || c.MIMEType != listMIME {
		t.Fatalf("Read(%s) = %s %q: %v", uri, c.MIMEType, c.Text, err)
	}
	got := []string{}
	for _, e := range list {
		if (e.Type == "file") != (e.Size != nil && e.MTime != "") || e.Mode == "" {
			t.Errorf("entry %+v is not well formed", e)
		}
		got = append(got, e.Type+" "+e.Name)
	}
	return got
}

func TestFilesAreTextOrBlob(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/")
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	base := "file://" + top + "/r/"
	for name, tc := range map[string]struct {
		data, mime string
		blob       bool
	}{
		"a.md":   {"# é", "text/markdown", false},
		"b.JSON": {`{"n":1915883588174806058}`, "application/json", false},
		"c":      {"plain", "text/plain", false},
		"empty":  {"", "text/plain", false},
		"d.png":  {"\x89PNG\x00", "image/png", true},
		"e.txt":  {"bad \xff", "application/octet-stream", true},
		"f":      {"nul \x00", "application/octet-stream", true},
	} {
		write(t, filepath.Join(top, "r", name), tc.data)
		want := listen.Contents{URI: base + name, MIMEType: tc.mime, Text: tc.data}
		if tc.blob {
			want.Text, want.Blob = "", []byte(tc.data)
		}
		if diff := cmp.Diff(want, read(t, s, base+name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestListsOfDirectoriesAndGlobs(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/b.md", "r/a.txt", "r/sub/c.md", "r/sub/deeper/d.md", "r/.hidden")
	if err := os.Symlink("b.md", filepath.Join(top, "r", "link.md")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub", filepath.Join(top, "r", "linkdir")); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, nil, Root{Path: filepath.Join(top, "r")})
	for uri, want := range map[string][]string{
		"file://" + top + "/r/":     {"file .hidden", "file a.txt", "file b.md", "symlink link.md", "symlink linkdir", "dir sub"},
		"file://" + top + "/r/sub/": {"file c.md", "dir deeper"},
		"files://r/**/*.md":         {"file b.md", "symlink link.md", "file sub/c.md", "file sub/deeper/d.md"},
		"files://r/*.{md,txt}":      {"file a.txt", "file b.md", "symlink link.md"},
		"files://r/sub/*":           {"file sub/c.md", "dir sub/deeper"},
		"files://r/nothing/**":      {},
	} {
		if diff := cmp.Diff(want, names(t, s, uri)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", uri, diff)
		}
	}
}

func TestReadsStayInsideTheRoot(t *testing.T) {
	t.Parallel()
	top := tree(t, "secret/s.txt", "r/ok.txt")
	r := filepath.Join(top, "r")
	for link, to := range map[string]string{
		"rel": "../secret/s.txt", "abs": filepath.Join(top, "secret", "s.txt"), "dir": "../secret", "fine": "ok.txt",
	} {
		if err := os.Symlink(to, filepath.Join(r, link)); err != nil {
			t.Fatal(err)
		}
	}
	s := newSource(t, nil, Root{Path: r})
	base := "file://" + r + "/"
	for _, uri := range []string{base + "rel", base + "abs", base + "dir/s.txt", base + "dir/"} {
		c, err := s.Read(t.Context(), uri, listen.ReadOptions{})
		var missing *listen.NotFoundError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("Read(%s) = %v, %v; want a refusal", uri, c, err)
		}
	}
	if got := read(t, s, base+"fine").Text; got != "text of r/ok.txt" {
		t.Errorf("a link inside the root reads %q", got)
	}
	if diff := cmp.Diff([]string{"file ok.txt", "symlink abs", "symlink dir", "symlink fine", "symlink rel"}, sortedNames(t, s, "files://r/**")); diff != "" {
		t.Errorf("glob (-want +got):\n%s", diff)
	}
}

func sortedNames(t *testing.T, s *Source, uri string) []string {
	t.Helper()
	got := names(t, s, uri)
	// By type first, which reads better here.
	sorted := append([]string(nil), got...)
	for i := range sorted {
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return sorted
}

func TestMistakesAreAnsweredWithWhatToDo(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/README.md", "r/sub/x")
	r := filepath.Join(top, "r")
	if err := syscall.Mkfifo(filepath.Join(r, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, nil, Root{Path: r})
	base := "file://" + r + "/"
	for uri, want := range map[string]string{
		base + "readme.txt":   "did you mean: " + base + "README.md",
		base + "README.md/":   "leave out the slash",
		base + "README.md/x":  "",
		base + "sub":          "its entries are at " + base + "sub/",
		base + "no/where.txt": "directory does not exist",
		base + "pipe":         "not a regular file", // and does not wait for a writer
	} {
		_, err := s.Read(t.Context(), uri, listen.ReadOptions{})
		var missing *listen.NotFoundError
		if !errors.As(err, &missing) || !strings.Contains(missing.Hint, want) {
			t.Errorf("Read(%s) = %v, want %q", uri, err, want)
		}
	}
}

func TestReadLimits(t *testing.T) {
	t.Parallel()
	top := tree(t, "r/a", "r/b", "r/c")
	s := newSource(t, &Options{MaxFile: 4, MaxEntries: 2}, Root{Path: filepath.Join(top, "r")})
	base := "file://" + top + "/r/"
	write(t, filepath.Join(top, "r", "a"), "1234")
	read(t, s, base+"a")
	write(t, filepath.Join(top, "r", "a"), "12345")
	for _, uri := range []string{base + "a", base, "files://r/*"} {
		if _, err := s.Read(t.Context(), uri, listen.ReadOptions{}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Read(%s) = %v, want ErrTooLarge", uri, err)
		}
	}
	// Nothing is advised that a user of the program has no flag for.
	if _, err := s.Read(t.Context(), base+"a", listen.ReadOptions{}); err == nil || !strings.HasSuffix(err.Error(), "5 bytes, the limit is 4; watch the list of its directory instead") {
		t.Errorf("a file that is too large: %v", err)
	}
	if diff := cmp.Diff([]string{"file a", "file b"}, names(t, s, "files://r/{a,b}")); diff != "" {
		t.Errorf("two entries (-want +got):\n%s", diff)
	}
}
