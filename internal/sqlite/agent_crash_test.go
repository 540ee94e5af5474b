package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
)

// writerEnv holds "name:batches:step": TestSessionWriter then is a process that
// appends so many batches to one transcript, and dies at that step.
const writerEnv = "SQLITE_TEST_WRITER"

const (
	batchSize   = 3
	writerKeep  = 8 // entries, in the test that kills
	writtenFile = "written"
)

// TestSessionWriter is no test but a process that others start.
func TestSessionWriter(t *testing.T) {
	args := strings.Split(os.Getenv(writerEnv), ":")
	if len(args) != 3 {
		t.Skip("it is a process that other tests start")
	}
	batches, err := strconv.Atoi(args[1])
	if err != nil {
		t.Fatal(err)
	}
	last, err := strconv.Atoi(args[2])
	if err != nil {
		t.Fatal(err)
	}
	o := &SessionOptions{}
	if last > 0 {
		o.Entries = writerKeep
	}
	db, err := Open(t.Context(), "x.db", &Options{BusyTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	steps := 0
	step := func() {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	db.stepped = step
	written, err := os.OpenFile(writtenFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = written.Close() }()
	s := db.Sessions(o)
	for i := range batches {
		batch := make([]agent.Entry, batchSize)
		for j := range batch {
			batch[j] = text(fmt.Sprintf("%s.%d.%d", args[0], i, j))
		}
		if err := s.Save(t.Context(), agent.Meta{ID: "s", CreatedAt: time.Unix(1, 0)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), "s", batch...); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(written, args[0], i); err != nil {
			t.Fatal(err)
		}
		step()
	}
}

// writer runs one such process, and reports whether it was killed.
func writer(t *testing.T, dir, name string, batches, step int) (died bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return false
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSessionWriter$", "-test.timeout=5m")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d:%d", writerEnv, name, batches, step))
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Errorf("writer %s, step %d: %v\n%s", name, step, err, out.String())
	}
	return false
}

// written returns how many batches were reported as appended.
func written(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, writtenFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// Killed at any instruction, a transcript has whole batches, all of those that
// were reported, and goes on without a hole.
func TestWriterKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	const batches = 3 // the third makes the first entry go
	for step := 1; ; step++ {
		dir := t.TempDir()
		died := writer(t, dir, "first", batches, step)
		before := checkTranscript(t, dir, step)
		another(t, dir)
		if after := checkTranscript(t, dir, step); after != before+1 {
			t.Errorf("step %d: %d batches, then %d", step, before, after)
		}
		if t.Failed() {
			return
		}
		if !died {
			if step < 30 {
				t.Errorf("killed at %d steps only: the walk is not what it should be", step-1)
			}
			t.Logf("killed at %d steps", step-1)
			return
		}
	}
}

// another appends one more batch, in this process.
func another(t *testing.T, dir string) {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(dir, "x.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.Sessions(&SessionOptions{Entries: writerKeep}).mustAppend(t, "s", text("second.0.0"), text("second.0.1"), text("second.0.2"))
}

// checkTranscript returns how many batches a transcript has had.
func checkTranscript(t *testing.T, dir string, step int) int {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(dir, "x.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	checkSums(t, db)
	all := db.Sessions(nil).mustList(t, "s", agent.Query{})
	if len(all) == 0 {
		if n := written(t, dir); n > 0 {
			t.Errorf("step %d: %d batches are lost", step, n)
		}
		return 0
	}
	last := all[len(all)-1].Seq
	if want := min(last, writerKeep); int64(len(all)) != want {
		t.Errorf("step %d: %d entries up to %d, want %d", step, len(all), last, want)
	}
	for i, e := range all {
		if want := last - int64(len(all)-1-i); e.Seq != want {
			t.Errorf("step %d: entry %d is where %d should be", step, e.Seq, want)
		}
		if want := fmt.Sprint((e.Seq - 1) % batchSize); !strings.HasSuffix(e.Text, "."+want) {
			t.Errorf("step %d: entry %d is %s: a batch was torn", step, e.Seq, e.Text)
		}
	}
	if n := written(t, dir); last%batchSize != 0 || last/batchSize < int64(n) || last/batchSize > int64(n)+1 {
		t.Errorf("step %d: %d entries, and %d batches were reported", step, last, n)
		return n
	}
	// A batch that was committed and not reported counts, from now on, as such.
	for written(t, dir) < int(last/batchSize) {
		f, err := os.OpenFile(filepath.Join(dir, writtenFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(f, "unreported"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return int(last / batchSize)
}

// Several processes append to one transcript: no number is given twice, no
// batch is torn, nothing is lost.
func TestManyProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts several processes")
	}
	t.Parallel()
	const writers, batches = 4, 40
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			if writer(t, dir, fmt.Sprint("w", w), batches, 0) {
				t.Error("it was killed")
			}
		})
	}
	wg.Wait()
	db := open(t, filepath.Join(dir, "x.db"), nil)
	checkSums(t, db)
	all := db.Sessions(nil).mustList(t, "s", agent.Query{})
	if len(all) != writers*batches*batchSize {
		t.Fatalf("%d entries", len(all))
	}
	next := map[string]int{}
	for i, e := range all {
		name, at, _ := strings.Cut(e.Text, ".")
		want := fmt.Sprintf("%d.%d", next[name]/batchSize, next[name]%batchSize)
		if e.Seq != int64(i+1) || at != want {
			t.Fatalf("entry %d is %d, %s, want %s", i+1, e.Seq, e.Text, want)
		}
		if i%batchSize != 0 && !strings.HasPrefix(all[i-1].Text, name+".") {
			t.Fatalf("entry %d tears a batch: %s after %s", e.Seq, e.Text, all[i-1].Text)
		}
		next[name]++
	}
}
