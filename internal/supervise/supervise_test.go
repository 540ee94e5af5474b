package supervise

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

// F-26: the pauses grow up to a limit, and begin anew only after the server has
// worked for a while.
func TestLoopPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var health Health
		part := health.Part()
		var pauses []time.Duration
		last := time.Now()
		Loop(ctx, (*Options)(nil).OrDefaults(), part, "test", func(ctx context.Context, up func()) error {
			pauses = append(pauses, time.Since(last))
			defer func() { last = time.Now() }()
			if n := len(pauses); n > 1 {
				if since, err := health.State(); !errors.Is(err, errDown) || since.IsZero() {
					t.Errorf("state %v since %v", err, since)
				}
			}
			switch len(pauses) {
			case 3: // accepted and hung up
				up()
			case 10:
				up()
				if _, err := health.State(); err != nil {
					t.Errorf("state %v while it works", err)
				}
				time.Sleep(DefaultHealthy)
			case 12:
				cancel()
				return ctx.Err()
			}
			return errDown
		})
		for i, want := range []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 100, 200} {
			want *= time.Millisecond
			if pauses[i] < want/2 || pauses[i] > want {
				t.Errorf("pause %d is %v, want up to %v", i, pauses[i], want)
			}
		}
	})
}

func TestPausesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[(*Options)(nil).OrDefaults().pause(5)] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different pauses of 100: everybody would come back at once", len(seen))
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h Health
		a, b := h.Part(), h.Part()
		begun := time.Now()
		a.Note(errDown)
		time.Sleep(time.Second)
		other := errors.New("other")
		b.Note(other)
		a.Note(errDown)
		if since, err := h.State(); !errors.Is(err, errDown) || since != begun {
			t.Errorf("%v since %v", err, since)
		}
		a.Leave()
		if since, err := h.State(); !errors.Is(err, other) || since != begun.Add(time.Second) {
			t.Errorf("%v since %v", err, since)
		}
		b.Note(nil)
		if since, err := h.State(); err != nil || !since.IsZero() {
			t.Errorf("%v since %v", err, since)
		}
	})
}

// An outage of a day is told, but not every five seconds; its end is.
func TestOutageIsNotShouted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := (&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}).OrDefaults()
		var health Health
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		Loop(ctx, o, health.Part(), "the bus", func(ctx context.Context, up func()) error {
			if time.Since(begun) < 24*time.Hour {
				return errDown
			}
			up()
			cancel()
			return ctx.Err()
		})
		text := log.String()
		if n := strings.Count(text, "level=WARN"); n < 5 || n > 20 {
			t.Errorf("%d warnings", n)
		}
		if n := strings.Count(text, `level=INFO msg="working again" reason="the bus"`); n != 1 {
			t.Errorf("%d times back:\n%s", n, text)
		}
	})
}

// wire is what a sender sends to.
type wire struct {
	mu   sync.Mutex
	sent []int
	err  error
	hold time.Duration
}

func (w *wire) set(err error, hold time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.hold = err, hold
}

func (w *wire) send(ctx context.Context, v int) error {
	w.mu.Lock()
	err, hold := w.err, w.hold
	w.mu.Unlock()
	if !sleep(ctx, hold, nil) {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.sent = append(w.sent, v)
	}
	return err
}

func (w *wire) got() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

func newSender(t *testing.T, w *wire) (*Sender[int], *Health) {
	t.Helper()
	var h Health
	s := NewSender((*Options)(nil).OrDefaults(), DefaultTimeout, h.Part(), "test", w.send)
	t.Cleanup(s.Close)
	return s, &h
}

// Many who send at once are served by few messages, of which the last is the
// newest.
func TestSenderKeepsTheNewest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{hold: 10 * time.Millisecond}
		s, _ := newSender(t, w)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if err := s.Send(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := s.Send(t.Context(), 1000); err != nil {
			t.Error(err)
		}
		if got := w.got(); len(got) > 4 || got[len(got)-1] != 1000 {
			t.Errorf("sent %v", got)
		}
	})
}

// F-26: what could not be sent is sent when the server is back, and until then
// nobody waits.
func TestSenderOwes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{err: errDown}
		s, health := newSender(t, w)
		if err := s.Send(t.Context(), 1); !errors.Is(err, errDown) {
			t.Errorf("error %v", err)
		}
		begun := time.Now()
		for i := 2; i < 50; i++ {
			if err := s.Send(t.Context(), i); !errors.Is(err, errDown) || time.Since(begun) != 0 {
				t.Errorf("error %v after %v", err, time.Since(begun))
			}
		}
		time.Sleep(time.Hour)
		if since, err := health.State(); !errors.Is(err, errDown) || time.Since(since) < time.Hour {
			t.Errorf("state %v since %v", err, since)
		}
		w.set(nil, 0)
		time.Sleep(DefaultMost)
		synctest.Wait()
		if got := w.got(); len(got) != 1 || got[0] != 49 {
			t.Errorf("sent %v", got)
		}
		if _, err := health.State(); err != nil {
			t.Errorf("state %v", err)
		}
		if err := s.Send(t.Context(), 50); err != nil {
			t.Error(err)
		}
	})
}

func TestNudge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{err: errDown}
		s, _ := newSender(t, w)
		_ = s.Send(t.Context(), 1)
		time.Sleep(time.Minute)
		w.set(nil, 0)
		begun := time.Now()
		s.Nudge()
		synctest.Wait()
		if got := w.got(); len(got) != 1 || time.Since(begun) != 0 {
			t.Errorf("sent %v after %v", got, time.Since(begun))
		}
	})
}

// A server that hangs holds up a publisher once, for the timeout, and no longer.
func TestSenderSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{hold: time.Hour}
		s, health := newSender(t, w)
		begun := time.Now()
		err := s.Send(t.Context(), 1)
		if d := time.Since(begun); !errors.Is(err, ErrSlow) || d > DefaultTimeout {
			t.Errorf("error %v after %v", err, d)
		}
		for i := 2; i < 10; i++ {
			begun = time.Now()
			if err := s.Send(t.Context(), i); !errors.Is(err, ErrSlow) || time.Since(begun) != 0 {
				t.Errorf("error %v after %v", err, time.Since(begun))
			}
		}
		if _, err := health.State(); err == nil {
			t.Error("nobody says that it hangs")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.Send(ctx, 3); err == nil {
			t.Error("sent")
		}
	})
}

// A server that is far away takes longer than anybody waits, and gets it.
func TestSenderFarAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{hold: 3 * time.Second}
		s, health := newSender(t, w)
		if err := s.Send(t.Context(), 1); !errors.Is(err, ErrSlow) {
			t.Errorf("error %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := w.got(); len(got) != 1 {
			t.Errorf("sent %v", got)
		}
		if _, err := health.State(); err != nil {
			t.Errorf("state %v", err)
		}
		w.set(nil, 0)
		if err := s.Send(t.Context(), 2); err != nil {
			t.Error(err)
		}
	})
}

// Whoever waits is told when the sender is closed.
func TestSenderClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{hold: time.Hour}
		s, _ := newSender(t, w)
		errs := make(chan error, 2)
		for i := range 2 {
			go func() { errs <- s.Send(t.Context(), i) }()
			synctest.Wait()
		}
		s.Close()
		for range 2 {
			if err := <-errs; err == nil {
				t.Error("sent")
			}
		}
		if err := s.Send(t.Context(), 3); !errors.Is(err, ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}
