package app

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/mailbox"
)

// deafServer takes connections and answers nothing. heard gets one value for each.
func deafServer(t *testing.T) (dsn string, heard chan struct{}) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard = make(chan struct{}, 64)
	var mu sync.Mutex
	var open []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			heard <- struct{}{}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return "postgres://u@" + l.Addr().String() + "/d?sslmode=disable", heard
}

// A database that does not answer holds up who wants its sessions, as long as they
// like to wait, and nobody else.
func TestASlowDatabaseHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const slow, other = "20261130_010203_000000aa", "20261130_010203_000000bb"
	c := config.Default()
	c.Home = t.TempDir()
	all := NewCollaborations(c, "", mailbox.Limits{}, nil)
	here, err := all.Open(t.Context(), collaboration)
	if err != nil {
		t.Fatal(err)
	}
	dsn, heard := deafServer(t)
	all.store.Store = dsn
	waiting, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := all.Open(waiting, slow)
		ended <- err
	}()
	select {
	case <-heard:
	case <-time.After(patience):
		t.Fatal("nobody has asked the database")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Stats()
		again, err := all.Open(t.Context(), collaboration)
		if err != nil || again != here {
			t.Errorf("%p, %v", again, err)
			return
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for _, id := range []string{slow, other} { // one that is being opened, and one more
			if _, err := all.Open(short, id); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if err := errors.Join(again.Close(t.Context()), here.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("held up")
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	all.store.Store = ""
	next, err := all.Open(t.Context(), slow)
	if err != nil {
		t.Fatalf("what failed once can be tried again: %v", err)
	}
	if err := next.Close(t.Context()); err != nil || len(all.open) != 0 {
		t.Errorf("%v, %d left open", err, len(all.open))
	}
}

// Of many who want one session at once all get it, and it is open once; also if the
// first of them gives up.
func TestManyOpenOneSession(t *testing.T) {
	t.Parallel()
	const many = 16
	c := config.Default()
	c.Home = t.TempDir()
	all := NewCollaborations(c, "", mailbox.Limits{}, nil)
	for range 5 {
		gone, cancel := context.WithCancel(t.Context())
		var opening sync.WaitGroup
		got := make([]*Collaboration, many)
		for i := range got {
			ctx := t.Context()
			if i == 0 {
				ctx = gone
			}
			opening.Go(func() {
				x, err := all.Open(ctx, collaboration)
				if err != nil && ctx != gone {
					t.Error(err)
				}
				got[i] = x
			})
		}
		cancel()
		opening.Wait()
		for _, x := range got {
			if x == nil {
				continue
			}
			if last := got[many-1]; x != last {
				t.Error("opened twice")
			}
			if err := x.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if len(all.open) != 0 {
			t.Fatalf("%d left open", len(all.open))
		}
	}
}
