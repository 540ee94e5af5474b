package watchtest

import (
	"context"
	"testing"
	"time"

	"github.com/ossicle/ossicle/watch"
)

// patience is how long a test waits for a notice that is to come. In a synctest
// bubble it costs nothing.
const patience = 60 * time.Second

// Sink is a watch.Sink that keeps the notices for a test.
type Sink struct{ notices chan watch.Notice }

// NewSink makes a sink for at most 1,000 notices that are not yet looked at.
func NewSink() *Sink { return &Sink{make(chan watch.Notice, 1000)} }

// Notify implements watch.Sink.
func (s *Sink) Notify(ctx context.Context, n watch.Notice) error {
	select {
	case s.notices <- n:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next waits for the next notice.
func (s *Sink) Next(t testing.TB) watch.Notice {
	t.Helper()
	select {
	case n := <-s.notices:
		return n
	case <-time.After(patience):
		t.Fatal("no notice came")
		return watch.Notice{}
	}
}

// Empty fails the test if a notice is there.
func (s *Sink) Empty(t testing.TB) {
	t.Helper()
	select {
	case n := <-s.notices:
		t.Fatalf("unexpected notice: %+v", n)
	default:
	}
}
