package listen_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

func mount(t testing.TB, opts *listen.RegistryOptions, sources ...listen.Source) *listen.Registry {
	t.Helper()
	r := listen.NewRegistry(opts)
	for _, s := range sources {
		if err := r.Mount(s); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(r.Close)
	return r
}

func mustWatch(t testing.TB, r *listen.Registry, uri string, changed func()) func() {
	t.Helper()
	stop, err := r.Watch(t.Context(), uri, changed)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

func wantCounts(t *testing.T, s *fakeSource, starts, stops int, when string) {
	t.Helper()
	if a, b := s.counts(); a != starts || b != stops {
		t.Errorf("%s: %d starts and %d stops, want %d and %d", when, a, b, starts, stops)
	}
}

// M-5, W-201: one observation however many watch, each by its own identity.
func TestRegistryShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource("a")
		r := mount(t, nil, s)
		var first, second atomic.Int64
		stop1 := mustWatch(t, r, "a://x", func() { first.Add(1) })
		stop2 := mustWatch(t, r, "a://x", func() { second.Add(1) })
		wantCounts(t, s, 1, 0, "with two watchers")
		s.change("a://x")
		stop1()
		stop1() // counts once
		s.change("a://x")
		if first.Load() != 1 || second.Load() != 2 {
			t.Errorf("watchers heard %d and %d changes, want 1 and 2", first.Load(), second.Load())
		}
		stop2()
		time.Sleep(listen.DefaultLinger + time.Second)
		wantCounts(t, s, 1, 1, "after the linger")
	})
}

// WA-06: the linger, to the instant.
func TestRegistryLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource("a")
		r := mount(t, nil, s)
		stop := mustWatch(t, r, "a://x", func() {})
		stop()
		time.Sleep(listen.DefaultLinger - 1)
		synctest.Wait()
		wantCounts(t, s, 1, 0, "a moment before the end of the linger")
		stop = mustWatch(t, r, "a://x", func() {})
		time.Sleep(10 * listen.DefaultLinger)
		wantCounts(t, s, 1, 0, "after a quick reconnect")
		if s.lifeErr() != nil {
			t.Error("the observation's context ended with its first watcher")
		}
		stop()
		time.Sleep(listen.DefaultLinger)
		synctest.Wait()
		wantCounts(t, s, 1, 1, "at the end of the linger")
		if s.lifeErr() == nil {
			t.Error("the observation's context outlives it")
		}
		mustWatch(t, r, "a://x", func() {})()
		wantCounts(t, s, 2, 1, "watched anew")
	})
}

func TestRegistryWithoutLinger(t *testing.T) {
	t.Parallel()
	s := newFakeSource("a")
	r := mount(t, &listen.RegistryOptions{Linger: -1}, s)
	mustWatch(t, r, "a://x", func() {})()
	wantCounts(t, s, 1, 1, "without a linger")
}

// After stop has returned nothing is heard, whatever goroutine announces.
func TestRegistryStopIsFinal(t *testing.T) {
	t.Parallel()
	s := newFakeSource("a")
	r := mount(t, nil, s)
	mustWatch(t, r, "a://x", func() {})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			s.change("a://x")
		}
	})
	for range 500 {
		var stopped atomic.Bool
		stop := mustWatch(t, r, "a://x", func() {
			if stopped.Load() {
				t.Error("heard after stop")
			}
		})
		stop()
		stopped.Store(true)
	}
	cancel()
	wg.Wait()
}

// Who waits for a start that another caller has given up starts it anew.
func TestRegistryAbandonedStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource("a")
		var calls atomic.Int64
		s.onWatch = func(ctx context.Context) error {
			if calls.Add(1) == 1 {
				<-ctx.Done() // bounded by its caller
				return ctx.Err()
			}
			return nil
		}
		r := mount(t, nil, s)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.Watch(short, "a://x", func() {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Watch that ran out of time: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { mustWatch(t, r, "a://x", func() {}) })
		synctest.Wait()
		if calls.Load() != 1 {
			t.Error("two starts at a time")
		}
		impatient, cancel2 := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel2()
		if _, err := r.Watch(impatient, "a://x", func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch that did not want to wait: %v", err)
		}
		wg.Wait()
		wantCounts(t, s, 1, 0, "at the second attempt")
	})
}

// A source that says yes too late is stopped again.
func TestRegistryLateStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource("a")
		s.onWatch = func(context.Context) error { time.Sleep(time.Minute); return nil }
		r := mount(t, nil, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Watch(ctx, "a://x", func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch: %v", err)
		}
		wantCounts(t, s, 1, 1, "after a late start")
	})
}

// M-2: a URI belongs to one source, the first that owns it; errors go by URI.
func TestRegistryOwners(t *testing.T) {
	t.Parallel()
	a, b, shadow := newFakeSource("a"), newFakeSource("b"), newFakeSource("a")
	a.missing["a://none"], a.static["a://still"] = true, true
	r := mount(t, nil, a, b, shadow)
	if s, ok := r.Owner("a://x"); !ok || s != a {
		t.Error("a URI does not belong to the source mounted first")
	}
	if _, ok := r.Owner("c://x"); ok || r.Owns("c://x") || !r.Owns("b://x") {
		t.Error("ownership is wrong")
	}
	var notFound *listen.NotFoundError
	if _, err := r.Read(t.Context(), "c://x", listen.ReadOptions{}); !errors.As(err, &notFound) || notFound.URI != "c://x" {
		t.Errorf("read of nobody's URI: %v", err)
	}
	if c, err := r.Read(t.Context(), "b://x", listen.ReadOptions{}); err != nil || c[0].Text != "b" {
		t.Errorf("read: %v, %v", c, err)
	}
	for uri, want := range map[string]error{"a://none": &listen.NotFoundError{}, "a://still": listen.ErrNotWatchable, "c://x": &listen.NotFoundError{}} {
		_, err := r.Watch(t.Context(), uri, func() {})
		if errors.Is(want, listen.ErrNotWatchable) != errors.Is(err, listen.ErrNotWatchable) || errors.As(want, &notFound) != errors.As(err, &notFound) {
			t.Errorf("watch of %s: %v", uri, err)
		}
	}
	wantCounts(t, a, 0, 0, "after refusals")
}

type failingSource struct{ *fakeSource }

func (failingSource) List(context.Context) (listen.Listing, error) {
	return listen.Listing{}, errors.New("disk on fire")
}

func TestRegistryList(t *testing.T) {
	t.Parallel()
	r := mount(t, nil, newFakeSource("b"), failingSource{newFakeSource("c")}, newFakeSource("a"), newFakeSource("b"))
	got, err := r.List(t.Context())
	want := listen.Listing{
		Resources: []listen.Resource{{URI: "b://a", Name: "b"}, {URI: "a://a", Name: "a"}},
		Templates: []listen.Template{{URITemplate: "b://{x}"}, {URITemplate: "a://{x}"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err == nil || err.Error() != "list resources: disk on fire" {
		t.Errorf("error is %v", err)
	}
}

func TestRegistryClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource("a")
		r := mount(t, nil, s)
		stop := mustWatch(t, r, "a://live", func() {})
		mustWatch(t, r, "a://lingering", func() {})()
		var late sync.WaitGroup
		s.onWatch = func(context.Context) error { time.Sleep(time.Second); return nil }
		late.Go(func() {
			if _, err := r.Watch(t.Context(), "a://starting", func() {}); !errors.Is(err, listen.ErrClosed) {
				t.Errorf("a start that Close overtook: %v", err)
			}
		})
		synctest.Wait()
		r.Close()
		wantCounts(t, s, 2, 2, "after Close")
		late.Wait()
		wantCounts(t, s, 3, 3, "after the late start")
		stop()
		if _, err := r.Watch(t.Context(), "a://x", func() {}); !errors.Is(err, listen.ErrClosed) {
			t.Errorf("watch after Close: %v", err)
		}
		if err := r.Mount(s); !errors.Is(err, listen.ErrClosed) {
			t.Errorf("mount after Close: %v", err)
		}
		if err := r.Mount(nil); err == nil {
			t.Error("mounted nil")
		}
	})
}
