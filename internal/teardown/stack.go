// Package teardown takes down what was built, in the opposite order, step by step
// within their budgets.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Stack is a named LIFO stack: shutdown order reads off construction order. Each step
// has a budget, so that one that hangs delays the others and does not stop them. The
// zero value is empty. It is not for concurrent use.
type Stack struct {
	steps []step
}

type step struct {
	name   string
	budget time.Duration
	stop   func(context.Context) error
}

// Push adds the step that undoes what was just built. Budget is how long it may take.
func (t *Stack) Push(name string, budget time.Duration, stop func(context.Context) error) {
	t.steps = append(t.steps, step{name, budget, stop})
}

// Run takes everything down, last built first, and joins the errors. What ctx allows
// bounds every step, too. A second call does nothing.
func (t *Stack) Run(ctx context.Context) error {
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

// ErrBudget ends the wait for a step that ignores its context.
var ErrBudget = errors.New("did not end within its time")

func (s step) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.budget, ErrBudget)
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
