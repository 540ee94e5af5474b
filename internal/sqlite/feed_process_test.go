package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/files"
)

// feedEnv holds the path of the file that a process of its own publishes to: one
// event for each line that it reads. It answers with the time of the commit.
const feedEnv = "SQLITE_TEST_FEED"

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
