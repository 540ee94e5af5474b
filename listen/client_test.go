package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// fakeServer is an Opener in memory. Its log tells what happened when, in
// seconds since the start.
type fakeServer struct {
	start time.Time
	// open decides about the nth opening, from 0; nil honours everything.
	open func(n int, f Filter) (Filter, error)
	// delay is how long an opening takes.
	delay time.Duration
	// serial makes streams that must not overlap.
	serial bool

	mu    sync.Mutex
	opens int
	log   []string
	feeds []*Feed // of open streams
}

func newFakeServer() *fakeServer { return &fakeServer{start: time.Now()} }

func (f *fakeServer) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Since(f.start).Seconds()
	f.log = append(f.log, fmt.Sprintf("%g ", at)+fmt.Sprintf(format, args...))
}

func (f *fakeServer) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.log
	f.log = nil
	return out
}

func (f *fakeServer) Open(ctx context.Context, filter Filter) (*Stream, error) {
	f.mu.Lock()
	n, open := f.opens, f.open
	f.opens++
	f.mu.Unlock()
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	honoured := filter
	if open != nil {
		var err error
		if honoured, err = open(n, filter); err != nil {
			f.note("open %d fails", n)
			return nil, err
		}
	}
	f.note("open %d %s", n, strings.Join(filter.ResourceSubscriptions, " "))
	s := newStream(filter, func() { f.note("close %d", n) })
	s.acknowledge(honoured, nil)
	if f.serial {
		s.conflict = func() bool { return true }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feeds = append(f.feeds, &Feed{s})
	return s, nil
}

func (f *fakeServer) feed(n int) *Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < 0 {
		n += len(f.feeds)
	}
	return f.feeds[n]
}

func (f *fakeServer) streams() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.feeds)
}

// probe is a Subscriber that writes into the server's log.
type probe struct {
	name string
	f    *fakeServer
}

func (p probe) Updated() { p.f.note("%s updated", p.name) }
func (p probe) Interrupted(_ error, attempt int, delay time.Duration) {
	p.f.note("%s interrupted, attempt %d in %v", p.name, attempt, delay)
}
func (p probe) Restored()                  { p.f.note("%s restored", p.name) }
func (p probe) Failed(err error)           { p.f.note("%s failed: %v", p.name, err) }
func (f *fakeServer) probe(n string) probe { return probe{n, f} }

func mustAdd(t *testing.T, c *Client, uri string, s Subscriber) func() {
	t.Helper()
	cancel, err := c.Add(t.Context(), uri, s)
	if err != nil {
		t.Fatalf("Add(%s): %v", uri, err)
	}
	return cancel
}

func wantLog(t *testing.T, f *fakeServer, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, f.take()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

var errDown = errors.New("down")

// W-050, W-051, W-166: 1, 2, 4, 8, 16 seconds, then failure, then nothing.
func TestClientBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.open = func(n int, asked Filter) (Filter, error) {
			if n > 0 {
				return Filter{}, errDown
			}
			return asked, nil
		}
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		f.feed(0).End(EndLost, io.EOF)
		time.Sleep(time.Hour)
		wantLog(t, f,
			"0 open 0 a:/1", "0 A interrupted, attempt 1 in 1s",
			"1 open 1 fails", "1 A interrupted, attempt 2 in 2s",
			"3 open 2 fails", "3 A interrupted, attempt 3 in 4s",
			"7 open 3 fails", "7 A interrupted, attempt 4 in 8s",
			"15 open 4 fails", "15 A interrupted, attempt 5 in 16s",
			"31 open 5 fails", "31 A failed: down")
	})
}

// W-051, WA-09, B-031: a server that accepts and hangs up gets no more attempts
// than one that is down, however politely it hangs up.
func TestClientCountsCollapses(t *testing.T) {
	t.Parallel()
	for _, reason := range []EndReason{EndLost, EndGraceful, EndCancelled, EndFailed} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer()
			c := NewClient(OpenerFunc(func(ctx context.Context, filter Filter) (*Stream, error) {
				s, err := f.Open(ctx, filter)
				if err == nil {
					(&Feed{s}).End(reason, io.EOF)
				}
				return s, err
			}), nil)
			defer c.Close()
			mustAdd(t, c, "a:/1", f.probe("A"))
			time.Sleep(time.Hour)
			synctest.Wait()
			log := f.take()
			if f.opens != 6 || !strings.HasPrefix(log[len(log)-1], "31 A failed") {
				t.Errorf("%s: %d openings, log %q", reason, f.opens, log)
			}
		})
	}
}

// WA-09: the count of attempts begins anew after 30 healthy seconds or an update.
func TestClientResetRule(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		live func(f *Feed)
		next string
	}{
		{"29 s are not enough", func(*Feed) { time.Sleep(29 * time.Second) }, "attempt 3 in 4s"},
		{"30 s are", func(*Feed) { time.Sleep(30 * time.Second) }, "attempt 1 in 1s"},
		{"an update is", func(f *Feed) { f.Updated("a:/1"); synctest.Wait() }, "attempt 1 in 1s"},
		{"an update of something else is not", func(f *Feed) { f.Updated("b:/1"); synctest.Wait() }, "attempt 3 in 4s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer()
			f.open = func(n int, asked Filter) (Filter, error) {
				if n == 1 {
					return Filter{}, errDown
				}
				return asked, nil
			}
			c := NewClient(f, nil)
			defer c.Close()
			mustAdd(t, c, "a:/1", f.probe("A"))
			f.feed(-1).End(EndLost, io.EOF)
			time.Sleep(3 * time.Second) // attempt 1 fails, attempt 2 succeeds
			synctest.Wait()
			tt.live(f.feed(-1))
			f.take()
			f.feed(-1).End(EndLost, io.EOF)
			synctest.Wait()
			if log := f.take(); len(log) != 1 || !strings.HasSuffix(log[0], tt.next) {
				t.Errorf("%s: log %q, want %s", tt.name, log, tt.next)
			}
		})
	}
}

// W-052: nothing runs while the listen is healthy.
func TestClientIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		timers := 0
		c.timer = func(d time.Duration) *time.Timer { timers++; return time.NewTimer(d) }
		mustAdd(t, c, "a:/1", f.probe("A"))
		time.Sleep(time.Hour)
		wantLog(t, f, "0 open 0 a:/1")
		if timers != 0 {
			t.Errorf("%d timers in an idle hour", timers)
		}
		// The hook does count: a reconnect needs one.
		f.feed(0).End(EndLost, io.EOF)
		time.Sleep(time.Minute)
		if synctest.Wait(); timers != 1 {
			t.Errorf("%d timers for one reconnect", timers)
		}
	})
}

// M-13: one listen for all; the new one is open before the old one is closed.
func TestClientReplaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		cancel := mustAdd(t, c, "a:/2", f.probe("B"))
		again := mustAdd(t, c, "a:/2", f.probe("B2")) // no new listen for a URI that has one
		time.Sleep(time.Second)
		wantLog(t, f, "0 open 0 a:/1", "0 open 1 a:/1 a:/2", "0.5 close 0")
		again()
		time.Sleep(time.Second)
		wantLog(t, f)
		cancel()
		time.Sleep(time.Second)
		wantLog(t, f, "2 open 2 a:/1", "2.5 close 1")
	})
}

// M-13: what both streams say is told once, what only one says is not lost.
func TestClientOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		mustAdd(t, c, "a:/2", f.probe("B"))
		synctest.Wait()
		f.take()
		f.feed(0).Updated("a:/1")
		f.feed(1).Updated("a:/1")
		wantLog(t, f, "0 A updated")
		time.Sleep(time.Second)
		wantLog(t, f, "0.5 close 0")

		mustAdd(t, c, "a:/3", f.probe("C"))
		f.feed(1).Updated("a:/2") // was under way when the successor came
		time.Sleep(time.Second)
		wantLog(t, f, "1 open 2 a:/1 a:/2 a:/3", "1.5 close 1", "1.5 B updated")

		mustAdd(t, c, "a:/4", f.probe("D"))
		f.feed(2).Updated("a:/3")
		f.feed(2).End(EndLost, io.EOF) // the old one ends on its own
		wantLog(t, f, "2 open 3 a:/1 a:/2 a:/3 a:/4", "2 C updated")
		time.Sleep(time.Hour)
		wantLog(t, f)
	})
}

// B-012: streams that must not overlap are closed before the next is opened, and
// everybody reads once for what was missed in between.
func TestClientSerial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.serial = true
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		mustAdd(t, c, "a:/2", f.probe("B"))
		wantLog(t, f, "0 open 0 a:/1", "0 close 0", "0 open 1 a:/1 a:/2", "0 A updated")

		// When the next cannot be opened, it is as if the old one had ended.
		f.open = func(n int, asked Filter) (Filter, error) {
			if n == 2 {
				return Filter{}, errDown
			}
			return asked, nil
		}
		if _, err := c.Add(t.Context(), "a:/3", f.probe("C")); !errors.Is(err, errDown) {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		log := f.take()
		slices.Sort(log)
		if diff := cmp.Diff([]string{
			"0 A interrupted, attempt 1 in 1s", "0 B interrupted, attempt 1 in 1s", "0 close 1", "0 open 2 fails",
			"1 A restored", "1 B restored", "1 open 3 a:/1 a:/2",
		}, log); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// WA-09: a listen that was healthy when it was replaced counts as such.
func TestClientResetByReplacement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		for range 2 { // collapses
			f.feed(-1).End(EndLost, io.EOF)
			time.Sleep(2500 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		mustAdd(t, c, "a:/2", f.probe("B"))
		synctest.Wait()
		f.take()
		f.feed(-1).End(EndLost, io.EOF)
		synctest.Wait()
		if log := strings.Join(f.take(), "\n"); !strings.Contains(log, "A interrupted, attempt 1 in 1s") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// slowSink is a Subscriber whose callback takes as long as the test wants.
type slowSink struct {
	probe
	in, out chan struct{}
	done    *atomic.Bool
}

func (s slowSink) Updated() { s.in <- struct{}{}; <-s.out; s.done.Store(true) }

// W-054: cancel waits for a callback that is under way.
func TestClientCancelWaits(t *testing.T) {
	t.Parallel()
	f := newFakeServer()
	c := NewClient(f, nil)
	defer c.Close()
	s := slowSink{f.probe("A"), make(chan struct{}), make(chan struct{}), &atomic.Bool{}}
	cancel := mustAdd(t, c, "a:/1", s)
	f.feed(0).Updated("a:/1")
	<-s.in
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		if cancel(); !s.done.Load() {
			t.Error("cancel returned during a callback")
		}
	}()
	select {
	case <-returned:
	case <-time.After(20 * time.Millisecond): // a wrong cancel would have returned
	}
	close(s.out)
	<-returned
}

// M-15: what arrived before subscribers were last told is covered by what they
// read after that.
func TestClientTellsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		f.take()
		early := time.Now()
		time.Sleep(time.Second)
		c.deliver("a:/1", 1, early, false)
		c.deliver("a:/1", 2, early, false) // the same, by another stream
		wantLog(t, f, "1 A updated")
		c.deliver("a:/1", 1, time.Now(), false)
		wantLog(t, f, "1 A updated")
	})
}

// M-13: many changes in a row leave few streams open, and one in the end.
func TestClientBoundsOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		live := func() (n int) {
			synctest.Wait()
			for i := range f.streams() {
				if f.feed(i).s.Err() == nil {
					n++
				}
			}
			return n
		}
		for i := range 100 {
			mustAdd(t, c, fmt.Sprintf("a:/%d", i), f.probe("A"))
			if n := live(); n > maxOverlap+1 {
				t.Fatalf("%d streams are open after %d subscriptions", n, i+1)
			}
		}
		f.feed(-3).Updated("a:/7") // still read
		time.Sleep(time.Second)
		if n := live(); n != 1 {
			t.Errorf("%d streams are open in the end", n)
		}
		if log := strings.Join(f.take(), "\n"); strings.Count(log, "A updated") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// M-13, M-14: calls at the same time share an opening.
func TestClientCoalescesAdds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.delay = 100 * time.Millisecond
		c := NewClient(f, nil)
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { mustAdd(t, c, fmt.Sprintf("a:/%d", i), f.probe("A")) })
		}
		wg.Wait()
		if f.opens > 2 {
			t.Errorf("%d openings for 50 subscriptions at once", f.opens)
		}
		if n := len(f.feed(-1).s.Filter().ResourceSubscriptions); n != 50 {
			t.Errorf("the last listen has %d URIs", n)
		}
	})
}

// M-14: 50 watches on a dead server make one attempt.
func TestClientDeadAtFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.delay = time.Second
		f.open = func(int, Filter) (Filter, error) { return Filter{}, errDown }
		c := NewClient(f, nil)
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, err := c.Add(t.Context(), fmt.Sprintf("a:/%d", i), f.probe("A")); !errors.Is(err, errDown) {
					t.Errorf("error %v", err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Hour)
		if synctest.Wait(); f.opens != 1 {
			t.Errorf("%d openings", f.opens)
		}
	})
}

// B-014: a URI left out of the acknowledgement fails alone.
func TestClientRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		refuse := "a:/2"
		f.open = func(_ int, asked Filter) (Filter, error) {
			honoured := slices.Clone(asked.ResourceSubscriptions)
			honoured = slices.DeleteFunc(honoured, func(u string) bool { return u == refuse })
			return uris(append(honoured, "x:/wider")...), nil
		}
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		_, err := c.Add(t.Context(), "a:/2", f.probe("B"))
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.URI != "a:/2" {
			t.Errorf("error %v", err)
		}
		mustAdd(t, c, "a:/3", f.probe("C"))
		time.Sleep(time.Second)
		f.take()
		f.feed(-1).Updated("a:/1")
		wantLog(t, f, "1 A updated")

		// A URI that is refused after a reconnect fails, the others go on.
		refuse = "a:/3"
		f.feed(-1).End(EndLost, io.EOF)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		log := strings.Join(f.take(), "\n")
		if !strings.Contains(log, `C failed: server refused to announce changes of "a:/3"`) || !strings.Contains(log, "2 A restored") || strings.Contains(log, "A failed") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// W-053: everybody is told when the listen is back.
func TestClientRestores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		defer c.Close()
		mustAdd(t, c, "a:/1", f.probe("A"))
		f.feed(0).Updated("a:/1")
		f.feed(0).End(EndGraceful, nil)
		wantLog(t, f, "0 open 0 a:/1", "0 A updated", "0 A interrupted, attempt 1 in 1s")
		// Who comes meanwhile is served by the attempt that is due.
		mustAdd(t, c, "a:/2", f.probe("B"))
		wantLog(t, f, "1 open 1 a:/1 a:/2", "1 A restored")
		f.feed(1).Updated("a:/1")
		f.feed(1).Updated("a:/2/below")
		synctest.Wait()
		log := f.take()
		slices.Sort(log)
		if diff := cmp.Diff([]string{"1 A updated", "1 B updated"}, log); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// B-017, M-18: what cannot be mended is not tried again.
func TestClientPermanent(t *testing.T) {
	t.Parallel()
	rpc := &jsonrpc.Error{Code: codeMethodNotFound, Message: "no"}
	for _, tt := range []struct {
		err   error
		opens int
	}{
		{&NoListenError{Status: 404, Err: rpc}, 2},
		{&PermanentError{errDown}, 2},
		{&NoListenError{Status: 404, Err: &StatusError{Status: 404}}, 6}, // a proxy, perhaps
		{errDown, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer()
			f.open = func(n int, asked Filter) (Filter, error) {
				if n > 0 {
					return Filter{}, tt.err
				}
				return asked, nil
			}
			c := NewClient(f, nil)
			defer c.Close()
			mustAdd(t, c, "a:/1", f.probe("A"))
			f.feed(0).End(EndLost, io.EOF)
			time.Sleep(time.Hour)
			synctest.Wait()
			log := f.take()
			if f.opens != tt.opens || !strings.Contains(log[len(log)-1], "A failed") {
				t.Errorf("%v: %d openings, log %q", tt.err, f.opens, log)
			}
		})
	}
}

// W-054: cancel and Close end everything, in every state, and nothing is heard
// afterwards.
func TestClientEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		c := NewClient(f, nil)
		cancel := mustAdd(t, c, "a:/1", f.probe("A"))
		cancel()
		cancel()
		f.feed(0).Updated("a:/1")
		wantLog(t, f, "0 open 0 a:/1", "0 close 0")

		// Cancelled while the next attempt is due: it is not made.
		cancel = mustAdd(t, c, "a:/1", f.probe("A"))
		f.feed(1).End(EndLost, io.EOF)
		synctest.Wait()
		cancel()
		time.Sleep(time.Hour)
		wantLog(t, f, "0 open 1 a:/1", "0 A interrupted, attempt 1 in 1s")

		// The caller of Add gives up.
		f.delay = time.Minute
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := c.Add(ctx, "a:/1", f.probe("A")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Hour)
		wantLog(t, f, "3660 open 2 a:/1", "3660 close 2")

		// Close ends an opening and the calls that wait for it.
		done := make(chan error, 1)
		go func() { _, err := c.Add(t.Context(), "a:/1", f.probe("A")); done <- err }()
		synctest.Wait()
		c.Close()
		if err := <-done; !errors.Is(err, ErrClientClosed) {
			t.Errorf("error %v", err)
		}
		if _, err := c.Add(t.Context(), "a:/1", f.probe("A")); !errors.Is(err, ErrClientClosed) {
			t.Errorf("error %v", err)
		}
		c.Close()
		wantLog(t, f)
	})
}

// M-14: whatever the server does, after it has come to rest each subscription
// that was not told of its failure hears an update once, and nobody else does.
func TestClientRandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { randomFaults(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// ledger counts what one subscription hears.
type ledger struct {
	mu                     sync.Mutex
	updates                int
	down, failed, canceled bool
}

func (l *ledger) with(f func()) { l.mu.Lock(); defer l.mu.Unlock(); f() }
func (l *ledger) Updated()      { l.with(func() { l.updates++ }) }
func (l *ledger) Interrupted(error, int, time.Duration) {
	l.with(func() { l.down = true })
}
func (l *ledger) Restored()    { l.with(func() { l.down = false }) }
func (l *ledger) Failed(error) { l.with(func() { l.failed = true }) }

func randomFaults(t *testing.T, rnd *rand.Rand) {
	f := newFakeServer()
	luck := rand.New(rand.NewPCG(rnd.Uint64(), 2))
	f.open = func(_ int, asked Filter) (Filter, error) {
		if luck.IntN(3) == 0 {
			return Filter{}, errDown
		}
		return asked, nil
	}
	c := NewClient(f, nil)
	defer c.Close()
	var subs []*ledger
	var names []string
	var cancels []func()
	for range 200 {
		switch rnd.IntN(5) {
		case 0:
			l, uri := &ledger{}, fmt.Sprintf("a:/%d", rnd.IntN(6))
			if cancel, err := c.Add(t.Context(), uri, l); err == nil {
				subs, names, cancels = append(subs, l), append(names, uri), append(cancels, cancel)
			}
		case 1:
			if len(subs) > 0 {
				i := rnd.IntN(len(subs))
				cancels[i]()
				subs[i].with(func() { subs[i].canceled, subs[i].updates = true, 0 })
			}
		case 2:
			if f.streams() > 0 {
				f.feed(-1).End(EndLost, io.EOF)
			}
		case 3:
			if f.streams() > 0 {
				f.feed(-1).Updated(fmt.Sprintf("a:/%d", rnd.IntN(6)))
			}
		default:
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		}
	}
	f.mu.Lock()
	f.open = nil
	f.mu.Unlock()
	time.Sleep(time.Minute)
	synctest.Wait()
	live := 0
	for _, l := range subs {
		l.with(func() { l.updates = 0 })
	}
	for i := range 6 {
		for _, feed := range f.feeds {
			if feed.s.Err() == nil {
				feed.Updated(fmt.Sprintf("a:/%d", i))
			}
		}
	}
	synctest.Wait()
	for i, l := range subs {
		want := 1
		if l.canceled || l.failed {
			want = 0
		} else {
			live++
		}
		if l.updates != want || (want == 1 && l.down) {
			t.Errorf("subscription %d of %s heard %d updates, want %d; down %v", i, names[i], l.updates, want, l.down)
		}
	}
	open := 0
	for _, feed := range f.feeds {
		if feed.s.Err() == nil {
			open++
		}
	}
	if open > 1 || (open == 0) != (live == 0) {
		t.Errorf("%d streams open for %d subscriptions", open, live)
	}
}
