package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/mailbox"
)

// Who begins a session removes those that nobody has used for long: not one that is
// open, however long ago it was opened, nor one that was used since, and nothing
// else in the directory.
func TestUnusedSessionsGo(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Home, c.Signals.Unused = t.TempDir(), 24*time.Hour
	all := NewCollaborations(c, "", mailbox.Limits{}, nil)
	id := func(n int) string { return fmt.Sprintf("20250101_000000_%08x", n) }
	long := time.Now().Add(-25 * time.Hour)
	grow := func(dir string) {
		t.Helper()
		err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			if err == nil {
				err = os.Chtimes(path, long, long)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(id string) *Collaboration {
		t.Helper()
		x, err := all.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	const unused, used, held = 1, 2, 3
	for _, n := range []int{unused, used, held} {
		x := open(id(n))
		if _, err := x.Enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if n != held {
			if err := x.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			defer func() { _ = x.Close(t.Context()) }()
		}
	}
	for _, n := range []int{unused, used, held} {
		grow(filepath.Join(all.dir, id(n)))
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(all.dir, id(used), sessionFile), now, now); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(all.dir, removedPrefix+id(9))
	other := filepath.Join(all.dir, "notes")
	for _, dir := range []string{half, other} {
		if err := os.MkdirAll(filepath.Join(dir, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		grow(dir)
	}
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	again := open(id(used))
	if !there(filepath.Join(all.dir, id(unused))) {
		t.Error("opening a session that exists removed another")
	}
	next := open(id(4))
	for path, want := range map[string]bool{
		filepath.Join(all.dir, id(unused)): false, filepath.Join(all.dir, id(used)): true, filepath.Join(all.dir, id(held)): true,
		filepath.Join(all.dir, id(4)): true, half: false, other: true,
	} {
		if there(path) != want {
			t.Errorf("%s is there: %v", filepath.Base(path), !want)
		}
	}
	for _, x := range []*Collaboration{again, next} {
		if err := x.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// What was removed can begin anew.
	x := open(id(unused))
	if agents, err := x.Agents(t.Context()); err != nil || len(agents) != 0 {
		t.Errorf("%v, %v", agents, err)
	}
	if err := x.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who came between the look and the removal keeps his session, also if he was killed,
// so that what he wrote is not in the database itself.
func TestSessionThatIsUsedAgainStays(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-25 * time.Hour)
	for _, name := range []string{sessionFile, sessionFile + "-wal"} {
		dir := filepath.Join(t.TempDir(), "20250101_000000_00000001")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, at := range map[string]time.Time{sessionFile: long, name: time.Now()} {
			path := filepath.Join(dir, file)
			err := os.WriteFile(path, nil, 0o600)
			if err == nil {
				err = os.Chtimes(path, at, at)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if gone, err := removeSession(dir, long.Add(time.Hour)); err != nil || gone {
			t.Errorf("%s is new: gone %v, %v", name, gone, err)
		}
	}
}

// A session goes no sooner than its signals, unless somebody has said so: who comes back
// after a hundred days finds what is kept for him that long.
func TestUnreadSignalsKeepTheirSession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		age, unused time.Duration
		stays       bool
	}{
		"as it is":              {0, 0, false},
		"signals kept longer":   {100 * 24 * time.Hour, 0, true},
		"signals kept for ever": {-1, 0, true},
		"somebody said so":      {100 * 24 * time.Hour, 24 * time.Hour, false},
	} {
		c := config.Default()
		c.Home, c.Signals.Unused, c.Signals.Retention.Age = t.TempDir(), tc.unused, tc.age
		all := NewCollaborations(c, "", mailbox.Limits{}, nil)
		const id = "20250101_000000_00000001"
		x, err := all.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var desks []*mailbox.Member
		for _, agent := range []string{"a", "b"} {
			d, err := x.Enter(t.Context(), agent)
			if err != nil {
				t.Fatal(err)
			}
			desks = append(desks, d)
		}
		if _, err := desks[0].Send(t.Context(), mailbox.Draft{To: "b", Type: mailbox.Inform, Content: "for when you are back"}); err != nil {
			t.Fatal(err)
		}
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(all.dir, id)
		long := time.Now().Add(-100 * 24 * time.Hour)
		err = filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			if err == nil {
				err = os.Chtimes(path, long, long)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		all.removeUnused(t.Context(), time.Now())
		if _, err := os.Stat(dir); (err == nil) != tc.stays {
			t.Errorf("%s: %v, want it to stay: %t", name, err, tc.stays)
		}
	}
}
