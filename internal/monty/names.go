package monty

import (
	"context"
	"slices"
	"time"
)

// namesTime bounds a look at the variables of a scope.
const namesTime = 2 * time.Second

// Names implements python.Scope. The interpreter has no list of its variables,
// so a child is asked, name by name; the answer is kept until the next run. When
// no child can be had within namesTime, the last answer is returned.
func (s *scope) Names() []string {
	s.mu.Lock()
	mem, names, of := s.mem, s.names, s.namesOf
	s.mu.Unlock()
	if mem.state == nil || mem.state.id == of {
		return slices.Clone(names)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), namesTime, errTime)
	defer cancel()
	found, err := s.look(ctx, mem)
	if err != nil {
		return slices.Clone(names)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem.state == mem.state {
		s.names, s.namesOf = found, mem.state.id
	}
	return slices.Clone(found)
}

func (s *scope) look(ctx context.Context, mem memory) (_ []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	act, err := s.e.enter(cancel)
	if err != nil {
		return nil, err
	}
	defer s.e.leave(act)
	w, err := s.e.pool.get(ctx, false, 0, mem.state.memory)
	if err != nil {
		return nil, err
	}
	unwatch := context.AfterFunc(ctx, w.kill)
	defer func() {
		w.holds = 0
		s.e.pool.put(w, false, unwatch() && err == nil)
	}()
	if err := w.reset(mem.state, mem.state.count, session{}, nil); err != nil {
		return nil, err
	}
	if err := w.ok(); err != nil {
		return nil, err
	}
	words := slices.DeleteFunc(mem.words.sorted(), func(name string) bool {
		return mem.inputs[name] || s.known[name]
	})
	names, err := w.defined(words)
	if err != nil {
		return nil, err
	}
	return w.own(names)
}
