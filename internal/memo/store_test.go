package memo

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

func newStore(t *testing.T, opts *Options) *Store {
	t.Helper()
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func set(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if err := s.Set(key, json.RawMessage(value)); err != nil {
		t.Fatalf("Set(%q, %s): %v", key, value, err)
	}
}

// W-230.
func TestNotesAreOneObjectInOrderOfArrival(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for _, n := range [][2]string{
		{"z", `1915883588174806058`}, {"a", `{"b": 1.10, "a": [1e400 , "é"]}`}, {"m", `"x"`}, {"z", `-0.0`},
	} {
		set(t, s, n[0], n[1])
	}
	want := `{"z":-0.0,"a":{"b":1.10,"a":[1e400,"é"]},"m":"x"}`
	if diff := cmp.Diff(want, string(s.JSON())); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	if found, err := s.Delete("a"); !found || err != nil {
		t.Errorf("Delete = %v, %v", found, err)
	}
	if found, err := s.Delete("a"); found || err != nil {
		t.Errorf("second Delete = %v, %v", found, err)
	}
	if diff := cmp.Diff(`{"z":-0.0,"m":"x"}`, string(s.JSON())); diff != "" {
		t.Errorf("after Delete (-want +got):\n%s", diff)
	}
}

// B-051: numbers stay literal.
func TestNumbersStayExact(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for _, n := range []string{"1915883588174806058", "50000000014435121", "0.1000", "1E+2", "123456789012345678901234567890"} {
		set(t, s, "id", n)
		if got, _ := s.Get("id"); string(got) != n {
			t.Errorf("Get = %s, want %s", got, n)
		}
	}
}

func TestSetRefusesWhatIsNotANote(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for _, n := range [][2]string{
		{"", `1`}, {"\xff", `1`}, {"k", ``}, {"k", `nope`}, {"k", `1 2`}, {"k", `{"a":1,"a":2}`}, {"k", "\"\xff\""}, {"k", `{"a":1`},
	} {
		if err := s.Set(n[0], json.RawMessage(n[1])); !errors.Is(err, ErrInvalid) {
			t.Errorf("Set(%q, %s) = %v, want ErrInvalid", n[0], n[1], err)
		}
	}
	if got := string(s.JSON()); got != "{}" {
		t.Errorf("JSON = %s after refused values", got)
	}
}

func TestLimitsHoldAtTheBoundary(t *testing.T) {
	t.Parallel()
	s := newStore(t, &Options{MaxKeys: 2, MaxKey: 3, MaxValue: 5, MaxBytes: 12})
	set(t, s, "abc", `12345`) // 8 bytes
	set(t, s, "d", `"x"`)     // 12 bytes in all
	wantLimit := func(what string, err error) {
		t.Helper()
		var limit *LimitError
		if !errors.As(err, &limit) || limit.What != what {
			t.Errorf("error = %v, want the limit of %s", err, what)
		} else if limit.Hint == "" {
			t.Errorf("error %q says nothing to do", err)
		}
	}
	wantLimit("key", s.Set("abcd", json.RawMessage(`1`)))
	wantLimit("value", s.Set("abc", json.RawMessage(`123456`)))
	wantLimit("keys", s.Set("e", json.RawMessage(`1`)))
	wantLimit("bytes", s.Set("d", json.RawMessage(`"xy"`)))
	set(t, s, "d", `1`) // a smaller value goes in
	set(t, s, "d", `"x"`)
}

// W-231.
func TestEveryChangeIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	n := 0
	stop, err := s.Watch(t.Context(), URI, func() { n++ })
	if err != nil {
		t.Fatal(err)
	}
	set(t, s, "a", `1`)
	set(t, s, "a", ` 1 `) // the same value: no change
	set(t, s, "a", `2`)
	_, _ = s.Delete("nothing")
	_, _ = s.Delete("a")
	if n != 3 {
		t.Errorf("%d announcements, want 3", n)
	}
	stop()
	stop()
	set(t, s, "a", `1`)
	if n != 3 {
		t.Errorf("%d announcements after stop, want 3", n)
	}
}

func TestSourceNamesItsOneResource(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	l, err := s.List(t.Context())
	if err != nil || len(l.Resources) != 1 || len(l.Templates) != 0 {
		t.Fatalf("List = %+v, %v", l, err)
	}
	// W-012
	if want := `Example: await watch_start(name="notes", uri="memo://notes")`; !strings.HasSuffix(l.Resources[0].Description, want) {
		t.Errorf("description %q does not end in %q", l.Resources[0].Description, want)
	}
	c, err := s.Read(t.Context(), URI, listen.ReadOptions{})
	want := []listen.Contents{{URI: URI, MIMEType: "application/json", Text: "{}"}}
	if diff := cmp.Diff(want, c); err != nil || diff != "" {
		t.Errorf("Read = %v (-want +got):\n%s", err, diff)
	}
	var missing *listen.NotFoundError
	if _, err := s.Read(t.Context(), "memo://note", listen.ReadOptions{}); !errors.As(err, &missing) {
		t.Errorf("Read of a typo = %v", err)
	}
	if _, err := s.Watch(t.Context(), "memo://note", func() {}); !errors.As(err, &missing) || !strings.Contains(err.Error(), URI) {
		t.Errorf("Watch of a typo = %v", err)
	}
	if s.Owns("file:///notes") || !s.Owns("memo://note") {
		t.Error("Owns is wrong")
	}
}

func TestConcurrentWritersAndObservers(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			for j := range 50 {
				stop, _ := s.Watch(t.Context(), URI, func() {})
				_ = s.Set(key, json.RawMessage(fmt.Sprint(j)))
				stop()
			}
		})
	}
	wg.Wait()
	if n := len(s.Keys()); n != 8 {
		t.Errorf("%d keys, want 8", n)
	}
}

func TestFileKeepsNotes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.json")
	s := newStore(t, &Options{Path: path})
	set(t, s, "z", `1915883588174806058`)
	set(t, s, "a", `{"b":[]}`)
	again := newStore(t, &Options{Path: path})
	if diff := cmp.Diff(string(s.JSON()), string(again.JSON())); diff != "" {
		t.Errorf("reloaded (-want +got):\n%s", diff)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files = %v, %v; want only the notes", left, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600", info.Mode(), err)
	}
}

func TestUnwritableFileRefusesTheChange(t *testing.T) {
	t.Parallel()
	s := newStore(t, &Options{Path: filepath.Join(t.TempDir(), "missing", "notes.json")})
	if err := s.Set("a", json.RawMessage(`1`)); err == nil {
		t.Error("Set succeeded though it could not be kept")
	}
	if got := string(s.JSON()); got != "{}" {
		t.Errorf("JSON = %s, want {}", got)
	}
}

func TestBrokenFileIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[]`, `{"a":1`, `{"a":1,"a":2}`, `{} x`, `{"":1}`, ``} {
		path := filepath.Join(t.TempDir(), "notes.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(&Options{Path: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("New with %q = %v, want an error that names the file", text, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("file %q became %q", text, got)
		}
	}
}

func TestSimilar(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for _, k := range []string{"todo", "owner", "status"} {
		set(t, s, k, `1`)
	}
	for key, want := range map[string][]string{"todos": {"todo"}, "OWNER": {"owner"}, "stat": {"status"}, "zzzzzz": nil} {
		if diff := cmp.Diff(want, s.Similar(key)); diff != "" {
			t.Errorf("Similar(%q) (-want +got):\n%s", key, diff)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1,"b":[1.0,"é"]}`, `{"a":1,"a":2}`, `{"a":{}}x`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newStore(t, nil)
		if err := s.decode(data); err != nil {
			return
		}
		first := s.JSON()
		if !jsontext.Value(first).IsValid() {
			t.Fatalf("%q became %q, which is not JSON", data, first)
		}
		if err := s.decode(first); err != nil || string(s.JSON()) != string(first) {
			t.Fatalf("%q is not stable: %q, %v", first, s.JSON(), err)
		}
	})
}
