package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

// The walk: a process posts notices, has them shown and acknowledges them. It is
// killed with SIGKILL at its first instruction, then a new one is started and
// killed at its second, and so on, through every statement and commit of every
// transaction and every write to the host, until one gets through alive.

// crashEnv holds "mode:step": what to be, and after how many steps to die.
const crashEnv = "SQLITE_TEST_CRASH"

const crashNotices = 3

// fastExit keeps the race detector from waiting a second at the end of each
// process.
const fastExit = "GORACE=atexit_sleep_ms=0"

func crashIDs() (ids []string) {
	for i := range crashNotices {
		ids = append(ids, fmt.Sprintf("n%d", i))
	}
	return ids
}

// crashLife is one life, in the current directory.
func crashLife() error {
	mode, number, _ := strings.Cut(os.Getenv(crashEnv), ":")
	last, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return err
	}
	var steps atomic.Int64
	step := func() {
		if steps.Add(1) == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	db, err := Open(ctx, "ossicle.db", nil)
	if err != nil {
		return err
	}
	db.stepped = step
	if mode == "hook" {
		_, err := wake.Digest(ctx, notice.New(db.Notices(), nil), "a", nil, steppedWriter{step}, &wake.HookOptions{Lease: time.Millisecond})
		fmt.Fprintln(os.Stderr, steps.Load())
		return errors.Join(err, db.Close())
	}
	store := &signalling{Notices: db.Notices(), moved: make(chan struct{}, 1)}
	in := notice.New(store, &notice.Options{MaxOffers: 1000})
	host := &fileHost{step: step}
	var waker notice.Waker = host
	if mode == "asked" {
		waker = askedHost{host}
	} else {
		host.dedupe = true
	}
	if err := in.Attach(ctx, "a", notice.Route{Waker: waker, Patience: 20 * time.Millisecond, Tries: 1000}); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- in.Run(running) }()
	err = crashWork(ctx, in, store)
	stop()
	fmt.Println(steps.Load()) //nolint:forbidigo // the parent reads it
	return errors.Join(err, <-done, db.Close())
}

// crashWork posts what every life posts, as sources do that saw no answer, and
// acknowledges what was seen.
func crashWork(ctx context.Context, in *notice.Inbox, store *signalling) error {
	for _, id := range crashIDs() {
		if _, err := in.Post(ctx, notice.Notice{ID: id, Agent: "a", Source: notice.SourceFeed, Text: "text"}); err != nil {
			return err
		}
	}
	for {
		var seen []string
		for _, id := range crashIDs() {
			r, err := in.Get(ctx, "a", id)
			if err != nil {
				return err
			}
			if !r.State.Pending() {
				seen = append(seen, id)
			}
		}
		if len(seen) == crashNotices {
			_, err := in.Ack(ctx, "a", "test", seen...)
			return err
		}
		select {
		case <-store.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// signalling says when notices moved.
type signalling struct {
	*Notices
	moved chan struct{}
}

func (s *signalling) Move(ctx context.Context, agent string, ids []string, step notice.Step) ([]string, error) {
	moved, err := s.Notices.Move(ctx, agent, ids, step)
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return moved, err
}

// fileHost shows notices by writing their ids to a file, with one write.
type fileHost struct {
	step   func()
	dedupe bool // knows an id that it has shown
}

const hostFile = "host"

func (h *fileHost) Name() string { return "host" }

func (h *fileHost) Reach(context.Context, string) error { return nil }

func (h *fileHost) Wake(_ context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	h.step()
	shown, err := os.ReadFile(hostFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var lines bytes.Buffer
	for _, id := range d.IDs() {
		if !h.dedupe || !slices.Contains(strings.Fields(string(shown)), id) {
			lines.WriteString(id + "\n")
		}
	}
	f, err := os.OpenFile(hostFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(lines.Bytes())
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	h.step()
	proved(notice.Notified)
	proved(notice.Woken)
	h.step()
	return notice.Seen, nil
}

// askedHost knows nothing of duplicates, but can be asked what it has shown.
type askedHost struct{ *fileHost }

func (h askedHost) Check(_ context.Context, d notice.Delivery) (notice.State, error) {
	h.step()
	shown, err := os.ReadFile(hostFile)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return notice.Persisted, nil
	case err != nil:
		return "", err
	case slices.Contains(strings.Fields(string(shown)), d.Notices[0].ID):
		return notice.Seen, nil
	}
	return notice.Persisted, nil
}

// live runs one life that dies at step, and returns how many steps it took if
// it did not.
func live(t *testing.T, dir, mode string, step int) (steps int, died bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", crashEnv, mode, step), fastExit)
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return 0, true
	}
	if err != nil {
		t.Fatalf("step %d: %v\n%s", step, err, stderr.String())
	}
	steps, err = strconv.Atoi(strings.TrimSpace(stdout.String()))
	if err != nil {
		t.Fatal(err)
	}
	return steps, false
}

// D-4: killed at every instruction between persisted and acked: nothing is lost
// and nothing is shown twice.
func TestKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a few hundred processes")
	}
	for _, mode := range []string{"asked", "dedupes"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			killed := 0
			for step := 1; ; step++ {
				dir := t.TempDir()
				_, died := live(t, dir, mode, step)
				if !died {
					break
				}
				killed++
				// The next life is killed at the same step of its own, so that
				// recoveries are killed too; the one after it lives.
				if _, died := live(t, dir, mode, step); died {
					live(t, dir, mode, 0)
				}
				checkAfterwards(t, dir, step)
				if t.Failed() {
					return
				}
			}
			if killed < 50 {
				t.Errorf("killed at %d steps only: the walk is not what it should be", killed)
			}
			t.Logf("killed at %d steps", killed)
		})
	}
}

// D-4, B-036, B-043: one inbox, killed again and again, each time a step later.
func TestKilledAgainAndAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	dir := t.TempDir()
	killed := 0
	for step := 1; step < 150; step += 2 {
		if _, died := live(t, dir, "asked", step); died {
			killed++
		}
	}
	if killed < 20 {
		t.Errorf("killed %d times only", killed)
	}
	t.Logf("killed %d times", killed)
	live(t, dir, "asked", 0)
	checkAfterwards(t, dir, 0)
}

// steppedWriter is the standard output of a hook.
type steppedWriter struct{ step func() }

func (w steppedWriter) Write(b []byte) (int, error) {
	w.step()
	n, err := os.Stdout.Write(b)
	w.step()
	return n, err
}

// D-4, D-13: a hook killed at every step. Its host takes what it printed only if
// it ended well, as hosts do. The commit that marks is its last step: what
// follows it is the end of the process.
func TestHookKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	last := 2
	for step := 1; step < last; step++ {
		dir := t.TempDir()
		db := open(t, filepath.Join(dir, "ossicle.db"), nil)
		in := notice.New(db.Notices(), nil)
		if err := in.Register(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		for _, id := range crashIDs() {
			if _, err := in.Post(t.Context(), notice.Notice{ID: id, Agent: "a", Source: notice.SourceFeed, Title: id, Text: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		var taken strings.Builder
		for _, die := range []int{step, step, 0, 0} {
			text, steps := hook(t, dir, die)
			taken.WriteString(text)
			last = max(last, steps) // of one that had something to show
		}
		for _, id := range crashIDs() {
			if n := strings.Count(taken.String(), `name="`+id+`"`); n != 1 {
				t.Fatalf("killed at step %d: %s was shown %d times", step, id, n)
			}
		}
	}
	t.Logf("killed at %d steps", last-1)
	if last < 15 {
		t.Error("the walk is not what it should be")
	}
}

// hook runs one, and returns what its host takes and how many steps it took.
func hook(t *testing.T, dir string, die int) (text string, steps int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=hook:%d", crashEnv, die), fastExit)
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return "", 0
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	steps, err = strconv.Atoi(strings.TrimSpace(stderr.String()))
	if err != nil {
		t.Fatal(err)
	}
	return stdout.String(), steps
}

func checkAfterwards(t *testing.T, dir string, step int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, hostFile))
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Fields(string(b))
	slices.Sort(shown)
	if !slices.Equal(shown, crashIDs()) {
		t.Errorf("killed at step %d: the model was shown %v, want each of %v once", step, shown, crashIDs())
	}
	db, err := Open(t.Context(), filepath.Join(dir, "ossicle.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, id := range crashIDs() {
		r, err := db.Notices().Get(t.Context(), id)
		if err != nil || r.State != notice.Acked {
			t.Errorf("killed at step %d: %s is %s, %v", step, id, r.State, err)
		}
		if !slices.IsSortedFunc(r.Steps, func(a, b notice.Step) int { return a.State.Rank() - b.State.Rank() }) {
			t.Errorf("killed at step %d: %s went back: %v", step, id, r.Steps)
		}
	}
}
