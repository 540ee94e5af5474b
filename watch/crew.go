package watch

import (
	"context"
	"sync"
	"time"
)

// crew owns the goroutines of an engine: all end when it is dismissed, and
// dismiss waits for them. Its lock is the last in any order of locks.
type crew struct {
	over  chan struct{} // closed when the crew is dismissed
	begin func() (context.Context, context.CancelFunc)
	end   context.CancelFunc

	mu   sync.Mutex
	done bool
	wg   sync.WaitGroup
}

func newCrew() *crew {
	ctx, end := context.WithCancel(context.Background())
	return &crew{
		over:  make(chan struct{}),
		begin: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		end:   end,
	}
}

// spawn runs f in a goroutine, with a context that ends with the crew or by
// the returned function. After dismiss it does nothing.
func (c *crew) spawn(f func(ctx context.Context)) context.CancelFunc {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return func() {}
	}
	ctx, cancel := c.begin()
	c.wg.Go(func() {
		defer cancel()
		f(ctx)
	})
	return cancel
}

// dismiss ends the contexts of all, runs last, and waits for it and for them,
// at most for limit. It reports whether all have ended.
func (c *crew) dismiss(limit time.Duration, last func()) bool {
	c.mu.Lock()
	if !c.done {
		c.done = true
		close(c.over)
	}
	c.mu.Unlock()
	c.end()
	ended := make(chan struct{})
	go func() { // ends with the last of the crew
		last()
		c.wg.Wait()
		close(ended)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}
