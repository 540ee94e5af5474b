package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// D-5, W-156: enqueueing and the idle check are one step. In 10,000 randomised
// races between arrivals, the ends of runs and a session that closes when idle,
// every accepted notice is seen by exactly one turn, and every refused one was
// refused in so many words.
func TestNothingWaitsForATurnThatNeverComes(t *testing.T) {
	t.Parallel()
	races := 10_000
	if testing.Short() {
		races = 1000
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > races || t.Failed() {
					return
				}
				race(t, uint64(n))
			}
		})
	}
	wg.Wait()
}

// race is one short life of a session.
func race(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test is to be repeatable
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a := agenttest.New()
	seen := newCounter()
	for range 12 {
		pause := rnd.IntN(20)
		a.Then(func(turn *agenttest.Turn) (agent.Outcome, error) {
			for range pause {
				runtime.Gosched()
			}
			seen.add(turn.Prompt)
			return agenttest.End()
		})
	}
	var acks agenttest.Acks
	s, err := agent.NewSession("s", a.New, agent.NewMemoryStore(0, 0), frame, nil)
	if err != nil {
		t.Error(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	accepted := newCounter()
	var senders sync.WaitGroup
	for sender := range 2 {
		pauses := []int{rnd.IntN(60), rnd.IntN(60), rnd.IntN(60)}
		senders.Go(func() {
			for i, pause := range pauses {
				for range pause {
					runtime.Gosched()
				}
				id := fmt.Sprintf("n%d-%d", sender, i)
				err := s.Notify(agent.Notice{ID: id, Text: id}, acks.For(id))
				switch {
				case err == nil:
					accepted.one(id)
				case !errors.Is(err, agent.ErrClosed):
					t.Errorf("race %d: %s was refused with %v", seed, id, err)
				}
			}
		})
	}
	pause := rnd.IntN(120)
	for range pause {
		runtime.Gosched()
	}
	for !s.CloseIfIdle() { // a session without a terminal does this when its last watch has gone
		if err := s.WaitIdle(ctx); err != nil {
			t.Errorf("race %d: never idle: %v, %+v", seed, err, s.Status())
			break
		}
	}
	senders.Wait()
	if err := <-done; err != nil {
		t.Errorf("race %d: %v", seed, err)
	}
	for id := range accepted.counts {
		if n := seen.counts[id]; n != 1 {
			t.Errorf("race %d: accepted notice %s was seen %d times; acks %v", seed, id, n, acks.States(id))
		}
	}
	if got, want := acks.Count(agent.AckSeen), len(accepted.counts); got != want {
		t.Errorf("race %d: %d of %d notices were acknowledged as seen", seed, got, want)
	}
	if faults := acks.Faults(); len(faults) > 0 || a.Overlaps() > 0 {
		t.Errorf("race %d: faults %v, %d overlaps", seed, faults, a.Overlaps())
	}
}

type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func newCounter() *counter { return &counter{counts: map[string]int{}} }

func (c *counter) one(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[id]++
}

func (c *counter) add(p agent.Prompt) {
	for _, part := range p.Parts {
		for word := range strings.FieldsSeq(part.Text) {
			if id, ok := strings.CutPrefix(word, "<"); ok {
				c.one(id)
			}
		}
	}
}

// The same with an agent that aborts, dies, works out of turn, and a person who
// cancels: whatever happens, every accepted notice has one last word.
func TestEveryNoticeHasALastWord(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		mayhem(t, seed)
		if t.Failed() {
			return
		}
	}
}

func mayhem(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // a test is to be repeatable
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a := agenttest.New()
	scripts := []agenttest.Handler{
		agenttest.Say("ok"), agenttest.Abort(), agenttest.Fail(errors.New("broken")), agenttest.Die("boom"),
		agenttest.Slow(time.Millisecond, "slow"),
		func(turn *agenttest.Turn) (agent.Outcome, error) {
			turn.Drain(nil)
			return agenttest.End()
		},
	}
	for range 20 {
		a.Then(scripts[rnd.IntN(len(scripts))])
	}
	opts := &agent.Options{MidTurn: true, Quiet: time.Millisecond, Restarts: 100}
	s, err := agent.NewSession("s", a.New, agent.NewMemoryStore(0, 0), frame, opts)
	if err != nil {
		t.Error(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var acks agenttest.Acks
	accepted := 0
	for i := range 20 {
		switch rnd.IntN(8) {
		case 0:
			s.Cancel()
			_, _ = s.Submit(agent.Input{Text: "go on"}) // or it is closed: no matter
		case 1:
			if len(a.Starts()) > 0 {
				a.Emit(agent.Activity{What: "own account"})
			}
		case 2:
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
		case 3:
			s.EndTurn()
		default:
			id := fmt.Sprintf("n%d", i)
			if s.Notify(agent.Notice{ID: id, Text: id}, acks.For(id)) == nil {
				accepted++
			}
		}
	}
	if rnd.IntN(2) == 0 {
		if err := s.WaitIdle(ctx); err != nil {
			t.Errorf("mayhem %d: never idle: %v, %+v", seed, err, s.Status())
		}
	}
	s.Close()
	if err := <-done; err != nil {
		t.Errorf("mayhem %d: %v", seed, err)
	}
	if got := acks.Count(agent.AckSeen) + acks.Count(agent.AckUndelivered); got != accepted {
		t.Errorf("mayhem %d: %d of %d accepted notices have a last word", seed, got, accepted)
	}
	if faults := acks.Faults(); len(faults) > 0 || a.Overlaps() > 0 {
		t.Errorf("mayhem %d: faults %v, %d overlaps", seed, faults, a.Overlaps())
	}
}
