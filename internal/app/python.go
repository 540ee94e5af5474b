package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/monty"
	"github.com/ossicle/ossicle/internal/python"
)

// interpreter is the engine of filters, found when the first filter needs it:
// watches without one work where no interpreter is installed.
type interpreter struct {
	c   config.Python
	log *slog.Logger

	mu     sync.Mutex
	engine *monty.Engine
	closed bool
}

// open finds and checks the interpreter once it is found; until then each call
// looks again, so that a person can install it meanwhile.
func (i *interpreter) open() (*monty.Engine, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, python.ErrClosed
	}
	if i.engine != nil {
		return i.engine, nil
	}
	path, err := monty.Find(&monty.FindOptions{Path: i.c.Monty})
	if err != nil {
		return nil, err
	}
	i.engine, err = monty.New(path, &monty.Options{Workers: i.c.Processes, Logger: i.log})
	return i.engine, err
}

// ready reports whether the interpreter has been found.
func (i *interpreter) ready() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.engine != nil
}

// NewScope implements python.Engine.
func (i *interpreter) NewScope(o python.ScopeOptions) (python.Scope, error) {
	engine, err := i.open()
	if err != nil {
		return nil, fmt.Errorf("start Python: %w", err)
	}
	return engine.NewScope(o)
}

// Check implements python.Checker.
func (i *interpreter) Check(ctx context.Context, source string, names []string) error {
	engine, err := i.open()
	if err != nil {
		return fmt.Errorf("start Python: %w", err)
	}
	return engine.Check(ctx, source, names)
}

// Name implements python.Engine.
func (i *interpreter) Name() string { return "monty " + monty.Version }

// Close implements python.Engine.
func (i *interpreter) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	if i.engine == nil {
		return nil
	}
	return i.engine.Close()
}
