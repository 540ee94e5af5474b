package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/files"
)

// feedEnv holds the path of the file that a process of its own publishes to: one
// event for each line that it reads. It answers with the time of the commit.
const feedEnv = "SQLITE_TEST_FEED"

// feedDieEnv holds the number of the step at which that process kills itself.
const feedDieEnv = "SQLITE_TEST_FEED_DIE"

func feedLife(in io.Reader, out io.Writer) error {
	ctx := context.Background() //nolint:usetesting // this is no test, but a process
	db, err := Open(ctx, os.Getenv(feedEnv), &Options{BusyTimeout: time.Minute})
	if err != nil {
		return err
	}
	bell, err := OpenBell(ctx, db.Feed(), files.Touched)
	if err != nil {
		return err
	}
	if os.Getenv(feedDieEnv) != "" {
		return errors.Join(feedCrash(ctx, db, out), db.Close())
	}
	stamped := &stamping{Bell: bell}
	h, err := feed.NewHub(ctx, db.Feed(), stamped, nil)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if _, err := h.Publish(ctx, events(1, "a")); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, stamped.at.UnixNano()); err != nil {
			return err
		}
	}
	return db.Close()
}

// stamping remembers when it was last asked to ring, which is when the commit was
// over.
type stamping struct {
	*Bell

	at time.Time
}

func (s *stamping) Ring(ctx context.Context, p feed.Position) error {
	s.at = time.Now()
	return s.Bell.Ring(ctx, p)
}

// publisher is a process that publishes when it is told to.
type publisher struct {
	tb     testing.TB
	cmd    *exec.Cmd
	to     io.WriteCloser
	answer *bufio.Reader
}

func startWriter(tb testing.TB, path string) *publisher {
	tb.Helper()
	w := &publisher{tb: tb, cmd: exec.CommandContext(tb.Context(), os.Args[0])}
	w.cmd.Env = append(os.Environ(), feedEnv+"="+path)
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if w.to, err = w.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	w.answer = bufio.NewReader(out)
	return w
}

// publish has one event published, and returns what waits for the time of its
// commit.
func (w *publisher) publish() (committed func() time.Time) {
	w.tb.Helper()
	if _, err := io.WriteString(w.to, "\n"); err != nil {
		w.tb.Fatal(err)
	}
	return func() time.Time {
		line, err := w.answer.ReadString('\n')
		if err != nil {
			w.tb.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			w.tb.Fatal(err)
		}
		return time.Unix(0, n)
	}
}

func (w *publisher) stop() {
	w.tb.Helper()
	_ = w.to.Close()
	if err := w.cmd.Wait(); err != nil {
		w.tb.Error(err)
	}
}

// F-26: what another process publishes comes without anybody asking for it, each
// event once.
func TestFeedAcrossProcesses(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/x.db"
	db := open(t, path, &Options{BusyTimeout: time.Minute})
	h, err := feed.NewHub(t.Context(), db.Feed(), bell(t, db), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); <-done }()
	s, err := h.Subscribe(feed.Subscribe{})
	if err != nil {
		t.Fatal(err)
	}
	w := startWriter(t, path)
	defer w.stop()
	for i := range 50 {
		committed := w.publish()
		batch, err := s.Next(ctx)
		if err != nil || len(batch.Items) != 1 || batch.Items[0].ID != int64(i+1) {
			t.Fatalf("event %d: %+v, %v", i, batch, err)
		}
		committed()
	}
}

// feedCrash publishes three batches, says which ids it was given, and dies at its
// step.
func feedCrash(ctx context.Context, db *DB, out io.Writer) error {
	last, err := strconv.ParseInt(os.Getenv(feedDieEnv), 10, 64)
	if err != nil {
		return err
	}
	var steps atomic.Int64
	db.stepped = func() {
		if steps.Add(1) == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	for i := range 3 {
		receipts, err := db.Feed().Append(ctx, crashBatch(i))
		if err != nil {
			return err
		}
		for _, r := range receipts {
			if _, err := fmt.Fprintln(out, r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func crashBatch(i int) []feed.Draft {
	drafts := events(22, "a", "b")
	for j := range drafts {
		drafts[j].IdempotencyKey = fmt.Sprint(i, j)
	}
	return drafts
}

// F-1, F-4: a process that publishes is killed at each of its steps in turn. What
// was acknowledged is there, a batch is there as a whole or not at all, and a
// repetition publishes what is missing and nothing else.
func TestFeedKilled(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/x.db"
	acknowledged, killed := 0, 0
	for step := 1; ; step++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), feedEnv+"="+path, feedDieEnv+"="+strconv.Itoa(step))
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Success() || exit.ExitCode() != -1) {
			t.Fatalf("step %d: %v", step, err)
		}
		acknowledged = max(acknowledged, bytes.Count(out, []byte("\n")))
		checkKilled(t, path, acknowledged)
		if err == nil {
			break
		}
		killed++
	}
	if killed < 50 || acknowledged != 66 {
		t.Errorf("killed %d times, %d acknowledged", killed, acknowledged)
	}
}

func checkKilled(t *testing.T, path string, acknowledged int) {
	t.Helper()
	db, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	page, err := db.Feed().Read(t.Context(), feed.Query{})
	if err != nil || len(page.Events)%22 != 0 || len(page.Events) < acknowledged || len(page.Events) > 66 {
		t.Fatalf("%d events, %d acknowledged, %v", len(page.Events), acknowledged, err)
	}
	for i, e := range page.Events {
		if e.ID != int64(i+1) {
			t.Fatalf("event %d has id %d", i, e.ID)
		}
	}
	checkFeed(t, db)
}
