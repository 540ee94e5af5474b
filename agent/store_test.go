package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	agenttest.RunStore(t, false, func(*testing.T) func() agent.Store {
		store := agent.NewMemoryStore(0, 0)
		return func() agent.Store { return store }
	})
}

// The store in memory is bounded: old entries and idle sessions go.
func TestMemoryStoreIsBounded(t *testing.T) {
	t.Parallel()
	store := agent.NewMemoryStore(2, 3)
	for i := range 5 {
		if err := store.Append(t.Context(), "a", agent.Entry{Text: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.List(t.Context(), "a", agent.Query{})
	if err != nil || len(got) != 3 || got[0].Text != "2" || got[0].Seq != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, id := range []string{"b", "a", "c"} {
		if err := store.Save(t.Context(), agent.Meta{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if all, _ := store.Sessions(t.Context()); len(all) != 2 || all[0].ID != "a" || all[1].ID != "c" {
		t.Errorf("sessions: %+v", all)
	}
}

// failing is a store whose appends fail while told so.
type failing struct {
	*agent.MemoryStore
	mu  sync.Mutex
	err error
}

func (f *failing) fail(err error) { f.mu.Lock(); f.err = err; f.mu.Unlock() }

func (f *failing) Append(ctx context.Context, session string, entries ...agent.Entry) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.MemoryStore.Append(ctx, session, entries...)
}

// A store that fails ends no session, and the transcript says what is missing.
func TestFailingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &failing{MemoryStore: agent.NewMemoryStore(0, 0)}
		store.fail(errors.New("disk full"))
		var acks agenttest.Acks
		s, err := agent.NewSession("s1", agenttest.New().New, store, frame, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		if err := s.Notify(agent.Notice{ID: "n1"}, acks.For("n1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "acks", acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
		store.fail(nil)
		if _, err := s.Submit(agent.Input{Text: "hello"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		entries, err := store.List(t.Context(), "s1", agent.Query{})
		if err != nil {
			t.Fatal(err)
		}
		var missing, users int
		for _, e := range entries {
			if e.Kind == agent.EntryMissing {
				missing++
			}
			if e.Kind == agent.EntryUser {
				users++
			}
		}
		if missing != 1 || users != 1 {
			t.Errorf("%d notes of missing entries, %d user records, in %+v", missing, users, entries)
		}
	})
}
