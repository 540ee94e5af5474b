// Package app joins the rooms: it builds what a command needs, in order, and
// takes it down in the opposite order.
package app

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// teardown is a named LIFO stack: shutdown order reads off construction order.
// Each step has a budget, so that one that hangs delays the others and does not
// stop them.
type teardown struct {
	steps []step
}

type step struct {
	name   string
	budget time.Duration
	stop   func(context.Context) error
}

// push adds the step that undoes what was just built.
func (t *teardown) push(name string, budget time.Duration, stop func(context.Context) error) {
	t.steps = append(t.steps, step{name, budget, stop})
}

// run takes everything down, last built first, and joins the errors.
func (t *teardown) run(ctx context.Context) error {
	var errs []error
	for i := len(t.steps) - 1; i >= 0; i-- {
		s := t.steps[i]
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
	}
	t.steps = nil
	return errors.Join(errs...)
}

// errBudget ends the wait for a step that ignores its context.
var errBudget = errors.New("did not end within its time")

func (s step) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.budget, errBudget)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.stop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
