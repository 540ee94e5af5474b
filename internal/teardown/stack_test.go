package teardown

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStackIsLIFOAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // a deaf step goes on beside the next
		var order []string
		var down Stack
		boom := errors.New("boom")
		add := func(name string, stop func(context.Context) error) {
			down.Push(name, time.Second, func(ctx context.Context) error {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				return stop(ctx)
			})
		}
		hang := make(chan struct{})
		add("first", func(context.Context) error { return nil })
		add("deaf", func(context.Context) error { <-hang; return nil })
		add("failing", func(context.Context) error { return boom })
		start := time.Now()
		err := down.Run(t.Context())
		if diff := cmp.Diff([]string{"failing", "deaf", "first"}, order); diff != "" {
			t.Error(diff)
		}
		if !errors.Is(err, boom) || !errors.Is(err, ErrBudget) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %s", took)
		}
		close(hang)
		if err := down.Run(t.Context()); err != nil || len(order) != 3 {
			t.Errorf("a second run did something: %v, %v", err, order)
		}
	})
}
