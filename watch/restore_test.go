package watch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
)

// stateful is a manager with a state file, over one server.
func stateful(t *testing.T, path string, change func(*watch.Options), test func(t *testing.T, h *harness)) {
	t.Helper()
	bubble(t, func(o *watch.Options) {
		o.StatePath = path
		if change != nil {
			change(o)
		}
	}, test)
}

type saved struct {
	Version int                  `json:"version"`
	Watches []watch.StartRequest `json:"watches"`
}

func readState(t *testing.T, path string) saved {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s saved
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return s
}

func writeState(t *testing.T, path string, watches ...watch.StartRequest) {
	t.Helper()
	raw, err := json.Marshal(saved{1, watches})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// W-130, W-131, W-132, W-136, W-251, W-281: the round trip. Specifications are
// written on every start and stop and restarted from a fresh baseline.
func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watches.json")
	source := "x = 1\nf'{event[\"type\"]}'"
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		h.engine.Register(source, text(func(map[string]any) string { return "line" }))
		if got := h.Restore(t.Context()); len(got.Running)+len(got.Kept)+len(got.Dropped) != 0 || got.Problem != "" {
			t.Errorf("restored from nothing: %+v", got)
		}
		h.quiet(t) // nothing to tell
		h.start(t, "a", notes, "")
		want := saved{1, []watch.StartRequest{{Name: "a", URI: notes}}}
		if diff := cmp.Diff(want, readState(t, path)); diff != "" {
			t.Error(diff)
		}
		h.start(t, "b", notes, source)
		h.start(t, "c", notes, "")
		h.Stop("a")
		want.Watches = []watch.StartRequest{{Name: "b", URI: notes, OnEvent: source}, {Name: "c", URI: notes}}
		if diff := cmp.Diff(want, readState(t, path)); diff != "" {
			t.Error(diff)
		}
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the state file: %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(path + ".tmp-*"); len(left) != 0 {
		t.Errorf("temporary files: %v", left)
	}
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		h.engine.Register(source, text(func(map[string]any) string { return "line" }))
		h.server.Put(notes, "application/json", `{"todo":"changed while it was down"}`)
		got := h.Restore(t.Context())
		if diff := cmp.Diff(watch.Restored{Running: []string{"b", "c"}}, got); diff != "" {
			t.Error(diff)
		}
		n := h.sink.Next(t)
		if n.Kind != watch.KindRestored {
			t.Errorf("notice: %+v", n)
		}
		if diff := cmp.Diff([]string{
			"restored 2 of 2 saved watches; changes made while they were not running may have been missed",
			"restored b memo://notes", "restored c memo://notes",
		}, n.Lines); diff != "" {
			t.Error(diff)
		}
		h.quiet(t) // exactly one notice, and the baseline is fresh
		h.server.Change(notes, `{"todo":"later"}`)
		if first, second := h.sink.Next(t), h.sink.Next(t); first.Watch == second.Watch {
			t.Errorf("notices of %s and %s", first.Watch, second.Watch)
		}
		if again := h.Restore(t.Context()); len(again.Running) != 0 {
			t.Errorf("restored twice: %+v", again)
		}
		h.quiet(t)
	})
}

// W-135: without a path nothing is written.
func TestNoStateWithoutAPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "a", notes, "")
		h.Restore(t.Context())
		h.Stop("a")
		h.quiet(t)
	})
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files: %v", left)
	}
}

// W-133, W-264: what can never start is reported and removed from the file.
func TestRestoreDrops(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watches.json")
	writeState(t, path,
		watch.StartRequest{Name: "good", URI: notes},
		watch.StartRequest{Name: "repr", URI: notes, OnEvent: "<function fmt at 0x7f00>"},
		watch.StartRequest{Name: "syntax", URI: notes, OnEvent: "def"},
		watch.StartRequest{Name: "", URI: notes},
		watch.StartRequest{Name: "template", URI: "memo://{x}"},
		watch.StartRequest{Name: "second", URI: notes},
		watch.StartRequest{Name: "third", URI: notes},
	)
	stateful(t, path, func(o *watch.Options) { o.Limits.Watches = 2 }, func(t *testing.T, h *harness) {
		got := h.Restore(t.Context())
		if diff := cmp.Diff(watch.Restored{Running: []string{"good", "second"}, Dropped: []string{"repr", "syntax", "", "template", "third"}}, got); diff != "" {
			t.Error(diff)
		}
		n := h.sink.Next(t)
		for i, want := range []string{"restored 2 of 7", "restored good", "dropped repr", "dropped syntax", "dropped", "dropped template", "restored second", "dropped third"} {
			if !strings.HasPrefix(n.Lines[i], want) {
				t.Errorf("line %d is %q, want %s", i, n.Lines[i], want)
			}
		}
		if !strings.Contains(n.Lines[2], "source text") || !strings.Contains(n.Lines[3], "SyntaxError") || !strings.Contains(n.Lines[7], "limit of 2") {
			t.Errorf("lines: %v", n.Lines)
		}
		if diff := cmp.Diff([]watch.StartRequest{{Name: "good", URI: notes}, {Name: "second", URI: notes}}, readState(t, path).Watches); diff != "" {
			t.Error(diff)
		}
		if len(h.List()) != 2 {
			t.Errorf("list: %v", h.List())
		}
	})
}

// W-134: a failure that may pass keeps the specification in the file and in the
// list, until it is started again or stopped.
func TestRestoreKeeps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watches.json")
	all := []watch.StartRequest{{Name: "a", URI: notes}, {Name: "b", URI: notes}, {Name: "c", URI: notes, OnEvent: "p"}}
	writeState(t, path, all...)
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		h.engine.Register("p", fails(&python.LimitError{Limit: "time", Text: "more than 2s"}))
		h.server.Refuse("subscribe", errors.New("connection refused"))
		got := h.Restore(t.Context())
		if diff := cmp.Diff(watch.Restored{Kept: []string{"a", "b", "c"}}, got); diff != "" {
			t.Error(diff)
		}
		n := h.sink.Next(t)
		if !strings.HasPrefix(n.Lines[0], "restored 0 of 3") || !strings.HasPrefix(n.Lines[1], "not restored a memo://notes") || !strings.Contains(n.Lines[1], "connection refused") {
			t.Errorf("lines: %v", n.Lines)
		}
		if diff := cmp.Diff(all, readState(t, path).Watches); diff != "" {
			t.Error(diff)
		}
		for _, s := range h.List() {
			if !s.RestoreFailed || s.Failed || s.Error == "" {
				t.Errorf("status: %+v", s)
			}
		}
		h.server.Refuse("subscribe", nil)
		h.start(t, "a", notes, "")
		if !h.Stop("b") { // W-065
			t.Error("a watch that could not be restored cannot be stopped")
		}
		if diff := cmp.Diff([]watch.Status{{Name: "c", URI: notes, RestoreFailed: true, Error: h.List()[0].Error}, {Name: "a", URI: notes, Shape: watch.ShapeState}}, h.List()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]watch.StartRequest{all[2], all[0]}, readState(t, path).Watches); diff != "" {
			t.Error(diff)
		}
	})
}

// WA-10: a watch that fails while it runs stays in the file.
func TestFailedStaysSaved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watches.json")
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		h.server.Add("memo://other", "text/plain", "x")
		h.start(t, "a", notes, "")
		h.server.Fail(notes, errors.New("gone"))
		h.sink.Next(t)
		h.start(t, "b", "memo://other", "")
		if diff := cmp.Diff([]watch.StartRequest{{Name: "a", URI: notes}, {Name: "b", URI: "memo://other"}}, readState(t, path).Watches); diff != "" {
			t.Error(diff)
		}
	})
}

// W-137: a file that cannot be understood is set aside, not overwritten, and the
// notice says so.
func TestUnreadableStateIsSetAside(t *testing.T) {
	t.Parallel()
	for _, content := range []string{`{"version":1,"watches":[{"na`, ``, `[]`, `{"version":2,"watches":[]}`, `{"version":1,"watches":7}`, "\x00\x01"} {
		path := filepath.Join(t.TempDir(), "watches.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		stateful(t, path, nil, func(t *testing.T, h *harness) {
			got := h.Restore(t.Context())
			n := h.sink.Next(t)
			if got.Problem == "" || n.Kind != watch.KindRestored || !strings.Contains(n.Text(), "set aside as") {
				t.Errorf("%q: %+v, notice %v", content, got, n.Lines)
			}
			h.start(t, "a", notes, "")
			if len(readState(t, path).Watches) != 1 {
				t.Errorf("%q: the new state was not written", content)
			}
			h.quiet(t)
		})
		aside, _ := filepath.Glob(path + ".unreadable-*")
		if len(aside) != 1 {
			t.Fatalf("%q: set aside: %v", content, aside)
		}
		if kept, _ := os.ReadFile(aside[0]); string(kept) != content {
			t.Errorf("%q became %q", content, kept)
		}
	}
}

// What is no regular file (a directory, because somebody slipped) is neither
// moved nor written over, and the notice says that nothing is saved.
func TestStatePathIsNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "home")
	kept := filepath.Join(path, "precious")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		got := h.Restore(t.Context())
		n := h.sink.Next(t)
		if n.Kind != watch.KindRestored || !strings.Contains(n.Text(), "watches are not saved") {
			t.Errorf("%+v, notice %v", got, n.Lines)
		}
		h.start(t, "a", notes, "")
		h.quiet(t)
	})
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if around, _ := filepath.Glob(path + "*"); len(around) != 1 {
		t.Errorf("beside it: %v", around)
	}
}

// A start before Restore does not cost the saved specifications.
func TestStartBeforeRestore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watches.json")
	writeState(t, path, watch.StartRequest{Name: "old", URI: notes})
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		h.start(t, "new", notes, "")
		if diff := cmp.Diff([]watch.StartRequest{{Name: "old", URI: notes}, {Name: "new", URI: notes}}, readState(t, path).Watches); diff != "" {
			t.Error(diff)
		}
		if got := h.Restore(t.Context()); len(got.Running) != 1 {
			t.Errorf("restored: %+v", got)
		}
		h.sink.Next(t)
	})
}

// A directory that cannot be written costs the saving, not the watch.
func TestStateCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent", "watches.json")
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		h.start(t, "a", notes, "")
		if len(h.log.with("WARN watch.state_unwritten")) != 1 {
			t.Error("nothing was logged")
		}
	})
}

// W-170 to W-177, W-179, WA-25, N-20: each log event once per case, by its exact name and level.
func TestLogEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watches.json")
	writeState(t, path, watch.StartRequest{Name: "r", URI: notes}, watch.StartRequest{Name: "lost", URI: "memo://absent"})
	stateful(t, path, nil, func(t *testing.T, h *harness) {
		count := func(want int, parts ...string) {
			t.Helper()
			synctest.Wait()
			if got := h.log.with(parts...); len(got) != want {
				t.Errorf("%v: %d, want %d: %v", parts, len(got), want, got)
			}
		}
		h.Restore(t.Context())
		count(1, "DEBUG watch.restored count=1 of=2")
		count(1, "DEBUG watch.started watch=r uri=memo://notes server=memo")
		count(2, "DEBUG watch.subscribed") // the one, and the one whose baseline failed
		count(1, "INFO watch.notice watch= uri= lines=3")
		h.start(t, "n", notes, "")
		count(1, "DEBUG watch.started watch=n")
		count(2, "DEBUG watch.subscribed") // the listen is shared
		h.server.Change(notes, `{"todo":"b"}`)
		time.Sleep(5 * time.Second)
		count(1, "DEBUG watch.event watch=n uri=memo://notes event=MODIFIED kept=true")
		count(1, "INFO watch.notice watch=n uri=memo://notes lines=1")
		h.server.Interrupt(notes, errors.New("stream ended"), 2, 2*time.Second)
		count(1, "DEBUG watch.resubscribing uri=memo://notes server=memo attempt=2 delay=2s error=stream ended")
		h.server.Restore(notes)
		count(3, "DEBUG watch.subscribed")
		h.Stop("r")
		count(1, "DEBUG watch.stopped watch=r uri=memo://notes")
		h.server.Fail(notes, fmt.Errorf("gave up"))
		count(1, "WARN watch.failed watch=n uri=memo://notes server=memo error=gave up")
		count(0, "watch.stopped watch=n")
		h.Stop("n")
		count(1, "DEBUG watch.stopped watch=n")
	})
}

// Nothing of the events appears in the log: payloads may be secrets.
func TestLogHasNoPayload(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.start(t, "n", notes, "")
		h.server.Change(notes, `{"todo":"s3cret"}`)
		h.lines(t, "n")
		if got := h.log.with("s3cret"); len(got) != 0 {
			t.Errorf("log: %v", got)
		}
	})
}
